//! A simulated pod: a /proc of its own, a status file, a PATH with the few tools that every image has, and a run of the scripts
//! in it.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};
use std::{env, fs, thread};

use tempfile::TempDir;

pub(super) const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/inject/wait-for-sync.sh");
pub(super) const STEP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/inject/start-member.sh");
pub(super) const TOOLS: [&str; 14] = [
    "cat", "date", "df", "grep", "head", "mkdir", "mv", "readlink", "rm", "sed", "sleep", "stat", "timeout",
    "tr",
];
pub(super) const BOOT: u64 = 1_700_000_000;
/// The start time of the server in a new pod; its status file is ten seconds younger.
pub(super) const START: u64 = BOOT + 500;

/// Runs a test for every row under every shell, all at the same time, because most of them only wait. The message of a panic names
/// the row, counted from 1, and the shell.
pub(super) fn for_each<Row: Sync>(rows: &[Row], test: impl Fn(&Pod, &Row) + Sync) {
    let wanted = [("dash", true), ("bash", true), ("busybox", in_ci())];
    let shells: Vec<_> = wanted.iter().filter_map(|&(name, required)| program(name, required)).collect();
    let test = &test;
    thread::scope(|scope| {
        for (number, row) in (1..).zip(rows) {
            for shell in &shells {
                let run = thread::Builder::new().name(format!("row {number} in {}", shell.display()));
                run.spawn_scoped(scope, move || test(&Pod::new(shell.clone()), row)).unwrap();
            }
        }
    });
}

pub(super) fn in_ci() -> bool {
    env::var_os("CI").is_some()
}

pub(super) fn program(name: &str, required: bool) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap();
    let found = env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    assert!(found.is_some() || !required, "{name} is not installed");
    found
}

/// Returns a status file as a server writes it, in the layout of wsrep-lib.
pub(super) fn status(state: &str, warning: &[u8]) -> Vec<u8> {
    let head = b"{\n\t\"date\": \"2026-11-20 10:00:00.000\",\n\t\"warnings\": [\n\t\t{\n\t\t\t\"msg\": \"";
    let tail = format!(
        "\"\n\t\t}}\n\t],\n\t\"events\": [\n\t],\n\t\"status\": {{\n\t\t\"state\": \"{state}\",\n\
         \t\t\"comment\": \"Operational\",\n\t\t\"progress\": {{ \"from\": -1, \"to\": -1 }}\n\t}}\n}}\n"
    );
    [head, warning, tail.as_bytes()].concat()
}

pub(super) struct Pod {
    pub(super) root: TempDir,
    pub(super) shell: PathBuf,
    pub(super) env: RefCell<Vec<(String, OsString)>>,
}

impl Pod {
    /// Returns a pod with a running server, but without a status file.
    pub(super) fn new(shell: PathBuf) -> Self {
        let pod = Pod { root: TempDir::new().unwrap(), shell, env: RefCell::default() };
        fs::create_dir(pod.path("bin")).unwrap();
        for tool in TOOLS {
            let real = if pod.in_busybox() { pod.shell.clone() } else { program(tool, true).unwrap() };
            symlink(real, pod.path("bin").join(tool)).unwrap();
        }
        pod.booted(BOOT).process(1, "mariadbd", 'S', START);
        pod
    }

    pub(super) fn in_busybox(&self) -> bool {
        self.shell.ends_with("busybox")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
        self
    }

    pub(super) fn env(&self, name: &str, value: impl AsRef<OsStr>) -> &Self {
        self.env.borrow_mut().push((name.into(), value.as_ref().into()));
        self
    }

    pub(super) fn booted(&self, at: u64) -> &Self {
        self.write("proc/stat", format!("cpu  1 2 3 4\nctxt 1700000000\nbtime {at}\nprocesses 7\n"))
    }

    pub(super) fn process(&self, pid: u32, comm: &str, state: char, start: u64) -> &Self {
        let ticks = start.saturating_sub(BOOT) * 100;
        let fields = format!("{state} 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 30 0 {ticks} 99 98");
        self.write(&format!("proc/{pid}/stat"), format!("{pid} ({comm}) {fields}\n"));
        self.write(&format!("proc/{pid}/comm"), format!("{comm}\n"))
    }

    pub(super) fn without_server(&self) -> &Self {
        fs::remove_dir_all(self.path("proc/1")).unwrap();
        self
    }

    pub(super) fn state(&self, state: &str) -> &Self {
        self.file(&status(state, b"WSREP: a warning"))
    }

    /// Replaces the status file as the server does: a new one is renamed into place.
    pub(super) fn file(&self, text: &[u8]) -> &Self {
        self.write("status.json.new", text);
        fs::rename(self.path("status.json.new"), self.path("status.json")).unwrap();
        self.written(START + 10)
    }

    pub(super) fn written(&self, at: u64) -> &Self {
        let file = fs::File::options().write(true).open(self.path("status.json")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).unwrap();
        self
    }

    pub(super) fn connections(&self, file: &str, lines: &[&str]) -> &Self {
        let head =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n".to_string();
        let rows =
            (0..).zip(lines).map(|(n, line)| format!("{n:4}: {line} 00000000:00000000 00:00000000 0\n"));
        self.write(&format!("proc/net/{file}"), head + &rows.collect::<String>())
    }

    /// Adds a program to the PATH. A shell writes it: a file that is open for writing in this process, even if only in a child
    /// forked by another test, cannot be executed.
    pub(super) fn tool(&self, name: &str, body: &str) -> &Self {
        let write = r#"rm -f "$0" && printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#;
        let file = self.path("bin").join(name);
        let status = Command::new("/bin/sh").args(["-c", write]).arg(file).arg(body).status();
        assert!(status.unwrap().success());
        self
    }

    /// Makes the shell of this pod the `sh` on the PATH.
    pub(super) fn shell_on_path(&self) -> &Self {
        let applet = if self.in_busybox() { "sh " } else { "" };
        self.tool("sh", &format!(r#"exec {} {applet}"$@""#, self.shell.display()))
    }

    /// Returns whether the shell takes this tool from the PATH. A static busybox may prefer its own.
    pub(super) fn looks_for(&self, tool: &str) -> bool {
        let mut command = Command::new(&self.shell);
        command.args(self.in_busybox().then_some("sh")).args(["-c", &format!("command -v {tool}")]);
        command.env_clear().env("PATH", self.path("bin"));
        String::from_utf8_lossy(&command.output().unwrap().stdout).contains('/')
    }

    /// Adds a client that records its arguments and its password.
    pub(super) fn client(&self, name: &str, cluster: &str, local: &str) -> &Self {
        let body = format!(
            r#"printf '%s\n' "$@" >"$POD/asked.argv"
            printf %s "${{MYSQL_PWD-(unset)}}" >"$POD/asked.password"
            printf '%s\t%s\n' wsrep_cluster_status '{cluster}' wsrep_local_state_comment '{local}'"#
        );
        self.tool(name, &body)
    }

    pub(super) fn command(&self, trace: &str, args: &str) -> Command {
        self.script(trace, SCRIPT, args)
    }

    /// Returns the command of the step in front of a server.
    pub(super) fn step(&self, args: &str) -> Command {
        let mut command = self.script("+x", STEP, args);
        command.env("GATERA_TERMINATION_LOG", self.path("termination"));
        command
    }

    fn script(&self, trace: &str, script: &str, args: &str) -> Command {
        let mut command = Command::new(&self.shell);
        command.args(self.in_busybox().then_some("sh")).args([trace, script]).args(args.split(' '));
        command.env_clear().env("PATH", self.path("bin")).env("POD", self.root.path());
        command.env("GATERA_PROC", self.path("proc")).env("GATERA_STATUS_FILE", self.path("status.json"));
        command.envs(self.env.borrow().iter().cloned()).stdin(Stdio::null());
        command
    }

    pub(super) fn run(&self, args: &str) -> Outcome {
        Outcome::of(&self.command("+x", args).output().unwrap())
    }

    pub(super) fn traced(&self, args: &str) -> Outcome {
        Outcome::of(&self.command("-x", args).output().unwrap())
    }

    /// Runs the script and calls `change` once it has printed this first line. The outcome has the lines after it.
    pub(super) fn run_until<'a>(
        &'a self,
        args: &str,
        line: &str,
        change: impl FnOnce() -> &'a Self,
    ) -> Outcome {
        let mut command = self.command("+x", args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (mut first, mut rest) = (String::new(), Vec::new());
        stdout.read_line(&mut first).unwrap();
        assert_eq!(first, line);
        change();
        stdout.read_to_end(&mut rest).unwrap();
        Outcome::of(&Output { stdout: rest, ..child.wait_with_output().unwrap() })
    }
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Outcome {
    pub(super) fn of(output: &Output) -> Self {
        let [out, err] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        Outcome { code: output.status.code(), out, err }
    }

    #[track_caller]
    pub(super) fn exits(self, code: i32) -> Self {
        assert!(self.code == Some(code), "expected exit {code}: {self:#?}");
        self
    }

    #[track_caller]
    pub(super) fn says(self, text: &str) -> Self {
        assert!(self.out.contains(text), "expected {text:?}: {self:#?}");
        self
    }

    #[track_caller]
    pub(super) fn prints(self, text: &str) -> Self {
        assert!(self.out == text, "expected {text:?}: {self:#?}");
        self
    }
}
