//! `wait-for-sync.sh` beside a server without a status file: the script asks the server with the client and the container's
//! credentials.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use super::LEAVES_SYNCED;
use super::pod::{START, for_each};

#[test]
fn a_server_without_a_status_file_is_asked_with_the_client() {
    let table = [
        ("Primary", "Synced", 0, "the server is SYNCED"),
        ("Primary", "Donor/Desynced", 0, "the server is DONOR"),
        ("Primary", "Joined", 1, "the server is JOINED"),
        ("Primary", "Joiner", 1, "the server is JOINING"),
        ("Primary", "Joining: receiving State Transfer", 1, "the server is JOINING"),
        ("Primary", "Initialized", 1, "does not report its state"),
        ("non-Primary", "Synced", 1, "the server is CONNECTED"),
        ("Disconnected", "Initialized", 1, "the server is CONNECTED"),
    ];
    for_each(&table, |pod, &(cluster, local, code, says)| {
        pod.client("mariadb", cluster, local).run("ready").exits(code).says(says);
        let query = "--execute=SET SESSION wsrep_sync_wait=0; SHOW GLOBAL STATUS WHERE Variable_name IN \
                     ('wsrep_local_state_comment','wsrep_cluster_status')";
        let asked = fs::read_to_string(pod.path("asked.argv")).unwrap();
        for option in ["--user=root", "--batch", "--skip-column-names", "--connect-timeout=2", query] {
            assert!(asked.lines().any(|line| line == option), "no {option} in {asked}");
        }
    });
}

#[test]
fn a_server_without_a_status_file_answers_every_question() {
    let table = [
        // ready, ready blocking, started, leave 0
        ("Synced", [0, 0, 0], "leaving: 0 s have passed\n"),
        (
            "Donor/Desynced",
            [0, 1, 0],
            "leaving: 0 s have passed, although this member is sending a state transfer\n",
        ),
        ("Joined", [1, 1, 0], "leaving: 0 s have passed\n"),
        ("Joining: receiving State Transfer", [1, 1, 1], "leaving: the server is JOINING"),
        ("Initialized", [1, 1, 1], "leaving: 0 s have passed\n"),
    ];
    for_each(&table, |pod, &(local, [ready, blocking, started], leave)| {
        pod.client("mariadb", "Primary", local);
        pod.run("ready").exits(ready);
        pod.run("ready blocking").exits(blocking);
        pod.run("started").exits(started);
        pod.run("leave 0").exits(0).says(leave);
    });
    for_each(&[()], |pod, ()| {
        let waits = "waiting up to 30 s: this member is sending a state transfer\n";
        let done = || pod.client("mariadb", "Primary", "Synced");
        pod.client("mariadb", "Primary", "Donor/Desynced")
            .run_until("leave 30", waits, done)
            .exits(0)
            .prints(LEAVES_SYNCED);
    });
}

#[test]
fn the_client_is_mariadb_or_else_mysql() {
    for_each(&["timeout", "no timeout", "a timeout of other syntax"], |pod, has| {
        match *has {
            "no timeout" => fs::remove_file(pod.path("bin/timeout")).unwrap(),
            "a timeout of other syntax" => _ = pod.tool("timeout", "exit 1"),
            _ => {}
        }
        pod.run("ready").exits(1).says("does not report its state");
        pod.client("mysql", "Primary", "Synced").run("ready").exits(0);
        pod.client("mariadb", "Primary", "Joined").run("ready").exits(1).says("the server is JOINED");
    });
}

#[test]
fn a_client_that_hangs_or_prints_half_an_answer_is_ignored() {
    for_each(&[()], |pod, ()| {
        let half = r"printf 'wsrep_local_state_comment\tSynced\n'";
        pod.tool("mariadb", half).run("ready").exits(1).says("does not report its state");
        let began = Instant::now();
        pod.tool("mariadb", "exec sleep 600").run("ready").exits(1).says("does not report its state");
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(120), "waited {waited:?} for a client that hangs");
    });
}

#[test]
fn the_password_reaches_only_the_client_byte_for_byte() {
    let passwords: [&[u8]; 8] = [
        b"plain-secret",
        br#"it's "quoted" `id` $(id) ${HOME} $$ #!"#,
        br"back\slash\n\\ \0101 %s%d \c",
        b"  blanks around\t and trailing  ",
        b"--password=x -e 'y'; exit 9",
        b"*[a-z]?{1,2}~",
        b"two\nlines",
        b"caf\xc3\xa9 \x01\x7f\x81\x82\x88\xff",
    ];
    for_each(&passwords, |pod, password| {
        for brand in ["MARIADB", "MYSQL"] {
            let variable = format!("{brand}_ROOT_PASSWORD");
            let file = pod.path("the secret's file");
            fs::write(&file, [password, &b"\n"[..]].concat()).unwrap();
            for (name, value) in [("", OsStr::from_bytes(password)), ("_FILE", file.as_os_str())] {
                let name = variable.clone() + name;
                pod.env.take();
                pod.env(&name, value).client("mariadb", "Primary", "Synced");
                let outcome = pod.traced("ready").exits(0);
                assert!(outcome.err.contains("find_server"), "not traced: {outcome:#?}");
                let kept = |file| fs::read(pod.path(file)).unwrap();
                assert_eq!(kept("asked.password"), *password, "{name}: {outcome:#?}");
                let shown = [outcome.out.as_bytes(), outcome.err.as_bytes(), &kept("asked.argv")].concat();
                let [shown, secret] = [&shown, *password].map(String::from_utf8_lossy);
                assert!(!shown.contains(&*secret), "{name}: {shown}");
            }
        }
    });
}

#[test]
fn without_a_password_the_client_gets_none() {
    for_each(&["UNRELATED", "MARIADB_ROOT_PASSWORD", "MYSQL_ROOT_PASSWORD_FILE"], |pod, empty| {
        pod.client("mariadb", "Primary", "Synced").env(empty, "").run("ready").exits(0);
        assert_eq!(fs::read(pod.path("asked.password")).unwrap(), b"(unset)");
    });
}

#[test]
fn the_client_does_not_run_beside_a_status_file_or_without_a_server() {
    for_each(&[()], |pod, ()| {
        pod.client("mariadb", "Primary", "Synced").state("SYNCED").written(START - 1).run("ready").exits(1);
        pod.file(b"garbage").run("ready").exits(1);
        fs::remove_file(pod.path("status.json")).unwrap();
        pod.without_server().run("ready").exits(1);
        assert!(!pod.path("asked.argv").exists(), "the client was run");
    });
}
