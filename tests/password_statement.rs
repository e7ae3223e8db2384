//! The script with which `gatera passwd` runs a statement in a member's pod. The client is a stand-in that records its input.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

const SCRIPT: &str = include_str!("../src/command/passwd/statement.sh");

/// The stand-in for the client, which writes what it runs to a file. The password of root is "right", of shop " it's \ new".
const CLIENT: &str = r#"#!/bin/sh
IFS= read -r statement
password=$(cat "${1#--defaults-extra-file=}")
case "$2 $HOME $password" in
"--user=root /nonexistent [client]
password = \"right\"" | "--user=shop /nonexistent [client]
password = \" it's \\\\ %s new\"") ;;
*) echo "ERROR 1045 (28000): Access denied" >&2; exit 1 ;;
esac
printf '%s\n' "$2 $statement" >> "$RAN"
case $statement in
*global_priv*) echo 2525:7B7D; echo 6C:7B7D ;;
ALTER*broken*) echo "ERROR 1064 (42000): You have an error" >&2; exit 1 ;;
esac
"#;

/// Lists the shells that images contain, as far as they are installed here.
fn shells() -> Vec<&'static [&'static str]> {
    let all: [&[&str]; 3] = [&["sh"], &["bash"], &["busybox", "sh"]];
    let runs = |shell: &&[&str]| Command::new(shell[0]).args(&shell[1..]).args(["-c", ":"]).status().is_ok();
    all.into_iter().filter(runs).collect()
}

fn run(input: &str) -> (Output, String) {
    run_by(&["sh"], input)
}

fn run_by(shell: &[&str], input: &str) -> (Output, String) {
    let folder = tempfile::tempdir().unwrap();
    let (client, ran) = (folder.path().join("mariadb"), folder.path().join("ran"));
    fs::write(&client, CLIENT).unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
    let mut shell = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", SCRIPT])
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .env("RAN", &ran)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    (output, fs::read_to_string(&ran).unwrap_or_default())
}

/// The password of shop, as a value in an option file.
const SHOP: &str = r#"" it's \\ %s new""#;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

#[test]
fn the_statement_runs_once_with_the_right_password_and_both_logins_are_tried() {
    for shell in shells() {
        for passwords in ["\"right\"\n\"wrong\"", "\"wrong\"\n\"right\""] {
            let input = format!("root\n{passwords}\nSELECT x FROM global_priv\nshop\n\"old\"\n{SHOP}\n");
            let (output, ran) = run_by(shell, &input);
            assert_eq!(said(&output), "row 2525:7B7D\nrow 6C:7B7D\nlogin no\nlogin yes\nend\n", "{shell:?}");
            assert_eq!(ran, "--user=root SELECT x FROM global_priv\n--user=shop SELECT 1\n");
        }
    }
}

#[test]
fn incomplete_input_runs_nothing() {
    let whole = "root\n\"right\"\n\"right\"\nALTER USER a;\nshop\nold\nnew\n";
    for end in 0..whole.len() - 1 {
        let (output, ran) = run(&whole[..end]);
        assert_eq!((output.status.code(), &*ran), (Some(4), ""), "{}", &whole[..end]);
    }
    let (output, ran) = run(whole);
    assert!(output.status.success() && ran.starts_with("--user=root ALTER USER a;\n"), "{}", said(&output));
}

#[test]
fn a_refused_statement_is_reported_and_not_repeated() {
    let (output, ran) = run("root\n\"right\"\n\"right\"\nALTER USER broken;\nshop\nold\nnew\n");
    assert_eq!((output.status.code(), ran.lines().count()), (Some(1), 1), "{}", said(&output));
    assert_eq!(said(&output), "ERROR 1064 (42000): You have an error\n");
    let (output, ran) = run("root\nwrong\nwrong\nALTER USER a;\nshop\nold\nnew\n");
    assert_eq!((output.status.code(), &*ran), (Some(1), ""), "{}", said(&output));
    assert!(said(&output).contains("ERROR 1045"));
}
