//! A cluster from the manifests of the seed documents, without a chart: its members are deleted one after the other while a
//! client writes rows. Then two people run `gatera recover` at the same moment. Part of `make drills`.

use std::process::Stdio;

use serde_json::json;

use crate::galera::{Galera, SEED, patiently};
use crate::gate;
use crate::guard::{NAMESPACE, chart, guarded, until_registered};
use crate::install::until_bootstrap_is_removed;
use crate::lab::User;
use crate::power;
use crate::recover::{Cordoned, delete_member, recover};
use crate::writer::Writer;

#[test]
fn two_recoveries_at_once_bring_back_a_cluster_from_plain_manifests() {
    let lab = guarded();
    lab.have_volumes(5);
    // The manifests contain passwords and an option group that no program reads. The guard is set to only warn of these.
    let base = ["upgrade", "gatera", &chart("gatera"), "--namespace", NAMESPACE, "--reuse-values"];
    let modes = ["--set=modes.G11=warn", "--set=modes.G09=warn"];
    lab.helm(User::Admin, &[&base[..], &modes].concat()).succeeded();
    until_registered(lab);
    let namespace = lab.namespace_with_labels("foreign", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "galera-instance");
    patiently("the guard has read its settings", || {
        let applied = galera.apply(SEED);
        if applied.status == 0 { Ok(()) } else { Err(applied.stderr) }
    });
    galera.until_ready(3);
    until_bootstrap_is_removed(&galera);
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    gate::until_identity_is_recorded(&galera, &cluster);
    let writer = Writer::start(&galera, &json!({ "value": "admin" }));

    {
        let _cordoned = Cordoned::all(&galera);
        for ordinal in [1, 0, 2] {
            writer.until_writes();
            delete_member(&galera, &galera.member(ordinal));
        }
    }
    let recoveries = [(); 2].map(|()| recover(&galera, &["--yes"]).stdout(Stdio::piped()).spawn().unwrap());
    for recovery in recoveries {
        let output = recovery.wait_with_output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "a recovery failed: {}", output.status);
    }
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.until_writes();
    power::members_agree(&galera, "shop.t");
    writer.finish(3);
}
