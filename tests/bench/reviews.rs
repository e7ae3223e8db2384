//! The AdmissionReviews that are sent: what an API server would write, byte for byte ready to go.
//!
//! Owns: their shapes and sizes, the HTTP head, and the uid, which differs from request to request so that an answer
//! can be told from any other. Must not know: sockets, servers.

use serde_json::{Value, json};

use crate::fleet::{self, STATEFUL_SET};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Somebody annotates the StatefulSet: it travels once, to /validate. Grown to so many bytes.
    Update(usize),
    /// The same of a StatefulSet that already breaks many rules, as those do that were there before the guard.
    Faulty(usize),
    /// An update at the mutating webhook, which is asked where there may be something to amend: here is nothing.
    Amend(usize),
    /// The StatefulSet is created, so it travels once. Grown to so many bytes.
    Create(usize),
    /// `kubectl scale` from 3 to 5.
    Scale,
    /// The StatefulSet controller creates a member, which is injected.
    Pod,
    /// `kubectl delete pod` of one member of three.
    Delete,
    /// A comment is added to the option file that the members read.
    Config,
    /// A key that no member reads is added to the Secret of the passwords.
    Secret,
}

/// A request, from the first byte of its head on.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is written to the socket.
    pub bytes: Vec<u8>,
    /// Where the body begins.
    pub body: usize,
    uid: usize,
}

/// As many characters as any uid; the last twelve are counted up.
const UID: &str = "705ab4f5-6393-11e8-b7cc-000000000000";
const COUNTED: usize = 12;

impl Request {
    /// A body that goes to this path.
    pub fn of(path: &str, body: &str) -> Self {
        let head = format!(
            "POST /{path}?timeout=10s HTTP/1.1\r\nHost: gatera.gatera.svc:443\r\nUser-Agent: kube-apiserver-admission\r\n\
             Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\
             Accept-Encoding: gzip\r\n\r\n",
            body.len()
        );
        let uid = head.len() + body.find(UID).expect("the envelope has a uid");
        Self { body: head.len(), bytes: [&head, body].concat().into_bytes(), uid }
    }

    /// Gives the request the uid of this number.
    pub fn stamp(&mut self, number: u64) {
        let mut rest = number;
        for digit in self.bytes[self.uid + UID.len() - COUNTED..][..COUNTED].iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
    }

    /// The uid it has now.
    pub fn uid(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.uid..][..UID.len()]).expect("uids are ASCII")
    }

    /// The AdmissionReview.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }
}

impl Shape {
    /// What must stand in an answer of the guard besides its uid; the server that does nothing only allows.
    pub fn expects(self) -> &'static [&'static str] {
        match self {
            Self::Pod => &[ALLOWED, "\"patchType\":\"JSONPatch\""],
            _ => &[ALLOWED],
        }
    }

    /// Which of the two webhooks is asked.
    pub fn mutating(self) -> bool {
        matches!(self, Self::Amend(_) | Self::Pod)
    }

    /// The request about one cluster.
    pub fn request(self, cluster: usize) -> Request {
        let body = match self {
            Self::Update(size) | Self::Amend(size) => grown(size, |entries| update(cluster, entries, false)),
            Self::Faulty(size) => grown(size, |entries| update(cluster, entries, true)),
            Self::Create(size) => grown(size, |entries| create(cluster, entries)),
            Self::Scale => scale(cluster),
            Self::Pod => pod(cluster),
            Self::Delete => delete(cluster),
            Self::Config => {
                config(cluster, fleet::OPTIONS, Some(&format!("# the members\n{}", fleet::OPTIONS)))
            }
            Self::Secret => secret(cluster),
        };
        Request::of(if self.mutating() { "mutate" } else { "validate" }, &body)
    }
}

/// Stands in every answer.
pub const ALLOWED: &str = "\"allowed\":true";

/// Adds environment variables, one by one, until the body is as long as it should be: real ones grow by structure, and
/// one long string would be cheaper to read than anything real.
fn grown(size: usize, body: impl Fn(usize) -> String) -> String {
    let (none, some) = (body(0).len(), body(16).len());
    let each = (some - none).div_ceil(16);
    body(size.saturating_sub(none).div_ceil(each))
}

fn with_environment(mut stateful_set: Value, entries: usize) -> Value {
    let container = "k:{\"name\":\"mariadb\"}";
    for entry in 0..entries {
        let name = format!("TUNING_{entry:02}");
        let template = &mut stateful_set["spec"]["template"]["spec"];
        let environment = template["containers"][0]["env"].as_array_mut().expect("it has an environment");
        environment.push(json!({ "name": name, "value": entry.to_string() }));
        let managed = stateful_set["metadata"]["managedFields"].as_array_mut().expect("it has managers");
        let applied =
            managed.iter_mut().find(|by| by["fieldsV1"]["f:spec"].is_object()).expect("one applied it");
        applied["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"][container]["f:env"]
            [format!("k:{{\"name\":\"{name}\"}}")] = json!({ ".": {}, "f:name": {}, "f:value": {} });
    }
    stateful_set
}

/// What the seed documents have, and more.
fn with_faults(mut stateful_set: Value) -> Value {
    let spec = &mut stateful_set["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(10);
    spec["affinity"] = Value::Null;
    let container = &mut spec["containers"][0];
    container["image"] = json!("mariadb");
    let command =
        |words: &str| json!({ "exec": { "command": ["bash", "-c", words] }, "failureThreshold": 1 });
    container["livenessProbe"] = command("mysqladmin -uroot -psecret ping");
    container["readinessProbe"] = command("mysqladmin -uroot -psecret ping");
    container["args"] = json!([
        "--wsrep-sst-auth=root:secret",
        "--binlog-format=MIXED",
        "--wsrep-cluster-address=gcomm://a,b"
    ]);
    let environment = container["env"].as_array_mut().expect("it has an environment");
    environment.push(json!({ "name": "MYSQL_ROOT_PASSWORD", "value": "secret" }));
    stateful_set
}

fn update(cluster: usize, entries: usize, faulty: bool) -> String {
    let old = with_environment(fleet::stateful_set(cluster), entries);
    let old = if faulty { with_faults(old) } else { old };
    let mut new = old.clone();
    new["metadata"]["annotations"]["kubernetes.io/change-cause"] = json!("buffer pool doubled");
    Envelope {
        kind: ["apps", "v1", "StatefulSet"],
        resource: "statefulsets",
        operation: "UPDATE",
        ..Envelope::default()
    }
    .body(cluster, Some(&new), Some(&old))
}

fn create(cluster: usize, entries: usize) -> String {
    let mut new = with_environment(fleet::stateful_set(cluster), entries);
    // As after a deletion that kept the members, of which the watch has not reported its position yet.
    new["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    Envelope { kind: ["apps", "v1", "StatefulSet"], resource: "statefulsets", ..Envelope::default() }.body(
        cluster,
        Some(&new),
        None,
    )
}

fn scale(cluster: usize) -> String {
    let at = |replicas: usize| {
        json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": { "name": STATEFUL_SET, "namespace": fleet::namespace(cluster), "resourceVersion": "232" },
            "spec": { "replicas": replicas },
            "status": { "replicas": fleet::MEMBERS, "selector": "app=galera,galera=galera,instance=galera-instance" },
        })
    };
    let (old, new) = (at(fleet::MEMBERS), at(5));
    Envelope {
        kind: ["autoscaling", "v1", "Scale"],
        resource: "statefulsets",
        subresource: "scale",
        operation: "UPDATE",
        ..Envelope::default()
    }
    .body(cluster, Some(&new), Some(&old))
}

fn pod(cluster: usize) -> String {
    let mut new = fleet::new_pod(cluster, 2);
    let name = format!("{STATEFUL_SET}-2");
    for assigned_later in ["uid", "resourceVersion"] {
        new["metadata"].as_object_mut().expect("metadata").remove(assigned_later);
    }
    Envelope { kind: ["", "v1", "Pod"], resource: "pods", name: &name, ..Envelope::default() }.body(
        cluster,
        Some(&new),
        None,
    )
}

fn delete(cluster: usize) -> String {
    let (old, name) = (fleet::pod(cluster, 2), format!("{STATEFUL_SET}-2"));
    Envelope {
        kind: ["", "v1", "Pod"],
        resource: "pods",
        operation: "DELETE",
        name: &name,
        ..Envelope::default()
    }
    .body(cluster, None, Some(&old))
}

/// The option file of a cluster is created with a text, or changed from one text to another.
pub fn config(cluster: usize, text: &str, changed: Option<&str>) -> String {
    let with = |text: &str| {
        json!({
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": { "name": fleet::CONFIG_MAP, "namespace": fleet::namespace(cluster) },
            "data": { "galera.cnf": text },
        })
    };
    let envelope = Envelope {
        kind: ["", "v1", "ConfigMap"],
        resource: "configmaps",
        name: fleet::CONFIG_MAP,
        operation: if changed.is_some() { "UPDATE" } else { "CREATE" },
        ..Envelope::default()
    };
    match changed {
        Some(new) => envelope.body(cluster, Some(&with(new)), Some(&with(text))),
        None => envelope.body(cluster, Some(&with(text)), None),
    }
}

fn secret(cluster: usize) -> String {
    let name = "galera-instance";
    let old = json!({
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": { "name": name, "namespace": fleet::namespace(cluster) },
        "data": { "root-password": "bm90IHJlYWw=", "sst.cnf": "W2dhbGVyYV0K" },
    });
    let mut new = old.clone();
    new["data"]["note"] = json!("bm90IHJlYWQ=");
    let envelope = Envelope {
        kind: ["", "v1", "Secret"],
        resource: "secrets",
        operation: "UPDATE",
        name,
        ..Envelope::default()
    };
    envelope.body(cluster, Some(&new), Some(&old))
}

/// What the API server writes around the objects.
pub struct Envelope<'a> {
    pub kind: [&'a str; 3],
    pub resource: &'a str,
    pub subresource: &'a str,
    pub name: &'a str,
    pub operation: &'a str,
    pub user: &'a str,
}

impl Default for Envelope<'_> {
    fn default() -> Self {
        let user = "system:serviceaccount:deploy:pipeline";
        Self { kind: [""; 3], resource: "", subresource: "", name: STATEFUL_SET, operation: "CREATE", user }
    }
}

impl Envelope<'_> {
    /// In the API server's own order of fields, which `json!` would sort.
    pub fn body(&self, cluster: usize, new: Option<&Value>, old: Option<&Value>) -> String {
        let Self { kind: [group, version, kind], resource, subresource, name, operation, user } = self;
        let parent = if self.subresource.is_empty() { group } else { &"apps" };
        let kind = json!({ "group": group, "version": version, "kind": kind });
        let resource = json!({ "group": parent, "version": version, "resource": resource });
        let subresource =
            if subresource.is_empty() { String::new() } else { format!(r#","subResource":"{subresource}""#) };
        let user = json!({
            "username": user,
            "uid": "1f6c2a5e-0f5c-4f3e-9d4b-6a1f3f5b8c11",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:deploy", "system:authenticated"],
            "extra": { "authentication.kubernetes.io/credential-id": ["JTI=5b3f1f7e-1f0c-4a43-8a1c-0f3a4f8ad0b2"] },
        });
        let text = |object: Option<&Value>| object.map_or_else(|| "null".to_owned(), Value::to_string);
        let (new, old) = (text(new), text(old));
        let options = format!("{}Options", operation[..1].to_owned() + &operation[1..].to_lowercase());
        format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","kind":{kind},"resource":{resource}{subresource},"requestKind":{kind},"requestResource":{resource},"name":"{name}","namespace":"{}","operation":"{operation}","userInfo":{user},"object":{new},"oldObject":{old},"dryRun":false,"options":{{"kind":"{options}","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl"}}}}}}"#,
            fleet::namespace(cluster)
        )
    }
}
