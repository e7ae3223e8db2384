//! Processes that cannot outlive the test process. Each is the child of a small shell, `supervise.sh`, that holds the read
//! end of a pipe; only this process holds the write end, the lifeline. However this process ends, the kernel closes the
//! lifeline, and the shell ends its child and removes the folder. Dropping a control plane ends it in the same way, so
//! there is only one way to end, and every test uses it.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::error::{Doing, Error};
use super::lab_file;

/// Returns whether the folder of every control plane is kept, so that its logs can be read.
pub(super) fn keeps_folders() -> bool {
    env::var_os("GATERA_LAB_KEEP").is_some_and(|value| value == "1")
}

/// Returns a command that runs `program` under a supervisor. The stdin of the spawned process is the lifeline: closing it
/// kills the program. The program itself reads the file `input`.
pub(super) fn supervised(folder: &Path, program: &Path, input: &Path) -> Command {
    let to_remove = if keeps_folders() { Path::new("") } else { folder };
    let mut command = lifeline_only(to_remove, program, input);
    // A clean environment: no ETCD_*, no proxy, no kubeconfig, no translations; nothing is written to the real home.
    command.env_clear().env("HOME", folder.join("home")).env("LC_ALL", "C");
    command.env("PATH", env::var_os("PATH").unwrap_or_default());
    // Collecting garbage less often saves a sixth of the CPU time in which a control plane starts; most tests wait for it.
    command.env("GOGC", "400").env("GOMEMLIMIT", "500MiB");
    command
}

/// Returns a command for a program beside the control plane, with the environment of the tests. The program ends with the
/// test process; no folder is removed.
pub(crate) fn ends_with_this_process(program: &Path) -> Command {
    lifeline_only(Path::new(""), program, Path::new("/dev/null"))
}

fn lifeline_only(to_remove: &Path, program: &Path, input: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg(lab_file("supervise.sh")).arg(to_remove).arg(input).arg(program);
    // Ctrl-C is meant for the test process, whose end also ends this process.
    command.process_group(0).stdin(Stdio::piped());
    command
}

/// Ends a program but leaves the folder alone; closing the lifeline would remove it.
pub(super) fn end_early(lifeline: &mut Option<ChildStdin>) {
    if let Some(lifeline) = lifeline {
        // An error means that the supervisor has already exited, which is the goal.
        let _ = lifeline.write_all(b"end\n");
    }
}

/// A program of the control plane (etcd, the API server, …) that runs until dropped.
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

    /// Returns the process group of the program, which its supervisor leads.
    pub(super) fn process_group(&self) -> u32 {
        self.supervisor.id()
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        // Short: the supervisor kills its program, reaps it and exits. An error here cannot be reported.
        let _ = self.supervisor.wait();
    }
}
