//! Settings that change while the guard runs: what takes effect at once, what waits for the next lists of the watches, and what
//! happens if they are invalid.

use std::sync::Arc;

use arc_swap::ArcSwap;
use facts::galera::adopt::Adoption;
use facts::mode::Mode;
use facts::settings::Settings;
use facts::view::{View, World};
use gatera::act::guard::Guard;
use gatera::act::reload;
use gatera::rulebook;
use tokio::sync::watch;

use crate::guarded::{self, Start, install, program};
use crate::lab::{ControlPlane, User, eventually};
use crate::scene;

#[test]
fn modes_change_at_once_and_adoption_with_the_next_list() {
    let mut at_the_start = Settings::default();
    at_the_start.own_user = Some("us".into());
    let world = Arc::new(ArcSwap::from_pointee(World::default()));
    let guard = Guard::new(world, at_the_start, scene::now);
    let (adopted, adoption) = watch::channel(Adoption::default());
    let read = |yaml| Ok(rulebook().settings(yaml).unwrap());

    reload::apply(read("{modes: {G01: warn}, adopt: [team=db]}"), &guard, &adopted);
    let settings = guard.settings.load_full();
    assert_eq!((settings.mode("G01"), &settings.adoption), (Mode::Warn, &Adoption::default()));
    let both = Adoption::default().and(Adoption::from_texts(["team=db"]).unwrap());
    assert_eq!(*adoption.borrow(), both, "the watches get both the selector and the defaults");

    reload::apply(Err("no settings: here".into()), &guard, &adopted);
    assert_eq!(*guard.settings.load_full(), *settings, "the last valid settings stay in effect");
    assert!(settings.is_own("us"), "the guard's own user is not a setting");
    let readiness = |guard: &Guard| guard.readiness_report().text;
    assert!(
        readiness(&guard).contains("[+] settings: no settings: here; the last valid ones stay in effect\n"),
        "{}",
        readiness(&guard)
    );
    assert!(guard.metrics.text().contains("gatera_config_current 0\n"));

    reload::apply(read("{}"), &guard, &adopted);
    assert_eq!(guard.settings.load().mode("G01"), Mode::Enforce);
    assert_eq!(*adoption.borrow(), Adoption::default());
    assert!(readiness(&guard).contains("[+] settings: current\n"), "{}", readiness(&guard));
    assert!(guard.metrics.text().contains("gatera_config_current 1\n"));
}

/// Settings and world are swapped one after the other, so a request between the two is judged by the adoption for which the
/// world was built.
#[test]
fn a_view_uses_the_adoption_for_which_its_world_was_built() {
    let before = Settings::default();
    let world = scene::Scene::default().world(&before);
    let after = before.with_adoption(Adoption::from_texts(["team=db"]).unwrap());
    for settings in [&before, &after] {
        let view = View::new(&world, scene::now(), settings);
        assert_eq!(view.adoption(), &before.adoption);
        assert!(view.cluster(scene::NAMESPACE, scene::STATEFUL_SET).is_some());
    }
}

#[test]
fn the_settings_file_is_read_again_when_it_changes() {
    let plane = ControlPlane::start();
    install(&plane);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gatera.yaml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("{}");
    let arguments = vec![format!("--config={}", file.display())];
    let start = Start { identity: "reload".into(), arguments, ..Start::default() };
    let guard = guarded::Guard::start(&plane, &program(), &start);
    guard.until_registered();
    let ns = plane.namespace_with_labels("reload", &[("gatera.dev/mode", "enforce")]);
    let manifest = include_str!("fixtures/galera.yaml");
    plane.kubectl_stdin(User::Editor, &["apply", "--namespace", &ns, "--filename=-"], manifest).succeeded();
    let to_zero = || {
        let scale = ["scale", "statefulset", "galera-instance-galera", "--replicas=0", "--dry-run=server"];
        plane.kubectl(User::Editor, &[&["--namespace", &*ns], &scale[..]].concat())
    };
    assert!(to_zero().stderr.contains("[G01]") && to_zero().status == 1, "in mode enforce: {}", to_zero());

    write("modes: {G01: warn}");
    eventually("mode warn to take effect", || (to_zero().status == 0).then_some(()));
    assert!(to_zero().stderr.contains("not enforced here: mode warn"), "{}", to_zero());

    write("modes: {G01: perhaps}");
    eventually("/readyz to report the invalid settings", || {
        let (status, text) = guard.get("/readyz")?;
        assert_eq!(status, 200, "invalid settings do not make the guard unready: {text}");
        text.contains("G01 cannot be \"perhaps\"").then_some(())
    });
    assert_eq!(to_zero().status, 0, "the last valid settings stay in effect");

    let create = |label: &str| {
        let set = serde_json::json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "db", "namespace": ns },
            "spec": {
                "serviceName": "db", "selector": { "matchLabels": { label: "db" } },
                "template": {
                    "metadata": { "labels": { label: "db" } },
                    "spec": { "containers": [{ "name": "a", "image": "a", "env": [{ "name": "A_PASSWORD", "value": "x" }] }] },
                },
            },
        });
        plane.kubectl_stdin(User::Editor, &["create", "--dry-run=server", "--filename=-"], &set.to_string())
    };
    assert_eq!(create("team").status, 0, "{}", create("team"));
    write("adopt: [team=db]");
    eventually("the webhook to be called about a label in `adopt`", || {
        create("team").stderr.contains("[G11]").then_some(())
    });
    assert!(
        create("gatera.dev/cluster").stderr.contains("[G11]"),
        "the webhook is not called about the default labels any more"
    );
    write("{adopt: [team=db], adoptDefaults: false}");
    eventually("the webhook not to be called about the default labels any more", || {
        (create("gatera.dev/cluster").status == 0).then_some(())
    });
    assert!(create("team").stderr.contains("[G11]"), "{}", create("team"));
    assert_eq!(to_zero().status, 0, "a cluster that is no longer adopted is guarded: {}", to_zero());

    // Until it is confirmed, users see that the cluster was guarded and no longer is.
    let subject = format!(
        "StatefulSet {ns}/galera-instance-galera: it was guarded before, but no selector in `adopt` matches it now"
    );
    let settings =
        || guard.get("/readyz").unwrap().1.lines().find(|it| it.contains("settings")).unwrap().to_owned();
    assert!(settings().starts_with(&format!("[+] settings: current; {subject}")), "{}", settings());
    let status = || {
        let config = format!("--config={}", file.display());
        guarded::ask(&plane.kubeconfig(User::Admin), &["status", &config]).stdout
    };
    assert!(status().contains(&format!("adoption: {subject}")), "{}", status());
    let event = eventually("an Event of reason NoLongerGuarded", || {
        let arguments = [
            "get",
            "events",
            "--namespace",
            &*ns,
            "--output=jsonpath={.items[?(@.reason=='NoLongerGuarded')].message}",
        ];
        Some(plane.kubectl(User::Admin, &arguments).stdout).filter(|it| !it.is_empty())
    });
    let confirm = format!("kubectl -n {ns} annotate statefulset galera-instance-galera gatera.dev/data-");
    assert!(event.ends_with(&confirm) && status().contains(&confirm), "{event}");
    plane.kubectl(User::Admin, &confirm.split(' ').skip(1).collect::<Vec<_>>()).succeeded();
    eventually("the guard to see the confirmation", || (settings() == "[+] settings: current").then_some(()));
    // The cluster is now unguarded on purpose; a remark still mentions it.
    let printed = status();
    assert!(
        !printed.contains(&confirm) && printed.contains("looks like Galera and is not guarded"),
        "{printed}"
    );
}
