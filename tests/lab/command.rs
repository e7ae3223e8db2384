//! One run of a command-line tool against the control plane, as one of the users: waited for, ended when it takes too long,
//! and all that it printed. `kubectl.rs` and `helm.rs` say which tool.

use std::fmt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::control_plane::ControlPlane;
use super::error::{Doing, Error};
use super::supervise::end_early;
use super::users::User;

/// What one run left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// For set-up, where a failure is not what the test is about: stdout, or a panic with all that was printed.
    pub(crate) fn succeeded(self) -> String {
        assert!(self.status == 0, "a command failed in the set-up of a test: {self}");
        self.stdout
    }
}

impl fmt::Display for Output {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "status {}\n{}{}", self.status, self.stdout, self.stderr)
    }
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
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .doing(|| format!("starting {name}"))?;
        // Out of `child`, as waiting for a child begins with closing its stdin.
        let mut lifeline = child.stdin.take();
        let (ended, hears_the_end) = mpsc::channel::<()>();
        let watchdog = thread::spawn(move || {
            let is_late = hears_the_end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
            if is_late {
                end_early(&mut lifeline);
            }
            is_late
        });
        let output = child.wait_with_output().doing(|| format!("waiting for {name}"))?;
        drop(ended);
        let was_late = watchdog.join().expect("the watchdog does not panic");
        let output = Output {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
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
