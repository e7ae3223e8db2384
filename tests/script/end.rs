//! The step script while the server runs: signals, the end of the server, and a step that may not signal it.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use facts::galera::start_report::{self, StartReport};
use rustix::process::{Pid, Signal, kill_process};

use super::pod::{Pod, START, for_each, status};
use super::start::{ID, VIEW, ZEROS, run, server, state};

#[test]
fn sigterm_ends_the_recovery_of_the_position_at_once() {
    for_each(&[()], |pod, ()| {
        server(pod, "");
        pod.tool(
            "mariadbd",
            r#"trap '' TERM; echo >"$POD/running"; i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done"#,
        );
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "-1", "0"));
        let mut child = spawn_step(pod);
        wait_for_file(pod, "running");
        let began = Instant::now();
        terminate(&child);
        assert_eq!(child.wait().unwrap().code(), Some(143));
        assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
        assert!(!pod.path("started").exists(), "the server was started after SIGTERM");
    });
}

/// Starts the step in front of a server, and does not wait for its end.
fn spawn_step(pod: &Pod) -> Child {
    let args = format!("mariadbd --datadir={}", pod.path("data").display());
    pod.step(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn terminate(step: &Child) {
    kill_process(Pid::from_child(step), Signal::TERM).unwrap();
}

/// Waits until a file has content: a file that was just created is empty.
fn wait_for_file(pod: &Pod, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::metadata(pod.path(name)).map_or(0, |file| file.len()) == 0 {
        assert!(Instant::now() < deadline, "{name} was not written within 60 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As root without the capability KILL, the step could not pass SIGTERM on to a server that runs as another user.
#[test]
fn a_step_that_may_not_signal_the_server_is_replaced_by_it() {
    let rows = [
        (0, "00000000a80425fb", true),
        (0, "00000000000000cb", false),
        (0, "00000000000000eb", true),
        (0, "0000000000000020", true),
        (0, "0000000000000000", false),
        (0, "", true),
        (999, "0000000000000000", true),
    ];
    for_each(&rows, |pod, &(user, capabilities, stays)| {
        server(pod, "");
        pod.tool("mariadbd", r#"echo $$ >"$POD/pid""#).tool("find", "exit 1");
        pod.write("proc/self/status", format!("Uid:\t{user}\t{user}\nCapEff:\t{capabilities}\n"));
        let child = spawn_step(pod);
        let step = child.id();
        assert!(child.wait_with_output().unwrap().status.success());
        let server: u32 = fs::read_to_string(pod.path("pid")).unwrap().trim().parse().unwrap();
        assert_eq!(server != step, stays, "the step is the parent, as user {user} with {capabilities:?}");
    });
}

/// The step cannot end such a server, but it marks a copy that replaces the data all the same.
#[test]
fn a_copy_is_marked_even_if_the_step_may_not_signal_the_server() {
    for_each(&[()], |pod, ()| {
        server(pod, "");
        pod.tool(
            "mariadbd",
            r#": >"$POD/data/sst_in_progress"; mkdir "$POD/proc/$$"; i=0
            until [ -e "$POD/data/gatera.sst_in_progress" ] || [ $i -gt 100 ]; do sleep 0.1; i=$((i+1)); done
            rm -rf "$POD/proc/$$"; [ -e "$POD/data/gatera.sst_in_progress" ]"#,
        );
        pod.tool("find", "exit 1").write("proc/self/status", "Uid:\t0\t0\nCapEff:\t00000000000000cb\n");
        run(pod, "mariadbd --datadir=DATA").exits(0);
    });
}

/// The server's exit code is the container's.
#[test]
fn the_exit_code_is_the_servers() {
    for_each(&[("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)], |pod, (end, code)| {
        server(pod, "");
        pod.tool("mariadbd", end);
        run(pod, "mariadbd --datadir=DATA").exits(*code);
    });
}

/// The server may end while the step still handles the signal.
#[test]
fn the_exit_code_is_the_servers_if_it_ends_while_the_signal_is_handled() {
    for_each(&[0, 7], |pod, code| {
        server(pod, "");
        let exits_on_sigterm = format!(
            r#"trap 'exit {code}' TERM; echo $$ >"$POD/pid"; i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done"#
        );
        // The step asks for the state of the server before it passes the signal on.
        let ends_it = r#"read -r pid <"$POD/pid"; kill -TERM "$pid" || exit
            while read -r _ _ state _ <"/proc/$pid/stat" && [ "$state" != Z ]; do sleep 0.1; done"#;
        pod.tool("mariadbd", &exits_on_sigterm).tool("sh", ends_it);
        let mut child = spawn_step(pod);
        wait_for_file(pod, "pid");
        terminate(&child);
        assert_eq!(child.wait().unwrap().code(), Some(*code));
    });
}

/// If the server does not start because of an option, the termination message names the option, but never its value.
/// `gatera status` and a stopped rollout show it.
#[test]
fn the_option_that_ended_the_server_is_reported() {
    let rows = [
        ("mariadbd: unknown variable 'max_conections=350'", 7, "unknown variable max_conections"),
        ("mariadbd: unknown variable 'wsrep_sst_authx=sst:hunter2'", 7, "unknown variable wsrep_sst_authx"),
        (
            "mariadbd: unknown option '--max_connections 3'",
            7,
            "an option that the server does not know, without a value",
        ),
        (
            "mariadbd: unknown option '--hunter2'",
            7,
            "an option that the server does not know, without a value",
        ),
        (
            "Buffered error: mariadbd: Error while setting value 'hunter2' to 'port'",
            7,
            "a value that the server does not take, of port",
        ),
        ("mariadbd: unknown variable 'a;b=1'", 7, ""),
        ("mariadbd: Can't start server: Bind on TCP/IP port", 7, ""),
        ("mariadbd: unknown variable 'not_asked=1'", 0, ""),
    ];
    for_each(&rows, |pod, &(error, code, reported)| {
        server(pod, "");
        pod.write(
            "help",
            format!("2026-11-26 15:30:15 0 [Warning] open_files\n2026-11-26 15:30:15 0 [ERROR] {error}\n"),
        );
        pod.tool(
            "mariadbd",
            &format!(
                r#"case $* in *--help*) while IFS= read -r line; do echo "$line"; done <"$POD/help" >&2; exit 7 ;; esac; exit {code}"#
            ),
        );
        let outcome = run(pod, "mariadbd --datadir=DATA").exits(code);
        let message = fs::read_to_string(pod.path("termination")).unwrap();
        let ended = StartReport::read(&message).unwrap();
        assert_eq!(ended.ended().unwrap_or_default(), reported, "{message}");
        assert!(!message.contains("hunter2") && !outcome.err.contains("hunter2"), "{message} {outcome:?}");
    });
}

/// Seen on real servers: if one state transfer cuts another short, the server says that it must be restarted, and then waits
/// endlessly. A message of an earlier server, or of one that has joined, does not count.
#[test]
fn a_server_that_says_it_must_be_restarted_is_ended() {
    let words = b"WSREP: Receiving IST failed, node restart required: IST receiver reported failure";
    let rows = [
        ("JOINING", &words[..], 10, 137),
        ("JOINING", b"WSREP: Receiving IST failed", 10, 7),
        ("JOINING", words, -10, 7),
        ("SYNCED", words, 10, 7),
    ];
    for_each(&rows, |pod, &(doing, warning, written, code)| {
        server(pod, "");
        // Long enough to be killed also on a busy machine, or long enough to show that it is not.
        let seconds = if code == 137 { 120 } else { 12 };
        let hangs =
            format!("trap '' TERM; i=0; while [ $i -lt {seconds} ]; do sleep 1; i=$((i+1)); done; exit 7");
        pod.tool("mariadbd", &hangs).shell_on_path().file(&status(doing, warning));
        pod.written(START.checked_add_signed(written).unwrap());
        let outcome = run(pod, "mariadbd --datadir=DATA");
        let killed = outcome.err.contains("has to be started again, and does not end");
        assert_eq!(killed, code == 137, "{doing} {written}: {}", outcome.err);
        outcome.exits(code);
    });
}

/// `gatera stop` records the reported position. No position is reported for a server that did not stop in order.
#[test]
fn the_position_of_the_data_is_reported_after_an_orderly_stop() {
    let rows = [
        (state(ID, "363", "1"), 0, Some(format!("{ID}:363, safe_to_bootstrap 1"))),
        (state(ID, "360", "0"), 0, Some(format!("{ID}:360, safe_to_bootstrap 0"))),
        (state(ID, "-1", "0"), 0, None),
        (state(ZEROS, "363", "1"), 0, None),
        ("garbage".to_owned(), 0, None),
        (state(ID, "363", "1"), 1, None),
    ];
    for_each(&rows, |pod, (left, code, reported)| {
        server(pod, "");
        pod.write("left", left).write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "41", "0"));
        pod.tool(
            "mariadbd",
            &format!(
                r#"trap 'while IFS= read -r line; do echo "$line"; done <"$POD/left" >"$POD/data/grastate.dat"; exit {code}' TERM
                : >"$POD/termination"; echo >"$POD/running"; i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done"#
            ),
        );
        let mut child = spawn_step(pod);
        wait_for_file(pod, "running");
        pod.write("joined", "SYNCED\n");
        terminate(&child);
        assert_eq!(child.wait().unwrap().code(), Some(*code));
        let message = fs::read_to_string(pod.path("termination")).unwrap();
        let end = start_report::stop_position(&message);
        match reported {
            None => assert_eq!((end, &*message), (None, "")),
            Some(reported) => {
                assert!(message.ends_with(&format!("Z: position {reported}\n")), "{message}");
                assert_eq!(end.map(|it| it.to_string()).as_deref(), reported.split(',').next());
            }
        }
    });
}

/// A server that has joined gets all the time it needs; one that waits for others ignores SIGTERM and is killed. The view of a
/// server that had not joined is removed, so that it does not lead the next pod into a cluster of members without data.
#[test]
fn sigterm_ends_a_server_that_never_joined_within_seconds() {
    const IGNORES_SIGTERM: &str =
        r#"trap '' TERM; echo >"$POD/running"; i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done"#;
    const HANDLES_SIGTERM: &str = r#"trap 'sleep 5; exit 0' TERM; echo >"$POD/running"; i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done"#;
    let rows = [
        (IGNORES_SIGTERM, "CONNECTED", false, 137),
        (IGNORES_SIGTERM, "JOINING", false, 137),
        (HANDLES_SIGTERM, "DISCONNECTED", true, 0), // it has lost its peers
        (HANDLES_SIGTERM, "SYNCED", false, 0),
        (HANDLES_SIGTERM, "", false, 0),
    ];
    for_each(&rows, |pod, &(body, state, joined, code)| {
        server(pod, "");
        pod.tool("mariadbd", body).shell_on_path();
        if !state.is_empty() {
            pod.state(state);
        }
        let mut child = spawn_step(pod);
        wait_for_file(pod, "running");
        if joined {
            pod.write("joined", "SYNCED\n");
        }
        pod.write("data/gvwstate.dat", VIEW);
        let began = Instant::now();
        terminate(&child);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(code));
        assert!((3..60).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        let keeps = joined || matches!(state, "SYNCED" | "");
        assert_eq!(
            pod.path("data/gvwstate.dat").exists(),
            keeps,
            "the last view; state {state:?}, joined: {joined}"
        );
    });
}
