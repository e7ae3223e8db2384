//! `podSecurity` of charts/galera is changed on a running cluster, to `restricted` and back, while a client writes: members
//! restart one after the other, and no row is lost. Part of `make drills`.

use crate::guard::guarded;
use crate::install::{formed_with, helm, password};
use crate::lab::User;
use crate::power;
use crate::rolling::uids;
use crate::writer::Writer;

#[test]
fn a_running_cluster_becomes_restricted_and_baseline_again_and_loses_no_row() {
    let lab = guarded();
    // Kubelets apply fsGroup to local volumes, but not to hostPath volumes.
    lab.have_local_volumes(3);
    let galera = formed_with(lab, "restricted", &["--set=storageClassName=local"]);
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    let writer = Writer::start(&galera, &password(&galera));
    for (level, user) in [("restricted", "999"), ("baseline", "0")] {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        lab.kubectl(User::Admin, &["label", "--overwrite", "namespace", &galera.namespace, &label])
            .succeeded();
        let before = uids(&galera);
        helm(&galera, "upgrade", &["--reuse-values", &format!("--set=podSecurity={level}")]);
        let set = galera.stateful_set();
        galera.kubectl(&["rollout", "status", &set, "--timeout=300s"]).succeeded();
        galera.until_ready(3);
        assert_eq!(galera.until_synced(3, 3), cluster, "{level}: the cluster keeps its identity");
        for (ordinal, (before, now)) in before.iter().zip(uids(&galera)).enumerate() {
            assert_ne!(*before, now, "{level}: member {ordinal} restarted");
            assert_eq!(
                galera.in_pod(&galera.member(ordinal), "id -u").trim(),
                user,
                "{level}: user of member {ordinal}"
            );
        }
        writer.until_writes();
    }
    writer.finish(3);
    power::members_agree(&galera, "shop.t");
}
