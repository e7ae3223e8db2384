//! Tests of the lab: each control plane is real, several can run at once, and none leaves processes or files behind.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use rustix::process::{Pid, test_kill_process_group};
use serde_json::{Value, json};

use super::control_plane::Site;
use super::{ControlPlane, User, eventually, shared};

/// The lab's own requests replace `kubectl get --output=json`.
#[test]
fn what_the_lab_reads_is_what_kubectl_prints() {
    let plane = shared();
    let namespace = plane.namespace("read");
    for (what, kind) in [("serviceaccount/default", "ServiceAccount"), ("rolebindings", "List")] {
        let get = ["get", what, "--namespace", &namespace, "--output=json"];
        let printed: Value = serde_json::from_str(&plane.kubectl(User::Admin, &get).succeeded()).unwrap();
        assert_eq!(printed["kind"], kind);
        let read = plane.get(&namespace, what);
        let parts =
            if kind == "List" { &["items"][..] } else { &["kind", "apiVersion", "metadata", "items"] };
        for part in parts {
            assert_eq!(read.get(part), printed.get(part), "{part} of {what}");
        }
    }
}

#[test]
fn an_editor_edits_their_namespace_and_nothing_else() {
    let plane = shared();
    let namespace = plane.namespace("editor");

    let denied = plane.kubectl(User::Editor, &["get", "nodes"]);
    assert_eq!(denied.status, 1);
    assert_eq!(denied.stdout, "");
    assert_eq!(
        denied.stderr,
        "Error from server (Forbidden): nodes is forbidden: User \"editor\" cannot list resource \"nodes\" \
         in API group \"\" at the cluster scope\n"
    );

    for user in [User::Editor, User::Ci] {
        let name = format!("by-{}", user.name());
        let created = plane.kubectl(user, &["create", "configmap", &name, "--namespace", &namespace]);
        assert_eq!((created.status, created.stderr.as_str()), (0, ""));
        assert_eq!(created.stdout, format!("configmap/{name} created\n"));
    }
}

#[test]
fn a_stateful_set_runs_as_in_a_real_cluster() {
    let plane = shared();
    let namespace = plane.namespace_with_labels("members", &[("purpose", "selftest")]);
    plane.create(&stateful_set(&namespace));

    // The real controller creates the pod, but nothing runs it.
    let phase = eventually("the first pod", || plane.find(&namespace, "pod/member-0").ok());
    assert_eq!(phase["status"]["phase"], "Pending");

    plane.run_stateful_set(&namespace, "member");
    let claim = plane.get(&namespace, "persistentvolumeclaim/data-member-1");
    assert_eq!(claim["status"]["phase"], "Bound");
    let pod = plane.get(&namespace, "pod/member-1");
    assert_eq!(pod["spec"]["nodeName"], "node-1");
    assert_eq!(ready(plane, &namespace, "member-1"), "True");

    plane.make_pod_unready(&namespace, "member-1");
    assert_eq!(ready(plane, &namespace, "member-1"), "False");

    // A bound pod stays until its kubelet has stopped it; then its successor must become ready again.
    let delete = ["delete", "pod/member-0", "--wait=false", "--namespace", &namespace];
    plane.kubectl(User::Editor, &delete).succeeded();
    assert_eq!(ready(plane, &namespace, "member-0"), "True");
    assert_eq!(plane.finish_deletes(&namespace), ["member-0"]);
    plane.make_pod_ready(&namespace, "member-0");
    assert_eq!(ready(plane, &namespace, "member-0"), "True");
}

#[test]
fn a_panic_ends_its_own_control_plane_and_no_other() {
    let other = shared();
    let panicked = thread::spawn(|| {
        let plane = ControlPlane::start();
        let namespace = plane.namespace("alone");
        assert_ne!(shared().kubectl(User::Admin, &["get", "namespace", &namespace]).status, 0);
        std::panic::panic_any((plane.process_groups(), plane.folder().to_owned()));
    });
    let traces = panicked.join().expect_err("the thread panics");
    let (groups, folder) =
        traces.downcast::<(Vec<u32>, PathBuf)>().map(|traces| *traces).expect("our own panic");

    assert_eq!(groups.len(), 3, "etcd, the API server and the controller manager");
    assert!(groups.iter().all(|&group| is_gone(group)), "a program outlived its control plane");
    assert!(!folder.exists(), "{} is left", folder.display());
    assert_eq!(other.kubectl(User::Admin, &["get", "--raw=/readyz"]).stdout, "ok");
}

#[test]
fn a_killed_test_process_leaves_nothing_behind() {
    let (_, this_module) = module_path!().split_once("::").expect("a module of a crate");
    let mut victim = Command::new(env::current_exe().expect("the path of the test binary is known"))
        .args(["--exact", &format!("{this_module}::victim"), "--nocapture"])
        .env("GATERA_LAB_VICTIM", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary can be started again");
    let stdout = BufReader::new(victim.stdout.take().expect("stdout is a pipe"));
    let traces = stdout
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("victim: ").map(|(_, traces)| traces.to_owned()));
    let traces = traces.expect("the victim prints its traces");
    let mut words = traces.split(' ');
    let folder = Path::new(words.next().unwrap_or_default());
    let groups: Vec<u32> = words.map(|group| group.parse().expect("a process id")).collect();
    assert_eq!(groups.len(), 3, "etcd, the API server and the controller manager");
    let all_run = groups.iter().all(|&group| !is_gone(group));
    assert!(folder.exists() && all_run, "the victim's folder or a program is missing before it is killed");

    victim.kill().expect("a child can be killed");
    victim.wait().expect("a child can be waited for");

    eventually("the programs and the folder of the killed process to be gone", || {
        (groups.iter().all(|&group| is_gone(group)) && !folder.exists()).then_some(())
    });
}

#[test]
fn a_kubectl_that_does_not_end_is_killed_and_the_plane_keeps_running() {
    let plane = shared();
    let watch = ["get", "namespaces", "--watch"];
    // Long enough for kubectl to print something on a busy machine.
    let patience = Duration::from_secs(20);
    let error = plane.run_kubectl(User::Admin, &watch, Path::new("/dev/null"), patience);
    let error = error.expect_err("a watch has no end").to_string();
    assert!(
        error.starts_with("`kubectl get namespaces --watch` had not ended after 20 s; so far: "),
        "{error}"
    );
    assert!(error.contains("kube-system"), "{error}");
    assert_eq!(plane.kubectl(User::Admin, &["get", "--raw=/readyz"]).stdout, "ok");
}

/// Not a test itself: the process that `a_killed_test_process_leaves_nothing_behind` kills while kubectl also runs.
#[test]
fn victim() {
    if env::var_os("GATERA_LAB_VICTIM").is_none() {
        return;
    }
    let plane = ControlPlane::start();
    let groups: Vec<String> = plane.process_groups().iter().map(u32::to_string).collect();
    println!("victim: {} {}", plane.folder().display(), groups.join(" "));
    plane.kubectl(User::Admin, &["get", "namespaces", "--watch"]);
    unreachable!("a watch has no end");
}

#[test]
fn a_port_lost_to_another_program_is_distinguished_from_other_failures() {
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = other.local_addr().expect("a bound socket has an address").port();
    let error = ControlPlane::start_on(Site::loopback(port)).err().expect("the port is taken");
    assert!(error.port_was_taken(), "{error}");
}

fn is_gone(group: u32) -> bool {
    let pid = i32::try_from(group).ok().and_then(Pid::from_raw).expect("a process id");
    test_kill_process_group(pid).is_err()
}

fn ready(plane: &ControlPlane, namespace: &str, pod: &str) -> String {
    let path = "--output=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    plane.kubectl(User::Editor, &["get", "pod", pod, "--namespace", namespace, path]).succeeded()
}

fn stateful_set(namespace: &str) -> serde_json::Value {
    let labels = json!({ "app": "member" });
    let container = json!({ "name": "mariadb", "image": "mariadb:10.11" });
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "member", "namespace": namespace },
        "spec": {
            "replicas": 2,
            "serviceName": "member",
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
            "volumeClaimTemplates": [claim],
        },
    })
}
