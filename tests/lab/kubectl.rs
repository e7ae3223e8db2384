//! The real kubectl, run as one of the users, and what tests always ask it first: a namespace of their own. In goes a
//! user and arguments, out comes exactly what it printed.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::control_plane::ControlPlane;
use super::error::{Doing, Error};
use super::supervise::{end_early, supervised};
use super::users::{User, random_hex};
use super::{PATIENCE, eventually};

/// What one run of kubectl left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// For set-up, where a failure is not what the test is about: stdout, or a panic with all that was printed.
    pub(crate) fn succeeded(self) -> String {
        assert!(self.status == 0, "kubectl failed in the set-up of a test: {self}");
        self.stdout
    }
}

impl fmt::Display for Output {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "status {}\n{}{}", self.status, self.stdout, self.stderr)
    }
}

impl ControlPlane {
    /// Panics when kubectl does not end within the lab's patience: `delete` waits for ever for a pod that no kubelet
    /// stops, unless it is given `--wait=false`.
    pub(crate) fn kubectl(&self, user: User, arguments: &[&str]) -> Output {
        self.run_kubectl(user, arguments, Path::new("/dev/null"), PATIENCE)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// With something to read, for `--filename=-`.
    pub(crate) fn kubectl_stdin(&self, user: User, arguments: &[&str], stdin: &str) -> Output {
        let run = || -> Result<Output, Error> {
            let saving = || "saving what kubectl is to read".to_owned();
            let mut file = NamedTempFile::new_in(self.folder()).doing(saving)?;
            file.write_all(stdin.as_bytes()).doing(saving)?;
            self.run_kubectl(user, arguments, file.path(), PATIENCE)
        };
        run().unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn run_kubectl(
        &self,
        user: User,
        arguments: &[&str],
        input: &Path,
        patience: Duration,
    ) -> Result<Output, Error> {
        let mut kubectl = supervised(self.folder(), &self.tools.kubectl, input)
            .env("KUBECONFIG", self.kubeconfig(user))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .doing(|| "starting kubectl".to_owned())?;
        // Out of `kubectl`, as waiting for a child begins with closing its stdin.
        let mut lifeline = kubectl.stdin.take();
        let (ended, hears_the_end) = mpsc::channel::<()>();
        let watchdog = thread::spawn(move || {
            let is_late = hears_the_end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
            if is_late {
                end_early(&mut lifeline);
            }
            is_late
        });
        let output = kubectl.wait_with_output().doing(|| "waiting for kubectl".to_owned())?;
        drop(ended);
        let was_late = watchdog.join().expect("the watchdog does not panic");
        let output = Output {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        if was_late {
            return Err(Error::Endless { command: arguments.join(" "), patience, output });
        }
        Ok(output)
    }

    /// As admin, must work: creates what `manifest` (an object or a List) describes.
    pub(crate) fn create(&self, manifest: &Value) {
        self.kubectl_stdin(User::Admin, &["create", "--filename=-"], &manifest.to_string()).succeeded();
    }

    /// As admin, must work: the object as JSON.
    pub(crate) fn get(&self, namespace: &str, what: &str) -> Value {
        self.find(namespace, what).unwrap_or_else(|output| panic!("no {what} in {namespace}: {output}"))
    }

    /// Like `get`, for an object that may not be there yet.
    pub(super) fn find(&self, namespace: &str, what: &str) -> Result<Value, Output> {
        let arguments = ["get", what, "--namespace", namespace, "--output=json"];
        let output = self.kubectl(User::Admin, &arguments);
        if output.status != 0 {
            return Err(output);
        }
        Ok(serde_json::from_str(&output.stdout).expect("kubectl prints JSON when asked for it"))
    }

    /// A fresh namespace `<prefix>-<random>`, where the editor and the robot may edit.
    pub(crate) fn namespace(&self, prefix: &str) -> String {
        self.namespace_with_labels(prefix, &[])
    }

    pub(crate) fn namespace_with_labels(&self, prefix: &str, labels: &[(&str, &str)]) -> String {
        let random = random_hex(8).expect("the kernel has random numbers");
        let name = format!("{prefix}-{random}");
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|&(key, value)| (key.to_owned(), value.into())).collect();
        self.create(&json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } },
            may_edit(&name, User::Editor),
            may_edit(&name, User::Ci),
        ]}));
        // Rights take effect in the order of their creation, and a pod needs the default service account: when the last
        // one who got rights sees that account, the namespace is ready for everybody.
        eventually("a new namespace gets its rights and its default service account", || {
            let look = ["get", "serviceaccount/default", "--namespace", &name];
            (self.kubectl(User::Ci, &look).status == 0).then_some(())
        });
        name
    }
}

fn may_edit(namespace: &str, user: User) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": { "name": user.name(), "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.name() }],
    })
}
