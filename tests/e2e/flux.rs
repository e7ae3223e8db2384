//! Flux as a GitOps engine: the objects that configure it, and where it shows errors.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::gitops::{commits_reach_the_cluster_or_are_refused, guard_is_installed_upgraded_and_removed};
use crate::guard::{NAMESPACE, guarded};
use crate::lab::{self, ControlPlane, Repository, User};
use crate::shop::{Content, GitOpsEngine, Shop};

/// Returns the shared nodes, on which the guard and Flux run.
fn with_flux() -> &'static ControlPlane {
    static STARTED: LazyLock<lab::Engine> = LazyLock::new(|| guarded().start_flux());
    LazyLock::force(&STARTED);
    guarded()
}

#[test]
fn it_deploys_manifests() {
    commits_reach_the_cluster_or_are_refused(with_flux(), &Flux, Content::Manifests, "flux-plain");
}

#[test]
fn it_deploys_a_release() {
    commits_reach_the_cluster_or_are_refused(with_flux(), &Flux, Content::Release, "flux-helm");
}

#[test]
fn it_installs_the_guard() {
    guard_is_installed_upgraded_and_removed(with_flux(), &Flux);
}

struct Flux;

impl GitOpsEngine for Flux {
    fn namespace(&self) -> &'static str {
        "flux-system"
    }

    fn objects_to_follow(&self, shop: &Shop<'_>) -> Vec<Value> {
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "day", "namespace": shop.galera.namespace },
            "spec": { "url": shop.repository.url(), "ref": { "branch": "main" }, "interval": "5s" },
        });
        let applied = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "name": "day", "namespace": shop.galera.namespace },
            "spec": {
                "sourceRef": { "kind": "GitRepository", "name": "day" },
                "path": "./deploy",
                "targetNamespace": shop.galera.namespace,
                "prune": true,
                "interval": "20s",
                "retryInterval": "10s",
                "timeout": "2m",
            },
        });
        vec![source, applied]
    }

    fn release(&self, shop: &Shop<'_>, values: &Value) -> Value {
        let mut release = release(&shop.galera.name, "charts/galera", "day");
        release["spec"]["values"] = values.clone();
        release
    }

    fn text_after_removal(&self, content: Content) -> &'static str {
        match content {
            Content::Manifests => "[G03]",
            // Helm does not report the reason.
            Content::Release => "failed to delete release",
        }
    }

    /// A deletion that has begun cannot be undone. So the finalizer is removed: the HelmRelease is then deleted and created
    /// again. Helm's release, whose uninstallation is unfinished, is rolled back.
    fn finish_revert(&self, shop: &Shop<'_>) {
        if shop.content == Content::Release {
            let (galera, release) = (&shop.galera, format!("helmrelease/{}", shop.galera.name));
            let without_finalizers = r#"--patch={"metadata":{"finalizers":null}}"#;
            galera.kubectl(&["patch", &release, "--type=merge", without_finalizers]).succeeded();
            let rollback = ["rollback", &galera.name, "--namespace", &galera.namespace];
            galera.lab.helm(User::Admin, &rollback).succeeded();
        }
    }

    fn state_of(&self, shop: &Shop<'_>, commit: &str) -> (bool, String) {
        let (lab, namespace) = (shop.galera.lab, &shop.galera.namespace);
        let (ready, mut shown) = condition(lab, namespace, "kustomization/day");
        let applied = shop.read("kustomization/day")["status"]["lastAppliedRevision"].to_string();
        let mut all = ready && applied.contains(commit);
        if shop.content == Content::Release {
            let (ready, more) = released(lab, namespace, &shop.galera.name, commit);
            all &= ready;
            shown = format!("{shown}\n{more}");
        }
        (all, shown)
    }

    fn objects_to_install_the_guard(&self, repository: &Repository) -> Vec<Value> {
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "gatera", "namespace": NAMESPACE },
            "spec": { "url": repository.url(), "ref": { "branch": "main" }, "interval": "5s" },
        });
        let mut release = release("gatera", "charts/gatera", "gatera");
        release["metadata"]["namespace"] = json!(NAMESPACE);
        release["spec"]["chart"]["spec"]["valuesFiles"] = json!(["charts/gatera/values.yaml", "values.yaml"]);
        vec![source, release]
    }

    fn state_of_the_guard(&self, lab: &ControlPlane, commit: &str) -> (bool, String) {
        released(lab, NAMESPACE, "gatera", commit)
    }
}

/// Returns the HelmRelease of a chart that is in a GitRepository.
fn release(name: &str, chart: &str, repository: &str) -> Value {
    let retry = json!({ "strategy": { "name": "RetryOnFailure", "retryInterval": "15s" } });
    json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": { "name": name },
        "spec": {
            "releaseName": name,
            "chart": { "spec": {
                "chart": chart,
                "sourceRef": { "kind": "GitRepository", "name": repository },
                "reconcileStrategy": "Revision",
            } },
            "interval": "20s",
            "timeout": "2m",
            "install": retry,
            "upgrade": retry,
            "driftDetection": { "mode": "enabled" },
        },
    })
}

/// Returns whether this commit of a release is applied and healthy, and the state that Flux shows.
fn released(lab: &ControlPlane, namespace: &str, name: &str, commit: &str) -> (bool, String) {
    let release = format!("helmrelease/{name}");
    let (ready, shown) = condition(lab, namespace, &release);
    let revision = read(lab, namespace, &release)["status"]["lastAttemptedRevision"].to_string();
    (ready && revision.contains(&commit[..12]), shown)
}

/// Returns whether the newest generation of an object of Flux is Ready, and the messages of its conditions.
fn condition(lab: &ControlPlane, namespace: &str, object: &str) -> (bool, String) {
    let object = read(lab, namespace, object);
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let newest = |it: &&Value| it["observedGeneration"] == object["metadata"]["generation"];
    let ready = conditions.iter().filter(newest).any(|it| it["type"] == "Ready" && it["status"] == "True");
    let messages: Vec<_> = conditions.iter().filter_map(|it| it["message"].as_str()).collect();
    (ready && object["metadata"]["deletionTimestamp"].is_null(), messages.join("\n"))
}

/// Returns an object, or null if it does not exist.
fn read(lab: &ControlPlane, namespace: &str, object: &str) -> Value {
    let get = ["get", object, "--namespace", namespace, "--output=json", "--ignore-not-found"];
    serde_json::from_str(&lab.kubectl(User::Admin, &get).succeeded()).unwrap_or_default()
}
