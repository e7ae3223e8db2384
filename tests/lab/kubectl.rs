//! The real kubectl, run as one of the users, and what tests always need first: a namespace of their own. Input is a user
//! and arguments; output is exactly what kubectl printed.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::command::Output;
use super::control_plane::ControlPlane;
use super::error::{Doing, Error};
use super::requests::{JSON, Request, path_of};
use super::supervise::supervised;
use super::users::{User, random_hex};
use super::{PATIENCE, eventually};

impl ControlPlane {
    /// Runs kubectl. Panics when it does not end within `PATIENCE`: without `--wait=false`, `delete` never ends for a pod
    /// that no kubelet stops.
    pub(crate) fn kubectl(&self, user: User, arguments: &[&str]) -> Output {
        self.run_kubectl(user, arguments, Path::new("/dev/null"), PATIENCE)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs kubectl with `stdin` as its input, for `--filename=-`.
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

    /// Creates what `manifest` (an object or a List) describes, as admin. Panics on failure.
    pub(crate) fn create(&self, manifest: &Value) {
        let all = manifest["items"].as_array().map_or(std::slice::from_ref(manifest), Vec::as_slice);
        let paths = all.iter().map(|it| {
            let namespace = it["metadata"]["namespace"].as_str().unwrap_or("default");
            path_of(namespace, it["kind"].as_str()?)
        });
        let Some(paths) = paths.collect::<Option<Vec<_>>>() else {
            self.kubectl_stdin(User::Admin, &["create", "--filename=-"], &manifest.to_string()).succeeded();
            return;
        };
        for (object, path) in all.iter().zip(paths) {
            self.must_send(Request {
                method: "POST",
                path: &format!("{path}?fieldManager=kubectl-create&fieldValidation=Strict"),
                headers: JSON,
                body: &object.to_string(),
            });
        }
    }

    /// Returns the object as JSON, read as admin. Panics on failure.
    pub(crate) fn get(&self, namespace: &str, what: &str) -> Value {
        self.find(namespace, what).unwrap_or_else(|output| panic!("no {what} in {namespace}: {output}"))
    }

    /// Does the same as `get`, for an object that may not exist yet.
    pub(super) fn find(&self, namespace: &str, what: &str) -> Result<Value, Output> {
        if let Some(path) = path_of(namespace, what) {
            return self.read(&path);
        }
        let arguments = ["get", what, "--namespace", namespace, "--output=json"];
        let output = self.kubectl(User::Admin, &arguments);
        if output.status != 0 {
            return Err(output);
        }
        Ok(serde_json::from_str(&output.stdout).expect("kubectl prints JSON when asked for it"))
    }

    /// Waits until the API server serves what every CustomResourceDefinition defines. `kubectl wait` fails if one has no
    /// conditions yet.
    pub(crate) fn until_defined(&self) {
        eventually("every definition is served", || {
            let list = self.find("default", "customresourcedefinitions").ok()?;
            let is_established = |it: &Value| {
                let mut conditions = it["status"]["conditions"].as_array().into_iter().flatten();
                conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
            };
            list["items"].as_array()?.iter().all(is_established).then_some(())
        });
    }

    /// Returns the minor version of Kubernetes (36 for 1.36), for texts that come from kubectl or from a controller.
    pub(crate) fn minor(&self) -> u32 {
        let text = self.kubectl(User::Admin, &["get", "--raw=/version"]).succeeded();
        let version: Value = serde_json::from_str(&text).expect("the version is JSON");
        version["minor"].as_str().and_then(|minor| minor.parse().ok()).expect("a minor version is a number")
    }

    /// Creates a namespace `<prefix>-<random>` in which the editor and the robot may edit. Returns its name.
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
        // Role bindings take effect in the order of their creation, and a pod needs the default service account. Once the
        // user who got rights last can read that account, the namespace is ready for every user.
        eventually("a new namespace gets its rights and its default service account", || {
            let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
            self.can_read(User::Ci, &account).then_some(())
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
