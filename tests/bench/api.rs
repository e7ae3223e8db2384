//! The API server of the lab, called directly: one client creates thousands of objects with a few dozen requests at a time,
//! because one kubectl per object would take an hour.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::http::Request;
use futures_util::{StreamExt as _, stream};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::fleet::{self, MEMBERS, STATEFUL_SET, Spread};

/// The number of requests that run at once.
const AT_ONCE: usize = 24;
/// How long the creation of thousands of pods may take, on a machine that also does other work.
const PATIENCE: Duration = Duration::from_secs(900);
const SETS: &str = "/apis/apps/v1/namespaces/db-0000/statefulsets";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
/// The name of a StatefulSet that neither the webhooks nor the policy select, for comparison.
pub const UNSELECTED: &str = "unselected";
/// The name of a StatefulSet that only a ValidatingAdmissionPolicy judges, for comparison. The policy has this name, too.
pub const NATIVE: &str = "native";

/// A client with all rights.
pub struct Api {
    client: Client,
    spread: Spread,
}

impl Api {
    pub async fn connect(kubeconfig: &Path, spread: Spread) -> Self {
        let file = Kubeconfig::read_from(kubeconfig).expect("the lab wrote a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a kubeconfig that works")).expect("a client");
        Self { client, spread }
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<String, kube::Error> {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.client.request_text(request.body(body).expect("a request")).await
    }

    async fn get(&self, path: &str) -> String {
        self.send("GET", path, "application/json", &Value::Null).await.expect("the API server answers")
    }

    async fn create(&self, path: &str, object: &Value) {
        self.send("POST", path, "application/json", object)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Makes this change of a StatefulSet in a dry run, with admission but without a write. Returns the time that it took.
    pub async fn dry_run_update(&self, set: &str, change: &Value) -> Duration {
        let started = Instant::now();
        self.update(set, change).await.expect("an update that is allowed");
        started.elapsed()
    }

    async fn update(&self, set: &str, change: &Value) -> Result<String, kube::Error> {
        let path = format!("{set}?dryRun=All");
        self.send("PATCH", &path, "application/merge-patch+json", change).await
    }

    /// Creates all clusters, with running members, and the two StatefulSets for comparison.
    pub async fn populate(&self, clusters: usize) {
        let namespaces = if self.spread == Spread::Together { 1 } else { clusters };
        for namespace in (0..namespaces).map(fleet::namespace) {
            let labels = json!({ "gatera.dev/mode": "enforce" });
            let it = json!({ "metadata": { "name": namespace, "labels": labels } });
            self.create("/api/v1/namespaces", &it).await;
        }
        let each = |cluster| async move { self.create_cluster(cluster).await };
        stream::iter(0..clusters).for_each_concurrent(AT_ONCE, each).await;
        for name in [UNSELECTED, NATIVE] {
            let labels = json!({ "app": name });
            let mut set = for_creation(fleet::stateful_set(0));
            // As large as a cluster's: the annotations stay.
            set["metadata"]["name"] = json!(name);
            set["metadata"]["labels"] = labels.clone();
            set["spec"]["replicas"] = json!(0);
            set["spec"]["selector"]["matchLabels"] = labels.clone();
            set["spec"]["template"]["metadata"]["labels"] = labels;
            self.create(SETS, &set).await;
        }
        self.native_policy().await;
        self.until("all pods exist", async || self.pods().await >= clusters * MEMBERS).await;
        let all = (0..clusters).flat_map(|cluster| (0..MEMBERS).map(move |ordinal| (cluster, ordinal)));
        let run =
            |(cluster, ordinal)| async move { self.write_status(cluster, ordinal, &fleet::running()).await };
        stream::iter(all).for_each_concurrent(AT_ONCE, run).await;
        self.until_quiet().await;
    }

    /// Creates the policy for [`NATIVE`], with the core of the guard's rule about replicas, and waits until it judges.
    async fn native_policy(&self) {
        let rule = json!({
            "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["statefulsets"], "operations": ["UPDATE"],
        });
        let policy = json!({
            "metadata": { "name": NATIVE },
            "spec": {
                "matchConstraints": { "resourceRules": [rule], "objectSelector": { "matchLabels": { "app": NATIVE } } },
                "validations": [{ "expression": "object.spec.replicas >= oldObject.spec.replicas / 2 && object.spec.replicas < 9" }],
            },
        });
        let binding = json!({
            "metadata": { "name": NATIVE },
            "spec": { "policyName": NATIVE, "validationActions": ["Deny"] },
        });
        self.create(&format!("{POLICIES}/validatingadmissionpolicies"), &policy).await;
        self.create(&format!("{POLICIES}/validatingadmissionpolicybindings"), &binding).await;
        let refused = async || {
            let change = json!({ "spec": { "replicas": 9 } });
            let answer = self.update(&unguarded_set(NATIVE), &change).await;
            answer.is_err_and(|error| error.to_string().contains("ValidatingAdmissionPolicy 'native'"))
        };
        self.until("the policy judges", refused).await;
    }

    async fn create_cluster(&self, cluster: usize) {
        let moved = |object| self.spread.moved(object, cluster);
        let namespace = self.spread.renamed(&fleet::namespace(cluster), cluster);
        let map = json!({ "metadata": { "name": "galera-instance-nodeconfig" }, "data": { "galera.cnf": "[galera]\nwsrep_on = ON\n" } });
        self.create(&format!("/api/v1/namespaces/{namespace}/configmaps"), &moved(map)).await;
        let mut it = for_creation(fleet::stateful_set(cluster));
        // All three pods are created at once; otherwise a kubelet would have to be simulated in between.
        it["spec"]["podManagementPolicy"] = json!("Parallel");
        // The volume does not exist, so its claims stay pending in silence. Without a name, a controller would write Events
        // about every claim again and again, and these would be counted as requests of the guard.
        it["spec"]["volumeClaimTemplates"][0]["spec"]["volumeName"] = json!("elsewhere");
        self.create(&format!("/apis/apps/v1/namespaces/{namespace}/statefulsets"), &moved(it)).await;
    }

    /// Returns the path of a cluster's StatefulSet.
    pub fn set(&self, cluster: usize) -> String {
        let namespace = fleet::namespace(cluster);
        self.spread
            .renamed(&format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{STATEFUL_SET}"), cluster)
    }

    async fn pods(&self) -> usize {
        let page: Value =
            serde_json::from_str(&self.get("/api/v1/pods?limit=1").await).expect("a list is JSON");
        let rest = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        page["items"].as_array().map_or(0, Vec::len) + usize::try_from(rest).expect("a count")
    }

    /// Writes a member's status, as its kubelet would.
    pub async fn write_status(&self, cluster: usize, ordinal: usize, status: &Value) {
        let namespace = fleet::namespace(cluster);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{STATEFUL_SET}-{ordinal}/status");
        let path = self.spread.renamed(&path, cluster);
        // No guard ran when the pod was created, so the mark of an injected pod is written here.
        let mark = json!({ "gatera.dev/injected": env!("CARGO_PKG_VERSION") });
        let status = json!({ "metadata": { "annotations": mark }, "status": status });
        let sent = self.send("PATCH", &path, "application/merge-patch+json", &status).await;
        sent.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Waits until the controllers have finished with what was created.
    pub async fn until_quiet(&self) {
        let mut before = self.requests().await;
        self.until("the controllers are done", async || {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = self.requests().await;
            let writes: f64 = difference(&before, &now)
                .iter()
                .filter(|(name, _)| !name.starts_with("GET "))
                .map(|(_, count)| count)
                .sum();
            before = now;
            writes < 5.0
        })
        .await;
    }

    async fn until(&self, what: &str, mut done: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done().await {
            assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the requests that the API server has finished, by verb and resource, without watches and its own metrics.
    pub async fn requests(&self) -> BTreeMap<String, f64> {
        let mut requests = BTreeMap::new();
        for line in self.get("/metrics").await.lines() {
            let Some(labels) = line.strip_prefix("apiserver_request_total{") else { continue };
            let label = |name: &str| {
                labels.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split('"').next())
            };
            let (Some(verb), Some(resource)) = (label("verb"), label("resource")) else { continue };
            let count: f64 = line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0.0);
            // Watches end and start again on timers of their own, with and without a guard.
            if !resource.is_empty() && verb != "WATCH" {
                *requests.entry(format!("{verb} {resource}")).or_default() += count;
            }
        }
        requests
    }
}

/// Returns the path of a StatefulSet that is not a cluster.
pub fn unguarded_set(name: &str) -> String {
    format!("{SETS}/{name}")
}

/// Returns the requests between two counts.
pub fn difference(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let since = |name: &String, count: &f64| count - before.get(name).copied().unwrap_or(0.0);
    let all = after.iter().map(|(name, count)| (name.clone(), since(name, count)));
    all.filter(|(_, count)| *count > 0.0).collect()
}

/// Removes the fields that the API server adds.
fn for_creation(mut object: Value) -> Value {
    let fields = object.as_object_mut().expect("an object");
    fields.remove("status");
    let meta = fields["metadata"].as_object_mut().expect("metadata");
    for added in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
        meta.remove(added);
    }
    object
}
