//! Argo CD as a GitOps engine: the objects that configure it, and where it shows errors.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::gitops::{commits_reach_the_cluster_or_are_refused, guard_is_installed_upgraded_and_removed};
use crate::guard::{NAMESPACE, guarded};
use crate::lab::{self, ControlPlane, Repository};
use crate::shop::{Content, GitOpsEngine, Shop};

/// Returns the shared nodes, on which the guard and Argo CD run.
fn with_argo_cd() -> &'static ControlPlane {
    static STARTED: LazyLock<lab::Engine> = LazyLock::new(|| guarded().start_argo_cd());
    LazyLock::force(&STARTED);
    guarded()
}

#[test]
fn it_deploys_manifests() {
    commits_reach_the_cluster_or_are_refused(with_argo_cd(), &ArgoCd, Content::Manifests, "argo-plain");
}

#[test]
fn it_deploys_a_release() {
    commits_reach_the_cluster_or_are_refused(with_argo_cd(), &ArgoCd, Content::Release, "argo-helm");
}

#[test]
fn it_installs_the_guard() {
    guard_is_installed_upgraded_and_removed(with_argo_cd(), &ArgoCd);
}

struct ArgoCd;

impl GitOpsEngine for ArgoCd {
    fn namespace(&self) -> &'static str {
        "argocd"
    }

    fn objects_to_follow(&self, shop: &Shop<'_>) -> Vec<Value> {
        let (namespace, name) = (&shop.galera.namespace, &shop.galera.name);
        let mut source =
            json!({ "repoURL": shop.repository.url(), "targetRevision": "main", "path": "deploy" });
        if shop.content == Content::Release {
            source["path"] = json!("charts/galera");
            source["helm"] = json!({ "releaseName": name, "valueFiles": ["/deploy/shop.yaml"] });
        }
        // The retries last longer than a rolling restart, because after the last one Argo CD waits for another commit. They do
        // not last much longer, because until then Argo CD ignores the next commit.
        let retry =
            json!({ "limit": 12, "backoff": { "duration": "10s", "factor": 1, "maxDuration": "20s" } });
        vec![json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": { "name": name, "namespace": "argocd" },
            "spec": {
                "project": "default",
                "source": source,
                "destination": { "server": "https://kubernetes.default.svc", "namespace": namespace },
                // Not ServerSideDiff: after a comparison that the guard refused, it shows old results from its cache.
                "ignoreDifferences": [{
                    "group": "apps", "kind": "Deployment", "name": format!("{name}-bootstrap"), "jsonPointers": ["/spec/replicas"],
                }],
                "syncPolicy": {
                    "automated": { "prune": true, "selfHeal": true },
                    "syncOptions": ["RespectIgnoreDifferences=true"],
                    "retry": retry,
                },
            },
        })]
    }

    fn release(&self, _: &Shop<'_>, values: &Value) -> Value {
        values.clone()
    }

    fn text_after_removal(&self, content: Content) -> &'static str {
        match content {
            Content::Manifests => "[G03]",
            Content::Release => "shop.yaml: no such file",
        }
    }

    fn finish_revert(&self, _: &Shop<'_>) {}

    fn state_of(&self, shop: &Shop<'_>, commit: &str) -> (bool, String) {
        synced(shop.galera.lab, &shop.galera.name, commit)
    }

    fn objects_to_install_the_guard(&self, repository: &Repository) -> Vec<Value> {
        vec![json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": { "name": "gatera", "namespace": "argocd", "finalizers": ["resources-finalizer.argocd.argoproj.io"] },
            "spec": {
                "project": "default",
                "source": {
                    "repoURL": repository.url(), "targetRevision": "main", "path": "charts/gatera",
                    "helm": { "releaseName": "gatera", "valueFiles": ["/values.yaml"] },
                },
                "destination": { "server": "https://kubernetes.default.svc", "namespace": NAMESPACE },
                "syncPolicy": { "automated": { "prune": true, "selfHeal": true }, "syncOptions": ["CreateNamespace=true"] },
            },
        })]
    }

    fn state_of_the_guard(&self, lab: &ControlPlane, commit: &str) -> (bool, String) {
        synced(lab, "gatera", commit)
    }
}

/// Returns whether this commit of an Application is applied and healthy, and the state that Argo CD shows.
fn synced(lab: &ControlPlane, name: &str, commit: &str) -> (bool, String) {
    let application = lab.get("argocd", &format!("application/{name}"));
    let status = &application["status"];
    let healthy = status["sync"]["status"] == "Synced"
        && status["sync"]["revision"] == commit
        && status["health"]["status"] == "Healthy";
    let results = status["operationState"]["syncResult"]["resources"].as_array().cloned().unwrap_or_default();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let failed = results.iter().filter(|it| it["status"] != "Synced").chain(&conditions);
    let failed: Vec<_> = failed.filter_map(|it| it["message"].as_str()).collect();
    let shown = format!(
        "{} {} {}\n{}",
        status["sync"]["status"],
        status["health"]["status"],
        status["operationState"]["message"].as_str().unwrap_or_default(),
        failed.join("\n")
    );
    (healthy, shown)
}
