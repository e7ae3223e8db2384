//! The AdmissionReviews that are sent, byte for byte as an API server would write them.
//!
//! Owns: their shapes and sizes, the HTTP head, and the uid, which differs in every request so that answers can be
//! distinguished. Must not know: sockets, servers.

use serde_json::{Value, json};

use crate::fleet::{self, STATEFUL_SET, Spread};

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A field of the StatefulSet changes that is not in its template; only /validate is called. The body is grown to this many
    /// bytes, as it is for all shapes with a number.
    Update(usize),
    /// A value in the template changes.
    Roll(usize),
    /// An annotation of another program changes, which no rule reads.
    Touch(usize),
    /// As `Update`, but the StatefulSet already breaks many rules, as one that is older than the guard may do.
    Faulty(usize),
    /// As `Update`, but at /mutate, which is called if something may have to be amended; here, nothing has to be amended.
    Amend(usize),
    /// The StatefulSet is created, so the body holds it only once.
    Create(usize),
    /// `kubectl scale` from 3 to 5.
    Scale,
    /// The StatefulSet controller creates a member; the guard injects into it.
    Pod,
    /// `kubectl delete pod` for one of the three members.
    Delete,
    /// The same in a dry run.
    DryDelete,
    /// A comment is added to the option file that the members read.
    Config,
    /// A key that no member reads is added to the Secret with the passwords.
    Secret,
}

/// A complete HTTP request, from the first byte of its head.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is written to the socket.
    pub bytes: Vec<u8>,
    /// The offset at which the body begins.
    pub body: usize,
    uid: usize,
}

/// A uid of the usual length; its last `COUNTED` characters are a counter.
const UID: &str = "705ab4f5-6393-11e8-b7cc-000000000000";
const COUNTED: usize = 12;

impl Request {
    /// Returns a request that sends `body` to `path`.
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

    /// Puts `number` into the uid of the request.
    pub fn stamp(&mut self, number: u64) {
        let mut rest = number;
        for digit in self.bytes[self.uid + UID.len() - COUNTED..][..COUNTED].iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
    }

    /// Returns the current uid.
    pub fn uid(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.uid..][..UID.len()]).expect("uids are ASCII")
    }

    /// Returns the AdmissionReview.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }
}

impl Shape {
    /// Returns what the guard's answer must contain besides the uid. (The answers of the other servers contain only [`ALLOWED`].)
    pub fn expects(self) -> &'static [&'static str] {
        match self {
            Self::Pod => &[ALLOWED, "\"patchType\":\"JSONPatch\""],
            _ => &[ALLOWED],
        }
    }

    /// Returns whether the request goes to the mutating webhook.
    pub fn mutating(self) -> bool {
        matches!(self, Self::Amend(_) | Self::Pod)
    }

    /// Returns the request about one cluster.
    pub fn request(self, cluster: usize) -> Request {
        let body = match self {
            Self::Update(size) | Self::Amend(size) => {
                grown(size, |entries| update(cluster, entries, FIELD, false))
            }
            Self::Roll(size) => grown(size, |entries| update(cluster, entries, IN_TEMPLATE, false)),
            Self::Touch(size) => grown(size, |entries| update(cluster, entries, ANNOTATION, false)),
            Self::Faulty(size) => grown(size, |entries| update(cluster, entries, FIELD, true)),
            Self::Create(size) => grown(size, |entries| create(cluster, entries)),
            Self::Scale => scale(cluster),
            Self::Pod => pod(cluster),
            Self::Delete => delete(cluster),
            Self::DryDelete => delete(cluster).replace(r#""dryRun":false"#, r#""dryRun":true"#),
            Self::Config => {
                config(cluster, fleet::OPTIONS, Some(&format!("# the members\n{}", fleet::OPTIONS)))
            }
            Self::Secret => secret(cluster),
        };
        self.with(&body)
    }

    /// Returns the request about one cluster, under the names that this spread gives the cluster.
    pub fn moved(self, cluster: usize, spread: Spread) -> Request {
        let request = self.request(cluster);
        let body = std::str::from_utf8(request.body()).expect("a body is text");
        self.with(&spread.renamed(body, cluster))
    }

    fn with(self, body: &str) -> Request {
        Request::of(if self.mutating() { "mutate" } else { "validate" }, body)
    }
}

/// The text that every answer must contain.
pub const ALLOWED: &str = "\"allowed\":true";

/// Returns the body with as many environment variables as it needs to reach this size. Real objects grow in structure; one long
/// string would be cheaper to read than any real object.
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

/// Adds the mistakes of the seed documents, and more.
fn with_faults(mut stateful_set: Value) -> Value {
    let spec = &mut stateful_set["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(10);
    spec.as_object_mut().expect("it is one").remove("affinity");
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

/// What an update changes: a JSON pointer, and the new value as JSON.
type Edit = (&'static str, &'static str);
const FIELD: Edit = ("/spec/minReadySeconds", "20");
const IN_TEMPLATE: Edit = ("/spec/template/spec/terminationGracePeriodSeconds", "601");
const ANNOTATION: Edit = ("/metadata/annotations/kubernetes.io~1change-cause", r#""buffer pool doubled""#);

fn update(cluster: usize, entries: usize, (place, value): Edit, faulty: bool) -> String {
    let old = with_environment(fleet::stateful_set(cluster), entries);
    let old = if faulty { with_faults(old) } else { old };
    let mut new = old.clone();
    let (parent, key) = place.rsplit_once('/').expect("a place in the object");
    let parent = new.pointer_mut(parent).expect("the object has the parent");
    let value = serde_json::from_str(value).expect("a value is JSON");
    parent[key.replace("~1", "/")] = value;
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
    // As after a deletion that kept the members; the watch has not reported the new StatefulSet's resourceVersion yet.
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

/// Returns a request that creates the option file of a cluster with `text` or, with `changed`, updates it from `text`.
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

/// The fields that the API server writes around the objects.
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
    /// Returns the body with its fields in the API server's order; `json!` would sort them.
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
