//! Objects written directly into etcd. The API server reads them as if it had stored them itself: whole, with their status and
//! with content that no client could have sent. Input is objects as JSON, output is the version that they all have.
//!
//! Must not know: what the objects mean. They are not checked, so only a control plane without controllers keeps them.

use gatera::rulebook;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use objects::KINDS;
use serde_json::{Value, json};

use super::control_plane::{ControlPlane, ETCD_SOCKET};

/// The number of objects that etcd takes in one transaction.
const AT_ONCE: usize = 128;

/// The kinds that the API server does not keep under their plural, and where it keeps them.
const OTHER_PATHS: [(&str, &str); 2] = [("Service", "services/specs"), ("Node", "minions")];

/// The kinds without a namespace, even if an object names one.
const CLUSTER_WIDE: [&str; 2] = ["Namespace", "Node"];

fn key(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&object["kind"]);
    let place = OTHER_PATHS.iter().find(|(it, _)| *it == kind).map(|(_, place)| (*place).to_owned());
    let custom = rulebook().kinds().all().find(|it| it.name() == kind && it.group().contains('.'));
    let custom = custom.map(|row| format!("{}/{}", row.group(), row.plural()));
    let place = place.or(custom).unwrap_or_else(|| format!("{}s", kind.to_ascii_lowercase()));
    let place = format!("/registry/{place}");
    let name = text(&object["metadata"]["name"]);
    let namespace =
        if CLUSTER_WIDE.contains(&&*kind) { String::new() } else { text(&object["metadata"]["namespace"]) };
    let parts = [place, namespace, name];
    parts.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("/")
}

impl ControlPlane {
    /// Writes the objects, over those with the same names. Returns their version.
    pub(crate) fn store(&self, objects: &[Value]) -> String {
        assert!(objects.len() <= AT_ONCE, "{} objects are too many for one transaction", objects.len());
        let put = |object: &Value| {
            let [key, value] = [key(object), object.to_string()].map(|text| BASE64.encode(text));
            json!({ "request_put": { "key": key, "value": value } })
        };
        let done = self.etcd("kv/txn", &json!({ "success": objects.iter().map(put).collect::<Vec<_>>() }));
        done["header"]["revision"].as_str().expect("a transaction has a revision").to_owned()
    }

    /// Removes all objects of this kind whose namespace (or name, if they have no namespace) begins with `begins`.
    pub(crate) fn wipe(&self, kind: &str, begins: &str) {
        let from = key(&json!({ "kind": kind, "metadata": { "name": begins } }));
        // Names contain no byte above `~`.
        let to = format!("{from}~");
        let [from, to] = [from, to].map(|text| BASE64.encode(text));
        self.etcd("kv/deleterange", &json!({ "key": from, "range_end": to }));
    }

    /// Sends a request to etcd, which also accepts JSON, over the socket that only the lab can reach.
    fn etcd(&self, what: &str, body: &Value) -> Value {
        let ask = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(self.folder().join(ETCD_SOCKET))?;
            let body = body.to_string();
            let length = body.len();
            write!(
                stream,
                "POST /v3/{what} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().expect("etcd answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a body");
        assert!(head.contains(" 200 "), "etcd refused {what}: {answer}");
        serde_json::from_str(body).expect("etcd answers in JSON")
    }
}
