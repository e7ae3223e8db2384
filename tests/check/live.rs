//! `gatera check --live` with a running cluster: its messages about a file are those of the API server when the file is applied.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::CLUSTER;
use crate::guarded;
use crate::lab::User;
use crate::paths::Terminal;

/// The headlines of denials, and the warnings; those from kubectl also include the way out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reported {
    denials: BTreeSet<String>,
    warnings: Vec<String>,
}

impl Reported {
    fn by_kubectl(text: &str) -> Self {
        let (mut it, mut before) = (Self::default(), "");
        for line in text.lines() {
            match line.strip_prefix("Warning: ") {
                // Both webhooks send the warning, and kubectl has warnings of its own.
                Some(warning) if before != line && !warning.starts_with("resource ") => {
                    it.warnings.push(warning.to_owned());
                }
                None => it.denials.extend(headline(line)),
                _ => {}
            }
            before = line;
        }
        it
    }

    fn by_check(text: &str) -> Self {
        let mut it = Self::default();
        for line in text.lines() {
            match line.split_once(": warning") {
                Some((_, words)) => {
                    it.warnings.push(words.trim_start_matches([':', ' ']).to_owned());
                }
                None => it.denials.extend(headline(line)),
            }
        }
        it
    }

    fn agrees_with(&self, applied: &Self) -> bool {
        let sorted = |it: &Self| {
            let mut all = it.warnings.clone();
            all.sort();
            all
        };
        let warned = self.warnings.len() == applied.warnings.len()
            && sorted(self).iter().zip(&sorted(applied)).all(|(one, other)| other.starts_with(one));
        self.denials == applied.denials && warned
    }
}

fn headline(line: &str) -> Option<String> {
    line.find("[G").filter(|at| line[*at..].get(4..6) == Some("] ")).map(|at| line[at..].to_owned())
}

/// A namespace, and a file that is checked before it is applied there.
struct LiveCheck {
    it: Terminal,
    folder: tempfile::TempDir,
}

impl LiveCheck {
    fn new(prefix: &str) -> Self {
        Self { it: Terminal::new(prefix), folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, text: &str) -> String {
        let file = self.folder.path().join("galera.yaml");
        fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn check(&self, text: &str, arguments: &[&str]) -> (i32, String) {
        self.check_with(&self.it.plane.kubeconfig(User::Admin), text, arguments)
    }

    fn check_with(&self, kubeconfig: &Path, text: &str, arguments: &[&str]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_gatera"))
            .args(["check", "--live", "--output=concise"])
            .args(arguments)
            .arg(self.file(text))
            .env("KUBECONFIG", kubeconfig)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout) + &text(output.stderr))
    }

    /// Asserts that the program's messages are those of the API server.
    fn assert_agrees(&self, what: &str, ns: &str, text: &str) -> (i32, String) {
        let file = self.file(text);
        let asked = ["--namespace", ns, "apply", "--dry-run=server", "--filename", &file];
        let applied = self.it.plane.kubectl(User::Admin, &asked);
        let (code, said) = self.check(text, &["--namespace", ns]);
        let (before, after) = (Reported::by_check(&said), Reported::by_kubectl(&applied.stderr));
        assert!(before.agrees_with(&after), "{what}:\n{said}\n{}\n{before:#?}\n{after:#?}", applied.stderr);
        assert_eq!(code, i32::from(applied.status != 0), "{what}: {said}");
        (code, said)
    }
}

/// Returns the cluster without its bootstrap node, which is gone by now and would be held at 0 replicas if applied again.
fn members() -> String {
    let rest: Vec<_> =
        CLUSTER.split("\n---\n").filter(|it| !it.contains("name: galera-instance-bootstrap")).collect();
    rest.join("\n---\n")
}

#[test]
fn check_reports_what_the_api_server_will_say() {
    let live = LiveCheck::new("check-live");
    let (ns, members) = (live.it.ns.clone(), members());
    for (what, old, new) in [
        ("nothing", "replicas: 3", "replicas: 3"),
        ("fewer than the majority", "replicas: 3", "replicas: 1"),
        ("none", "replicas: 3", "replicas: 0"),
        ("more", "replicas: 3", "replicas: 5"),
        ("an older server", "mariadb:10.11", "mariadb:10.6"),
        ("another Service", "serviceName: galera-instance-hs", "serviceName: galera-instance-cs"),
        ("larger claims", "storage: 1Gi", "storage: 2Gi"),
        ("the same size in another unit", "storage: 1Gi", "storage: 1024Mi"),
        ("another class", "storage: 1Gi}}", "storage: 1Gi}}, storageClassName: other"),
        (
            "a default that is written out",
            "serviceName:",
            "podManagementPolicy: OrderedReady\n  serviceName:",
        ),
        ("an option that breaks it", "innodb_autoinc_lock_mode = 2", "innodb_autoinc_lock_mode = 1"),
        ("a password", "binlog_format = ROW", "wsrep_sst_auth = root:x"),
        ("another password", "root-password: change-me", "root-password: hunter2"),
        ("names that are not published", "publishNotReadyAddresses: true", "publishNotReadyAddresses: false"),
        (
            "a mark",
            "metadata: {name: galera-instance-galera,",
            "metadata: {annotations: {gatera.dev/data: none}, name: galera-instance-galera,",
        ),
    ] {
        assert!(members.contains(old), "{what}");
        let (_, said) = live.assert_agrees(what, &ns, &members.replace(old, new));
        if old == new {
            let all = members.split("\n---\n").count();
            let unchanged = format!(
                "{all} objects: 0 would be refused, 0 allowed with a warning, {all} unchanged; 1 Galera cluster\n"
            );
            assert_eq!(said, unchanged);
        }
    }
    live.assert_agrees("its bootstrap node", &ns, CLUSTER);

    // Other tools do not record what they applied.
    let annotation = "kubectl.kubernetes.io/last-applied-configuration-";
    live.it.run(&["annotate", "statefulset", "--all", annotation]).succeeded();
    let (code, said) = live.check(&members, &["--namespace", &ns, "--strict"]);
    assert!(code == 0 && !said.contains("was not created by kubectl apply"), "nothing changes: {said}");
    let more = members.replace("replicas: 3", "replicas: 5");
    let (code, said) = live.check(&more, &["--namespace", &ns, "--strict"]);
    let words =
        format!("StatefulSet {ns}/galera-instance-galera was not created by kubectl apply, so fields");
    assert!(code == 2 && said.contains(&words), "{said}");
    live.assert_agrees("fewer", &ns, &members.replace("replicas: 3", "replicas: 1"));
}

const AUTOSCALER: &str = "\n---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: members}\nspec:\n  maxReplicas: 9\n  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: galera-instance-galera}\n  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]\n";

/// Where no cluster exists, the findings about a whole one are the same as if the StatefulSet were applied last.
#[test]
fn a_new_cluster_is_judged_as_if_its_stateful_set_were_applied_last() {
    let live = LiveCheck::new("check-whole");
    let plane = live.it.plane;
    for (what, rule, text) in [
        ("nothing", "", members()),
        (
            "names of another Service",
            "G06",
            members()
                .replace("galera-instance-galera-0.galera-instance-hs", "galera-instance-galera-0.elsewhere"),
        ),
        (
            "an option that breaks it",
            "G09",
            members().replace("innodb_autoinc_lock_mode = 2", "innodb_autoinc_lock_mode = 1"),
        ),
        (
            "such an option in a ConfigMap that is known only because the StatefulSet reads it",
            "G09",
            members().replace(
                "configMap: {name: galera-instance-nodeconfig}",
                "configMap: {name: galera-instance-nodeconfig}\n          - configMap: {name: more}",
            ) + "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\ndata: {more.cnf: \"[mysqld]\\ninnodb_autoinc_lock_mode = 1\"}\n",
        ),
        ("an autoscaler", "G14", members() + AUTOSCALER),
    ] {
        let ns = plane.namespace("fresh");
        let (code, said) = live.check(&text, &["--namespace", &ns]);
        let whole = Reported::by_check(&said);
        let (last, rest): (Vec<_>, Vec<_>) =
            text.split("\n---\n").partition(|it| it.contains("kind: StatefulSet\n"));
        let file = live.file(&rest.join("\n---\n"));
        let first = plane.kubectl(User::Admin, &["--namespace", &ns, "apply", "--filename", &file]);
        let mut after = Reported::by_kubectl(&first.stderr);
        let file = live.file(&last.concat());
        let asked = ["--namespace", &ns, "apply", "--dry-run=server", "--filename", &file];
        let then = plane.kubectl(User::Admin, &asked);
        after.denials.extend(Reported::by_kubectl(&then.stderr).denials);
        let missing: Vec<_> = after.denials.difference(&whole.denials).collect();
        // Without a mode label on the namespace, objects without a label are not sent to the guard.
        let more = whole.denials.difference(&after.denials);
        let more: Vec<_> = more.filter(|it| !it.contains(&format!("] ConfigMap {ns}/"))).collect();
        let none: [&String; 0] = [];
        assert_eq!(
            (missing, more),
            (none.to_vec(), none.to_vec()),
            "{what}: {said}\n{}{}",
            first.stderr,
            then.stderr
        );
        let refused = first.status != 0 || then.status != 0;
        assert_eq!(code, i32::from(refused), "{what}: {said}");
        let found = said.contains(&format!("[{rule}] "));
        assert!(found || rule.is_empty() && !said.contains("[G"), "{what}: {said}");

        // An object that exists and is now read by the new StatefulSet is judged, too.
        if first.status == 0 {
            live.assert_agrees(what, &ns, &last.concat());
        }
    }
}

#[test]
fn the_namespace_is_the_one_that_kubectl_would_use() {
    let live = LiveCheck::new("check-where");
    let (plane, ns) = (live.it.plane, &live.it.ns);
    let none = members().replace("replicas: 3", "replicas: 0");
    let current = plane.kubectl(User::Admin, &["config", "view", "--raw", "--output=json"]).succeeded();
    let mut current: serde_json::Value = serde_json::from_str(&current).unwrap();
    current["contexts"][0]["context"]["namespace"] = json!(ns);
    let kubeconfig = live.folder.path().join("current.kubeconfig");
    fs::write(&kubeconfig, current.to_string()).unwrap();
    let (code, said) = live.check_with(&kubeconfig, &none, &[]);
    assert!(
        code == 1 && said.contains(&format!("[G01] StatefulSet {ns}/galera-instance-galera: 3 -> 0")),
        "{said}"
    );

    let (code, said) = live.check(&none, &["--namespace=misspelt"]);
    assert!(
        code == 2 && said.contains("there is no namespace misspelt, and none of these manifests creates it"),
        "{said}"
    );
    assert!(said.contains(" 5 not judged; 1 Galera cluster") && !said.contains("fine"), "{said}");
    let created =
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: misspelt}}\n---\n{}", members());
    let (code, said) = live.check(&created, &["--namespace=misspelt"]);
    assert_eq!(code, 0, "{said}");

    // A namespace that becomes stricter is judged by its new mode, one that becomes milder by its old one.
    for (was, will, refused) in [("warn", "enforce", true), ("enforce", "off", true), ("off", "warn", false)]
    {
        plane
            .kubectl(
                User::Admin,
                &["label", "namespace", ns, "--overwrite", &format!("gatera.dev/mode={was}")],
            )
            .succeeded();
        let namespace = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {ns}, labels: {{gatera.dev/mode: {will}}}}}\n---\n"
        );
        let (code, said) = live.check(&(namespace + &none), &["--namespace", ns]);
        assert_eq!(code, i32::from(refused), "{was} -> {will}: {said}");
    }
}

/// The account of a pipeline may not read everything: a message names what it may not read, and the rest is judged.
#[test]
fn missing_rights_are_reported() {
    let live = LiveCheck::new("check-rights");
    let (plane, ns) = (live.it.plane, &*live.it.ns);
    plane.kubectl(User::Admin, &["--namespace", ns, "create", "serviceaccount", "pipeline"]).succeeded();
    let bind = [
        "--namespace",
        ns,
        "create",
        "rolebinding",
        "pipeline",
        "--clusterrole=view",
        &format!("--serviceaccount={ns}:pipeline"),
    ];
    plane.kubectl(User::Admin, &bind).succeeded();
    let get = [
        "create",
        "clusterrole",
        &format!("one-{ns}"),
        "--verb=get",
        "--resource=namespaces",
        &format!("--resource-name={ns}"),
    ];
    plane.kubectl(User::Admin, &get).succeeded();
    let bind = [
        "create",
        "clusterrolebinding",
        &format!("one-{ns}"),
        &format!("--clusterrole=one-{ns}"),
        &format!("--serviceaccount={ns}:pipeline"),
    ];
    plane.kubectl(User::Admin, &bind).succeeded();
    let kubeconfig = guarded::kubeconfig_of(plane, ns, "pipeline", &format!("pipeline-{ns}"), None);
    let text = members().replace("replicas: 3", "replicas: 0");
    let (code, said) = live.check_with(&kubeconfig, &text, &["--namespace", ns]);
    assert!(code == 1 && said.contains("3 -> 0 replicas stops every member"), "{said}");
    let secret = format!(
        "the change of Secret {ns}/galera-instance was not judged: secrets \"galera-instance\" is forbidden"
    );
    assert!(
        said.contains(&secret)
            && said.contains("nodes could not be listed, so what depends on them was not judged"),
        "{said}"
    );
    let (code, said) = live.check_with(&kubeconfig, &members(), &["--namespace", ns, "--strict"]);
    assert_eq!(code, 2, "{said}");
    let odd = "apiVersion: v1\nkind: Service\nmetadata: {name: ../secrets/x}\n";
    let (_, said) = live.check_with(&kubeconfig, odd, &["--namespace", ns]);
    assert!(said.contains("\"../secrets/x\" is not a valid name of an object"), "{said}");
}

/// Neither the input nor the output of a credential plugin is printed.
#[test]
fn a_credential_plugin_that_fails_is_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let (file, kubeconfig) = (folder.path().join("galera.yaml"), folder.path().join("kubeconfig"));
    fs::write(&file, CLUSTER).unwrap();
    for exit in [3, 0] {
        let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", format!("echo hunter2; exit {exit}")], "env": [{ "name": "KEY", "value": "hunter2" }], "interactiveMode": "Never" });
        let config = json!({ "apiVersion": "v1", "kind": "Config", "clusters": [{ "name": "a", "cluster": { "server": "https://127.0.0.1:1" } }], "users": [{ "name": "a", "user": { "exec": exec } }], "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }], "current-context": "a" });
        fs::write(&kubeconfig, config.to_string()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_gatera"))
            .args(["check", "--live"])
            .arg(&file)
            .env("KUBECONFIG", &kubeconfig)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            said,
            format!(
                "gatera: preparing a client for https://127.0.0.1:1 (context a of {}): the credentials that the kubeconfig names could not be obtained (exec plugin, auth provider or token file)\n",
                kubeconfig.display()
            )
        );
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]));
    }
}

/// The error is one line, with exit code 2.
#[test]
fn an_api_server_that_does_not_answer_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (file, kubeconfig) = (folder.path().join("galera.yaml"), folder.path().join("kubeconfig"));
    fs::write(&file, CLUSTER).unwrap();
    let server = "https://127.0.0.1:1";
    fs::write(&kubeconfig, format!("apiVersion: v1\nkind: Config\nclusters: [{{name: a, cluster: {{server: '{server}'}}}}]\nusers: [{{name: a, user: {{token: hunter2}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\n")).unwrap();
    let shown = kubeconfig.display();
    for (arguments, words) in [
        (
            &["--live"][..],
            format!(
                "gatera: asking the API server for its version: the API server does not answer: {server} (context a of {shown}): Connection refused\n"
            ),
        ),
        (
            &["--live", "--context=nowhere"],
            format!("gatera: there is no context nowhere in {shown}; it has a\n"),
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_gatera"))
            .arg("check")
            .args(arguments)
            .arg(&file)
            .env("KUBECONFIG", &kubeconfig)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with(&*words) && said.lines().count() == 1 && !said.contains("hunter2"),
            "{said}"
        );
    }
}
