//! Requests of the lab itself: what tests read while they wait, what they set up, and what a scheduler, a kubelet and a volume
//! provisioner would send. They go over connections of this process: a kubectl for each would take more processor time than what
//! is tested. What users do goes through kubectl (`kubectl.rs`).

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::PATIENCE;
use super::command::Output;
use super::control_plane::ControlPlane;
use super::users::User;

/// The kinds that are requested in this way: kind, API, plural, and whether it is in namespaces. Others go through kubectl.
const KINDS: [(&str, &str, &str, bool); 18] = [
    ("ClusterRole", "apis/rbac.authorization.k8s.io/v1", "clusterroles", false),
    ("ConfigMap", "api/v1", "configmaps", true),
    ("CustomResourceDefinition", "apis/apiextensions.k8s.io/v1", "customresourcedefinitions", false),
    ("Deployment", "apis/apps/v1", "deployments", true),
    ("Lease", "apis/coordination.k8s.io/v1", "leases", true),
    ("Namespace", "api/v1", "namespaces", false),
    ("Node", "api/v1", "nodes", false),
    ("PersistentVolume", "api/v1", "persistentvolumes", false),
    ("PersistentVolumeClaim", "api/v1", "persistentvolumeclaims", true),
    ("Pod", "api/v1", "pods", true),
    ("PodDisruptionBudget", "apis/policy/v1", "poddisruptionbudgets", true),
    ("ReplicaSet", "apis/apps/v1", "replicasets", true),
    ("Role", "apis/rbac.authorization.k8s.io/v1", "roles", true),
    ("RoleBinding", "apis/rbac.authorization.k8s.io/v1", "rolebindings", true),
    ("Secret", "api/v1", "secrets", true),
    ("Service", "api/v1", "services", true),
    ("ServiceAccount", "api/v1", "serviceaccounts", true),
    ("StatefulSet", "apis/apps/v1", "statefulsets", true),
];

/// The header of a body that is an object.
pub(super) const JSON: &str = "Content-Type: application/json\r\n";

/// Returns the path of what kubectl calls `pod/galera-0`, or of all `pods`.
pub(super) fn path_of(namespace: &str, what: &str) -> Option<String> {
    let (kind, name) = what.split_once('/').unwrap_or((what, ""));
    let is = |it: &&(&str, &str, &str, bool)| kind.eq_ignore_ascii_case(it.0) || kind == it.2;
    let (_, api, plural, in_namespaces) = KINDS.iter().find(is)?;
    let place = if *in_namespaces { format!("namespaces/{namespace}/") } else { String::new() };
    let path = format!("/{api}/{place}{plural}/{name}");
    Some(path.trim_end_matches('/').to_owned())
}

/// A request of the lab.
#[derive(Clone, Copy, Default)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Further headers, each with its line break.
    pub(super) headers: &'a str,
    pub(super) body: &'a str,
}

impl ControlPlane {
    /// Sends a request. Returns the status code and the body of the answer.
    pub(super) fn send(&self, user: User, request: Request<'_>) -> io::Result<(u16, String)> {
        self.send_within(PATIENCE, user, request)
    }

    fn send_within(&self, patience: Duration, user: User, request: Request<'_>) -> io::Result<(u16, String)> {
        let Request { method, path, headers, body } = request;
        let kubeconfig: Value = serde_json::from_str(&fs::read_to_string(self.kubeconfig(user))?)?;
        let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap_or_default();
        let mut stream = self.connection(patience)?;
        // With HTTP 1.0 the answer comes in one piece, and the connection is closed after it.
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n{headers}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok((code.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
    }

    fn connection(&self, patience: Duration) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_file_iter(self.files().authority()).map_err(io::Error::other)? {
            roots.add(ca.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
        let socket = TcpStream::connect(self.address())?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        let name = ServerName::IpAddress(self.address().ip().into());
        let tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(tls, socket))
    }

    /// Sends a request as admin, or as the user whom its headers impersonate. Panics unless it succeeds.
    pub(super) fn must_send(&self, request: Request<'_>) {
        match self.send(User::Admin, request) {
            Ok((200..300, _)) => {}
            other => panic!("{} {}: {other:?}", request.method, request.path),
        }
    }

    /// Returns whether the user can read this path. The time limit is short, because another program may have taken the API
    /// server's port, and may never answer.
    pub(super) fn can_read(&self, user: User, path: &str) -> bool {
        let request = Request { method: "GET", path, ..Request::default() };
        matches!(self.send_within(Duration::from_secs(5), user, request), Ok((200, _)))
    }

    /// Reads an object or a list, as kubectl prints it. A failure is returned as if kubectl had failed.
    pub(super) fn read(&self, path: &str) -> Result<Value, Output> {
        let failed = |stderr| Output { status: 1, stdout: String::new(), stderr, log: String::new() };
        match self.send(User::Admin, Request { method: "GET", path, ..Request::default() }) {
            Ok((200, text)) => Ok(as_printed(serde_json::from_str(&text).expect("answers are JSON"))),
            Ok((code, text)) => Err(failed(format!("{code} {text}"))),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Returns an answer as kubectl prints it: items have their kind, and fields have no managers.
fn as_printed(mut answer: Value) -> Value {
    let (version, kind) = (answer["apiVersion"].clone(), answer["kind"].clone());
    if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
        for item in items {
            item["apiVersion"] = version.clone();
            item["kind"] = kind.as_str().unwrap_or_default().trim_end_matches("List").into();
            without_managers(item);
        }
    }
    without_managers(&mut answer);
    answer
}

fn without_managers(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}
