//! charts/gatera in a real control plane: the guard's own writes survive install, upgrade, rollback and uninstall, and a guard
//! that is not running blocks no request.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{objects, of_kind};
use crate::guarded::{self, CHART, Guard, Start, program};
use crate::lab::{ControlPlane, Output, User, eventually};

/// A release `guard` in a namespace that enforces the strictest Pod Security.
struct Release<'a> {
    plane: &'a ControlPlane,
    ns: String,
}

impl<'a> Release<'a> {
    fn install(plane: &'a ControlPlane, flags: &[&str]) -> Self {
        let restricted = ["enforce", "warn"].map(|it| format!("pod-security.kubernetes.io/{it}"));
        let labels = restricted.each_ref().map(|it| (&**it, "restricted"));
        let release = Self { plane, ns: plane.namespace_with_labels("guard", &labels) };
        let output = release.helm("install", &[&["guard", CHART], flags].concat());
        assert_eq!((output.status, &*output.stderr), (0, ""), "{output}");
        assert!(output.stdout.contains(&format!("  helm test guard -n {} --logs\n", release.ns)), "{output}");
        release
    }

    fn helm(&self, command: &str, arguments: &[&str]) -> Output {
        let outside: &[&str] =
            if matches!(command, "install" | "upgrade") { &[guarded::OUTSIDE] } else { &[] };
        self.plane.helm(User::Admin, &[&[command, "--namespace", &self.ns], arguments, outside].concat())
    }

    fn guard(&self, by_service: bool) -> Guard {
        let home = Some(self.ns.clone());
        let arguments = vec!["--release=guard".to_owned()];
        let start = Start { identity: self.ns.clone(), home, by_service, arguments, ..Start::default() };
        Guard::start(self.plane, &program(), &start)
    }

    /// Returns everything that the guard writes; of the Lease only the holder.
    fn written(&self) -> Value {
        let get = [
            "get",
            "mutatingwebhookconfiguration/gatera",
            "validatingwebhookconfiguration/gatera",
            "secret/gatera-tls",
            "lease/gatera",
            "--output=json",
            "--namespace",
            &self.ns,
        ];
        let text = self.plane.kubectl(User::Admin, &get).succeeded();
        let list: Value = serde_json::from_str(&text).unwrap();
        let items = list["items"].as_array().unwrap();
        let of = |kind: &str| items.iter().find(|it| it["kind"] == kind).unwrap();
        json!({
            "mutating": of("MutatingWebhookConfiguration")["webhooks"],
            "validating": of("ValidatingWebhookConfiguration")["webhooks"],
            "certificates": of("Secret")["data"],
            "holder": of("Lease")["spec"]["holderIdentity"],
        })
    }

    fn has_certificates(&self) -> bool {
        let find =
            ["get", "secret/gatera-tls", "--namespace", &self.ns, "--output=jsonpath={.data.tls\\.key}"];
        !self.plane.kubectl(User::Admin, &find).stdout.is_empty()
    }

    /// Tries to create a Galera StatefulSet with a password in plain text.
    fn try_what_is_forbidden(&self) -> Output {
        let manifest = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
            "spec": { "serviceName": "db", "selector": { "matchLabels": { "gatera.dev/cluster": "db" } }, "template": {
                "metadata": { "labels": { "gatera.dev/cluster": "db" } },
                "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "env": [{ "name": "MARIADB_ROOT_PASSWORD", "value": "x" }] }] },
            } },
        });
        let create = ["create", "--namespace=default", "--dry-run=server", "--filename=-"];
        self.plane.kubectl_stdin(User::Admin, &create, &manifest.to_string())
    }

    /// Uninstalls the release of a guard that has stopped. Until then, writes fail because no guard answers; then they succeed.
    fn uninstall(self) {
        let held_up = self.try_what_is_forbidden();
        assert!(held_up.stderr.contains("failed calling webhook"), "{held_up}");
        let output = self.helm("uninstall", &["guard"]);
        assert_eq!(output.status, 0, "{output}");
        eventually("API servers to call no guard any more", || {
            (self.try_what_is_forbidden().status == 0).then_some(())
        });
        let kinds = "secret,lease,configmap,deployment,service,serviceaccount,role,rolebinding,pdb,\
                     clusterrole,clusterrolebinding,validatingwebhookconfiguration,mutatingwebhookconfiguration,\
                     validatingadmissionpolicy,validatingadmissionpolicybinding";
        let left = ["get", kinds, "--namespace", &self.ns, "--output=name"];
        let left = self.plane.kubectl(User::Admin, &left).succeeded();
        assert!(!left.contains("gatera"), "{left}");
    }

    /// Runs `gatera doctor --canary` as the pod of `helm test` does, with that pod's rights.
    fn selftest(&self) -> (i32, String) {
        self.selftest_by(None)
    }

    /// Does the same with a settings file, as it is mounted into that pod.
    fn selftest_by(&self, settings: Option<&Path>) -> (i32, String) {
        let hooks = ["guard", CHART, "--show-only=templates/tests/selftest.yaml"];
        let text = self.helm("template", &hooks).succeeded();
        let pod = of_kind(&objects(&text), "Pod");
        let apply = ["apply", "--filename=-"];
        let output = self.plane.kubectl_stdin(User::Admin, &apply, &text);
        assert_eq!(
            (output.status, &*output.stderr),
            (0, ""),
            "the strictest Pod Security does not admit the pod without a warning: {output}"
        );
        let kubeconfig = guarded::kubeconfig_of(self.plane, &self.ns, "gatera-selftest", "selftest", None);
        let args = pod["spec"]["containers"][0]["args"].as_array().unwrap().iter();
        let args = args
            .map(|it| it.as_str().unwrap())
            .filter(|it| !it.starts_with("--config=") && !it.starts_with("--wait="));
        let ran = Command::new(program())
            .args(args)
            .args(settings.map(|it| format!("--config={}", it.display())))
            .arg("--wait=0")
            .env("KUBECONFIG", kubeconfig)
            .output()
            .unwrap();
        // Removed as the deletion policy of the hooks demands. No kubelet confirms the end of a pod here.
        let delete = ["delete", "--wait=false", "--filename=-"];
        self.plane.kubectl_stdin(User::Admin, &delete, &text).succeeded();
        (ran.status.code().unwrap(), String::from_utf8(ran.stdout).unwrap())
    }
}

/// How Helm writes objects in an installation, in an upgrade and in a rollback.
const METHODS: [[&str; 3]; 3] = [
    ["--server-side=true", "--server-side=true", "--server-side=auto"],
    ["--server-side=false", "--server-side=false", "--server-side=auto"],
    ["--server-side=false", "--server-side=true", "--server-side=false"],
];

/// Three scenarios on one control plane. Each ends with an uninstall that leaves nothing behind.
#[test]
fn releases_are_installed_upgraded_and_uninstalled() {
    let plane = ControlPlane::start();
    what_the_guard_writes_survives_upgrade_and_rollback(&plane);
    it_warns_first_and_every_user_can_read_the_page_of_a_refusal(&plane);
    a_guard_whose_pods_never_become_ready_blocks_no_request(&plane);
}

/// The guard's own fields survive all of Helm's ways to write, and a guard that is down does not prevent an uninstall.
fn what_the_guard_writes_survives_upgrade_and_rollback(plane: &ControlPlane) {
    for [install, upgrade, rollback] in METHODS {
        let release = Release::install(plane, &[install]);
        let guard = release.guard(false);
        guard.until_registered();
        let written = eventually("the lease is held", || {
            Some(release.written()).filter(|it| !it["holder"].as_str().unwrap_or_default().is_empty())
        });
        assert!(written["certificates"]["tls.key"].is_string(), "{:?}", written["certificates"]);
        release.helm("upgrade", &["guard", CHART, upgrade, "--set=modes.G11=warn,replicas=3"]).succeeded();
        assert_eq!(release.written(), written, "{upgrade}");
        release.helm("rollback", &["guard", "1", rollback]).succeeded();
        assert_eq!(release.written(), written, "{rollback}");

        // A Secret that the guard creates again belongs to the release, or the next upgrade would not accept it.
        plane.kubectl(User::Admin, &["delete", "secret/gatera-tls", "--namespace", &release.ns]).succeeded();
        eventually("the certificates are back", || release.has_certificates().then_some(()));
        let again = release.written();
        let ca = |written: &Value| written["certificates"]["ca.crt"].as_str().unwrap().to_owned();
        assert_ne!(ca(&again), ca(&written));

        // Deleting its configurations is the way out when a guard is broken; an upgrade creates them again.
        let kinds = "validatingwebhookconfiguration,mutatingwebhookconfiguration";
        plane.kubectl(User::Admin, &["delete", kinds, "gatera"]).succeeded();
        eventually("nothing is guarded", || (release.try_what_is_forbidden().status == 0).then_some(()));
        eventually("the guard says so", || {
            guard.get("/readyz")?.1.contains("do not exist, so nothing is guarded").then_some(())
        });
        release.helm("upgrade", &["guard", CHART, upgrade]).succeeded();
        assert_eq!(ca(&release.written()), ca(&again), "{upgrade}");
        let secret = plane.get(&release.ns, "secret/gatera-tls");
        assert!(secret["metadata"]["labels"]["helm.sh/chart"].is_string(), "{}", secret["metadata"]);
        guard.until_registered();
        eventually("API servers to call the guard again", || {
            (release.try_what_is_forbidden().status == 1).then_some(())
        });

        let (code, words) = release.selftest();
        assert_eq!(code, 0, "{words}");
        assert!(words.contains(": refused, as expected: [G"), "{words}");
        drop(guard);
        release.uninstall();
    }
}

/// The guard runs in mode `warn` first, as the README advises. A refusal in mode `enforce` then names a page that a user without
/// any rights can read with kubectl.
fn it_warns_first_and_every_user_can_read_the_page_of_a_refusal(plane: &ControlPlane) {
    let release = Release::install(plane, &["--set=mode=warn"]);
    let settings = plane.folder().join("settings.yaml");
    let mount = || {
        let map = plane.get(&release.ns, "configmap/gatera-settings");
        std::fs::write(&settings, map["data"]["settings.yaml"].as_str().unwrap()).unwrap();
    };
    mount();
    let arguments = vec!["--release=guard".to_owned(), format!("--config={}", settings.display())];
    let start =
        Start { identity: release.ns.clone(), home: Some(release.ns.clone()), arguments, ..Start::default() };
    let guard = Guard::start(plane, &program(), &start);
    guard.until_registered();
    let warned = eventually("API servers to call the guard", || {
        Some(release.try_what_is_forbidden()).filter(|it| it.stderr.contains("Warning: [G11]"))
    });
    assert_eq!(warned.status, 0, "{warned}");
    let (code, words) = release.selftest_by(Some(&settings));
    assert_eq!(code, 0, "{words}");
    assert!(words.contains(": warned, as the settings say: [G"), "{words}");

    release.helm("upgrade", &["guard", CHART, "--reuse-values", "--set=mode=enforce"]).succeeded();
    mount();
    let refused = eventually("the settings are read", || {
        Some(release.try_what_is_forbidden()).filter(|it| it.status == 1)
    });
    let more = format!(
        "\n  more: kubectl -n {} get configmap gatera-rules -o 'jsonpath={{.data.G11}}'\n",
        release.ns
    );
    assert!(refused.stderr.contains(&more), "{refused}");
    let command = more.trim().strip_prefix("more: kubectl ").unwrap().replace('\'', "");
    let words: Vec<_> = command.split(' ').collect();
    let nobody = ["create", "serviceaccount", "nobody", "--namespace=default"];
    plane.kubectl(User::Admin, &nobody).succeeded();
    let kubeconfig = guarded::kubeconfig_of(plane, "default", "nobody", "nobody", None);
    let read = |words: &[&str]| {
        plane.kubectl(User::Admin, &[words, &[&format!("--kubeconfig={}", kubeconfig.display())]].concat())
    };
    let page = read(&words).succeeded();
    assert!(page.starts_with("G11: passwords belong in Secrets, not in manifests.\n"), "{page}");
    let other = read(&["get", "configmap/kube-root-ca.crt", "--namespace", &release.ns]);
    assert!(other.status == 1 && other.stderr.contains("cannot get resource \"configmaps\""), "{other}");
    drop(guard);
    release.uninstall();
}

/// The guard is registered with its Service, as in a cluster: there are no entries before a pod is ready, and a pod needs none to
/// become ready.
fn a_guard_whose_pods_never_become_ready_blocks_no_request(plane: &ControlPlane) {
    let release = Release::install(plane, &[]);
    let guard = release.guard(true);
    eventually("the guard waits for an endpoint", || {
        let (status, text) = guard.get("/readyz")?;
        (status == 200 && text.contains("webhooks: waiting for a ready endpoint of the guard's Service"))
            .then_some(())
    });
    let written = release.written();
    assert_eq!((&written["validating"], &written["mutating"]), (&Value::Null, &Value::Null));
    assert_eq!(release.try_what_is_forbidden().status, 0);
    let (code, words) = release.selftest();
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("not refused by the guard: the API server admits a StatefulSet with"), "{words}");

    let other = plane.helm(User::Admin, &["install", "second", CHART, "--namespace=default"]);
    let words = format!(
        "this cluster has a guard already: release guard in namespace {}. One guard serves the whole cluster; upgrade \
         that release, or uninstall it first",
        release.ns
    );
    assert!(other.status == 1 && other.stderr.contains(&words), "{other}");

    // Both pods were admitted under the strictest Pod Security. One of them becomes ready.
    let pods = || plane.get(&release.ns, "pods")["items"].as_array().unwrap().clone();
    let pods = eventually("two pods", || {
        let names = pods().into_iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
        Some(names.filter(|it| it.starts_with("gatera-") && it != "gatera-selftest").collect::<Vec<_>>())
            .filter(|names| names.len() == 2)
    });
    plane.make_pod_ready(&release.ns, &pods[0]);
    guard.until_registered();
    let entry = &release.written()["validating"][0];
    let service = json!({ "namespace": release.ns, "name": "gatera", "path": "/validate", "port": 443 });
    assert_eq!(entry["clientConfig"]["service"], service);
    let never = &entry["namespaceSelector"]["matchExpressions"][0]["values"];
    assert!(never.as_array().unwrap().contains(&json!(release.ns)), "{never}");
    drop(guard);
    release.uninstall();
}

/// A real scheduler spreads the replicas of each revision; if only one node is available, it takes both.
#[test]
fn replicas_are_spread_over_the_available_nodes() {
    let plane = ControlPlane::start_with_nodes(2);
    let release = Release::install(&plane, &["--set=image.tag=one"]);
    let nodes = |tag: &str| {
        let rollout = ["rollout", "status", "deployment/gatera", "--timeout=60s", "--namespace", &release.ns];
        plane.kubectl(User::Admin, &rollout).succeeded();
        let image = format!("gatera:{tag}");
        let pods = plane.get(&release.ns, "pods")["items"].as_array().unwrap().clone();
        let ours = pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == *image);
        let mut nodes: Vec<_> =
            ours.map(|pod| pod["spec"]["nodeName"].as_str().unwrap().to_owned()).collect();
        nodes.sort();
        nodes
    };
    assert_eq!(nodes("one"), ["node-0", "node-1"]);
    release.helm("upgrade", &["guard", CHART, "--set=image.tag=two"]).succeeded();
    assert_eq!(nodes("two"), ["node-0", "node-1"]);
    // The taint that a node controller adds to a cordoned node.
    let taint = ["taint", "node", "node-1", "node.kubernetes.io/unschedulable:NoSchedule"];
    plane.kubectl(User::Admin, &taint).succeeded();
    release.helm("upgrade", &["guard", CHART, "--set=image.tag=three"]).succeeded();
    assert_eq!(nodes("three"), ["node-0", "node-0"]);
}
