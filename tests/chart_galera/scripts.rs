//! The scripts of the bootstrap node's first start: one does not found a cluster while a member runs, the other creates the user
//! of the state transfer. Tried by hand with MariaDB 10.11 and a password of every printable character.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::CHART;

fn script(name: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.arg(format!("{CHART}/files/{name}"));
    shell
}

/// Returns the command that runs `first.sh` with these members and this many seconds left until founding is refused.
fn first(members: &str, seconds_left: i64) -> Command {
    let until = (jiff::Timestamp::now().as_second() + seconds_left).to_string();
    let mut first = script("first.sh");
    first.envs([
        ("GALERA_REMOVE", "kubectl delete it"),
        ("GALERA_MEMBERS", members),
        ("GALERA_FOUND_UNTIL", &*until),
    ]);
    first
}

/// Returns the message with which the script fails.
fn refusal_of(mut first: Command) -> String {
    let output = first.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Opens the client port of a member on a loopback address that no other test uses.
fn a_member() -> (TcpListener, String) {
    let listen = |last: u32| {
        let [_, b, c, d] = (std::process::id() + (last << 22)).to_be_bytes();
        let address = format!("127.{b}.{c}.{}", d | 1);
        Some((TcpListener::bind((&*address, 3306)).ok()?, address))
    };
    (0..4).find_map(listen).expect("an address of loopback is free")
}

#[test]
fn the_first_node_founds_the_cluster_at_once() {
    let output = first("name.invalid 127.0.0.254", 3600).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn beside_a_member_the_bootstrap_node_fails_and_says_why() {
    let (_member, address) = a_member();
    let said = refusal_of(first(&format!("127.0.0.254 {address}"), 3600));
    assert_eq!(
        said,
        format!(
            "{address} answers, so the cluster runs: this bootstrap node does not found a cluster. Remove it: kubectl delete it\n"
        )
    );
}

#[test]
fn members_are_looked_for_on_the_port_on_which_they_listen() {
    let (member, address) = a_member();
    let other = member.local_addr().unwrap().port() + 1;
    let output = first(&address, 3600).env("GATERA_PORT", other.to_string()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let _there = TcpListener::bind((&*address, other)).unwrap();
    let mut first = first(&address, 3600);
    first.env("GATERA_PORT", other.to_string());
    assert!(refusal_of(first).starts_with(&format!("{address} answers")));
}

/// All members are down, and a forgotten bootstrap node restarts before them.
#[test]
fn two_hours_after_the_installation_the_bootstrap_node_fails_too() {
    let said = refusal_of(first("127.0.0.254", -1));
    assert_eq!(
        said,
        "the installation was more than two hours ago: this bootstrap node does not found a cluster. Remove it: kubectl delete it\n"
    );
}

/// Runs the script with stand-ins for two programs: one prints the content of an option file, the other is a client that shows
/// its input and connection.
fn run_user_script(auth: &str) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("my_print_defaults", "#!/bin/sh\necho --wsrep_on=ON\nprintf '%s\\n' \"--wsrep_sst_auth=$AUTH\"\n"),
        ("mariadb", "#!/bin/sh\necho \"$*\" \"[$MYSQL_PWD]\"\ncat\n"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    script("sst-user.sh")
        .env("PATH", path)
        .env("AUTH", auth)
        .env("MARIADB_ROOT_PASSWORD", "root's \"own\"")
        .output()
        .unwrap()
}

#[test]
fn the_user_of_the_state_transfer_gets_its_four_rights() {
    let all: String = (' '..='~').collect();
    let output = run_user_script(&format!("sst: {all} "));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let literal = format!(" {all} ").replace('\\', "\\\\").replace('\'', "\\'");
    let expected = format!(
        "--user=root --protocol=socket --batch [root's \"own\"]\nSET SESSION sql_mode = '';\nCREATE USER IF NOT EXISTS 'sst'@'localhost' IDENTIFIED BY '{literal}';\nGRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION CLIENT ON *.* TO 'sst'@'localhost';\n"
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn a_malformed_option_file_is_reported() {
    for auth in ["", "sst", ":secret"] {
        let output = run_user_script(auth);
        assert_eq!(output.status.code(), Some(1), "{auth}");
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "wsrep_sst_auth in key sst.cnf of the Secret is not \"user:password\"\n"
        );
    }
}
