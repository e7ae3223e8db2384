//! SIGTERM while the guard starts, in its lame-duck phase, and while it drains its connections.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::guarded::{guard_of, program};
use crate::lab::{ends_with_this_process, eventually};

struct GuardProcess {
    shell: Child,
    pid: Pid,
}

impl GuardProcess {
    /// Starts the real program with this address as its API server.
    fn start(folder: &Path, api_server: SocketAddr, arguments: &[&str]) -> Self {
        let kubeconfig = folder.join("kubeconfig");
        let server = format!("http://{api_server}");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, users: [{{name: a, user: {{}}}}], \
             clusters: [{{name: a, cluster: {{server: \"{server}\"}}}}], \
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}"
        );
        fs::write(&kubeconfig, text).unwrap();
        let mut shell = ends_with_this_process(&program())
            .args(["serve", "--webhook-url=https://127.0.0.1:1", "--operations=127.0.0.1:0"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = eventually("the guard to run", || {
            assert_eq!(shell.try_wait().unwrap(), None, "the guard has ended");
            guard_of(shell.id())
        });
        Self { shell, pid: Pid::from_raw(i32::try_from(pid).unwrap()).unwrap() }
    }

    /// Sends SIGTERM and returns whether the guard was still running.
    fn terminate(&self) -> bool {
        kill_process(self.pid, Signal::TERM).is_ok()
    }

    /// Waits until the guard has ended without an error, and returns how long that took.
    fn ended(mut self) -> Duration {
        let since = Instant::now();
        let status = eventually("the guard to end", || self.shell.try_wait().unwrap());
        assert!(status.success(), "{status}");
        since.elapsed()
    }
}

/// In a container the guard is process 1, on which a signal without a handler has no effect.
#[test]
fn one_signal_ends_a_guard_that_is_starting() {
    let folder = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let guard = GuardProcess::start(folder.path(), silent.local_addr().unwrap(), &["--listen=127.0.0.1:0"]);
    let _asked = silent.accept().unwrap();
    assert!(guard.terminate(), "the guard has ended before the signal");
    let took = guard.ended();
    assert!(took < Duration::from_secs(3), "the guard ended only after {took:?}");
}

#[test]
fn each_further_signal_ends_a_phase_of_the_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (closed, webhooks) = (free(), free());
    let listen = format!("--listen={webhooks}");
    let guard = GuardProcess::start(
        folder.path(),
        closed,
        &[&listen, "--lame-duck=60", "--drain=60", "--namespace=default"],
    );
    // The guard does not wait long for a missing handshake; the second connection stays open until the end.
    let connect = || TcpStream::connect(webhooks).ok();
    drop(eventually("the guard to listen", connect));
    assert!(guard.terminate(), "the guard has ended before the first signal");
    sleep(Duration::from_millis(200));
    let _open = connect().expect("it still serves in the lame-duck phase");
    assert!(guard.terminate(), "the guard has ended in its lame-duck phase");
    eventually("the guard to accept no further connection", || connect().is_none().then_some(()));
    // On a busy machine the connection may have timed out, and the guard may have ended.
    let still_ran = guard.terminate();
    let took = guard.ended();
    assert!(!still_ran || took < Duration::from_secs(3), "the guard ended only after {took:?}");
}
