//! The requests of service accounts, from the API server's own audit log. It records only those of the guard, of GitOps engines
//! and of mariadb-operator, because all others would make the log long.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ControlPlane;

/// One request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The verb: get, list, watch, create …
    pub(crate) verb: String,
    /// The plural of the resource, with the subresource.
    pub(crate) resource: String,
    /// The namespace, empty for objects without one.
    pub(crate) namespace: String,
    /// The name of the object, empty where the request had none.
    pub(crate) name: String,
    /// The HTTP status of the answer.
    pub(crate) code: u64,
    /// How long it took to answer, webhooks included.
    pub(crate) took: Duration,
}

pub(super) const LOG: &str = "audit.log";
pub(super) const POLICY: &str = "audit-policy.json";

/// The namespaces whose service accounts are recorded.
const RECORDED: [&str; 4] = ["gatera", "flux-system", "argocd", "mariadb-system"];

/// Returns the audit policy, which records the metadata of requests of these service accounts.
pub(super) fn policy() -> Value {
    let groups = RECORDED.map(|it| format!("system:serviceaccounts:{it}"));
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{ "level": "Metadata", "userGroups": groups }, { "level": "None" }],
    })
}

impl Asked {
    /// Returns whether the request was meant to change something.
    pub(crate) fn writes(&self) -> bool {
        !matches!(&*self.verb, "get" | "list" | "watch")
    }
}

impl ControlPlane {
    /// Returns all requests that have been answered so far, in order. A watch is answered when it ends.
    pub(crate) fn asked_by_the_guard(&self) -> Vec<Asked> {
        self.asked_by("gatera", |_| true)
    }

    /// Returns all requests of the service accounts of a namespace that have been answered so far, without dry runs.
    pub(crate) fn asked_by_accounts_of(&self, namespace: &str) -> Vec<Asked> {
        self.asked_by(namespace, |line| !line["requestURI"].as_str().is_some_and(|it| it.contains("dryRun=")))
    }

    /// Returns the requests that the API server refused for lack of a right. Those in a terminating namespace are left out:
    /// no user may create anything there.
    pub(crate) fn forbidden_to_the_guard(&self) -> Vec<Asked> {
        let ends = |line: &Value| {
            line["responseStatus"]["message"].as_str().is_some_and(|it| it.contains("is being terminated"))
        };
        self.asked_by("gatera", |line| line["responseStatus"]["code"] == 403 && !ends(line))
    }

    fn asked_by(&self, namespace: &str, wanted: impl Fn(&Value) -> bool) -> Vec<Asked> {
        let account = format!("system:serviceaccount:{namespace}:");
        let theirs =
            |line: &Value| line["user"]["username"].as_str().is_some_and(|it| it.starts_with(&account));
        let text = fs::read_to_string(self.folder().join(LOG)).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|line| theirs(line) && wanted(line));
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let time = |value: &Value| value.as_str().and_then(|it| it.parse::<Timestamp>().ok());
        lines
            .map(|line| {
                let asked = &line["objectRef"];
                let parts = [word(&asked["resource"]), word(&asked["subresource"])];
                let resource =
                    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
                let times = time(&line["requestReceivedTimestamp"]).zip(time(&line["stageTimestamp"]));
                let took = times.and_then(|(from, to)| Duration::try_from(to.duration_since(from)).ok());
                Asked {
                    verb: word(&line["verb"]),
                    resource,
                    namespace: word(&asked["namespace"]),
                    name: word(&asked["name"]),
                    code: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
                    took: took.unwrap_or_default(),
                }
            })
            .collect()
    }
}
