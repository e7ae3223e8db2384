//! Test helpers for the path from the API server to the guard: a Service that can be cut, and continuous load on both.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Patch, PatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;

use crate::lab::{ControlPlane, User};

/// Returns a client of the API server for a proxy. It has no credentials, because each proxied request carries its own token.
pub async fn client_without_credentials(plane: &ControlPlane) -> Client {
    let file = Kubeconfig::read_from(plane.kubeconfig(User::Admin)).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info = AuthInfo::default();
    Client::try_from(config).unwrap()
}

/// A stand-in for a Service, which accepts connections and forwards each to one of its backends.
pub struct Balancer {
    /// The address at which it accepts connections.
    pub address: SocketAddr,
    backends: Arc<Mutex<Vec<SocketAddr>>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Balancer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (backends, open) =
            (Arc::<Mutex<Vec<SocketAddr>>>::default(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (to, opened) = (Arc::clone(&backends), Arc::clone(&open));
        thread::spawn(move || {
            for (turn, front) in listener.incoming().flatten().enumerate() {
                let backends = to.lock().unwrap().clone();
                if backends.is_empty() {
                    continue;
                }
                let Ok(back) = TcpStream::connect(backends[turn % backends.len()]) else { continue };
                opened.lock().unwrap().extend([front.try_clone().unwrap(), back.try_clone().unwrap()]);
                for (mut from, mut into) in
                    [(front.try_clone().unwrap(), back.try_clone().unwrap()), (back, front)]
                {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut into);
                        let _ = into.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { address, backends, open }
    }

    /// Forwards new connections to these backends from now on.
    pub fn set_backends(&self, backends: &[SocketAddr]) {
        *self.backends.lock().unwrap() = backends.to_vec();
    }

    /// Drops new connections and closes those that are open.
    pub fn cut(&self) {
        self.set_backends(&[]);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Load on admission: dry-run writes of a guarded StatefulSet, as fast as the API server accepts them, or 20 per second if they
/// fail.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    failed: Arc<Mutex<Vec<String>>>,
    thread: thread::JoinHandle<()>,
}

impl Load {
    pub fn start(plane: &ControlPlane, ns: &str, stateful_set: &'static str) -> Self {
        let (stop, done, failed) = (
            Arc::<AtomicBool>::default(),
            Arc::<AtomicUsize>::default(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let (kubeconfig, ns) = (plane.kubeconfig(User::Editor), ns.to_owned());
        let (stopped, counted, reported) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&failed));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let file = Kubeconfig::read_from(kubeconfig).unwrap();
                let config =
                    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
                let api: Api<StatefulSet> = Api::namespaced(Client::try_from(config).unwrap(), &ns);
                let params = PatchParams { dry_run: true, ..PatchParams::default() };
                for turn in 0.. {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    let patch = json!({ "metadata": { "labels": { "turn": turn.to_string() } } });
                    match api.patch(stateful_set, &params, &Patch::Merge(&patch)).await {
                        Ok(_) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => {
                            reported.lock().unwrap().push(error.to_string());
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    }
                }
            });
        });
        Self { stop, done, failed, thread }
    }

    /// Returns how many requests have succeeded so far.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Stops the load and returns how many requests succeeded and the errors of those that failed.
    pub fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        (self.done.load(Ordering::Relaxed), self.failed.lock().unwrap().clone())
    }
}
