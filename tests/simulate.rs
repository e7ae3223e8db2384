//! `gatera simulate` with real kubectl: what it says of a command is what becomes of the command, on every path, and nothing of it
//! is done.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::cluster::STATEFUL_SET;
use crate::guarded;
use crate::lab::{ControlPlane, User, eventually};
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
        // The guard of all tests runs by the defaults, and its chart's settings name pages.
        let settings = self.plane.folder().join("defaults.yaml");
        fs::write(&settings, "mode: enforce").unwrap();
        let output = self.run(&["--output=json", "--config", &settings.display().to_string()], line);
        let said = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{line}: {error}: {output:?}"));
        (output.status.code().unwrap(), said)
    }

    /// What kubectl prints, and then what gatera does.
    fn page(&self, options: &[&str], line: &str) -> String {
        let output = self.run(options, line);
        let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        let kubectl = self.plane.tools_folder().join("kubectl").display().to_string();
        let shown = format!(
            "$ gatera simulate {} -- kubectl {line}\n{err}{out}exit {}\n\n",
            options.join(" "),
            output.status.code().unwrap()
        );
        shown.replace(self.ns, "db").replace(&kubectl, "kubectl")
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

/// What people read. kubectl's own words come first.
#[test]
fn both_answers_stand_beside_each_other() {
    let it = Terminal::new("simulate-words");
    let plane = it.plane;
    let [admin, editor] = [User::Admin, User::Editor].map(|user| plane.kubeconfig(user));
    let by = |kubeconfig| Typed { plane, kubeconfig, ns: &it.ns };
    let mut page = String::new();
    let scale = format!("scale statefulset {STATEFUL_SET} --replicas=0");
    for line in [
        &*scale,
        "delete pod nobody",
        "rollout restart statefulset/galera",
        "create configmap a --from-literal=b=c",
        "apply --filename=nowhere.yaml",
    ] {
        page.push_str(&by(&admin).page(&[], line));
    }
    page.push_str(&by(&editor).page(&[], &format!("delete pod {STATEFUL_SET}-0")));
    // What carries no labels of a cluster is not asked about in a namespace that is not guarded as a whole.
    plane
        .kubectl(User::Admin, &["label", "namespace", &it.ns, "--overwrite", "gatera.dev/mode=off"])
        .succeeded();
    plane.kubectl(User::Admin, &["label", "namespace", &it.ns, "gatera.dev/mode-"]).succeeded();
    page.push_str(&by(&admin).page(&[], "delete configmap galera-instance-nodeconfig"));
    let unlike = by(&admin).json("delete configmap galera-instance-nodeconfig");
    assert_eq!((unlike.0, &unlike.1["requests"][0]["likeness"]), (1, &json!("opposite")), "{unlike:?}");
    insta::with_settings!({
        prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => ".",
        filters => vec![(r"until=\S+Z", "until=SOON"), (r"seen \d+s ago", "seen now"), (r" deleted from \S+ namespace", " deleted")],
    }, { insta::assert_snapshot!("simulate", page) });
}

/// Whatever runs: what is no dry run never gets there.
#[test]
fn what_is_no_dry_run_is_not_sent() {
    let it = Terminal::new("simulate-evil");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = it.plane.kubeconfig(User::Admin);
    let real = it.plane.tools_folder().join("kubectl").display().to_string();
    let before = versions(it.plane, &it.ns);
    let body = folder.path().join("options.json");
    fs::write(&body, "{}").unwrap();
    let pod = format!("/api/v1/namespaces/{}/pods/{STATEFUL_SET}-0", it.ns);
    let no = "gatera simulate: this is no dry run, so it was not sent";
    let of_containers = "what a container does is no dry run";
    // What older ones send raw leaves out the path of the way that they are given, so nothing of it arrives.
    let raw = |says| if it.plane.minor() < 36 { "there is nothing here" } else { says };
    for (does, says) in [
        (format!("delete pod {STATEFUL_SET}-0"), no),
        (format!("scale statefulset {STATEFUL_SET} --replicas=5"), no),
        ("create configmap x".to_owned(), no),
        (format!("annotate pod {STATEFUL_SET}-0 a=b"), no),
        (format!("create --raw {pod}/eviction?dryRun= --filename={}", body.display()), raw(no)),
        (format!("get --raw {pod}/proxy/stop"), raw(of_containers)),
        (format!("exec {STATEFUL_SET}-0 -- true"), of_containers),
        (
            format!("create --raw {pod}/exec?command=true&dryRun=All --filename={}", body.display()),
            raw(of_containers),
        ),
    ] {
        let script = folder.path().join("kubectl");
        fs::write(&script, format!("#!/bin/sh\nexec '{real}' {}\n", does.replace('&', "'&'"))).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_gatera"))
            .args([
                "simulate",
                "--namespace",
                &it.ns,
                "--",
                &script.display().to_string(),
                "delete",
                "pod",
                "x",
            ])
            .env("KUBECONFIG", &kubeconfig)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(says), "{does}: {said}");
    }
    assert_eq!(versions(it.plane, &it.ns), before);
    let map = ["--namespace", &it.ns, "get", "configmap", "x"];
    assert_ne!(it.plane.kubectl(User::Admin, &map).status, 0);
}

/// A kubeconfig that leads nowhere is told as such, and nothing is left lying about.
#[test]
fn an_api_server_that_is_away_is_said_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let away = json!({ "apiVersion": "v1", "kind": "Config", "clusters": [{ "name": "a", "cluster": { "server": "http://127.0.0.1:1" } }], "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }], "users": [{ "name": "a", "user": {} }], "current-context": "a" });
    fs::write(&kubeconfig, away.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gatera"))
        .args(["simulate", "--", "kubectl", "delete", "pod", "x"])
        .env("KUBECONFIG", &kubeconfig)
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("gatera: asking the API server for its version: "), "{said}");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the kubeconfig of this test");
}

/// The documents that this began with, as they are applied to a namespace where nothing is yet: here and there the same is said of
/// each of their objects.
#[test]
fn documents_of_others_are_judged_alike() {
    let (plane, _) = guarded::shared();
    let kubeconfig = plane.kubeconfig(User::Admin);
    let (folder, mut compared) = (tempfile::tempdir().unwrap(), 0);
    for name in ["seed", "seed-verbatim", "seed-004", "seed-operator", "bitnami-like", "galera"] {
        let ns = plane.namespace_with_labels("simulate-seeds", &[("gatera.dev/mode", "enforce")]);
        let typed = Typed { plane, kubeconfig: &kubeconfig, ns: &ns };
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.yaml"));
        // One of them says where; there not everything would be asked about.
        let text =
            fs::read_to_string(file).unwrap().replace("namespace: default", &format!("namespace: {ns}"));
        let file = folder.path().join("applied.yaml");
        fs::write(&file, text).unwrap();
        let output = typed.run(&["--output=json", "--filename", &file.display().to_string()], "");
        let said: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{name}: {error}: {output:?}"));
        let requests = said["requests"].as_array().unwrap();
        assert!(!requests.is_empty(), "{name}: {output:?}");
        // What no API server takes at all: two of them have a file beside the data.
        let (odd, alike): (Vec<_>, Vec<_>) =
            requests.iter().partition(|one| one["there"]["by"] == "api server");
        for one in &alike {
            assert_eq!(one["likeness"], "same", "{name}: {one:#}");
        }
        for one in &odd {
            let says = one["there"]["says"].as_str().unwrap();
            assert!(
                says.contains("unknown field \"") && says.contains("wait-for-sync.sh\""),
                "{name}: {one:#}"
            );
        }
        assert_eq!(odd.len(), usize::from(["seed-verbatim", "seed-004"].contains(&name)), "{name}: {odd:#?}");
        compared += alike.len();
        let refused = requests.iter().any(|one| one["refused"] == true);
        let code = if odd.is_empty() { i32::from(refused) } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{name}: {said:#}");
        assert_eq!(refused, name.starts_with("seed"), "{name}: {said:#}");
    }
    assert!(compared > 30, "{compared} objects");
}

/// Somebody ends it, or closes the terminal: kubectl ends with it, and nothing is left lying about.
#[test]
fn whoever_ends_it_ends_all_of_it() {
    let (plane, _) = guarded::shared();
    let folder = tempfile::tempdir().unwrap();
    let (script, started) = (folder.path().join("kubectl"), folder.path().join("started"));
    fs::write(&script, format!("#!/bin/sh\necho $$ > '{}'\nexec sleep 600\n", started.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_gatera"))
        .args(["simulate", "--", &script.display().to_string(), "delete", "pod", "x"])
        .env("KUBECONFIG", plane.kubeconfig(User::Admin))
        .env("TMPDIR", &temporary)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid =
        eventually("kubectl to run", || fs::read_to_string(&started).ok().filter(|it| it.ends_with('\n')));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 1, "the kubeconfig of this command");
    let own = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let known = "gatera: settings: those of the guard (ConfigMap gatera/gatera-settings)\n";
    assert_eq!(said, format!("{known}gatera: interrupted; nothing was changed\n"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    let process = Path::new("/proc").join(pid.trim());
    eventually("kubectl to end", || (!process.exists()).then_some(()));
}
