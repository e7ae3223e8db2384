//! The scripts that are injected into pods, run in a simulated pod under every shell that an image may contain. The tests in this
//! file run `wait-for-sync.sh`.
//!
//! A script sees a simulated /proc and a PATH with the few tools that every image has; under busybox these are busybox's own.

mod bitnami;
mod client;
mod comments;
mod driven;
mod end;
mod gate;
mod lines;
mod links;
mod lives;
mod pod;
mod real;
mod start;
mod waits;

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;
use std::time::Instant;

use pod::{BOOT, SCRIPT, START, STEP, for_each, in_ci, program, status};

/// An established connection to a joiner's IST port 4568 (hexadecimal 11D8), as /proc/net/tcp shows it.
const JOINER: &str = "0A00000A:C350 0B00000A:11D8 01";
const JOINER_V6: &str = "0000000000000000FFFF00000A00000A:C350 0000000000000000FFFF00000B00000A:11D8 01";
const LEAVES_SYNCED: &str = "leaving: the server is SYNCED, and no joiner depends on it\n";

#[test]
fn the_state_of_the_server_decides_every_answer() {
    let table = [
        // The exit codes of `ready`, `ready blocking` and `started`; the output of `leave 0`: a reason to leave at once, or that
        // the time has passed.
        ("DISCONNECTED", [1, 1, 1], "leaving: the server is DISCONNECTED"),
        ("CONNECTED", [1, 1, 1], "leaving: 0 s have passed\n"),
        ("JOINING", [1, 1, 1], "leaving: the server is JOINING"),
        ("JOINED", [1, 1, 0], "leaving: 0 s have passed\n"),
        ("SYNCED", [0, 0, 0], "leaving: 0 s have passed\n"),
        ("DONOR", [0, 1, 0], "leaving: 0 s have passed, although this member is sending a state transfer\n"),
        ("DISCONNECTING", [1, 1, 1], "leaving: 0 s have passed\n"),
    ];
    for_each(&table, |pod, &(state, [ready, blocking, started], leave)| {
        pod.state(state);
        pod.run("ready").exits(ready).says(&format!("the server is {state}"));
        pod.run("ready blocking").exits(blocking);
        pod.run("started").exits(started);
        pod.run("leave 0").exits(0).says(leave);
    });
}

#[test]
fn the_status_file_of_an_earlier_server_is_ignored() {
    for_each(&[(START - 1, 1), (START, 0)], |pod, &(written, code)| {
        pod.state("SYNCED").written(written);
        pod.run("ready").exits(code);
        pod.run("started").exits(code);
    });
    for_each(&[()], |pod, ()| {
        pod.state("SYNCED").run("ready").exits(0);
        pod.process(1, "mariadbd", 'S', START + 60);
        pod.run("ready").exits(1).says("left by an earlier server");
        pod.state("SYNCED").written(START + 61).run("ready").exits(0);
    });
}

/// Bitnami's image starts temporary servers before the one that stays; the step script writes its report only before that one.
#[test]
fn a_server_that_the_step_did_not_start_is_not_ready() {
    for_each(&[("/etc/gatera/bitnami.bash", 1), ("/own", 0)], |pod, &(file, code)| {
        pod.state("SYNCED").env("BASH_ENV", file);
        for question in ["ready", "started"] {
            let outcome = pod.run(question).exits(code);
            assert_eq!(
                outcome.out.contains("is preparing the data; if this lasts, BASH_ENV has no effect"),
                code == 1,
                "{question} with BASH_ENV={file}: {outcome:#?}"
            );
        }
        pod.write("start", "start of 2026-11-22T01:02:48Z: empty, safe_to_bootstrap unknown\n");
        pod.run("ready").exits(0);
    });
}

#[test]
fn a_clock_set_forward_does_not_make_the_servers_own_file_stale() {
    for_each(&[()], |pod, ()| {
        pod.state("SYNCED").run("ready").exits(0);
        pod.booted(BOOT + 86_400).run("ready").exits(0);
    });
}

#[test]
fn a_status_file_on_one_line_is_read_like_one_on_many_lines() {
    for_each(&[("JOINING", 1), ("SYNCED", 0)], |pod, &(state, code)| {
        let lines = status(state, b"");
        let one_line: Vec<u8> = lines.into_iter().filter(|byte| !b"\n\t".contains(byte)).collect();
        pod.file(&one_line).run("ready").exits(code).says(state);
    });
}

#[test]
fn a_state_that_a_message_quotes_is_ignored() {
    let messages: [&[u8]; 6] = [
        b"SYNCED",
        b"state: SYNCED, \xff\xfe not UTF-8",
        br#"\"state\": \"SYNCED\""#,
        br#"\"status\": {\"state\": \"SYNCED\"}}"#,
        br#"\"status\": {\"state\": \"DONOR\", \"progress\": {}}} "#,
        br#"\\\"status\": {\"state\": \"JOINED\"}}\\"#,
    ];
    for_each(&messages, |pod, message| {
        pod.file(&status("JOINING", message)).run("started").exits(1).says("the server is JOINING");
        pod.file(&status("SYNCED", message)).run("ready").exits(0);
    });
}

#[test]
fn a_broken_status_file_has_no_state() {
    let texts = [
        "",
        "\n",
        "SYNCED",
        "{}",
        r#"{"state": "SYNCED"}"#,
        r#"{"status": {"state": "SYNC"#,
        r#"{"status": {"state": "SYNCED"}"#,
        r#"{"status": {"state": "SYNCED", "comment": "Oper"#,
        r#"{"status": {"state": "", "comment": "Operational"}}"#,
        r#"{"status": {"state": "synced"}}"#,
        r#"{"warnings": [{"msg": "\"status\": {\"state\": \"SYNCED\"}}"#,
    ];
    for_each(&texts, |pod, text| {
        pod.file(text.as_bytes()).run("ready").exits(1).says("does not report its state");
        pod.run("started").exits(1);
        pod.run("leave 0").exits(0);
    });
}

#[test]
fn the_server_process_is_found_and_a_zombie_does_not_count() {
    type Process = (u32, &'static str, char, u64);
    let bash: Process = (1, "bash", 'S', START - 60);
    let table: [(&[Process], i32); 12] = [
        (&[], 1),
        (&[(1, "mariadbd", 'S', START)], 0),
        (&[(1, "mysqld", 'R', START)], 0),
        (&[(1, "mariadbd", 'Z', START)], 1),
        (&[(1, "mysqld_safe", 'S', START)], 1),
        (&[bash], 1),
        (&[bash, (37, "mariadbd", 'S', START)], 0),
        (&[bash, (37, "mariadbd", 'S', START + 60)], 1), // its own start counts, not that of PID 1
        (&[bash, (37, "mariadbd", 'Z', START), (44, "mysqld", 'D', START)], 0),
        (&[bash, (37, "a) S (mariadbd", 'S', START), (38, "mariadbd) S", 'S', START)], 1),
        (&[(1, "some (odd) name", 'S', 0), (9, "mariadbd", 'S', START)], 0),
        (&[(1, "mariadbd", 'S', START), (13, "mysqld", 'S', START + 60)], 0), // PID 1 comes first
    ];
    for_each(&table, |pod, (processes, code)| {
        pod.state("SYNCED").without_server();
        for &(pid, comm, state, start) in *processes {
            pod.process(pid, comm, state, start);
        }
        pod.run("ready").exits(*code);
        pod.run("started").exits(*code);
    });
    // If the server ends during the check, the state that it had reported still counts.
    for_each(&[()], |pod, ()| {
        let real = program("tr", true).unwrap();
        pod.state("SYNCED").tool("tr", &format!(r#"rm -rf "$POD/proc/1"; exec {} "$@""#, real.display()));
        if pod.looks_for("tr") {
            pod.run("started").exits(0).prints("the server is SYNCED\n");
        }
    });
    for_each(&[(START, 0), (START + 60, 1)], |pod, &(start, code)| {
        // A process may rename itself between the script's two reads; the start time must still be field 22.
        pod.state("SYNCED").process(1, "x) Z 1 (y) z", 'S', start);
        pod.write("proc/1/comm", "mariadbd\n");
        pod.run("ready").exits(code);
    });
}

#[test]
fn a_frozen_server_is_not_ready() {
    let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent, greets, closed) = (listener(), listener(), listener().local_addr().unwrap().port());
    let ports = [&silent, &greets].map(|it| it.local_addr().unwrap().port());
    thread::spawn(move || {
        greets.incoming().for_each(|it| it.unwrap().write_all(b"Z\0\0\0\x0a10.11").unwrap_or(()));
    });
    let rows = [
        // The port, the number of waiting connections, whether bash exists, and the exit code.
        (ports[0], 2, true, 1),
        (ports[0], 0, true, 0),
        (ports[0], 2, false, 0),
        (ports[1], 2, true, 0),
        (closed, 2, true, 0),
    ];
    for_each(&rows, |pod, &(port, waiting, bash, code)| {
        if bash {
            symlink(program("bash", true).unwrap(), pod.path("bin/bash")).unwrap();
        }
        let line = format!("00000000:{port:04X} 00000000:0000 0A");
        pod.state("SYNCED").env("GATERA_PORT", port.to_string()).connections("tcp", &[&line]);
        let table = fs::read_to_string(pod.path("proc/net/tcp")).unwrap();
        let queue = format!("00000000:{waiting:08X}");
        pod.write("proc/net/tcp", table.replacen("00000000:00000000", &queue, 1));
        let outcome = pod.run("ready").exits(code);
        pod.run("ready blocking").exits(code);
        pod.run("started").exits(0);
        assert_eq!(outcome.out.contains("does not answer"), code == 1, "{outcome:#?}");
    });
}

#[test]
fn a_donor_stays_until_its_transfer_is_done() {
    for_each(&[()], |pod, ()| {
        let waits = "waiting up to 30 s: this member is sending a state transfer\n";
        pod.state("DONOR")
            .run_until("leave 30", waits, || pod.state("SYNCED"))
            .exits(0)
            .prints(LEAVES_SYNCED);
    });
}

#[test]
fn leaving_does_not_wait_for_a_server_that_is_gone() {
    for_each(&[()], |pod, ()| {
        let waits = "waiting up to 30 s: this member is sending a state transfer\n";
        let leaves = "leaving: there is no server process, and no joiner depends on it\n";
        pod.state("DONOR").run_until("leave 30", waits, || pod.without_server()).exits(0).prints(leaves);
        pod.run("leave 0").exits(0).prints(leaves); // without a second look
    });
}

#[test]
fn a_connected_joiner_delays_leaving_in_every_state() {
    let table = [
        ("tcp", JOINER, "SYNCED", "4568"),
        ("tcp6", JOINER_V6, "SYNCED", ""),
        ("tcp", JOINER, "JOINED", ""),
        ("tcp", JOINER, "CONNECTED", ""),
        ("tcp", "0A00000A:C350 0B00000A:0FA0 01", "SYNCED", "4000"),
    ];
    for_each(&table, |pod, &(file, line, state, port)| {
        pod.connections(file, &["0100007F:0CEA 00000000:0000 0A", line]).env("GATERA_IST_PORT", port);
        let waits = "waiting up to 30 s: a joiner is still connected\n";
        let disconnect = || pod.connections(file, &[&line.replace(" 01", " 06")]);
        let outcome = pod.state(state).run_until("leave 30", waits, disconnect);
        outcome.exits(0).prints(&LEAVES_SYNCED.replace("SYNCED", state));
    });
}

#[test]
fn other_connections_do_not_delay_leaving() {
    let table = [
        ("tcp", "0A00000A:11D8 0B00000A:C350 01", ""), // local port: this member was the joiner
        ("tcp", "0A00000A:C350 0B00000A:11D8 06", ""), // TIME_WAIT
        ("tcp", "0A00000A:C350 0B00000A:11D8 02", ""), // SYN_SENT
        ("tcp", "0A00000A:C350 0B00000A:11D7 01", ""), // group communication
        ("tcp", "0A00000A:C350 000011D8:C350 01", ""), // the port in an address
        ("tcp6", &JOINER_V6.replace(" 01", " 08"), ""), // CLOSE_WAIT: the joiner has disconnected
        ("tcp", JOINER, "4000"),
    ];
    for_each(&table, |pod, &(file, line, port)| {
        pod.state("SYNCED").env("GATERA_IST_PORT", port).connections(file, &[line]);
        pod.run("leave 30").exits(0).prints(LEAVES_SYNCED);
    });
}

#[test]
fn a_member_leaves_after_two_looks_in_a_row_without_a_joiner() {
    // During each `sleep` one event happens: a joiner connects, disconnects, connects again and disconnects.
    let sleep = r#"set -- "$POD"/next/*; PATH=/usr/bin:/bin; [ ! -e "$1" ] || mv "$1" "$POD/proc/net/tcp""#;
    for_each(&[()], |pod, ()| {
        if !pod.looks_for("sleep") {
            return;
        }
        pod.state("SYNCED").tool("sleep", sleep).connections("tcp", &[]);
        pod.connections("../../next/1", &[JOINER]).connections("../../next/2", &[]);
        pod.connections("../../next/3", &[JOINER]).connections("../../next/4", &[]);
        let waited = "waiting up to 30 s: a joiner is still connected\n";
        pod.run("leave 30").exits(0).prints(&[waited, LEAVES_SYNCED].concat());
        assert!(
            !pod.path("next/4").exists(),
            "the script left before the joiner had disconnected for the last time"
        );
    });
}

#[test]
fn waiting_ends_at_the_limit() {
    for_each(&[()], |pod, ()| {
        let began = Instant::now();
        pod.state("DONOR").run("leave 2").exits(0).prints(
            "waiting up to 2 s: this member is sending a state transfer\n\
             leaving: 2 s have passed, although this member is sending a state transfer\n",
        );
        let waited = began.elapsed().as_secs();
        assert!((1..60).contains(&waited), "waited {waited} s instead of 2 s");
    });
}

#[test]
fn a_member_that_joins_does_not_wait() {
    for_each(&["JOINING", "DISCONNECTED"], |pod, state| {
        pod.state(state).connections("tcp", &[JOINER]);
        pod.run("leave 30").exits(0).prints(&LEAVES_SYNCED.replace("SYNCED", state));
    });
}

#[test]
fn other_arguments_are_a_usage_error() {
    let wrong = "|sync|ready now|ready blocking x|started x|leave|leave |leave soon|leave -1|leave 5 6";
    for_each(&wrong.split('|').collect::<Vec<_>>(), |pod, args| {
        let outcome = pod.state("SYNCED").run(args).exits(64).prints("");
        assert!(outcome.err.starts_with("usage: wait-for-sync.sh"), "{outcome:#?}");
    });
}

#[test]
fn the_scripts_fit_into_annotations_and_pass_shellcheck() {
    for (script, shell, most) in
        [(SCRIPT, "sh", 16 * 1024), (STEP, "sh", 32 * 1024), (bitnami::SCRIPT, "bash", 4 * 1024)]
    {
        let text = fs::read(script).unwrap();
        assert_eq!(text.starts_with(b"#!/bin/sh\n"), shell == "sh", "the first line of {script}");
        assert!(text.ends_with(b"\n"), "{script} does not end with a line break");
        let is_printable = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
        assert!(
            text.iter().all(is_printable),
            "{script} has bytes other than printable ASCII and line breaks"
        );
        assert!(text.len() < most, "{script}: {} bytes", text.len());
        if let Some(shellcheck) = program("shellcheck", in_ci()) {
            let output = Command::new(shellcheck).args(["-s", shell, script]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    }
}
