//! A case prepared for a real API server: its objects and its request, moved to a namespace of its own, and the router's answer.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use facts::settings::Settings;
use facts::view::{Freshness, World};
use jiff::{SignedDuration, Timestamp};
use objects::Kind;
use serde_json::{Value, json};

use super::Case;
use super::asked::{Asked, body};
use super::moved::{Mover, complete};
use crate::router::{ask, guard_at};
use crate::scene::{self, NAMESPACE};
use crate::sim::asked::to_amend;

/// The kinds of the scenes' objects that the API server of the tests offers.
pub const KINDS: [&str; 17] = [
    "Namespace",
    "Node",
    "ServiceAccount",
    "ConfigMap",
    "Secret",
    "Service",
    "PersistentVolumeClaim",
    "Pod",
    "StatefulSet",
    "Deployment",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
    "Wordpress",
    "MariaDB",
    "Instance",
    "OperatorVersion",
    "Rds",
];

/// A case, moved to the namespace and time in which it is played.
pub struct Play {
    pub name: String,
    pub user: String,
    pub objects: Vec<Value>,
    pub asked: Asked,
    /// The AdmissionReview for the router.
    pub body: Value,
    /// Whether the case expects a refusal.
    pub is_refused: bool,
}

/// The outcome of a request, as its caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The guard refused it.
    Refused { code: u64, reason: String, words: String },
    /// The guard allowed it, with these warnings.
    Allowed(BTreeSet<String>),
    /// No webhook entry selects it, so the guard was not asked.
    NotAsked,
    /// The API server refused it before it asked the guard.
    ApiServerRefused(String),
}

impl Play {
    pub fn of(number: usize, name: String, case: &Case, by: SignedDuration) -> Self {
        let mover = Mover { namespace: format!("{NAMESPACE}-{number}"), by };
        let mut asked = case.asked();
        let mut body = mover.moved(body(&asked, &case.user));
        for field in ["object", "oldObject"] {
            complete(&mut body["request"][field]);
        }
        let request = &body["request"];
        (asked.old, asked.new, asked.options) =
            (request["oldObject"].clone(), request["object"].clone(), request["options"].clone());
        let mut objects: Vec<_> = case.given.objects().into_iter().map(|(_, it)| mover.moved(it)).collect();
        // The object that the request changes exists, in the state that the request names.
        let is_old = |it: &Value| {
            it["kind"] == asked.old["kind"] && it["metadata"]["name"] == asked.old["metadata"]["name"]
        };
        if !asked.old.is_null() && asked.kind != Kind::Scale {
            objects.retain(|it| !is_old(it));
            objects.push(asked.old.clone());
        }
        let is_refused = matches!(&*case.expect.verdict, "deny" | "wait" | "unknown");
        Self { name, user: case.user.clone(), objects, asked, body, is_refused }
    }

    pub fn namespace(&self) -> &str {
        self.body["request"]["namespace"].as_str().unwrap()
    }

    /// Returns the objects to write into etcd, with the ServiceAccount without which no pod is created.
    pub fn stored(&self) -> Vec<Value> {
        let metadata = json!({ "name": "default", "namespace": self.namespace() });
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
        let known = |it: &&Value| KINDS.contains(&it["kind"].as_str().unwrap_or_default());
        // An API server takes an object without a uid for absent.
        let identified = |mut it: Value| {
            if it["metadata"]["uid"].is_null() {
                it["metadata"]["uid"] =
                    json!(format!("{}/{}/{}", self.namespace(), it["kind"], it["metadata"]["name"]));
            }
            it
        };
        let is_account = |it: &&Value| it["kind"] == account["kind"] && it["metadata"]["name"] == "default";
        let lacks = !self.objects.iter().any(|it| is_account(&it));
        self.objects
            .iter()
            .filter(known)
            .cloned()
            .chain(lacks.then_some(account.clone()))
            .map(identified)
            .collect()
    }

    pub fn world(&self, settings: &Settings) -> World {
        World::build(scene::facts_of(&self.objects, settings), Freshness::Current)
    }

    /// Returns the router's answer at this moment. A request that is amended is sent to both endpoints, /mutate and /validate, as
    /// by an API server.
    pub async fn expected(&self, settings: &Settings) -> Answer {
        let guard = guard_at(self.world(settings), Timestamp::now);
        let mut body = self.body.clone();
        let mut warnings = BTreeSet::new();
        let request = &body["request"];
        let object = |field: &str| Some(&request[field]).filter(|it| !it.is_null());
        let whole = self.asked.subresource.is_empty() && !request["object"].is_null();
        let amends = match self.asked.of {
            Kind::StatefulSet | Kind::Deployment => {
                to_amend(self.asked.of, object("oldObject"), object("object"))
            }
            Kind::Pod => self.asked.operation == "CREATE",
            _ => false,
        };
        let paths = ["/mutate", "/validate"];
        for path in if whole && amends { &paths[..] } else { &paths[1..] } {
            let answer = ask(&guard, path, &body).await;
            let response = &answer["response"];
            let lines = response["warnings"].as_array().into_iter().flatten();
            warnings.extend(lines.map(|line| line.as_str().unwrap().to_owned()));
            if response["allowed"] != true {
                let status = &response["status"];
                let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
                return Answer::Refused {
                    code: status["code"].as_u64().unwrap(),
                    reason: text("reason"),
                    words: text("message"),
                };
            }
            if let Some(patch) = response["patch"].as_str() {
                let bytes = BASE64.decode(patch).unwrap();
                let patch: json_patch::Patch = serde_json::from_slice(&bytes).unwrap();
                json_patch::patch(&mut body["request"]["object"], &patch).unwrap();
            }
        }
        Answer::Allowed(warnings)
    }

    /// Returns the request as a client sends it; `None` if this API server has no such kind.
    pub fn request(&self, version: &str) -> Option<Request<Body>> {
        let (of, object) = (self.asked.of, &self.asked);
        let prefix = match of {
            Kind::Other => return None,
            Kind::StatefulSet | Kind::Deployment => "/apis/apps/v1",
            Kind::Budget => "/apis/policy/v1",
            Kind::Autoscaler => "/apis/autoscaling/v2",
            _ if of.group().is_empty() => "/api/v1",
            _ => &format!("/apis/{}/{}", of.group(), of.version()),
        };
        let place = match of {
            kind if kind.is_cluster_wide() => String::new(),
            _ => format!("/namespaces/{}", self.namespace()),
        };
        let all = format!("{prefix}{place}/{}", of.plural());
        let name = self.asked.name();
        let name = if of == Kind::Namespace { self.namespace() } else { name };
        let one = match self.asked.subresource {
            "" => format!("{all}/{name}"),
            subresource => format!("{all}/{name}/{subresource}"),
        };
        let versioned = |mut it: Value| {
            // The Secret has another resourceVersion here than in the scene.
            let prepared = it["metadata"]["annotations"]["gatera.dev/password"].as_str();
            if let Some(text) =
                prepared.map(|text| text.replace("version=4711", &format!("version={version}")))
            {
                it["metadata"]["annotations"]["gatera.dev/password"] = json!(text);
            }
            it["metadata"]["resourceVersion"] = json!(version);
            it
        };
        let (method, path, body) = match (object.operation, object.subresource) {
            ("CREATE", "") => ("POST", all, object.new.clone()),
            ("CREATE", _) => {
                let mut eviction = object.new.clone();
                eviction["deleteOptions"]["dryRun"] = json!(["All"]);
                ("POST", one, eviction)
            }
            // A request for a scale names no version.
            ("UPDATE", "scale") => ("PUT", one, object.new.clone()),
            ("UPDATE", _) => ("PUT", one, versioned(object.new.clone())),
            _ => ("DELETE", one, object.options.clone()),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All"))
            .header("Content-Type", "application/json")
            .header("Impersonate-User", &self.user)
            .header("Impersonate-Group", "system:masters");
        Some(request.body(Body::from(body.to_string())).unwrap())
    }
}
