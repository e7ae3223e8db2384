//! One control plane, from its start to its end. Takes paths from `tools.rs` and `users.rs`, and leaves processes to
//! `supervise.rs`. `kubectl.rs` and `standins.rs` use a running control plane; `nodes.rs` gives it nodes.

use std::collections::BTreeSet;
use std::env;
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use tempfile::TempDir;

use super::audit;
use super::error::{Doing, Error};
use super::supervise::{Component, keeps_folders};
use super::tools::Tools;
use super::users::{Files, Machine, User};
use super::{PATIENCE, pause};

/// The number of attempts to start, each with a new port, if other programs take the port first. Two are rarely needed.
const ATTEMPTS: usize = 5;

/// The socket of etcd inside its folder, so it needs no port and no other program can reach it. etcd wants "host:port" even
/// for a socket; here the whole text is the name of the file.
pub(super) const ETCD_SOCKET: &str = "etcd:0";
const PEER_SOCKET: &str = "peer:0";

/// Where a control plane listens, and what it consists of.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
    /// Whether it has real nodes, with their rights, health and volumes. `machines.rs` starts them.
    pub(super) machines: bool,
    /// Whether controllers run. Without them, everything that is written stays as it is.
    pub(super) controllers: bool,
    /// Where the folder of the control plane is made.
    pub(super) folders: PathBuf,
}

impl Site {
    pub(super) fn loopback(port: u16) -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST,
            port,
            machines: false,
            controllers: true,
            folders: env::temp_dir(),
        }
    }
}

/// A running control plane. Dropping it ends its processes and removes its folder.
pub(crate) struct ControlPlane {
    // First, so that the programs have ended before the folder is removed.
    components: Vec<Component>,
    folder: TempDir,
    site: Site,
    pub(super) tools: Tools,
    /// The names of the existing Node objects; see `standins.rs`.
    pub(super) nodes: Mutex<BTreeSet<String>>,
}

impl ControlPlane {
    /// Starts a control plane and waits until it works. Panics with the last lines of the program that failed.
    pub(crate) fn start() -> Self {
        Self::start_here(true)
    }

    /// Starts a control plane without controllers: objects stay as they were stored.
    pub(crate) fn start_without_controllers() -> Self {
        Self::start_here(false)
    }

    fn start_here(controllers: bool) -> Self {
        let mut attempt = 1;
        loop {
            let site = free_port().map(|port| Site { controllers, ..Site::loopback(port) });
            match site.and_then(Self::start_on) {
                Ok(plane) => return plane,
                Err(error) if error.port_was_taken() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => panic!("the control plane did not start: {error}"),
            }
        }
    }

    pub(super) fn start_on(site: Site) -> Result<Self, Error> {
        let tools = Tools::find()?;
        let mut folder = tempfile::Builder::new()
            .prefix("gatera-lab-")
            // It contains tokens.
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&site.folders)
            .doing(|| "making a temp folder".to_owned())?;
        if keeps_folders() {
            folder.disable_cleanup(true);
            eprintln!("GATERA_LAB_KEEP: the control plane's folder is {}", folder.path().display());
        }
        let mut plane = Self { components: Vec::new(), folder, site, tools, nodes: Mutex::default() };
        plane.bring_up()?;
        Ok(plane)
    }

    fn bring_up(&mut self) -> Result<(), Error> {
        self.files().write(&self.url())?;

        self.run("etcd", &self.tools.etcd.clone(), &etcd_flags())?;
        self.wait_for("etcd's socket", |plane| plane.folder().join(ETCD_SOCKET).exists())?;

        self.run("kube-apiserver", &self.tools.api_server.clone(), &self.api_server_flags())?;
        self.wait_for("the API server's port", |plane| TcpStream::connect(plane.address()).is_ok())?;
        self.wait_for("/readyz", |plane| plane.can_read(User::Admin, "/readyz"))?;
        if !self.site.controllers {
            return Ok(());
        }

        let flags = self.controller_manager_flags();
        self.run("kube-controller-manager", &self.tools.controller_manager.clone(), &flags)?;
        self.wait_for("the default service account", |plane| {
            plane.can_read(User::Admin, "/api/v1/namespaces/default/serviceaccounts/default")
        })?;
        // The API server creates `edit` empty, and a controller fills in its rules. Until then no editor may edit.
        self.wait_for("the rules of ClusterRole edit", |plane| {
            plane
                .find("", "clusterrole/edit")
                .is_ok_and(|it| it["rules"].to_string().contains("statefulsets"))
        })
    }

    pub(super) fn run(&mut self, name: &str, program: &Path, flags: &[String]) -> Result<(), Error> {
        let component = Component::start(self.folder.path(), name, program, flags)?;
        self.components.push(component);
        Ok(())
    }

    /// Polls until `is_there` holds, and checks the programs meanwhile: one that has ended will never be ready.
    pub(super) fn wait_for(
        &mut self,
        waiting_for: &'static str,
        mut is_there: impl FnMut(&Self) -> bool,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            if is_there(self) {
                return Ok(());
            }
            if let Some(dead) = self.components.iter_mut().find_map(|one| one.has_ended().then_some(&*one)) {
                return Err(Error::Ended { component: dead.name.clone(), last_lines: dead.last_lines() });
            }
            if let (true, Some(newest)) = (begun.elapsed() > PATIENCE, self.components.last()) {
                let (component, last_lines) = (newest.name.clone(), newest.last_lines());
                return Err(Error::Late { waiting_for, component, last_lines });
            }
            thread::sleep(pause(begun.elapsed()));
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        (self.site.address, self.site.port).into()
    }

    /// Returns the folder with the kubeconfigs and the logs. Only the user that runs the tests can read it.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the folder with kubectl and the other programs.
    pub(crate) fn tools_folder(&self) -> &Path {
        self.tools.kubectl.parent().unwrap_or(Path::new("/"))
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}", self.site.address, self.site.port)
    }

    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        self.files().kubeconfig(user)
    }

    /// Returns one process group per program, for checks that nothing is left.
    pub(super) fn process_groups(&self) -> Vec<u32> {
        self.components.iter().map(Component::process_group).collect()
    }

    pub(super) fn files(&self) -> Files<'_> {
        Files { folder: self.folder.path() }
    }

    fn api_server_flags(&self) -> Vec<String> {
        let files = self.files();
        let mut flags = vec![
            format!("--etcd-servers=unix://{ETCD_SOCKET}"),
            format!("--bind-address={}", self.site.address),
            format!("--advertise-address={}", self.site.address),
            format!("--secure-port={}", self.site.port),
            format!("--cert-dir={}", files.certificates().display()),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", files.verifying_key().display()),
            format!("--service-account-signing-key-file={}", files.signing_key().display()),
            format!("--token-auth-file={}", files.tokens().display()),
            "--allow-privileged".to_owned(),
            format!("--audit-policy-file={}", self.folder().join(audit::POLICY).display()),
            format!("--audit-log-path={}", self.folder().join(audit::LOG).display()),
            // One line per request, written immediately.
            "--audit-log-mode=blocking".to_owned(),
            "--profiling=false".to_owned(),
        ];
        let more: &[&str] = if self.site.machines {
            // As in every cluster, a kubelet may do only what concerns its own node and its pods.
            &[
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                // No DNS server knows the nodes.
                "--kubelet-preferred-address-types=InternalIP",
            ]
        } else {
            // Endpoints must not have loopback addresses, so this one is not published.
            &["--authorization-mode=RBAC", "--endpoint-reconciler-type=none"]
        };
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        if !self.site.controllers {
            // Fields behind a feature gate that some clusters switch on are kept.
            flags.push("--feature-gates=MaxUnavailableStatefulSet=true".to_owned());
        }
        flags
    }

    fn controller_manager_flags(&self) -> Vec<String> {
        let files = self.files();
        let mut flags = vec![
            format!("--kubeconfig={}", files.machine_kubeconfig(Machine::ControllerManager).display()),
            format!("--root-ca-file={}", files.authority().display()),
            // Controllers use their own accounts, as in every real cluster, because guards look at the user of a request.
            "--use-service-account-credentials".to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--profiling=false".to_owned(),
            "--pvclaimbinder-sync-period=1s".to_owned(),
            // Many tests share one controller manager at the same time.
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];
        flags.push(if self.site.machines {
            "--enable-hostpath-provisioner".to_owned()
        } else {
            // No kubelet reports for the lab's nodes; these controllers would declare them dead and evict their pods.
            "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller".to_owned()
        });
        flags
    }
}

fn etcd_flags() -> Vec<String> {
    vec![
        "--data-dir=etcd-data".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls=unix://{ETCD_SOCKET}"),
        format!("--advertise-client-urls=unix://{ETCD_SOCKET}"),
        format!("--listen-peer-urls=unix://{PEER_SOCKET}"),
        format!("--initial-advertise-peer-urls=unix://{PEER_SOCKET}"),
        format!("--initial-cluster=default=unix://{PEER_SOCKET}"),
    ]
}

/// Returns a port that the kernel has picked, free at this moment.
pub(super) fn free_port() -> Result<u16, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .doing(|| "asking the kernel for a free port".to_owned())
}
