//! A cluster that is older than the guard: its members are unverified, so the guard keeps the bootstrap node until a person has
//! restarted them as the Events say. Runs in its own lab, which has no guard at first.

use crate::advice::{commands, follow};
use crate::galera::{Galera, patiently};
use crate::guard::{import_guard_image, install, status, until_registered};
use crate::install::{events, helm, until_bootstrap_is_removed};
use crate::nodes::lab;

#[test]
fn members_older_than_the_guard_are_verified_by_one_restart_each() {
    let lab = lab();
    let namespace = lab.namespace_with_labels("before", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "shop");
    helm(&galera, "install", &[]);
    galera.until_ready(3);
    galera.fill();
    import_guard_image(lab);
    install(lab, &[]).succeeded();
    until_registered(lab);

    let before = status(&galera);
    println!("{before}");
    assert!(before.contains("/shop-galera  HEALTHY  3 of 3 members Ready (not proven Synced)"), "{before}");
    assert_eq!(before.matches("Ready, unverified").count(), 3, "every member is unverified: {before}");
    assert!(before.contains("remove the bootstrap node: waits (shop-galera-0, "), "{before}");
    for ordinal in 0..3 {
        let pod = galera.member(ordinal);
        let note = patiently("an Event says what to do next", || {
            let notes: Vec<_> =
                events(&galera, "BootstrapKept").iter().map(|it| it["note"].to_string()).collect();
            let own = format!("delete pod {pod}\"");
            notes.iter().find(|note| note.ends_with(&own)).cloned().ok_or_else(|| format!("{notes:?}"))
        });
        println!("{note}");
        assert!(note.contains("started without gatera, so Ready does not prove Synced"), "{note}");
        let command = &commands(note.trim_matches('"'))[0];
        follow(lab, command);
        galera.until_ready(3);
    }
    until_bootstrap_is_removed(&galera);
    galera.until_synced(3, 3);
    let after = status(&galera);
    println!("{after}");
    assert!(after.contains("/shop-galera  HEALTHY  3 of 3 members Synced"), "{after}");
    assert!(after.contains("remove the bootstrap node: done"), "{after}");
    for ordinal in 0..3 {
        assert_eq!(galera.rows(&galera.member(ordinal)).succeeded().trim(), "3", "rows of member {ordinal}");
    }
}
