//! `bitnami.bash`, which puts the step script in front of the server in Bitnami's image. It runs in a simulated pod that has
//! scripts with the image's names, and stand-ins for the server and the step script. The image's own decisions are tested in
//! `tests/e2e/images/bitnami`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

pub(super) const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/inject/bitnami.bash");
const ID: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1";
const LIST: &str = "gcomm://galera-0.hs,galera-1.hs,galera-2.hs?gmcast.segment=1";

/// A simulated pod; `new` takes the identity of its cluster and the guard's cluster address.
struct Pod {
    root: TempDir,
}

impl Pod {
    fn new(identity: &str, address: Option<&str>) -> Self {
        let pod = Self { root: TempDir::new().unwrap() };
        for folder in ["gatera", "sbin", "bitnami/mariadb"] {
            fs::create_dir_all(pod.path(folder)).unwrap();
        }
        fs::copy(SCRIPT, pod.path("gatera/bitnami.bash")).unwrap();
        fs::write(pod.path("gatera/identity"), identity).unwrap();
        let address = address.map(|it| format!("wsrep_cluster_address = {it}\n")).unwrap_or_default();
        let options =
            format!("# written by gatera\n[mysqld]\nloose-wsrep_status_file = /run/s.json\n{address}");
        fs::write(pod.path("gatera/my.cnf"), options).unwrap();
        // BASH_ENV must be unset here, so that no bash that the step starts reads `bitnami.bash` again.
        pod.step("echo step${BASH_ENV:-}; printf '%s\\n' \"$@\"");
        pod.program("sbin/mysqld", "echo server \"$@\"");
        pod
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes the stand-in for the step.
    fn step(&self, lines: &str) {
        fs::write(self.path("gatera/start-member.sh"), lines).unwrap();
    }

    /// Writes a bash script with these lines after the image's usual ones. Another process writes it: a file that this process
    /// has open for writing may be inherited by a child of another test, and then cannot be executed.
    fn program(&self, name: &str, lines: &str) {
        let write = r#"printf '#!/bin/bash\nset -o errexit -o nounset -o pipefail\n%s\n' "$1" >"$0" && chmod 755 "$0""#;
        let status = Command::new("/bin/sh").args(["-c", write]).arg(self.path(name)).arg(lines).status();
        assert!(status.unwrap().success());
    }

    fn run(&self, script: &str, env: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.path(script));
        command.env("BASH_ENV", self.path("gatera/bitnami.bash")).env("GATERA_ROOT", self.root.path());
        command.envs(env.iter().copied()).output().unwrap()
    }

    fn prints(&self, script: &str, env: &[(&str, &str)]) -> String {
        let output = self.run(script, env);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        String::from_utf8(output.stdout).unwrap().replace(self.root.path().to_str().unwrap(), "")
    }
}

/// The image starts several servers; only the one that run.sh starts with `exec` gets the step.
#[test]
fn only_the_server_that_stays_gets_the_step() {
    let pod = Pod::new(ID, Some(LIST));
    let server = pod.path("sbin/mysqld");
    let server = server.to_str().unwrap();
    for (name, lines, expected) in [
        ("setup.sh", format!("{server} --a"), "server --a\n".to_owned()),
        ("setup.sh", format!("exec {server} --a"), "server --a\n".to_owned()),
        ("run.sh", format!("{server} --a; exec echo other"), "server --a\nother\n".to_owned()),
        (
            "run.sh",
            format!("flags=(--defaults-file=/x/my.cnf '--b=c d'); exec {server} \"${{flags[@]}}\""),
            format!(
                "step\n/sbin/mysqld\n--defaults-file=/x/my.cnf\n--b=c d\n--loose-wsrep_status_file=/run/s.json\n\
                 --wsrep_cluster_address={LIST}\n"
            ),
        ),
        // As root, where the step, too, runs as the server's user.
        (
            "run.sh",
            format!("exec env A=b {server} --a"),
            format!(
                "step\n/sbin/mysqld\n--a\n--loose-wsrep_status_file=/run/s.json\n--wsrep_cluster_address={LIST}\n"
            ),
        ),
    ] {
        pod.program(name, &lines);
        assert_eq!(pod.prints(name, &[]), expected, "{lines}");
    }
    // The step's exit code is the container's.
    pod.step("exit 7");
    pod.program("run.sh", &format!("exec {server}"));
    assert_eq!(pod.run("run.sh", &[]).status.code(), Some(7));
}

/// The guard's address is left out if the member may found a cluster, if it is the only one of a cluster that is not checked, and
/// if the user sets an address or tells the image to found a cluster.
#[test]
fn the_guards_address_is_appended_unless_the_member_may_found_or_the_user_decides() {
    let flag = |value| ("MARIADB_EXTRA_FLAGS", value);
    for (identity, address, env, is_appended) in [
        (ID, Some(LIST), None, true),
        ("unknown", Some(LIST), None, true),
        ("free", Some(LIST), None, true),
        ("none", Some(LIST), None, true),
        ("founds", Some(LIST), None, false),
        // In the middle of `gatera start`.
        (ID, Some("gcomm://galera-0.hs"), None, true),
        ("free", Some("gcomm://galera-0.hs"), None, false),
        (ID, None, None, false),
        (ID, Some(LIST), Some(flag("--wsrep-node-name=x")), true),
        (ID, Some(LIST), Some(flag("--a --wsrep_cluster-address=gcomm://other")), false),
        ("free", Some(LIST), Some((SWITCHES[0], "yes")), false),
    ] {
        let pod = Pod::new(identity, address);
        pod.program("run.sh", &format!("exec {} --a", pod.path("sbin/mysqld").display()));
        let printed = pod.prints("run.sh", &Vec::from_iter(env));
        assert_eq!(
            printed.contains("--wsrep_cluster_address="),
            is_appended,
            "{identity} {address:?} {env:?}: {printed}"
        );
    }
}

const SWITCHES: [&str; 2] = ["MARIADB_GALERA_CLUSTER_BOOTSTRAP", "MARIADB_GALERA_FORCE_SAFETOBOOTSTRAP"];
/// Prints the switches that setup.sh would see.
const SEES: &str =
    r#"echo "${MARIADB_GALERA_CLUSTER_BOOTSTRAP:-} ${MARIADB_GALERA_FORCE_SAFETOBOOTSTRAP:-}""#;

fn mark(pod: &Pod) -> PathBuf {
    pod.path("bitnami/mariadb/.bootstrap/done")
}

#[test]
fn the_image_does_not_found_a_cluster_that_exists() {
    for (identity, address, is_known, is_marked) in [
        (ID, Some(LIST), true, true),
        (ID, None, true, true),
        ("none", Some(LIST), true, true),
        (&*format!("recovery {ID}:363 until=20261201100000"), Some(LIST), true, true),
        // The cluster has data, but its id is not known yet, or is not checked.
        ("unknown", Some(LIST), false, true),
        ("free", Some(LIST), false, true),
        ("unknown", None, false, false),
        ("founds", Some(LIST), false, false),
        ("", None, false, false),
    ] {
        for switch in SWITCHES {
            for (value, on) in [("yes", true), ("TRUE", true), ("1", true), ("no", false), ("", false)] {
                let pod = Pod::new(identity, address);
                pod.program("entrypoint.sh", SEES);
                let output = pod.run("entrypoint.sh", &[(switch, value)]);
                let what = format!("{identity} {address:?} {switch}={value}: {output:?}");
                assert!(output.status.success(), "{what}");
                let sees = String::from_utf8_lossy(&output.stdout);
                assert_eq!(sees.trim() == value, !is_known || value.is_empty(), "{what}");
                let says = format!("gatera: {switch} is ignored: its cluster exists already\n");
                let said = if is_known && on { &*says } else { "" };
                assert_eq!(String::from_utf8_lossy(&output.stderr), said, "{what}");
                // As long as the guard does not know the cluster, a switch that a person set has its effect.
                assert_eq!(mark(&pod).exists(), is_marked && (is_known || !on), "{what}");
            }
        }
    }
}

#[test]
fn leftovers_of_the_image_do_not_interfere() {
    // A file takes precedence, as in the image.
    let pod = Pod::new(ID, Some(LIST));
    pod.program("entrypoint.sh", SEES);
    fs::write(pod.path("switch"), "yes\n").unwrap();
    let file = pod.path("switch");
    let by_file = ("MARIADB_GALERA_CLUSTER_BOOTSTRAP_FILE", file.to_str().unwrap());
    let output = pod.run("entrypoint.sh", &[(SWITCHES[0], "no"), by_file]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is ignored"), "{output:?}");
    assert_eq!(output.stdout, b" \n", "the image must not see the switch");

    // If the member may found a cluster, the mark is removed from a volume without data, so that the image creates a database;
    // a volume with data keeps its mark.
    fs::write(pod.path("gatera/identity"), "founds").unwrap();
    for (data, marked) in [(true, true), (false, false)] {
        fs::create_dir_all(mark(&pod).parent().unwrap()).unwrap();
        fs::write(mark(&pod), "").unwrap();
        fs::create_dir_all(pod.path("bitnami/mariadb/data/mysql")).unwrap();
        if !data {
            fs::remove_dir(pod.path("bitnami/mariadb/data/mysql")).unwrap();
        }
        pod.prints("entrypoint.sh", &[]);
        assert_eq!(mark(&pod).exists(), marked, "the mark on a volume, with data: {data}");
    }

    // The report of an earlier start is removed. The image itself reports a volume that cannot be written.
    fs::create_dir_all(pod.path("run/gatera")).unwrap();
    fs::write(pod.path("run/gatera/start"), "start of …").unwrap();
    fs::write(pod.path("gatera/identity"), ID).unwrap();
    fs::remove_dir_all(pod.path("bitnami")).unwrap();
    fs::write(pod.path("bitnami"), "").unwrap();
    assert_eq!(pod.prints("entrypoint.sh", &[]), " \n");
    assert!(!pod.path("run/gatera/start").exists(), "the report of an earlier start is left");
}
