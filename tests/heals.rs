//! The guard repairs any damage to its own objects. The objects are damaged in every way, one at a time and together, with one
//! replica, with two, and while none runs; on a real API server, with the rights of the chart.

mod harm;
mod setup;

use std::time::{Duration, Instant};

use crate::guarded::{self, install};
use crate::lab::{User, eventually};

use harm::{Harm, OwnObject};
use setup::{Replicas, Setup};

/// The time limit for repairing any damage. Most damage is repaired within a second.
const HEALS_WITHIN: Duration = Duration::from_secs(60);

/// The damage that is done at the same time.
type Row = Vec<(OwnObject, Harm)>;

/// Returns all combinations of damage to the Secret, or none, with damage to one of the configurations, or none.
fn secret_and_entry_damage() -> Vec<Row> {
    let mut entries: Vec<Row> = vec![Vec::new()];
    for object in [OwnObject::Mutating, OwnObject::Validating] {
        entries.extend(Harm::ENTRIES.map(|harm| vec![(object, harm)]));
    }
    let secrets = [None].into_iter().chain(Harm::SECRET.map(Some));
    let rows = secrets.flat_map(|secret| {
        let secret: Row = secret.map(|harm| (OwnObject::Secret, harm)).into_iter().collect();
        entries.iter().map(move |entries| [secret.clone(), entries.clone()].concat()).collect::<Vec<_>>()
    });
    rows.filter(|row| !row.is_empty()).collect()
}

fn lease_damage() -> Vec<Row> {
    Harm::LEASE.map(|harm| vec![(OwnObject::Lease, harm)]).into()
}

/// Damages the objects in every single way and waits each time until the guard has repaired it. Of the combinations, half are
/// tried, each with one of the three values of `replicas`; `GATERA_HARMS=all` tries all of them with all values.
fn repair_all_damage(replicas: Replicas) -> Setup {
    let mut setup = Setup::start(replicas);
    let all = std::env::var("GATERA_HARMS").is_ok_and(|it| it == "all");
    let turn = |index: usize, row: &Row| all || row.len() < 2 || (index + index / 9) % 6 == replicas as usize;
    let rows = secret_and_entry_damage().into_iter().chain(lease_damage()).enumerate();
    let rows = rows.filter(|(index, row)| turn(*index, row));
    for (_, row) in rows {
        let (since, admitted) = (Instant::now(), setup.admitted());
        setup.damage(|setup| row.iter().for_each(|(object, harm)| setup.do_harm(*object, *harm)));
        setup.until_healed(&format!("{row:?} with {replicas:?}"));
        let took = since.elapsed();
        assert!(took < HEALS_WITHIN, "repairing {row:?} with {replicas:?} took {took:?}");
        eprintln!("{replicas:?} {row:?}: {} ms", took.as_millis());
        // Both configurations send this write to the guard, and one of them is always intact.
        assert_eq!(setup.admitted(), admitted, "{row:?}: the forbidden request was admitted meanwhile");
    }
    assert!(setup.sent() > 100, "only {} requests were sent meanwhile", setup.sent());
    setup
}

#[test]
fn damage_is_repaired_with_one_replica() {
    repair_all_damage(Replicas::One);
}

#[test]
fn damage_is_repaired_with_two_replicas_and_deleted_configurations_stay_deleted() {
    let setup = repair_all_damage(Replicas::Two);
    assert_deleted_configurations_stay_deleted(&setup);
}

#[test]
fn damage_that_is_done_while_no_replica_runs_is_repaired() {
    repair_all_damage(Replicas::Restarted);
}

/// Checks that deleted configurations, the emergency exit, stay deleted, and that probes, metrics and Events report it.
fn assert_deleted_configurations_stay_deleted(setup: &Setup) {
    let both = "MutatingWebhookConfiguration and ValidatingWebhookConfiguration gatera do not exist, so nothing is guarded; \
                `helm upgrade` creates them again";
    let one = "ValidatingWebhookConfiguration gatera does not exist, so deletions, scaling and evictions are not judged; \
               `helm upgrade` creates it again";
    for (objects, words, metric, reason) in [
        (vec![OwnObject::Validating], one, "configuration_deleted", "ValidatingWebhookConfigurationDeleted"),
        (
            vec![OwnObject::Mutating, OwnObject::Validating],
            both,
            "both_configurations_deleted",
            "NothingIsGuarded",
        ),
    ] {
        for object in &objects {
            setup.do_harm(*object, Harm::Deleted);
        }
        for guard in &setup.guards {
            eventually("every replica to be ready and to report the deleted configuration", || {
                let (status, text) = guard.get("/readyz")?;
                (status == 200 && text.contains(&format!("[+] webhooks: {words}\n"))).then_some(())
            });
            let gauge = format!("gatera_registration_trouble{{what=\"{metric}\"}} 1\n");
            assert!(guard.get("/metrics").unwrap().1.contains(&gauge), "/metrics has no {gauge}");
        }
        eventually("an Event about the deleted configuration", || {
            let columns = "--output=jsonpath={range .items[*]}{.reason}: {.note}{\"\\n\"}{end}";
            let events = ["get", "events.events.k8s.io", "--namespace=gatera", columns];
            let events = setup.plane.kubectl(User::Admin, &events).succeeded();
            events.contains(&format!("{reason}: {words}\n")).then_some(())
        });
        if objects.len() == 2 {
            eventually("requests to be admitted without the guard", || {
                setup.refusal().is_none().then_some(())
            });
        }
        // While the guard repairs something else, it does not re-create the configurations.
        setup.do_harm(OwnObject::Secret, Harm::Deleted);
        eventually("the guard to re-create its Secret", || setup.secret_is_sound().then_some(()));
        assert!(
            objects.iter().all(|object| setup.object(*object).is_none()),
            "a deleted configuration came back by itself"
        );
        let since = Instant::now();
        install(&setup.plane);
        setup.until_healed(&format!("{objects:?} after they were deleted"));
        eprintln!("guarded again {} ms after the chart was applied", since.elapsed().as_millis());
        assert!(since.elapsed() < HEALS_WITHIN, "{objects:?}: repaired only after {:?}", since.elapsed());
    }
    let created =
        |it: &crate::lab::Asked| it.verb == "create" && it.resource.contains("webhookconfigurations");
    assert!(
        !setup.plane.asked_by_the_guard().iter().any(created),
        "the guard created a webhook configuration"
    );
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
