//! Argo CD, as a shop uses it: what its objects say, and where it shows what went wrong.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::gitops::{guard_is_installed, shop_lives_through_a_day};
use crate::guard::{NAMESPACE, guarded};
use crate::lab::{self, ControlPlane, Repository};
use crate::shop::{Engine, Shop, Way};

/// Returns the shared nodes, with the guard and then Argo CD.
fn with_argo_cd() -> &'static ControlPlane {
    static STARTED: LazyLock<lab::Engine> = LazyLock::new(|| guarded().start_argo_cd());
    LazyLock::force(&STARTED);
    guarded()
}

#[test]
fn it_drives_manifests() {
    shop_lives_through_a_day(with_argo_cd(), &ArgoCd, Way::Manifests, "argo-plain");
}

#[test]
fn it_drives_a_release() {
    shop_lives_through_a_day(with_argo_cd(), &ArgoCd, Way::Release, "argo-helm");
}

#[test]
fn it_installs_the_guard() {
    guard_is_installed(with_argo_cd(), &ArgoCd);
}

struct ArgoCd;

impl Engine for ArgoCd {
    fn accounts(&self) -> &'static str {
        "argocd"
    }

    fn follows(&self, shop: &Shop<'_>) -> Vec<Value> {
        let (namespace, name) = (&shop.galera.namespace, &shop.galera.name);
        let mut source =
            json!({ "repoURL": shop.repository.url(), "targetRevision": "main", "path": "deploy" });
        if shop.way == Way::Release {
            source["path"] = json!("charts/galera");
            source["helm"] = json!({ "releaseName": name, "valueFiles": ["/deploy/shop.yaml"] });
        }
        // Longer than a rolling restart, because after the last try it does nothing until the next commit; and not much longer,
        // because while it tries one commit it does not look at the next one.
        let again =
            json!({ "limit": 12, "backoff": { "duration": "10s", "factor": 1, "maxDuration": "20s" } });
        vec![json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": { "name": name, "namespace": "argocd" },
            "spec": {
                "project": "default",
                "source": source,
                "destination": { "server": "https://kubernetes.default.svc", "namespace": namespace },
                // With ServerSideDiff, it shows old results from its cache after a comparison that the guard refused.
                "ignoreDifferences": [{
                    "group": "apps", "kind": "Deployment", "name": format!("{name}-bootstrap"), "jsonPointers": ["/spec/replicas"],
                }],
                "syncPolicy": {
                    "automated": { "prune": true, "selfHeal": true },
                    "syncOptions": ["RespectIgnoreDifferences=true"],
                    "retry": again,
                },
            },
        })]
    }

    fn release(&self, _: &Shop<'_>, values: &Value) -> Value {
        values.clone()
    }

    fn shows_removal(&self, way: Way) -> &'static str {
        match way {
            Way::Manifests => "[G03]",
            Way::Release => "shop.yaml: no such file",
        }
    }

    fn keeps(&self, _: &Shop<'_>) {}

    fn shows(&self, shop: &Shop<'_>, commit: &str) -> (bool, String) {
        synced(shop.galera.lab, &shop.galera.name, commit)
    }

    fn installs_the_guard(&self, repository: &Repository) -> Vec<Value> {
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

    fn shows_the_guard(&self, lab: &ControlPlane, commit: &str) -> (bool, String) {
        synced(lab, "gatera", commit)
    }
}

/// Returns whether this commit of an Application is applied and all is well, and what Argo CD shows.
fn synced(lab: &ControlPlane, name: &str, commit: &str) -> (bool, String) {
    let application = lab.get("argocd", &format!("application/{name}"));
    let status = &application["status"];
    let well = status["sync"]["status"] == "Synced"
        && status["sync"]["revision"] == commit
        && status["health"]["status"] == "Healthy";
    let results = status["operationState"]["syncResult"]["resources"].as_array().cloned().unwrap_or_default();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let failed = results.iter().filter(|it| it["status"] != "Synced").chain(&conditions);
    let failed: Vec<_> = failed.filter_map(|it| it["message"].as_str()).collect();
    let said = format!(
        "{} {} {}\n{}",
        status["sync"]["status"],
        status["health"]["status"],
        status["operationState"]["message"].as_str().unwrap_or_default(),
        failed.join("\n")
    );
    (well, said)
}
