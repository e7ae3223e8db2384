//! The audit as Reports, which web pages show: one in each namespace with findings, if the API server serves Reports.
//!
//! Owns: whether the API server serves Reports, which ones are the guard's, and writing those that changed. Must not know:
//! their content (`report::policy_report` does). The guard does not depend on Reports: a failure is logged once, and then no
//! request is sent for a while. Every full audit, once a minute, tries again to write the reports that are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use report::policy_report::{fingerprint, summary};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::act::api::{self, Exactly, Fault};
use crate::act::guard::FIELD_MANAGER;
use crate::act::telemetry::chain;

/// The kinds of Report that web pages read. If the API server serves both, only the first is written: it replaces the other
/// one.
const KINDS: [(&str, &str, &str, &str); 2] = [
    ("openreports.io", "v1alpha1", "Report", "reports"),
    ("wgpolicyk8s.io", "v1alpha2", "PolicyReport", "policyreports"),
];
/// The name of the guard's report in every namespace.
const NAME: &str = "gatera";
/// That report, in any version.
const REPORT: Exactly<'_> = Exactly { name: NAME, uid: "", version: "" };
/// The label of the guard's reports.
const OUR_LABEL: &str = "app.kubernetes.io/managed-by=gatera";
/// The pause after a failure that may be over soon: the API server is busy, or does not answer.
const SHORT_PAUSE: Duration = Duration::from_secs(30);
/// The pause after most other failures, and if the API server does not serve Reports.
const PAUSE: Duration = Duration::from_secs(300);
/// The time after which the reports are listed again: another writer may have changed one, a kind may have been installed, or a
/// permission granted.
const RELIST_PAUSE: Duration = Duration::from_secs(3600);
/// The longest time that the audit waits for one round of requests.
const ROUND_DEADLINE: Duration = Duration::from_secs(10);

/// The findings of each namespace that was judged; a namespace with an empty list loses its report.
pub(super) type FindingsByNamespace = BTreeMap<String, Vec<Value>>;

/// The Reports that the guard writes.
pub(super) struct PolicyReports {
    client: Client,
    /// The kind that is written, once it is known that the API server serves it.
    kind: Option<ApiResource>,
    /// The fingerprint of each report that exists, by namespace.
    written: BTreeMap<String, u64>,
    next_list: Instant,
    /// The last failure that was logged.
    failure: String,
}

impl PolicyReports {
    pub(super) fn new(client: Client) -> Self {
        let (kind, written, failure) = (None, BTreeMap::new(), String::new());
        Self { client, kind, written, next_list: Instant::now(), failure }
    }

    /// Returns the namespaces that have a report; `None` while no report can be written.
    pub(super) async fn namespaces(&mut self) -> Option<BTreeSet<String>> {
        if Instant::now() >= self.next_list {
            match timeout(ROUND_DEADLINE, self.find_kind()).await {
                Ok(Ok(())) => {
                    let pause = if self.kind.is_some() { RELIST_PAUSE } else { PAUSE };
                    self.next_list = Instant::now() + pause;
                    // A failure here affects no report that web pages read, and the next list tries again.
                    if let Ok(Err(error)) = timeout(ROUND_DEADLINE, self.delete_replaced()).await {
                        warn!(
                            error = chain(&error),
                            "the audit's reports of the kind that is no longer written could not be deleted"
                        );
                    }
                }
                Ok(Err(error)) => self.pause_after(&error),
                Err(_) => self.give_up("no answer in time", SHORT_PAUSE),
            }
        }
        self.kind.as_ref().map(|_| self.written.keys().cloned().collect())
    }

    /// Finds out which kind the API server serves, and which reports an earlier leader wrote.
    async fn find_kind(&mut self) -> kube::Result<()> {
        self.kind = None;
        for kind in KINDS.map(resource) {
            match self.list(&kind).await {
                Err(error) if Fault::of(&error) == Fault::NotFound => {}
                written => {
                    (self.written, self.kind) = (written?, Some(kind));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Lists the guard's reports of this kind: the fingerprint of each, by namespace.
    async fn list(&self, kind: &ApiResource) -> kube::Result<BTreeMap<String, u64>> {
        let all = Api::<DynamicObject>::all_with(self.client.clone(), kind);
        let reports = all.list(&ListParams::default().labels(OUR_LABEL)).await?;
        let ours = reports.items.into_iter().filter(|report| report.metadata.name.as_deref() == Some(NAME));
        let fingerprints = ours.filter_map(|report| {
            let results = report.data["results"].as_array().map(Vec::as_slice).unwrap_or_default();
            Some((report.metadata.namespace?, fingerprint(results)))
        });
        Ok(fingerprints.collect())
    }

    /// Deletes the guard's reports of the older kind, if the newer kind is the one that is written.
    async fn delete_replaced(&self) -> kube::Result<()> {
        let [newer, older] = KINDS.map(resource);
        if self.kind.as_ref() != Some(&newer) {
            return Ok(());
        }
        for namespace in self.list(&older).await?.into_keys() {
            let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &namespace, &older);
            api::delete(&api, REPORT).await?;
        }
        Ok(())
    }

    /// Writes the reports that changed.
    pub(super) async fn write(&mut self, findings: FindingsByNamespace) {
        let Some(kind) = self.kind.clone() else { return };
        let written_before = self.written.clone();
        let outcome = timeout(ROUND_DEADLINE, async {
            let mut first_error = None;
            for (namespace, results) in findings {
                match self.write_one(&kind, &namespace, &results).await {
                    // A namespace that refuses its report, such as one that is being deleted, must not prevent those of others.
                    Err(error) if !Fault::of(&error).is_transient() => {
                        first_error = first_error.or(Some((namespace, error)));
                    }
                    result => result.map_err(|error| (namespace, error))?,
                }
            }
            first_error.map_or(Ok(()), Err)
        });
        match outcome.await {
            Ok(Ok(())) => {
                if !std::mem::take(&mut self.failure).is_empty() {
                    info!("the audit's reports can be written again");
                }
            }
            Ok(Err((_, error))) if Fault::of(&error).is_transient() => self.pause_after(&error),
            Ok(Err((namespace, error))) => {
                self.warn_once(&format!("namespace {namespace}: {}", chain(&error)));
            }
            // A large number of reports takes several rounds; this one wrote some.
            Err(_) if self.written != written_before => {}
            Err(_) => self.give_up("no answer in time", SHORT_PAUSE),
        }
    }

    async fn write_one(
        &mut self,
        kind: &ApiResource,
        namespace: &str,
        results: &[Value],
    ) -> kube::Result<()> {
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, kind);
        let new_fingerprint = fingerprint(results);
        if results.is_empty() {
            if self.written.contains_key(namespace) {
                api::delete(&api, REPORT).await?;
                self.written.remove(namespace);
            }
            return Ok(());
        }
        if self.written.get(namespace) == Some(&new_fingerprint) {
            return Ok(());
        }
        let report = json!({
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": { "name": NAME, "labels": { "app.kubernetes.io/managed-by": "gatera" } },
            "summary": summary(results),
            "results": results,
        });
        api.patch(NAME, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(report)).await?;
        self.written.insert(namespace.to_owned(), new_fingerprint);
        Ok(())
    }

    fn pause_after(&mut self, error: &kube::Error) {
        let pause = match Fault::of(error) {
            // The chart grants no permission while its policyReports.enabled is false.
            Fault::Forbidden => RELIST_PAUSE,
            fault if fault.is_transient() => SHORT_PAUSE,
            _ => PAUSE,
        };
        self.give_up(&chain(error), pause);
    }

    /// Logs that a report could not be written, unless the same text was logged last.
    fn warn_once(&mut self, why: &str) {
        if self.failure != why {
            warn!(error = why, "a report of the audit could not be written");
            why.clone_into(&mut self.failure);
        }
    }

    /// Sends no requests for a while, and logs that, unless the same text was logged last.
    fn give_up(&mut self, why: &str, pause: Duration) {
        if self.failure != why {
            warn!(
                error = why,
                seconds = pause.as_secs(),
                "the audit's reports could not be written; trying again after a pause"
            );
            why.clone_into(&mut self.failure);
        }
        (self.kind, self.next_list) = (None, Instant::now() + pause);
    }
}

fn resource((group, version, kind, plural): (&str, &str, &str, &str)) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use axum::http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    /// Returns a client of an API server with one report, of the older kind. Lists of that kind have the status `older_status`,
    /// and a report in namespace `going` is refused.
    fn client(requests: &Arc<Mutex<Vec<String>>>, older_status: u16) -> Client {
        let requests = Arc::clone(requests);
        let service = service_fn(move |request: Request<Body>| {
            requests.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            let (code, answer) = match request.uri().path() {
                path if path.contains("/namespaces/going/") => {
                    (403, json!({ "kind": "Status", "code": 403 }))
                }
                path if path.contains("/namespaces/") => (200, json!({ "metadata": { "name": NAME } })),
                path if path.contains("wgpolicyk8s.io") => {
                    let old = json!({ "metadata": { "name": NAME, "namespace": "old" }, "results": [] });
                    (older_status, json!({ "metadata": {}, "items": [old] }))
                }
                _ => (200, json!({ "metadata": {}, "items": [] })),
            };
            let answer = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn reports_of_the_kind_that_was_replaced_are_deleted() {
        let requests = Arc::default();
        let mut reports = PolicyReports::new(client(&requests, 200));
        assert_eq!(reports.namespaces().await, Some(BTreeSet::new()));
        assert_eq!(
            requests.lock().unwrap().last().unwrap(),
            "DELETE /apis/wgpolicyk8s.io/v1alpha2/namespaces/old/policyreports/gatera"
        );
        let mut broken = PolicyReports::new(client(&requests, 503));
        assert_eq!(
            broken.namespaces().await,
            Some(BTreeSet::new()),
            "the newer kind is written although the older one cannot be listed"
        );
    }

    #[test]
    fn a_changed_number_of_omitted_findings_changes_the_report() {
        let left_out = |number: u8| vec![json!({ "message": format!("{number} more findings") })];
        assert_ne!(fingerprint(&left_out(5)), fingerprint(&left_out(6)));
        let timed = |message| vec![json!({ "rule": "G11", "message": message })];
        assert_eq!(fingerprint(&timed("since 10:00")), fingerprint(&timed("since 11:00")));
    }

    #[tokio::test]
    async fn a_namespace_that_refuses_its_report_does_not_affect_others() {
        let mut reports = PolicyReports::new(client(&Arc::default(), 200));
        assert_eq!(reports.namespaces().await, Some(BTreeSet::new()));
        let one = || vec![json!({ "rule": "G11", "result": "fail" })];
        for _ in 0..2 {
            let findings = ["going", "later"].map(|namespace| (namespace.to_owned(), one()));
            reports.write(findings.into()).await;
            assert_eq!(reports.namespaces().await, Some(BTreeSet::from(["later".to_owned()])));
            assert!(reports.failure.contains("namespace going"), "{}", reports.failure);
        }
    }
}
