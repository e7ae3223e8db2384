//! One node: a containerd and a kubelet with their own folders, address, pod range and identity (`system:node:node-N`).
//!
//! Owns: their settings. `machines.rs` starts them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::super::error::{Doing, Error};
use super::CONTROL_PLANE;

pub(super) struct Node {
    pub(super) number: u8,
    folder: PathBuf,
}

impl Node {
    pub(super) fn new(lab: &Path, number: u8) -> Self {
        Self { number, folder: lab.join(format!("node-{number}")) }
    }

    /// Returns the path of containerd's socket, which is short because the path of a socket has a limit.
    pub(super) fn socket(&self) -> PathBuf {
        format!("/run/node-{}/containerd.sock", self.number).into()
    }

    pub(super) fn named(&self, program: &str) -> String {
        format!("{program}-{}", self.number)
    }

    /// Writes all that the two programs read. Image layers are never written to, so the nodes and all labs share those of
    /// the cache as hard links; what containerd writes to is copied.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        let making = || format!("making {}", self.folder.display());
        fs::create_dir_all(self.folder.join("cni")).doing(making)?;
        let images = env::var_os("GATERA_LAB_IMAGES").map(PathBuf::from).unwrap_or_default();
        let root = self.folder.join("containerd");
        let copy = "cp -al \"$1/containerd\" \"$2\" && cd \"$2\" && \
            find . -name '*.db' -exec sh -c 'cp \"$1\" \"$1.own\" && mv \"$1.own\" \"$1\"' sh {} \\;";
        let copied = Command::new("sh").args(["-c", copy, "sh"]).arg(&images).arg(&root).status();
        if !copied.doing(making)?.success() {
            return Err(Error::Tools(format!(
                "copying the images of {} to {}",
                images.display(),
                root.display()
            )));
        }
        for (name, text) in [
            ("containerd.toml", self.containerd_config(&root)),
            ("cni/10-lab.conflist", self.network()),
            ("kubelet.json", self.kubelet_config()),
            ("resolv.conf", format!("nameserver {CONTROL_PLANE}\n")),
        ] {
            fs::write(self.folder.join(name), text).doing(making)?;
        }
        Ok(())
    }

    fn containerd_config(&self, root: &Path) -> String {
        format!(
            "version = 2\nroot = \"{root}\"\nstate = \"/run/node-{number}/state\"\n[grpc]\naddress = \"{socket}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"registry.k8s.io/pause:3.10\"\n\
             # Not every machine allows protecting a process from the out-of-memory killer.\nrestrict_oom_score_adj = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = \"{cni}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n",
            number = self.number,
            root = root.display(),
            socket = self.socket().display(),
            cni = self.folder.join("cni").display(),
        )
    }

    pub(super) fn containerd_flags(&self) -> Vec<String> {
        vec!["--config".to_owned(), self.folder.join("containerd.toml").display().to_string()]
    }

    /// Returns the network configuration: a pair of devices per pod and a route to it. There is no bridge, so a Service
    /// also works from the pod that it leads to.
    fn network(&self) -> String {
        let pods = format!("10.244.{}.0/24", self.number);
        let addresses = json!({
            "type": "host-local",
            "ranges": [[{ "subnet": pods }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
            "dataDir": self.folder.join("addresses"),
        });
        json!({
            "cniVersion": "0.4.0",
            "name": format!("lab-{}", self.number),
            "plugins": [
                { "type": "ptp", "ipMasq": false, "ipam": addresses },
                { "type": "portmap", "capabilities": { "portMappings": true } },
            ],
        })
        .to_string()
    }

    fn kubelet_config(&self) -> String {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": format!("192.0.2.{}", 10 + self.number),
            "port": 10250,
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
            "authorization": { "mode": "AlwaysAllow" },
            "containerRuntimeEndpoint": format!("unix://{}", self.socket().display()),
            "clusterDNS": [CONTROL_PLANE.to_string()],
            "clusterDomain": "cluster.local",
            "resolvConf": self.folder.join("resolv.conf"),
            "volumePluginDir": self.folder.join("plugins"),
            "podLogsDir": self.folder.join("logs"),
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": false,
            "cgroupRoot": format!("/{}", env::var("GATERA_LAB_CGROUP").unwrap_or_default()),
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "oomScoreAdj": 0,
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": false,
            // Pods see a change of a mounted ConfigMap or Secret within seconds, not within a minute.
            "syncFrequency": "5s",
            "configMapAndSecretChangeDetectionStrategy": "Watch",
            "nodeStatusUpdateFrequency": "2s",
            "maxPods": 60,
            "serializeImagePulls": false,
            "registryPullQPS": 0,
            "logging": { "verbosity": 2 },
        })
        .to_string()
    }

    pub(super) fn kubelet_flags(&self, kubeconfig: &Path) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--config={}", self.folder.join("kubelet.json").display()),
            format!("--root-dir={}", self.folder.join("kubelet").display()),
            format!("--cert-dir={}", self.folder.join("certificates").display()),
            format!("--node-ip=192.0.2.{}", 10 + self.number),
            format!("--hostname-override=node-{}", self.number),
        ]
    }

    pub(super) fn import(&self, archive: &Path) -> Result<(), Error> {
        let output = Command::new("ctr")
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace=k8s.io", "images", "import"])
            .arg(archive)
            .output()
            .doing(|| "starting ctr".to_owned())?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(Error::Tools(format!("importing {} on node-{}: {words}", archive.display(), self.number)))
    }
}
