//! `gatera report`: it contains everything that a diagnosis needs, and no secret.

use serde_json::Value;

use crate::cluster::STATEFUL_SET;
use crate::guarded;
use crate::lab::User;

const GALERA: &str = include_str!("fixtures/galera.yaml");
const SECRET: &str = "hunter2-of-the-report";

/// Rules only warn in this namespace, so its objects may hold a password: in a variable and in an annotation.
#[test]
fn a_report_holds_the_facts_and_no_secret() {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace_with_labels("report", &[("gatera.dev/mode", "warn")]);
    let from_secret = "valueFrom: {secretKeyRef: {name: galera-instance, key: root-password}}";
    let text = GALERA.replace(from_secret, &format!("value: {SECRET}"));
    assert_ne!(text, GALERA, "the fixture has no reference that the password could replace");
    plane.kubectl_stdin(User::Admin, &["apply", "--namespace", &ns, "--filename=-"], &text).succeeded();
    let note = format!("note=the password is {SECRET}");
    plane
        .kubectl(User::Admin, &["annotate", "statefulset", STATEFUL_SET, "--namespace", &ns, &note])
        .succeeded();
    plane.run_stateful_set(&ns, STATEFUL_SET);

    for user in [User::Admin, User::Editor] {
        let output = guarded::ask(&plane.kubeconfig(user), &["report", "--namespace", &ns]);
        assert_eq!(output.status, 0, "{output}");
        assert!(!output.stdout.contains("hunter2") && !output.stderr.contains("hunter2"), "{output}");
        assert!(output.stderr.contains("read it before you send it"), "{output}");
        let reported: Value = serde_json::from_str(&output.stdout).unwrap();
        let set = &reported["objects"][format!("StatefulSet {ns}/{STATEFUL_SET}")];
        assert_eq!(set["spec"]["replicas"], 3, "{set}");
        assert_eq!(set["metadata"]["annotations"]["note"], "(text)", "{set}");
        assert_eq!(reported["status"][0]["name"], STATEFUL_SET);
        assert_eq!(reported["doctor"]["rows"][0]["about"], "api server");
        assert!(
            reported["audit"]["findings"].as_array().is_some_and(|it| !it.is_empty()),
            "{}",
            reported["audit"]
        );
    }
}
