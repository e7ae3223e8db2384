//! A cluster address that would found a second cluster gets past every webhook, because it is in a Secret, which the guard does
//! not read. The step script in the member's pod knows the cluster's id, and does not start the server.

use serde_json::{Value, json};

use crate::galera::{Galera, patiently};
use crate::guard::{guarded, override_of, status};
use crate::install::formed;

const IDENTITY: &str = "gatera.dev/identity";

/// Makes the members read the addresses of the cluster from a Secret.
pub fn read_address_from_secret(galera: &Galera<'_>) {
    let create =
        ["create", "secret", "generic", "switch", &format!("--from-literal=address={}", addresses(galera))];
    galera.kubectl(&create).succeeded();
    let container = json!({
        "name": "mariadb",
        "args": ["mariadbd", "--wsrep-cluster-address=$(ADDRESS)"],
        "env": [{ "name": "ADDRESS", "valueFrom": { "secretKeyRef": { "name": "switch", "key": "address" } } }],
    });
    let patch = json!({ "spec": { "template": { "spec": { "containers": [container] } } } }).to_string();
    galera
        .kubectl(&["patch", "statefulset", &format!("{}-galera", galera.name), "--patch", &patch])
        .succeeded();
}

/// Checks that the step script does not start a member whose cluster address would found a new cluster, and that the member joins
/// once the address names its peers again.
pub fn a_member_that_would_found_a_second_cluster_is_stopped_in_its_pod(galera: &Galera<'_>, cluster: &str) {
    // In a pod that is created before the id is recorded, the step script has no id to compare, and would not refuse.
    until_identity_is_recorded(galera, cluster);
    let member = galera.member(1);
    set_address(galera, "gcomm://");
    galera.kubectl(&["delete", "pod", &member]).succeeded();
    let message = patiently("the step script refuses to start the server", || {
        let message = termination_message(galera, &member);
        if message.starts_with("gatera did not start the server") { Ok(message) } else { Err(message) }
    });
    let expected = format!(
        "it would found a new cluster (wsrep_cluster_address names no host), but its cluster exists already: {cluster};"
    );
    assert!(message.contains(&expected), "{message}");
    println!("{message}");
    let reported = status(galera);
    assert!(reported.contains(&format!("REFUSED {member}: it would found a new cluster")), "{reported}");
    for ordinal in [0, 2] {
        assert_eq!(galera.rows(&galera.member(ordinal)).succeeded().trim(), "3", "rows of member {ordinal}");
    }

    // As the message advises, the address names the members again, and the member joins.
    set_address(galera, &addresses(galera));
    galera.kubectl(&["delete", "pod", &member]).succeeded();
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
}

fn addresses(galera: &Galera<'_>) -> String {
    let members: Vec<_> = (0..3).map(|it| format!("{}.{}-hs", galera.member(it), galera.name)).collect();
    format!("gcomm://{}", members.join(","))
}

/// Returns a new cluster of three with three rows, whose id is recorded everywhere, and that id.
pub fn formed_with_identity(name: &str) -> (Galera<'static>, String) {
    let galera = formed(guarded(), name);
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    until_identity_is_recorded(&galera, &cluster);
    (galera, cluster)
}

/// Waits until the cluster's id is recorded on the StatefulSet, on every pod and, a little later, inside every pod.
pub fn until_identity_is_recorded(galera: &Galera<'_>, cluster: &str) {
    let recorded =
        |object: &Value| object["metadata"]["annotations"][IDENTITY].as_str().unwrap_or_default().to_owned();
    patiently("the StatefulSet has the cluster's id", || {
        let set = galera.kubectl(&["get", &galera.stateful_set(), "--output=json"]).succeeded();
        let set = recorded(&serde_json::from_str(&set).unwrap());
        if set == cluster { Ok(()) } else { Err(set) }
    });
    for ordinal in 0..3 {
        let pod = galera.member(ordinal);
        patiently("the pod has the cluster's id", || {
            let marked = recorded(&galera.pod(&pod).unwrap());
            let shown =
                galera.kubectl(&["exec", &pod, "--container=mariadb", "--", "cat", "/etc/gatera/identity"]);
            if marked == cluster && shown.stdout == cluster {
                Ok(())
            } else {
                Err(format!("{marked} {shown}"))
            }
        });
    }
}

/// Changes the address in the Secret. The guard cannot know that it is not a password, so this needs an override of G12.
fn set_address(galera: &Galera<'_>, address: &str) {
    let annotations = json!({ "gatera.dev/override": override_of("G12") });
    let patch = json!({ "metadata": { "annotations": annotations }, "stringData": { "address": address } })
        .to_string();
    galera.kubectl(&["patch", "secret", "switch", "--patch", &patch]).succeeded();
}

fn termination_message(galera: &Galera<'_>, pod: &str) -> String {
    let pod = galera.pod(pod).unwrap_or_default();
    let status = &pod["status"]["containerStatuses"][0];
    let ended = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
    ended.into_iter().find_map(|it| it["message"].as_str()).unwrap_or_default().to_owned()
}
