//! One run of a command-line tool against the control plane, as one of the users: its time limit and all its output.
//! `kubectl.rs` and `helm.rs` choose the tool.

use std::fmt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::control_plane::ControlPlane;
use super::error::{Doing, Error};
use super::supervise::end_early;
use super::users::User;

/// The exit status and the output of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    /// What the tool and the API server reported, without `log`.
    pub(crate) stderr: String,
    /// What the tool's libraries logged to stderr: on a busy machine, for example, a watch is cut now and then and renewed.
    pub(crate) log: String,
}

impl Output {
    /// Returns stdout, or panics with all that was printed. For set-up, where a failure is not what the test is about.
    pub(crate) fn succeeded(self) -> String {
        assert!(self.status == 0, "a command failed in the set-up of a test: {self}");
        self.stdout
    }
}

impl fmt::Display for Output {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "status {}\n{}{}{}", self.status, self.stdout, self.stderr, self.log)
    }
}

/// Returns whether a Kubernetes library logged this line, as in `I1201 09:30:00.000000   4711 reflector.go:664] …`.
/// Warnings of the API server that are logged in this form (`warnings.go`) do not count: their text is the API server's.
fn is_logged(line: &str) -> bool {
    let mut head = line.chars();
    let level = head.next().is_some_and(|level| "IWEF".contains(level));
    let day = head.by_ref().take(4).filter(char::is_ascii_digit).count() == 4;
    let place = line.split("] ").next().unwrap_or_default();
    level && day && head.next() == Some(' ') && place.contains(".go:") && !place.contains(" warnings.go:")
}

impl ControlPlane {
    pub(super) fn run_as(
        &self,
        user: User,
        mut command: Command,
        name: &str,
        arguments: &[&str],
        patience: Duration,
    ) -> Result<Output, Error> {
        let mut child = command
            .env("KUBECONFIG", self.kubeconfig(user))
            // The program ends before collecting garbage would save time.
            .env("GOGC", "off")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .doing(|| format!("starting {name}"))?;
        // Taken out of `child`, because waiting for a child first closes its stdin.
        let mut lifeline = child.stdin.take();
        let (ended, end_signal) = mpsc::channel::<()>();
        let watchdog = thread::spawn(move || {
            let is_late = end_signal.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
            if is_late {
                end_early(&mut lifeline);
            }
            is_late
        });
        let output = child.wait_with_output().doing(|| format!("waiting for {name}"))?;
        drop(ended);
        let was_late = watchdog.join().expect("the watchdog does not panic");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let (log, stderr): (Vec<_>, Vec<_>) = stderr.split_inclusive('\n').partition(|line| is_logged(line));
        let output = Output {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: stderr.concat(),
            log: log.concat(),
        };
        if was_late {
            return Err(Error::Endless {
                command: format!("{name} {}", arguments.join(" ")),
                patience,
                output,
            });
        }
        Ok(output)
    }
}

#[test]
fn logs_of_libraries_are_not_output_of_tools() {
    for (line, logged) in [
        (r#"I1121 21:40:00.123456   42 reflector.go:664] "Warning: watch ended with error" err="EOF""#, true),
        ("E1121 21:40:00.123456   42 memcache.go:265] couldn't get current server API group list", true),
        ("W1121 21:40:00.123456   42 warnings.go:70] [G10] Service db/galera: last way in", false),
        ("Warning: [G04] Deployment db/galera-bootstrap: kept at 0 replicas", false),
        ("Error from server (Forbidden): E1121 x.go: no", false),
        ("Error: INSTALLATION FAILED", false),
        ("", false),
    ] {
        assert_eq!(is_logged(line), logged, "{line}");
    }
}
