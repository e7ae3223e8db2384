//! `kubectl delete statefulset --cascade=orphan` and then `helm upgrade`, which applies every other object first, while a client
//! writes. Part of `make drills`.

use crate::galera::{Galera, patiently};
use crate::guard::{chart, guarded, status};
use crate::install::{formed, password};
use crate::lab::{Output, User};
use crate::power;
use crate::rolling::uids;
use crate::writer::Writer;

fn upgrade(galera: &Galera<'_>, more: &[&str]) -> Output {
    let base =
        ["upgrade", &galera.name, &chart("galera"), "--namespace", &galera.namespace, "--reuse-values"];
    galera.lab.helm(User::Admin, &[&base[..], more].concat())
}

#[test]
fn an_orphaned_cluster_accepts_only_its_own_stateful_set_again() {
    let galera = formed(guarded(), "orphaned");
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    let writer = Writer::start(&galera, &password(&galera));
    writer.until_writes();
    let (pods, set) = (uids(&galera), galera.stateful_set());

    galera.kubectl(&["delete", &set, "--cascade=orphan"]).succeeded();
    galera.until_gone(&set);
    patiently("the guard refuses to delete a member without a StatefulSet", || {
        let output = galera.kubectl(&["delete", "pod", &galera.member(1), "--dry-run=server"]);
        if output.stderr.contains("[G02] ") { Ok(()) } else { Err(output.to_string()) }
    });
    let config = format!("configmap/{}-nodeconfig", galera.name);
    for (arguments, rule) in
        [(["delete", "pvc", "--all"], "[G07] "), (["delete", &config, "--wait=false"], "[G10] ")]
    {
        let refused = galera.kubectl(&[&arguments[..], &["--dry-run=server"]].concat());
        println!("{refused}");
        assert!(
            refused.status == 1 && refused.stderr.contains(rule),
            "no refusal by {rule}of {arguments:?}: {refused}"
        );
    }
    let reported = status(&galera);
    println!("{reported}");
    assert!(reported.contains("DEGRADED") && reported.contains("without a StatefulSet"), "{reported}");

    for (values, rule) in [
        (&["--set=image.tag=10.6"][..], "[G17] "),
        (&["--set=nodeCount=1", "--set=allowEvenOrSmall=true"], "[G01] "),
        (&["--set=antiAffinity=false"], "[G13] "),
    ] {
        let refused = upgrade(&galera, values);
        println!("helm upgrade {values:?}\n{refused}");
        assert!(
            refused.status != 0 && refused.stderr.contains(rule),
            "no refusal by {rule}of {values:?}: {refused}"
        );
    }
    writer.until_writes();
    let restored = upgrade(&galera, &[]);
    println!("helm upgrade\n{restored}");
    assert!(restored.status == 0 && !restored.stderr.contains("[G"), "{restored}");
    galera.until_ready(3);
    assert_eq!(uids(&galera), pods, "the same template restarts no member");
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.until_writes();
    power::members_agree(&galera, "shop.t");
    writer.finish(3);
}
