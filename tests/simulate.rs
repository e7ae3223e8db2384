//! `gatera simulate` with real kubectl: what it says of a command is what becomes of the command, on every path, and nothing of it
//! is done.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::cluster::STATEFUL_SET;
use crate::lab::{ControlPlane, User};
use crate::paths::{Terminal, everything_that_destroys};

/// Types `gatera simulate OPTIONS -- kubectl LINE`.
struct Typed<'a> {
    plane: &'a ControlPlane,
    kubeconfig: &'a Path,
    ns: &'a str,
}

impl Typed<'_> {
    fn run(&self, options: &[&str], line: &str) -> Output {
        let kubectl = self.plane.tools_folder().join("kubectl");
        let mut all = vec!["simulate", "--namespace", self.ns];
        all.extend(options);
        let kubectl = kubectl.display().to_string();
        if !line.is_empty() {
            all.extend(["--", &kubectl]);
            all.extend(line.split(' '));
        }
        Command::new(env!("CARGO_BIN_EXE_gatera"))
            .args(all)
            .env("KUBECONFIG", self.kubeconfig)
            .env("PATH", self.plane.tools_folder())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn json(&self, line: &str) -> (i32, Value) {
        let output = self.run(&["--output=json"], line);
        let said = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{line}: {error}: {output:?}"));
        (output.status.code().unwrap(), said)
    }

    fn text(&self, line: &str) -> (i32, String) {
        let output = self.run(&[], line);
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text)
    }
}

/// The versions of all that a namespace holds: whatever is written changes one.
fn versions(plane: &ControlPlane, ns: &str) -> String {
    let kinds = "statefulsets,deployments,pods,services,configmaps,secrets,persistentvolumeclaims,poddisruptionbudgets";
    let asked = [
        "--namespace",
        ns,
        "get",
        kinds,
        "--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} {.metadata.deletionTimestamp} {.metadata.labels}{\"\\n\"}{end}",
    ];
    plane.kubectl(User::Admin, &asked).succeeded()
}

#[test]
fn what_destroys_is_foretold_on_every_path_word_by_word() {
    let it = Terminal::new("simulate");
    let before = versions(it.plane, &it.ns);
    let kubeconfig = it.plane.kubeconfig(User::Editor);
    let typed = Typed { plane: it.plane, kubeconfig: &kubeconfig, ns: &it.ns };
    for (line, rule) in everything_that_destroys() {
        let (code, said) = typed.json(&line);
        let refused: Vec<_> =
            said["requests"].as_array().unwrap().iter().filter(|it| it["refused"] == true).collect();
        assert!(code == 1 && !refused.is_empty(), "{line}: {said:#}");
        for one in said["requests"].as_array().unwrap() {
            assert_eq!(one["likeness"], "same", "{line}: {one:#}");
        }
        let rules = |it: &&Value| it["here"]["rules"].as_array().unwrap().contains(&json!(rule));
        assert!(refused.iter().any(rules), "{line}: {said:#}");
    }
    for line in [
        format!("delete statefulset {STATEFUL_SET} --cascade=orphan"),
        format!("delete pod {STATEFUL_SET}-2"),
        format!("annotate statefulset {STATEFUL_SET} team=databases"),
        format!("label pod {STATEFUL_SET}-1 team=databases"),
        format!("scale statefulset {STATEFUL_SET} --replicas=5"),
        format!(
            "patch statefulset {STATEFUL_SET} --subresource=scale --type=merge --patch={{\"spec\":{{\"replicas\":5}}}}"
        ),
        "create configmap other --from-literal=a=b".to_owned(),
        "run other --image=busybox -- sh -c true".to_owned(),
    ] {
        let (code, said) = typed.json(&line);
        assert_eq!(code, 0, "{line}: {said:#}");
        assert_eq!(
            (&said["requests"][0]["likeness"], &said["kubectl"]),
            (&json!("same"), &json!(0)),
            "{line}: {said:#}"
        );
    }
    assert_eq!(versions(it.plane, &it.ns), before, "nothing was changed");
}

#[test]
fn a_node_is_drained_in_thought() {
    let it = Terminal::new("simulate-drain");
    it.make_unready(2);
    let pod = it.plane.get(&it.ns, &format!("pod/{STATEFUL_SET}-1"));
    let node = pod["spec"]["nodeName"].as_str().unwrap();
    let kubeconfig = it.plane.kubeconfig(User::Admin);
    let typed = Typed { plane: it.plane, kubeconfig: &kubeconfig, ns: &it.ns };
    let line = format!(
        "drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=1s --pod-selector=app=galera"
    );
    let (code, said) = typed.json(&line);
    let evicted = said["requests"].as_array().unwrap().iter();
    let ours: Vec<_> =
        evicted.filter(|one| one["object"] == json!(format!("Pod {}/{STATEFUL_SET}-1", it.ns))).collect();
    let [one] = ours[..] else { panic!("however often it is asked for: {said:#}") };
    assert_eq!(
        (&one["verb"], &one["likeness"], &one["here"]["rules"]),
        (&json!("evict"), &json!("same"), &json!(["G02"])),
        "{said:#}"
    );
    assert_eq!(code, 1, "{said:#}");
    let node =
        it.plane.kubectl(User::Admin, &["get", "node", node, "--output=jsonpath={.spec.unschedulable}"]);
    assert_eq!(node.succeeded(), "", "it was not even cordoned");
}
