//! The server's user may write in the folder of the status file and in the data directory, while the step and the probes run as
//! root in official images: they do not write through a link, do not block on a pipe, and print nothing of a foreign file.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::pod::{Outcome, Pod, for_each};
use super::start::{ID, VIEW, line, server, state};

/// The files that the scripts write or look for beside the server's own.
const NAMES: [&str; 13] = [
    "home",
    "told",
    "cluster",
    "joined",
    "waited",
    "idle",
    "start",
    "view",
    "recovery.log",
    "data/grastate.dat.new",
    "data/gvwstate.dat.set-aside",
    "data/gatera.sst_in_progress",
    "data/galera.cache",
];
const SECRET: &str = "start: a secret of root\n";

/// Prepares a pod in which the scripts write every file that they ever write.
fn prepare(pod: &Pod) {
    server(pod, &line(&format!("{ID}:41")));
    pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "-1", "0"));
    pod.write("data/gvwstate.dat", VIEW).write("identity", format!("recovery {ID}:41 until=29991201100000"));
    pod.env("GATERA_IDENTITY", pod.path("identity"));
    pod.env("GATERA_TERMINATION_LOG", pod.path("termination"));
}

/// Runs a command and fails if it hangs.
fn run_to_its_end(mut command: Command, what: &str) -> Outcome {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{what}: the script did not end within 60 s");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Outcome::of(&child.wait_with_output().unwrap())
}

/// Runs the step and every probe in this pod; returns their output.
fn run_step_and_probes(pod: &Pod, what: &str) -> String {
    let args = format!("mariadbd --datadir={}", pod.path("data").display());
    let mut printed = Vec::new();
    printed.push(run_to_its_end(pod.step(&args), what));
    for identity in ["unknown", ID] {
        pod.write("identity", identity);
        for (doing, question) in [("JOINING", "started"), ("SYNCED", "started"), ("SYNCED", "ready")] {
            printed.push(run_to_its_end(pod.state(doing).command("+x", question), what));
        }
    }
    printed.iter().map(|it| format!("{}{}", it.out, it.err)).collect()
}

#[test]
fn nothing_is_written_or_read_through_a_link() {
    let rows: Vec<_> = NAMES.iter().flat_map(|name| [(*name, true), (*name, false)]).collect();
    for_each(&rows, |pod, &(name, there)| {
        prepare(pod);
        fs::create_dir(pod.path("root")).unwrap();
        if there {
            pod.write("root/secret", SECRET);
        }
        symlink(pod.path("root/secret"), pod.path(name)).unwrap();
        let printed = run_step_and_probes(pod, name);
        assert!(!printed.contains("a secret of root"), "{name}: {printed}");
        let message = fs::read_to_string(pod.path("termination")).unwrap();
        assert!(!message.contains("a secret of root"), "{name}: {message}");
        let secret = fs::read_to_string(pod.path("root/secret")).ok();
        assert_eq!(secret.as_deref(), there.then_some(SECRET), "{name}");
    });
}

/// A file that root moved there would end up in the folder behind the link.
#[test]
fn nothing_is_moved_into_a_folder_behind_a_link() {
    for_each(&[()], |pod, ()| {
        prepare(pod);
        fs::create_dir(pod.path("root")).unwrap();
        fs::remove_file(pod.path("data/grastate.dat")).unwrap();
        symlink(pod.path("root"), pod.path("data/grastate.dat")).unwrap();
        let printed = run_step_and_probes(pod, "a link to a folder");
        assert!(printed.contains("grastate.dat or "), "{printed}");
        assert_eq!(fs::read_dir(pod.path("root")).unwrap().count(), 0, "a file was moved behind the link");
    });
}

#[test]
fn a_pipe_does_not_block_the_scripts() {
    let names = [&NAMES[..], &["data/grastate.dat", "data/gvwstate.dat", "status.json"]].concat();
    for_each(&names, |pod, name| {
        prepare(pod);
        let pipe = pod.path(name);
        _ = fs::remove_file(&pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        run_step_and_probes(pod, name);
    });
}
