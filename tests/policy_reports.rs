//! The audit's policy reports, on a real API server: a report is created, changed and deleted with its findings. The guard
//! uses its own account, with the rights and the policy of the chart.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::STATEFUL_SET;
use crate::guarded::{self, Guard, Start};
use crate::lab::{ControlPlane, User, eventually};
use crate::living_cluster::GALERA;

const DEFINITIONS: &str = include_str!("fixtures/reports-crds.yaml");

/// A control plane, and the namespace of the test.
struct Namespaced {
    plane: ControlPlane,
    ns: String,
}

impl Namespaced {
    fn kubectl(&self, arguments: &[&str]) -> String {
        self.plane.kubectl(User::Admin, &[&["--namespace", &*self.ns], arguments].concat()).succeeded()
    }

    /// Returns the report of this kind in the namespace.
    fn report(&self, kind: &str) -> Option<Value> {
        let text = self.kubectl(&["get", kind, "gatera", "--ignore-not-found", "--output=json"]);
        serde_json::from_str(&text).ok()
    }

    fn set_password(&self, value: &str) {
        let env = json!([{ "name": "A_PASSWORD", "value": value }]);
        let patch = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "mariadb", "env": env }] } } } });
        self.kubectl(&["patch", "statefulset", STATEFUL_SET, "--patch", &patch.to_string()]);
    }

    /// Sets the mode of the namespace by its label.
    fn set_mode(&self, mode: &str) {
        let label = format!("gatera.dev/mode={mode}");
        self.plane.kubectl(User::Admin, &["label", "namespace", &self.ns, "--overwrite", &label]).succeeded();
    }
}

/// Returns the results about the password.
fn about_the_password(report: &Value) -> Vec<Value> {
    report["results"].as_array().unwrap().iter().filter(|it| it["rule"] == "G11").cloned().collect()
}

#[test]
fn a_report_has_the_current_findings_of_the_audit() {
    let plane = ControlPlane::start();
    plane.kubectl_stdin(User::Admin, &["apply", "--filename=-"], DEFINITIONS).succeeded();
    plane.until_defined();
    guarded::install(&plane);
    let arguments = ["--lame-duck=0", "--drain=1"].map(str::to_owned).into();
    let start = Start { identity: "reports".into(), arguments, ..Start::default() };
    let guard = Guard::start(&plane, &guarded::program(), &start);
    guard.until_registered();
    let ns = plane.namespace_with_labels("reports", &[("gatera.dev/mode", "warn")]);
    let it = Namespaced { plane, ns };
    it.plane
        .kubectl_stdin(User::Admin, &["apply", "--namespace", &it.ns, "--filename=-"], GALERA)
        .succeeded();

    it.set_password("hunter2");
    let report = eventually("a report about the password", || {
        it.report("reports.openreports.io").filter(|it| !about_the_password(it).is_empty())
    });
    let [result] = &about_the_password(&report)[..] else { panic!("one result: {report:#}") };
    assert_eq!(
        (&result["policy"], &result["result"], &result["severity"]),
        (&json!("gatera"), &json!("warn"), &json!("medium"))
    );
    let object = &result["resources"][0];
    assert_eq!((&object["apiVersion"], &object["kind"]), (&json!("apps/v1"), &json!("StatefulSet")));
    assert_eq!((&object["name"], &object["namespace"]), (&json!(STATEFUL_SET), &json!(it.ns)));
    assert!(result["message"].as_str().unwrap().contains("A_PASSWORD"), "{result:#}");
    let age = Timestamp::now().as_second() - result["timestamp"]["seconds"].as_i64().unwrap();
    assert!((0..600).contains(&age), "{result:#}");
    let warned = report["results"].as_array().unwrap().iter().filter(|it| it["result"] == "warn").count();
    assert_eq!(report["summary"]["warn"], warned, "{report:#}");
    assert!(!report.to_string().contains("hunter2"), "{report:#}");
    assert!(it.report("policyreports.wgpolicyk8s.io").is_none(), "both kinds of report are written");

    // In mode enforce the same finding would refuse a change.
    it.set_mode("enforce");
    eventually("the finding to be reported as one that refuses", || {
        let results = about_the_password(&it.report("reports.openreports.io")?);
        (results[0]["result"] == "fail").then_some(())
    });
    it.kubectl(&["annotate", "statefulset", STATEFUL_SET, "note=1"]);
    let version = |report: Option<Value>| report.map(|it| it["metadata"]["resourceVersion"].clone());

    // The next leader recognizes the written report and does not write it again.
    guard.terminate();
    guard.until_ended(Duration::from_secs(20));
    let before = version(it.report("reports.openreports.io"));
    let start = Start { identity: "reports-again".into(), ..Start::default() };
    let guard = Guard::start(&it.plane, &guarded::program(), &start);
    guard.until_registered();
    eventually("the next leader to audit", || {
        guard.get("/metrics")?.1.contains("gatera_audit_findings{rule=\"G11\"").then_some(())
    });
    assert_eq!(version(it.report("reports.openreports.io")), before, "the next leader wrote the report");

    it.set_mode("off");
    let everything =
        ["delete", "statefulset,deployment,service,configmap,pdb", "--all", "--cascade=background"];
    eventually("mode off to be seen, in which everything may be deleted", || {
        let arguments = [&["--namespace", &*it.ns], &everything[..]].concat();
        (it.plane.kubectl(User::Admin, &arguments).status == 0).then_some(())
    });
    eventually("the report to be deleted with the last finding", || {
        it.report("reports.openreports.io").is_none().then_some(())
    });
    assert!(!guard.log().contains("reports could not be written"), "{}", guard.log());
}
