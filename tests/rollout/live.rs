//! On a control plane with nodes, by the guard that all tests share.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::alive::Alive;
use crate::bootstrap::live::events;
use crate::cluster::STATEFUL_SET;
use crate::lab::eventually;

const CONFIG: &str = "configmap/galera-instance-nodeconfig";

/// The revision that each member runs, by its annotation and by the ConfigMap that its volume leads to.
fn run(alive: &Alive) -> BTreeMap<String, (String, String)> {
    let text = alive.admin(&["get", "pods", "--selector=app=galera", "--output=json"]).succeeded();
    let list: Value = serde_json::from_str(&text).unwrap();
    let of = |pod: &Value| {
        let mark = pod["metadata"]["annotations"]["gatera.dev/revision"].as_str().unwrap_or_default();
        let volumes = pod["spec"]["volumes"].to_string();
        let led = volumes.split('"').find(|it| it.contains("nodeconfig")).unwrap_or_default();
        (pod["metadata"]["name"].as_str().unwrap().to_owned(), (mark.to_owned(), led.to_owned()))
    };
    list["items"].as_array().unwrap().iter().map(of).collect()
}

fn note(alive: &Alive) -> Value {
    let set = alive.stateful_set();
    let text = set["metadata"]["annotations"]["gatera.dev/configuration"].as_str().unwrap_or("null");
    serde_json::from_str(text).unwrap()
}

fn set_option(alive: &Alive, line: &str) {
    let map = alive.plane.get(&alive.ns, CONFIG);
    let (key, text) = map["data"].as_object().unwrap().iter().next().unwrap();
    let changed = format!("{}\n[mysqld]\n{line}\n", text.as_str().unwrap());
    let patch = serde_json::json!({ "data": { key: changed } }).to_string();
    alive.kubectl(&["patch", CONFIG, "--type=merge", "--patch", &patch]).succeeded();
}

#[test]
fn a_change_reaches_one_member_then_the_others() {
    let alive = Alive::cluster("rollout");
    let good = eventually("the note", || Some(note(&alive)["good"].as_str()?.to_owned()));
    let before = alive.members();
    set_option(&alive, "max_connections = 77");
    let done = eventually("the roll-out", || {
        let note = note(&alive);
        (note["good"] != good && note["next"].is_null()).then_some(note)
    });
    let revision = done["good"].as_str().unwrap();
    for (name, (mark, led)) in run(&alive) {
        assert_eq!(mark, revision, "{name}");
        assert_eq!(
            led,
            format!("galera-instance-nodeconfig-gatera-{}", &revision[revision.len() - 16..]),
            "{name}"
        );
    }
    let after = alive.members();
    assert!(before.iter().zip(&after).all(|(before, after)| before.1 != after.1), "{before:?} {after:?}");
    let told = events(&alive, "RollingOut");
    assert_eq!(
        told,
        [format!(
            "max_connections changed: {STATEFUL_SET}-2 restarts with it, then the others, one at a time"
        )]
    );
    assert_eq!(events(&alive, "RolledOut"), ["all 3 members run with max_connections"]);
}
