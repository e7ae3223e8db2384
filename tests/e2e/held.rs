//! A member that fits on no node, while the other members are down too: `gatera recover` reads its volume with another pod, so
//! the position of its data is known. Part of `make drills`.

use serde_json::{Value, json};

use crate::galera::{Galera, patiently};
use crate::gate;
use crate::power;
use crate::recover::{Cordoned, delete_member, outcome, recover};

/// Changes how much CPU the next pod of the last member requests. The first two members stay as they are.
fn request_cpu(galera: &Galera<'_>, cpu: &str) {
    let container = json!({ "name": "mariadb", "resources": { "requests": { "cpu": cpu } } });
    let change = json!({ "spec": {
        "updateStrategy": { "rollingUpdate": { "partition": 2 } },
        "template": { "spec": { "containers": [container] } },
    } });
    let set = galera.stateful_set();
    galera.kubectl(&["patch", &set, "--type=strategic", "--patch", &change.to_string()]).succeeded();
}

fn until_unschedulable(galera: &Galera<'_>, pod: &str) {
    patiently("the pod has no node", || {
        let Some(it) = galera.pod(pod) else { return Err("no such pod".to_owned()) };
        let has_no_node =
            it["spec"]["nodeName"] == Value::Null && it["metadata"]["deletionTimestamp"] == Value::Null;
        if has_no_node { Ok(()) } else { Err(it["spec"]["nodeName"].to_string()) }
    });
}

#[test]
fn the_data_of_an_unschedulable_member_is_read() {
    let (galera, cluster) = gate::formed_with_identity("held");
    let [first, second, third] = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    request_cpu(&galera, "640");
    until_unschedulable(&galera, &third);
    galera.ask(&first, "INSERT INTO shop.t VALUES (4,'four')");
    {
        let _cordoned = Cordoned::all(&galera);
        for pod in [&first, &second] {
            delete_member(&galera, pod);
        }
    }
    let (code, text) = outcome(recover(&galera, &["--yes"]));
    println!("{text}");
    assert_eq!(code, Some(0), "{text}");
    let reads = format!("{third}: its pod does not run, so another pod reads its data");
    // Another member may be Ready before the first one is; the text then ends differently.
    let ends = [format!("is back without {third}: "), "serves (2 of 3 members Synced".to_owned()];
    assert!(text.contains(&reads) && ends.iter().any(|end| text.contains(end)), "{text}");
    galera.until_gone(&format!("pod/{third}-reader"));
    for pod in [&first, &second] {
        assert_eq!(galera.rows(pod).succeeded().trim(), "4", "rows of {pod}");
    }

    // Once a node can take the member, its pod is created again.
    request_cpu(&galera, "10m");
    galera.kubectl(&["delete", "pod", &third]).succeeded();
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::members_agree(&galera, "shop.t");
}
