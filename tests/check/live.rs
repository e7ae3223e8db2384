//! Against a cluster that lives: what is said of a file before it is applied is what the API server says when it is.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::CLUSTER;
use crate::lab::User;
use crate::paths::Terminal;

/// The headlines of what is refused, as kubectl prints them.
fn denials(text: &str) -> BTreeSet<String> {
    let headline = |line: &str| {
        line.find("[G").filter(|at| line[*at..].get(4..6) == Some("] ")).map(|at| line[at..].to_owned())
    };
    text.lines()
        .filter(|line| !line.contains("Warning:") && !line.contains(": warning"))
        .filter_map(headline)
        .collect()
}

#[test]
fn what_is_said_before_is_what_the_api_server_says() {
    let it = Terminal::new("check-live");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("galera.yaml");
    let check = |user: User, arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_gatera"))
            .args(["check", "--live", "--output=concise", "--namespace", &it.ns])
            .args(arguments)
            .arg(&file)
            .env("KUBECONFIG", it.plane.kubeconfig(user))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout) + &text(output.stderr))
    };
    // The bootstrap node is gone by now, and applying its manifest again is held at 0 replicas: of that a warning.
    let rest: Vec<_> =
        CLUSTER.split("\n---\n").filter(|it| !it.contains("name: galera-instance-bootstrap")).collect();
    let rest = rest.join("\n---\n");
    for (what, old, new) in [
        ("nothing", "replicas: 3", "replicas: 3"),
        ("fewer than the majority", "replicas: 3", "replicas: 1"),
        ("none", "replicas: 3", "replicas: 0"),
        ("more", "replicas: 3", "replicas: 5"),
        ("an older server", "mariadb:10.11", "mariadb:10.6"),
        ("another Service", "serviceName: galera-instance-hs", "serviceName: galera-instance-cs"),
        ("larger claims", "storage: 1Gi", "storage: 2Gi"),
        ("an option that breaks it", "innodb_autoinc_lock_mode = 2", "innodb_autoinc_lock_mode = 1"),
        ("a password", "binlog_format = ROW", "wsrep_sst_auth = root:x"),
        ("another password", "root-password: change-me", "root-password: hunter2"),
        ("names that nobody finds", "publishNotReadyAddresses: true", "publishNotReadyAddresses: false"),
    ] {
        assert!(rest.contains(old), "{what}");
        fs::write(&file, rest.replace(old, new)).unwrap();
        let applied = it.run(&["apply", "--dry-run=server", &format!("--filename={}", file.display())]);
        let (code, said) = check(User::Admin, &[]);
        assert_eq!(denials(&said), denials(&applied.stderr), "{what}:\n{said}\n{}", applied.stderr);
        assert_eq!(code, i32::from(applied.status != 0), "{what}: {said}");
        if old == new {
            let all = rest.split("\n---\n").count();
            let unchanged = format!(
                "{all} objects: 0 would be refused, 0 allowed with a warning, {all} unchanged; 1 Galera cluster\n"
            );
            assert_eq!(said, unchanged);
        }
    }
}

/// One line, and exit 2.
#[test]
fn a_cluster_that_does_not_answer_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (file, kubeconfig) = (folder.path().join("galera.yaml"), folder.path().join("kubeconfig"));
    fs::write(&file, CLUSTER).unwrap();
    let server = "https://127.0.0.1:1";
    fs::write(&kubeconfig, format!("apiVersion: v1\nkind: Config\nclusters: [{{name: a, cluster: {{server: '{server}'}}}}]\nusers: [{{name: a, user: {{token: hunter2}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\n")).unwrap();
    for (arguments, words) in [
        (&["--live"][..], "gatera: listing statefulsets: "),
        (
            &["--live", "--context=nowhere"],
            "gatera: there is no context nowhere in the kubeconfig, or it will not do\n",
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
        assert!(said.starts_with(words) && said.lines().count() == 1 && !said.contains("hunter2"), "{said}");
    }
}
