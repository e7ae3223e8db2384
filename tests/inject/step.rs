//! Injection of the step script in front of the server: which containers get it, and which do not.

use engine::inject::StartMethod;
use serde_json::{Value, json};

use super::{injected, member, planned_injection, with_server};
use crate::scene::Scene;

/// The kubelet reads the termination message at the path that the template names.
#[test]
fn the_termination_message_goes_to_the_path_of_the_template() {
    for (path, variable) in [
        (json!(null), None),
        (json!("/dev/termination-log"), None),
        (json!("/var/log/term"), Some("/var/log/term")),
    ] {
        let after = injected(&with_server(&json!({ "terminationMessagePath": path })), &Scene::default());
        let container = &after["spec"]["containers"][0];
        let all = container["env"].as_array().cloned().unwrap_or_default();
        let found: Vec<_> = all.iter().filter(|it| it["name"] == "GATERA_TERMINATION_LOG").collect();
        assert_eq!(found.first().and_then(|it| it["value"].as_str()), variable, "{path}: {container}");
        assert_eq!(container["terminationMessagePolicy"], "FallbackToLogsOnError");
    }
}

/// Lists changes to the container, each with the whole command line that then starts the server.
#[test]
fn the_step_script_is_put_in_front_of_known_commands() {
    const STEP: &str = "/etc/gatera/start-member.sh";
    let entry = "docker-entrypoint.sh";
    for (change, line) in [
        (json!({}), json!(["sh", STEP, entry, "mariadbd"])),
        (json!({ "command": [], "args": [] }), json!(["sh", STEP, entry, "mariadbd"])),
        (json!({ "args": ["--wsrep-on=ON"] }), json!(["sh", STEP, entry, "--wsrep-on=ON"])),
        (json!({ "args": ["mariadbd", "--x"] }), json!(["sh", STEP, entry, "mariadbd", "--x"])),
        (json!({ "command": [entry, "mariadbd"] }), json!(["sh", STEP, entry, "mariadbd"])),
        (json!({ "command": [entry], "args": ["--x"] }), json!(["sh", STEP, entry, "--x"])),
        (json!({ "command": ["mysqld", "--x"] }), json!(["sh", STEP, "mysqld", "--x"])),
        (
            json!({ "image": "example.com/our/db:1", "command": ["mariadbd"] }),
            json!(["sh", STEP, "mariadbd"]),
        ),
        (
            json!({ "command": ["sh", "/own/start-member.sh", entry, "mariadbd"] }),
            json!(["sh", "/own/start-member.sh", entry, "mariadbd"]),
        ),
        (
            json!({ "command": ["sh", "-c", "exec docker-entrypoint.sh"] }),
            json!(["sh", "-c", "exec docker-entrypoint.sh"]),
        ),
        (json!({ "command": ["mysqld_safe"] }), json!(["mysqld_safe"])),
        (json!({ "image": "example.com/our/db:1", "args": ["--x"] }), json!(["--x"])),
        (json!({ "image": "percona/percona-xtradb-cluster:8.0", "args": ["--x"] }), json!(["--x"])),
    ] {
        let after = injected(&with_server(&change), &Scene::default());
        let container = &after["spec"]["containers"][0];
        let words = ["command", "args"].map(|field| container[field].as_array().cloned().unwrap_or_default());
        assert_eq!(json!(words.concat()), line, "{change}");
        let blind = matches!(planned_injection(&with_server(&change)).start, StartMethod::Blind { .. });
        let recovers =
            ["start-member.sh", "mysqld_safe", "xtradb"].iter().any(|it| container.to_string().contains(it));
        assert_eq!(blind, !recovers, "{change}");
    }
    let kept = member(&json!({ "metadata": { "annotations": { "gatera.dev/start": "keep" } } }));
    let after = injected(&kept, &Scene::default());
    assert_eq!(after["spec"]["containers"][0]["command"], Value::Null);
    let StartMethod::Blind { why, .. } = planned_injection(&kept).start else {
        panic!("the annotation gatera.dev/start: keep is ignored")
    };
    assert_eq!(why, "gatera.dev/start: keep leaves its command unchanged");
}
