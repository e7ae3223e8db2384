//! Processes that cannot outlive the test process. Each is the child of a small shell, `supervise.sh`, that holds the
//! read end of a pipe; the write end, the lifeline, is in this process alone. However this process ends, the kernel
//! closes the lifeline, and the shell ends its child and removes the folder. A control plane that is dropped goes the
//! same way, so there is one way to end and every test walks it.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::beside;
use super::error::{Doing, Error};

/// Keeps the folder of every control plane, for a look at the logs.
pub(super) fn keeps_folders() -> bool {
    env::var_os("GATERA_LAB_KEEP").is_some_and(|value| value == "1")
}

/// `program`, ready to be given arguments and spawned. Whoever spawns it holds its stdin: that is the lifeline, and
/// closing it kills. What the program itself reads is the file `input`.
pub(super) fn supervised(folder: &Path, program: &Path, input: &Path) -> Command {
    let to_remove = if keeps_folders() { Path::new("") } else { folder };
    let mut command = lifeline_only(to_remove, program, input);
    // A clean environment: no ETCD_*, no proxy, no kubeconfig, no translations; and nothing written to the real home.
    command.env_clear().env("HOME", folder.join("home")).env("LC_ALL", "C");
    command.env("PATH", env::var_os("PATH").unwrap_or_default());
    command
}

/// A program beside the control plane, in the environment of the tests: it ends with them and removes nothing.
pub(crate) fn lives_as_long_as_we_do(program: &Path) -> Command {
    lifeline_only(Path::new(""), program, Path::new("/dev/null"))
}

fn lifeline_only(to_remove: &Path, program: &Path, input: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg(beside("supervise.sh")).arg(to_remove).arg(input).arg(program);
    // Ctrl-C is meant for the test process; its end then ends this one.
    command.process_group(0).stdin(Stdio::piped());
    command
}

/// Ends a program and leaves the folder alone, which closing its lifeline would not.
pub(super) fn end_early(lifeline: &mut Option<ChildStdin>) {
    if let Some(lifeline) = lifeline {
        // An error means that the supervisor has left already, which is what is wanted.
        let _ = lifeline.write_all(b"end\n");
    }
}

/// etcd, the API server or the controller manager: runs until dropped.
pub(super) struct Component {
    pub(super) name: String,
    log: PathBuf,
    supervisor: Child,
}

impl Component {
    pub(super) fn start(
        folder: &Path,
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> Result<Self, Error> {
        let log = folder.join(format!("{name}.log"));
        let open = || -> std::io::Result<[File; 2]> {
            let file = File::create(&log)?;
            Ok([file.try_clone()?, file])
        };
        let [stdout, stderr] = open().doing(|| format!("creating {}", log.display()))?;
        let supervisor = supervised(folder, program, Path::new("/dev/null"))
            .args(arguments)
            .current_dir(folder)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .doing(|| format!("starting {name}"))?;
        Ok(Self { name: name.to_owned(), log, supervisor })
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.supervisor.try_wait(), Ok(None))
    }

    pub(super) fn last_lines(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// The supervisor leads the group that its program is in.
    pub(super) fn process_group(&self) -> u32 {
        self.supervisor.id()
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        // Short: the supervisor kills, collects its program and leaves. There is nobody to tell of an error.
        let _ = self.supervisor.wait();
    }
}
