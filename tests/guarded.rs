//! A control plane with the guard in front of it: the real program, with the rights of `charts/gatera` and no more.
//!
//! Tests, benchmarks and the demo use it. The guard runs as a child process, outside the cluster, so its webhooks are
//! registered by URL; everything else is as in a cluster.
#![allow(dead_code, reason = "the demo and the benchmarks use less of it than the tests")]

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{self, ControlPlane, Output, User};

/// The folder of the guard's chart.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/gatera");

/// The flag with which the chart's policy allows the guards of the lab, which run outside the cluster, to register by URL.
pub const OUTSIDE: &str = "--set=policy.webhookUrl=https://127.0.0.1:";

/// The number of nodes: enough for three members on separate nodes while other tests drain some of the nodes.
const NODES: usize = 8;

/// A running guard, which is killed when this value is dropped.
pub struct Guard {
    child: Child,
    /// The address of its webhooks.
    pub webhooks: SocketAddr,
    /// The address of its probes and metrics.
    pub operations: SocketAddr,
    log: PathBuf,
}

/// The options with which a guard is started.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The name of the replica, which is also part of the name of its log.
    pub identity: String,
    /// The guard's own namespace, if it is not `home`. In another namespace it has no rights, so it never becomes the leader.
    pub namespace: Option<String>,
    /// The namespace in which the chart with its account and objects is installed, if it is not `gatera`.
    pub home: Option<String>,
    /// Whether it registers by the chart's Service. That Service leads nowhere, because pods of the lab run no program.
    pub by_service: bool,
    /// Additional arguments of `gatera serve`.
    pub arguments: Vec<String>,
    /// The URL of the API server, if the guard does not reach it directly.
    pub api_server: Option<String>,
    /// The URL under which it registers, if that is not its own address.
    pub url: Option<String>,
}

/// Returns the control plane that all tests share, and its guard.
pub fn shared() -> (&'static ControlPlane, &'static Guard) {
    static GUARD: LazyLock<Guard> = LazyLock::new(|| {
        let plane = lab::shared();
        install(plane);
        let guard = Guard::start(plane, &program(), &Start { identity: "shared".into(), ..Start::default() });
        guard.until_registered();
        guard
    });
    (lab::shared(), &GUARD)
}

/// Returns a shared control plane with nodes, on which pods start and stop by themselves, and its guard. They are started only
/// if a test needs them.
pub fn shared_with_nodes() -> (&'static ControlPlane, &'static Guard) {
    static GUARDED: LazyLock<(ControlPlane, Guard)> = LazyLock::new(|| {
        let plane = ControlPlane::start_with_nodes(NODES);
        install(&plane);
        let start = Start { identity: "nodes".into(), ..Start::default() };
        let guard = Guard::start(&plane, &program(), &start);
        guard.until_registered();
        (plane, guard)
    });
    (&GUARDED.0, &GUARDED.1)
}

/// Returns the path of the program under test. Cargo passes it to tests; an example lies in a folder beside the program.
pub fn program() -> PathBuf {
    let built = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("gatera"));
    option_env!("CARGO_BIN_EXE_gatera")
        .map(PathBuf::from)
        .or_else(built)
        .expect("this program lies in a folder")
}

/// Runs the program with this kubeconfig and returns its output.
pub fn ask(kubeconfig: &Path, arguments: &[&str]) -> Output {
    let output =
        Command::new(program()).args(arguments).env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).output();
    let output = output.expect("the program was built");
    let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
    let status = output.status.code().expect("it ends by itself");
    Output { status, stdout: text(output.stdout), stderr: text(output.stderr), log: String::new() }
}

/// Installs everything in the chart except its Deployment: identity, rights and empty webhook configurations.
pub fn install(plane: &ControlPlane) {
    plane.kubectl_stdin(User::Admin, &["apply", "--filename=-"], &manifests(plane)).succeeded();
}

fn manifests(plane: &ControlPlane) -> String {
    // All control planes of a process get the same manifests.
    static TEXT: OnceLock<String> = OnceLock::new();
    // The namespace is written in YAML, because kubectl 1.30 parses a stream that begins with JSON as JSON to its end.
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: gatera}".to_owned();
    let arguments = ["template", "gatera", CHART, "--namespace=gatera", "--no-hooks", OUTSIDE];
    let text = TEXT.get_or_init(|| plane.helm(User::Admin, &arguments).succeeded());
    let documents = text.split("\n---\n").filter(|it| !it.contains("\nkind: Deployment\n"));
    documents.fold(namespace, |all, one| format!("{all}\n---\n{one}"))
}

/// Writes a kubeconfig with the guard's own service account.
fn kubeconfig(plane: &ControlPlane, start: &Start) -> PathBuf {
    let home = start.home.as_deref().unwrap_or("gatera");
    let name = format!("guard-{}", start.identity);
    kubeconfig_of(plane, home, "gatera", &name, start.api_server.as_deref())
}

/// Writes a kubeconfig for a service account.
pub fn kubeconfig_of(
    plane: &ControlPlane,
    namespace: &str,
    account: &str,
    file: &str,
    api_server: Option<&str>,
) -> PathBuf {
    let arguments = ["create", "token", account, "--namespace", namespace, "--duration=24h"];
    let token = plane.kubectl(User::Admin, &arguments).succeeded();
    let text = fs::read_to_string(plane.kubeconfig(User::Admin)).expect("the admin has a kubeconfig");
    let mut config: Value = serde_json::from_str(&text).expect("the lab writes it as JSON");
    for user in config["users"].as_array_mut().expect("a kubeconfig has users") {
        user["user"] = json!({ "token": token.trim() });
    }
    if let Some(server) = api_server {
        config["clusters"][0]["cluster"]["server"] = json!(server);
    }
    let path = plane.folder().join(format!("{file}.kubeconfig"));
    fs::write(&path, config.to_string()).expect("writing a kubeconfig");
    path
}

/// Takes the lease from a killed guard, so that the next guard does not have to wait until the lease expires.
pub fn free_lease(plane: &ControlPlane) {
    let free = [
        "--namespace=gatera",
        "patch",
        "lease",
        "gatera",
        "--type=merge",
        r#"--patch={"spec":{"holderIdentity":""}}"#,
    ];
    plane.kubectl(User::Admin, &free).succeeded();
}

/// Returns an address with a free port. Another process may bind it first, so starting a guard is tried more than once.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port on loopback")
}

/// Returns the process id of the guard that is a child of this shell.
pub fn guard_of(shell: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap_or_default();
    let is_guard = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|exe| exe.file_name().is_some_and(|name| name == "gatera"))
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_guard)
}

impl Guard {
    /// Starts the program and waits until it listens.
    pub fn start(plane: &ControlPlane, program: &Path, start: &Start) -> Guard {
        Self::start_by(&kubeconfig(plane, start), plane.folder(), program, start)
    }

    /// Starts the program with this kubeconfig, for an API server that may run elsewhere.
    pub fn start_by(kubeconfig: &Path, folder: &Path, program: &Path, start: &Start) -> Guard {
        for attempt in 0.. {
            let webhooks = free_address();
            let operations = free_address();
            let log = folder.join(format!("guard-{}-{attempt}.log", start.identity));
            let url = start.url.clone().unwrap_or_else(|| format!("https://{webhooks}"));
            let url = (!start.by_service).then(|| format!("--webhook-url={url}"));
            let namespace = start.namespace.as_deref().or(start.home.as_deref()).unwrap_or("gatera");
            let file = File::create(&log).expect("creating the guard's log");
            let mut child = lab::ends_with_this_process(program)
                .args(["serve", "--kubeconfig"])
                .arg(kubeconfig)
                .args([&format!("--namespace={namespace}"), &format!("--identity={}", start.identity)])
                .args([&format!("--listen={webhooks}"), &format!("--operations={operations}")])
                .args(url)
                .args(&start.arguments)
                .stdout(Stdio::null())
                .stderr(file)
                .spawn()
                .unwrap_or_else(|error| panic!("starting {}: {error}", program.display()));
            let listens = lab::eventually("the guard to listen or to end", || {
                if child.try_wait().expect("reading the state of the guard's process").is_some() {
                    return Some(false);
                }
                TcpStream::connect(operations).ok().map(|_| true)
            });
            let guard = Guard { child, webhooks, operations, log };
            if listens {
                return guard;
            }
            assert!(
                attempt < 3 && guard.log().contains("listening at"),
                "the guard did not start:\n{}",
                guard.log()
            );
        }
        unreachable!("either it listens or the last attempt panics")
    }

    /// Returns everything that the guard has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the guard's process id. The direct child process is a shell, which ends the guard when the tests end.
    pub fn pid(&self) -> u32 {
        guard_of(self.child.id()).expect("the guard runs")
    }

    /// Sends a GET request to the operations port and returns the status code and the body.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.operations).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Waits until the guard is ready and API servers send requests to it.
    pub fn until_registered(&self) {
        lab::eventually("the guard to be ready and registered", || {
            let (status, text) = self.get("/readyz")?;
            (status == 200 && text.contains("webhooks: registered")).then_some(())
        });
    }

    /// Sends SIGTERM to the guard.
    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid()).expect("a pid"))
            .expect("a pid is not 0");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .expect("our own process can be signalled");
    }

    /// Waits until the guard has ended, and returns its exit status and its log.
    pub fn until_ended(mut self, patience: Duration) -> (ExitStatus, String) {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().expect("reading the state of the guard's process") {
                return (status, self.log());
            }
            assert!(Instant::now() < deadline, "the guard did not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // When its standard input is closed, the shell kills the guard; then the shell itself is reaped.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
