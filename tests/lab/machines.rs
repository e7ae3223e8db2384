//! Real nodes for a control plane: three pairs of containerd and kubelet, kube-proxy, CoreDNS, and the volumes of a
//! provisioner. Owns: what all nodes share. `machines/node.rs` owns one node, `machines/enter.sh` the namespaces in which
//! all programs run, `machines/unpack.sh` the images.
//!
//! Must not know: Galera, the guard. Outside those namespaces nothing starts, and the message says how to enter them.

mod node;

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::control_plane::{ControlPlane, Site};
use super::error::{Doing, Error};
use super::eventually;
use super::tools::Tools;
use super::users::{Machine, User, random_hex};
use node::Node;

/// The address of the control plane; `enter.sh` gives it and those of the nodes to the one network device.
const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const NODES: [u8; 3] = [1, 2, 3];

impl ControlPlane {
    /// Starts a control plane with three real nodes, ready for pods. Works only inside `enter.sh`.
    pub(crate) fn start_with_machines() -> Self {
        let Some(folder) = env::var_os("GATERA_LAB").map(PathBuf::from) else {
            panic!("the node lab runs in namespaces of its own: use `make e2e` or `make lab`");
        };
        let site =
            Site { address: CONTROL_PLANE, port: 6443, machines: true, controllers: true, folders: folder };
        let started = Self::start_on(site).and_then(|mut plane| plane.bring_up_machines().map(|()| plane));
        started.unwrap_or_else(|error| panic!("the node lab did not start: {error}"))
    }

    fn bring_up_machines(&mut self) -> Result<(), Error> {
        self.create(&cluster_objects());
        self.run_scheduler()?;
        self.run_dns()?;
        self.run_proxy()?;
        // All containerds start first, side by side; then each kubelet waits for its own.
        let nodes = NODES.map(|number| Node::new(self.folder(), number));
        for node in &nodes {
            node.prepare()?;
            self.run(&node.named("containerd"), Path::new("containerd"), &node.containerd_flags())?;
        }
        let kubelet = Tools::also("kubelet")?;
        for node in &nodes {
            self.wait_for("containerd's socket", |_| node.socket().exists())?;
            let kubeconfig = self.files().machine_kubeconfig(Machine::Kubelet(node.number));
            let before = socket_of_plugins();
            self.run(&node.named("kubelet"), &kubelet, &node.kubelet_flags(&kubeconfig))?;
            self.wait_for("the kubelet's own socket", |_| {
                socket_of_plugins().is_some_and(|it| Some(it) != before)
            })?;
        }
        self.wait_for("three Ready nodes", |plane| {
            let wait = ["wait", "node", "--all", "--for=condition=Ready", "--timeout=1s"];
            let nodes = plane.kubectl(User::Admin, &["get", "nodes", "--output=name"]).stdout.lines().count();
            nodes == NODES.len() && plane.kubectl(User::Admin, &wait).status == 0
        })
    }

    fn run_dns(&mut self) -> Result<(), Error> {
        let kubeconfig = self.files().machine_kubeconfig(Machine::Dns);
        let corefile = self.folder().join("Corefile");
        let text = format!(
            ".:53 {{\n  bind {CONTROL_PLANE}\n  errors\n  kubernetes cluster.local in-addr.arpa ip6.arpa {{\n    \
             kubeconfig {} lab\n    pods insecure\n    ttl 1\n  }}\n}}\n",
            kubeconfig.display()
        );
        fs::write(&corefile, text).doing(|| format!("writing {}", corefile.display()))?;
        self.run("coredns", &Tools::also("coredns")?, &["-conf".to_owned(), corefile.display().to_string()])
    }

    /// Runs one kube-proxy for all three nodes: they share a network, as the nodes of this lab share a kernel.
    fn run_proxy(&mut self) -> Result<(), Error> {
        let config = self.folder().join("kube-proxy.json");
        let text = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": "10.244.0.0/16",
            "clientConnection": { "kubeconfig": self.files().machine_kubeconfig(Machine::Proxy) },
            // The kernel's own limits are kept.
            "conntrack": { "maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
            "hostnameOverride": "node-1",
            "nftables": { "minSyncPeriod": "100ms" },
        });
        fs::write(&config, text.to_string()).doing(|| format!("writing {}", config.display()))?;
        self.run("kube-proxy", &Tools::also("kube-proxy")?, &[format!("--config={}", config.display())])
    }

    /// Imports an image archive, as read by `ctr images import`, on every node.
    pub(crate) fn import_image(&self, archive: &Path) {
        for number in NODES {
            self.import_image_to(number, archive);
        }
    }

    /// Imports an image archive on one node.
    pub(crate) fn import_image_to(&self, number: u8, archive: &Path) {
        Node::new(self.folder(), number).import(archive).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Creates volumes for claims without a storage class, like those of the seed documents. The volumes outlive the claims.
    pub(crate) fn have_volumes(&self, count: usize) {
        let volume = |_| {
            let random = random_hex(16).expect("the kernel has random numbers");
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": { "generateName": "lab-" },
                "spec": {
                    "capacity": { "storage": "10Gi" },
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "",
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": { "path": format!("/tmp/hostpath_pv/{random}"), "type": "DirectoryOrCreate" },
                },
            })
        };
        let items: Vec<_> = (0..count).map(volume).collect();
        self.create(&json!({ "apiVersion": "v1", "kind": "List", "items": items }));
    }

    /// Creates volumes of the class "local". Kubelets apply `fsGroup` to these, and not to the others. All nodes see the folders.
    pub(crate) fn have_local_volumes(&self, count: usize) {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "local" },
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        });
        let anywhere = json!([{ "key": "kubernetes.io/hostname", "operator": "Exists" }]);
        let volume = |_| {
            let path = format!("/tmp/hostpath_pv/{}", random_hex(16).expect("the kernel has random numbers"));
            fs::create_dir_all(&path).expect("volumes of the lab are folders");
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "generateName": "local-" },
                "spec": {
                    "storageClassName": "local", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain", "local": { "path": path },
                    "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": anywhere }] } },
                },
            })
        };
        let items: Vec<_> = (0..count).map(volume).collect();
        // The class is there already if another test of this lab has asked for volumes.
        self.kubectl_stdin(User::Admin, &["apply", "--filename=-"], &class.to_string()).succeeded();
        self.create(&json!({ "apiVersion": "v1", "kind": "List", "items": items }));
    }

    /// Returns the folder of a claim's volume. To lose the disk, a test removes its content.
    pub(crate) fn volume_of(&self, namespace: &str, claim: &str) -> PathBuf {
        let claim = self.get(namespace, &format!("persistentvolumeclaim/{claim}"));
        let name = claim["spec"]["volumeName"].as_str().expect("the claim is bound").to_owned();
        let volume = self.get("default", &format!("persistentvolume/{name}"));
        volume["spec"]["hostPath"]["path"].as_str().expect("volumes of the lab are folders").into()
    }

    /// Waits until pods in this namespace start and resolve names.
    pub(crate) fn until_pods_work(&self, namespace: &str) {
        let name = "lab-probe";
        let run = ["run", name, "--namespace", namespace, "--image=busybox:1.36", "--restart=Never"];
        let ask = ["--command", "--", "nslookup", "kubernetes.default.svc.cluster.local"];
        self.kubectl(User::Admin, &[&run[..], &ask[..]].concat()).succeeded();
        eventually("a pod finds the API server by name", || {
            let pod = self.get(namespace, &format!("pod/{name}"));
            assert_ne!(pod["status"]["phase"], "Failed", "{pod}");
            (pod["status"]["phase"] == "Succeeded").then_some(())
        });
        self.kubectl(User::Admin, &["delete", "pod", name, "--namespace", namespace, "--now"]).succeeded();
    }
}

/// Identifies the socket for device plugins. All kubelets use this path, independently of their root folder. Each removes and
/// recreates the socket, and two that do so at the same moment fail.
fn socket_of_plugins() -> Option<(u64, i64, i64)> {
    let socket = fs::symlink_metadata("/var/lib/kubelet/device-plugins/kubelet.sock").ok()?;
    Some((socket.ino(), socket.ctime(), socket.ctime_nsec()))
}

/// Returns a default storage class and the rights of CoreDNS.
fn cluster_objects() -> serde_json::Value {
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "lab",
                "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
            },
            "provisioner": "kubernetes.io/host-path",
            "reclaimPolicy": "Delete",
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": "system:dns" },
            "rules": [
                { "apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"] },
                { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "system:dns" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:dns" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:dns" }],
        },
    ]})
}
