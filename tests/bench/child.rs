//! A server's process, seen from outside: it is started, prints its address, is measured, and is ended.
//!
//! Owns: processes and what `/proc` shows of them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::client::{self, Connection};
use crate::servers::Hello;

/// The clock ticks per second in `/proc/PID/stat`: 100 on every architecture of Linux.
const TICKS: f64 = 100.0;
/// How long a child may take to exit after its stdin is closed, which makes it exit at once; then it is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running server, which is ended when this value is dropped.
pub struct Server {
    child: Child,
    pub hello: Hello,
    trust: Arc<ClientConfig>,
}

impl Server {
    /// Starts this program again with `role` as its arguments, and waits until it listens.
    pub fn start(role: &[&str]) -> Self {
        Self::start_with(Command::new(this_program()), role)
    }

    /// Starts this program under another one, for example valgrind; `command` is that program with its arguments.
    pub fn start_under(mut command: Command, role: &[&str]) -> Self {
        command.arg(this_program());
        Self::start_with(command, role)
    }

    fn start_with(mut command: Command, role: &[&str]) -> Self {
        let mut child = command
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting a server");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a server prints a line");
        let hello: Hello =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{role:?} printed {line:?}"));
        let trust = client::trusting(&hello.bundle);
        Self { child, hello, trust }
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.hello.address, &self.trust).expect("the server accepts")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the processor time that a process has used in user and kernel mode, in seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    stat(pid)[11..13].iter().sum::<f64>() / TICKS
}

/// Returns the time since a process was started.
pub fn age(pid: u32) -> Duration {
    let uptime = fs::read_to_string("/proc/uptime").expect("Linux has /proc/uptime");
    let uptime: f64 = uptime.split(' ').next().and_then(|text| text.parse().ok()).expect("in seconds");
    Duration::from_secs_f64((uptime - stat(pid)[19] / TICKS).max(0.0))
}

/// Returns the fields of `/proc/PID/stat` from the process state on; a letter counts as 0. The name before them is in parentheses
/// and may contain anything.
fn stat(pid: u32) -> Vec<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process exists");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    fields.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect()
}

/// Returns the resident memory in MiB.
pub fn resident(pid: u32) -> f64 {
    memory(pid, "VmRSS:")
}

/// Returns the peak of the resident memory in MiB.
pub fn peak(pid: u32) -> f64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process exists");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number of kB") / 1024.0
}
