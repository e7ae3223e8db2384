//! The users of the API server and their credentials: the token file that it reads, one kubeconfig per user, and the key
//! pair for service account tokens. All of these are created for each control plane, in its private folder; tokens are never
//! printed.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::json;

use super::audit;
use super::error::{Doing, Error};

/// The people in the tests. `kubectl.rs` defines what each may do in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// `system:masters`: may do everything, everywhere.
    Admin,
    /// A person with the `ClusterRole` `edit` in the namespaces of the tests, and no rights elsewhere.
    Editor,
    /// The robot that applies manifests: it has the same rights as the editor under another name.
    Ci,
}

/// A program with its own account. The names are those in every cluster, because the API server's own RBAC rules are
/// written for them and guards look at the user of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Machine {
    ControllerManager,
    Scheduler,
    /// One account for all nodes, with the name of a node. It may do everything, because no rules exist for kwok.
    Kwok,
    /// The kubelet of a real node.
    Kubelet(u8),
    Proxy,
    Dns,
}

impl Machine {
    const ALL: [Self; 8] = [
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
        Self::Kubelet(1),
        Self::Kubelet(2),
        Self::Kubelet(3),
        Self::Proxy,
        Self::Dns,
    ];

    pub(super) fn name(self) -> String {
        match self {
            Self::ControllerManager => "system:kube-controller-manager".to_owned(),
            Self::Scheduler => "system:kube-scheduler".to_owned(),
            Self::Kwok => "system:node:kwok".to_owned(),
            Self::Kubelet(number) => format!("system:node:node-{number}"),
            Self::Proxy => "system:kube-proxy".to_owned(),
            Self::Dns => "system:dns".to_owned(),
        }
    }

    fn groups(self) -> &'static str {
        match self {
            Self::Kwok => "system:masters",
            Self::Kubelet(_) => "system:nodes",
            _ => "",
        }
    }
}

impl User {
    const ALL: [Self; 3] = [Self::Admin, Self::Editor, Self::Ci];

    /// Returns the name in RBAC subjects and in messages of the API server.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Editor => "editor",
            Self::Ci => "ci",
        }
    }

    fn groups(self) -> &'static str {
        match self {
            Self::Admin => "system:masters",
            Self::Editor | Self::Ci => "",
        }
    }
}

/// The paths of the files in a control plane's folder.
pub(super) struct Files<'a> {
    pub(super) folder: &'a Path,
}

impl Files<'_> {
    pub(super) fn tokens(&self) -> PathBuf {
        self.folder.join("tokens.csv")
    }
    pub(super) fn signing_key(&self) -> PathBuf {
        self.folder.join("service-accounts.key")
    }
    pub(super) fn verifying_key(&self) -> PathBuf {
        self.folder.join("service-accounts.pub")
    }
    /// The folder in which the API server makes its certificate when it starts.
    pub(super) fn certificates(&self) -> PathBuf {
        self.folder.join("certificates")
    }
    /// The API server's certificate, followed by the one that signed it, so that the file is its own CA bundle.
    pub(super) fn authority(&self) -> PathBuf {
        self.certificates().join("apiserver.crt")
    }
    pub(super) fn kubeconfig(&self, user: User) -> PathBuf {
        self.kubeconfig_named(user.name())
    }
    pub(super) fn machine_kubeconfig(&self, machine: Machine) -> PathBuf {
        self.kubeconfig_named(&machine.name().replace(':', "-"))
    }
    fn kubeconfig_named(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.kubeconfig"))
    }

    /// Writes everything that the programs read at their start. The kubeconfigs refer to the CA by its path, so they can be
    /// written before it exists.
    pub(super) fn write(&self, url: &str) -> Result<(), Error> {
        let mut rows = Vec::new();
        let people = User::ALL.map(|user| (user.name().to_owned(), user.groups(), self.kubeconfig(user)));
        let machines = Machine::ALL.map(|one| (one.name(), one.groups(), self.machine_kubeconfig(one)));
        for (name, groups, kubeconfig) in people.into_iter().chain(machines) {
            let token = random_hex(32)?;
            rows.push(format!("{token},{name},{name},\"{groups}\""));
            write(&kubeconfig, &self.kubeconfig_text(url, &token))?;
        }
        write(&self.tokens(), &rows.join("\n"))?;
        write(&self.folder.join(audit::POLICY), &audit::policy().to_string())?;

        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        write(&self.signing_key(), &key.serialize_pem())?;
        write(&self.verifying_key(), &key.public_key_pem())
    }

    /// Writes a kubeconfig with this token. Returns its path.
    pub(super) fn account_kubeconfig(&self, url: &str, name: &str, token: &str) -> Result<PathBuf, Error> {
        let path = self.kubeconfig_named(name);
        write(&path, &self.kubeconfig_text(url, token))?;
        Ok(path)
    }

    /// Returns a kubeconfig in JSON, which is valid YAML.
    fn kubeconfig_text(&self, url: &str, token: &str) -> String {
        let cluster = json!({ "server": url, "certificate-authority": self.authority() });
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "lab", "cluster": cluster }],
            "users": [{ "name": "lab", "user": { "token": token } }],
            "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "lab" } }],
            "current-context": "lab",
        })
        .to_string()
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).doing(|| format!("writing {}", path.display()))
}

/// Returns up to 32 random hexadecimal digits from the kernel, because no crate for randomness is among the dependencies.
pub(super) fn random_hex(digits: usize) -> Result<String, Error> {
    let mut random = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut kernel| kernel.read_exact(&mut random));
    read.doing(|| "reading /dev/urandom".to_owned())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(random))[..digits].to_owned())
}
