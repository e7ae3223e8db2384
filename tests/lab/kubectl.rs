//! The real kubectl, run as one of the users, and what tests always ask it first: a namespace of their own. In goes a
//! user and arguments, out comes exactly what it printed.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::command::Output;
use super::control_plane::ControlPlane;
use super::error::{Doing, Error};
use super::supervise::supervised;
use super::users::{User, random_hex};
use super::{PATIENCE, eventually};

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
        let kubectl = supervised(self.folder(), &self.tools.kubectl, input);
        self.run_as(user, kubectl, "kubectl", arguments, patience)
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

    /// Of the version of Kubernetes: 36 is that of 1.36. For words that are kubectl's or a controller's own.
    pub(crate) fn minor(&self) -> u32 {
        let text = self.kubectl(User::Admin, &["get", "--raw=/version"]).succeeded();
        let version: Value = serde_json::from_str(&text).expect("the version is JSON");
        version["minor"].as_str().and_then(|minor| minor.parse().ok()).expect("a minor version is a number")
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
