//! The guard recovers from any damage to its own objects. The objects are damaged in every way, alone and together, with one
//! replica, with two, and while none runs; on a real API server, with the rights of the chart.

mod bench;
mod harm;

use std::time::{Duration, Instant};

use crate::guarded::{self, install};
use crate::lab::{User, eventually};

use bench::{Bench, Replicas};
use harm::{Harm, Object};

/// The time limit for repairing any damage. Most damage is repaired within a second.
const HEALS_WITHIN: Duration = Duration::from_secs(60);

/// The damage that is done at the same time.
type Row = Vec<(Object, Harm)>;

/// Returns all combinations of damage to the Secret, or none, with damage to one of the configurations, or none.
fn secret_and_entries() -> Vec<Row> {
    let mut entries: Vec<Row> = vec![Vec::new()];
    for object in [Object::Mutating, Object::Validating] {
        entries.extend(Harm::ENTRIES.map(|harm| vec![(object, harm)]));
    }
    let secrets = [None].into_iter().chain(Harm::SECRET.map(Some));
    let rows = secrets.flat_map(|secret| {
        let secret: Row = secret.map(|harm| (Object::Secret, harm)).into_iter().collect();
        entries.iter().map(move |entries| [secret.clone(), entries.clone()].concat()).collect::<Vec<_>>()
    });
    rows.filter(|row| !row.is_empty()).collect()
}

fn lease() -> Vec<Row> {
    Harm::LEASE.map(|harm| vec![(Object::Lease, harm)]).into()
}

/// Does each single damage, whatever the number of replicas, and waits until it is repaired. Half of the combinations are tried,
/// each with one of the three values of `replicas`; `GATERA_HARMS=all` tries all of them with all values.
fn heal_all(replicas: Replicas) -> Bench {
    let mut bench = Bench::start(replicas);
    let all = std::env::var("GATERA_HARMS").is_ok_and(|it| it == "all");
    let turn = |index: usize, row: &Row| all || row.len() < 2 || (index + index / 9) % 6 == replicas as usize;
    let rows = secret_and_entries().into_iter().chain(lease()).enumerate();
    let rows = rows.filter(|(index, row)| turn(*index, row));
    for (_, row) in rows {
        let (since, admitted) = (Instant::now(), bench.admitted());
        bench.around(|bench| row.iter().for_each(|(object, harm)| bench.do_harm(*object, *harm)));
        bench.until_healed(&format!("{row:?} with {replicas:?}"));
        let took = since.elapsed();
        assert!(took < HEALS_WITHIN, "{row:?} took {took:?}");
        eprintln!("{replicas:?} {row:?}: {} ms", took.as_millis());
        // Both configurations send this write to the guard, and one of them is always intact.
        assert_eq!(bench.admitted(), admitted, "{row:?}: something was admitted meanwhile");
    }
    assert!(bench.asked() > 100, "only {} requests were made meanwhile", bench.asked());
    bench
}

#[test]
fn secret_entries_and_lease_heal_with_one_replica() {
    heal_all(Replicas::One);
}

#[test]
fn secret_entries_and_lease_heal_with_two_replicas_and_what_was_deleted_stays_deleted() {
    let bench = heal_all(Replicas::Two);
    stays_deleted_until_it_is_installed_again(&bench);
}

#[test]
fn secret_entries_and_lease_heal_when_no_replica_saw_it() {
    heal_all(Replicas::Restarted);
}

/// Checks that deleted configurations, the emergency exit, stay deleted, and that probes, metrics and Events report it.
fn stays_deleted_until_it_is_installed_again(bench: &Bench) {
    let both = "MutatingWebhookConfiguration and ValidatingWebhookConfiguration gatera are not there: nothing is guarded; \
                `helm upgrade` brings them back";
    let one = "ValidatingWebhookConfiguration gatera is not there: deletions, scaling and evictions are not judged; \
               `helm upgrade` brings it back";
    for (objects, words, metric, reason) in [
        (vec![Object::Validating], one, "configuration_deleted", "ValidatingWebhookConfigurationDeleted"),
        (vec![Object::Mutating, Object::Validating], both, "both_configurations_deleted", "NothingIsGuarded"),
    ] {
        for object in &objects {
            bench.do_harm(*object, Harm::Deleted);
        }
        for guard in &bench.guards {
            eventually("every replica says so, and is ready", || {
                let (status, text) = guard.get("/readyz")?;
                (status == 200 && text.contains(&format!("[+] webhooks: {words}\n"))).then_some(())
            });
            let gauge = format!("gatera_registration_trouble{{what=\"{metric}\"}} 1\n");
            assert!(guard.get("/metrics").unwrap().1.contains(&gauge), "{gauge}");
        }
        eventually("an Event says so", || {
            let columns = "--output=jsonpath={range .items[*]}{.reason}: {.note}{\"\\n\"}{end}";
            let events = ["get", "events.events.k8s.io", "--namespace=gatera", columns];
            let events = bench.plane.kubectl(User::Admin, &events).succeeded();
            events.contains(&format!("{reason}: {words}\n")).then_some(())
        });
        if objects.len() == 2 {
            eventually("the way out is open", || bench.refusal().is_none().then_some(()));
        }
        // While the guard repairs something else, it does not re-create the configurations.
        bench.do_harm(Object::Secret, Harm::Deleted);
        eventually("the Secret is back", || bench.secret_is_sound().then_some(()));
        assert!(objects.iter().all(|object| bench.object(*object).is_none()), "it came back by itself");
        let since = Instant::now();
        install(&bench.plane);
        bench.until_healed(&format!("{objects:?} after they were deleted"));
        eprintln!("filled {} ms after helm upgrade began", since.elapsed().as_millis());
        assert!(since.elapsed() < HEALS_WITHIN);
    }
    let created =
        |it: &crate::lab::Asked| it.verb == "create" && it.resource.contains("webhookconfigurations");
    assert!(!bench.plane.asked_by_the_guard().iter().any(created));
}

/// The guard's right to create Secrets is limited to one name.
#[test]
fn the_guard_creates_its_own_secret_and_no_other() {
    let (plane, _) = guarded::shared();
    let kubeconfig = guarded::kubeconfig_of(plane, "gatera", "gatera", "creator", None);
    let as_guard = format!("--kubeconfig={}", kubeconfig.display());
    let attempt = |way: &[&str], kind: &str, name: &str| {
        let object = serde_json::json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": "gatera" } });
        plane.kubectl_stdin(
            User::Admin,
            &[way, &[&as_guard, "--dry-run=server", "--filename=-"]].concat(),
            &object.to_string(),
        )
    };
    let apply = ["apply", "--server-side", "--field-manager=gatera"];
    attempt(&apply, "Secret", "gatera-tls").succeeded();
    for (way, kind, name) in [
        (&apply[..], "Secret", "other"),
        (&["create"], "Secret", "gatera-tls"),
        (&["create"], "Secret", "other"),
    ] {
        let refused = attempt(way, kind, name);
        assert!(
            refused.status == 1
                && refused.stderr.contains("is forbidden: User \"system:serviceaccount:gatera:gatera\""),
            "{way:?} {kind} {name}: {refused}"
        );
    }
    // The policy allows the guard to create only ConfigMaps that are snapshots, and only in other namespaces.
    let refused = attempt(&apply, "ConfigMap", "gatera-tls");
    assert!(
        refused.status == 1 && refused.stderr.contains("ValidatingAdmissionPolicy 'gatera'"),
        "{refused}"
    );
}
