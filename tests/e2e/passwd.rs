//! `gatera passwd` on real pods: the command is killed and run again, a change is reversed, and members copy all data during one.
//! Meanwhile clients log in with each password and a writer commits. Part of `make drills`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};

use serde_json::json;

use crate::galera::{Galera, patiently, series};
use crate::guard::guarded;
use crate::install::formed;
use crate::recover::gatera;
use crate::writer::Writer;

const NEW: &str = "a-New_one.1";
const BOTH: &str = "accepts the old and the new password";

/// Logs in repeatedly. Prints a line each time: "in", "denied", or "away" if no server answered.
const LOGIN_LOOP: &str = r#"
while :; do
    answer=$(MYSQL_PWD=$PASSWORD mariadb --user=root --host="$HOST" --connect-timeout=2 --execute='SELECT 1' 2>&1) && echo in || {
        case $answer in *"Access denied"*) echo denied ;; *) echo away ;; esac
        sleep 0.2
    }
done
"#;

/// A pod that logs in repeatedly with a fixed password, not with the one in the Secret.
struct LoginClient<'a> {
    galera: &'a Galera<'a>,
    pod: String,
}

impl<'a> LoginClient<'a> {
    fn start(galera: &'a Galera<'a>, name: &str, password: &str) -> Self {
        galera.lab.create(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": galera.namespace },
            "spec": { "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "client", "image": format!("mariadb:{}", series()), "imagePullPolicy": "IfNotPresent",
                "command": ["bash", "-c", LOGIN_LOOP],
                "env": [{ "name": "PASSWORD", "value": password }, { "name": "HOST", "value": format!("{}-cs", galera.name) }],
            }] },
        }));
        let client = Self { galera, pod: name.to_owned() };
        patiently("the client logs in", || {
            client.count("in").checked_sub(1).map(drop).ok_or_else(|| client.printed())
        });
        client
    }

    fn printed(&self) -> String {
        self.galera.kubectl(&["logs", &self.pod]).stdout
    }

    fn count(&self, word: &str) -> usize {
        self.printed().lines().filter(|line| *line == word).count()
    }

    /// Ends the client, asserts that it was never denied, and returns how often it logged in.
    fn never_denied(self) -> usize {
        let (log_ins, denied, away) = (self.count("in"), self.count("denied"), self.count("away"));
        println!("{}: {log_ins} logins, {denied} denied, {away} without an answer", self.pod);
        assert_eq!(denied, 0, "{} was denied", self.pod);
        self.galera.kubectl(&["delete", "pod", &self.pod, "--now"]).succeeded();
        log_ins
    }
}

fn secret_value(galera: &Galera<'_>, key: &str) -> String {
    let template = format!("--template={{{{index .data \"{key}\" | base64decode}}}}");
    galera.kubectl(&["get", "secret", &format!("{}-secret", galera.name), &template]).succeeded()
}

/// Starts the command with `input` on its standard input.
fn passwd(galera: &Galera<'_>, more: &[&str], input: &str) -> Child {
    let mut child =
        gatera("passwd", galera, more).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child
}

/// Kills the command as soon as it prints this text. It prints each step before it takes it.
fn kill_at(text: &str, mut child: Child) {
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("{line}");
        if line.contains(text) {
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        }
    }
    panic!("the command ended without printing {text}");
}

/// Waits until the command succeeds. Returns what it printed.
fn wait_for(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    println!("{printed}");
    assert!(output.status.success(), "`gatera passwd` failed: {printed}");
    printed
}

/// Asserts that no Secret or mark of a change remains.
fn no_change_is_under_way(galera: &Galera<'_>) {
    let own = galera.kubectl(&["get", "secrets", "--output=name"]).succeeded();
    assert!(!own.contains("gatera-passwd"), "a Secret of the change is left: {own}");
    let marks = "--template={{.metadata.annotations}}";
    let marks = galera.kubectl(&["get", "secret", &format!("{}-secret", galera.name), marks]).succeeded();
    assert!(!marks.contains("gatera.dev/password"), "a mark of the change is left: {marks}");
    galera.until_synced(3, 3);
}

#[test]
fn a_password_changes_and_no_login_fails() {
    let galera = &formed(guarded(), "passwd");
    let (old, file) = (secret_value(galera, "root-password"), secret_value(galera, "sst.cnf"));
    let writer = Writer::start(galera, &json!({ "value": old }));
    let old_logins = LoginClient::start(galera, "old-logins", &old);

    // The password of the state transfer's user is changed and changed back.
    kill_at("restarting", passwd(galera, &["--user=sst", "--stdin", "--yes"], NEW));
    assert!(secret_value(galera, "sst.cnf").contains(NEW));
    galera.until_ready(3);
    let printed = wait_for(passwd(galera, &["--user=sst", "--abort", "--yes"], ""));
    assert!(printed.contains("accepts only the old password of sst"), "{printed}");
    let old_sst = file.split_once("sst:").and_then(|(_, rest)| rest.split('"').next()).unwrap();
    assert!(secret_value(galera, "sst.cnf").contains(old_sst));
    no_change_is_under_way(galera);
    galera.replace_volume(2);
    galera.until_ready(3);
    galera.until_synced(3, 3);

    // Then it is changed completely, with a full copy during the change and one afterwards.
    wait_for(passwd(galera, &["--user=sst", "--stdin", "--yes", "--keep-old"], NEW));
    galera.replace_volume(1);
    galera.until_ready(3);
    galera.until_synced(3, 3);
    let printed = wait_for(passwd(galera, &["--user=sst", "--yes"], ""));
    assert!(printed.contains("accepts only the new password of sst"), "{printed}");
    no_change_is_under_way(galera);
    galera.replace_volume(2);
    galera.until_ready(3);
    galera.until_synced(3, 3);

    // Root's password is changed, and the command is killed at every step up to the one after which both passwords work.
    let asked = ["--stdin", "--yes", "--keep-old"];
    kill_at("MariaDB: changing root to accept the old and the new", passwd(galera, &asked, NEW));
    kill_at("writing the password to the Secret", passwd(galera, &["--yes", "--keep-old"], ""));
    let new_logins = LoginClient::start(galera, "new-logins", NEW);
    kill_at("restarting", passwd(galera, &["--yes", "--keep-old"], ""));
    let printed = wait_for(passwd(galera, &asked, NEW));
    assert!(printed.contains(BOTH) && !printed.contains(NEW), "{printed}");
    writer.finish(3);
    old_logins.never_denied();
    let printed = wait_for(passwd(galera, &["--yes"], ""));
    assert!(printed.contains("accepts only the new password of root"), "{printed}");
    assert!(new_logins.never_denied() > 0, "the new password never logged in");
    no_change_is_under_way(galera);
    assert_eq!(secret_value(galera, "root-password"), NEW, "the Secret has the new password");
    galera.ask(&galera.member(0), "SELECT 1");
}
