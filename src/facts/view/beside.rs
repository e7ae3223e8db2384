//! What runs beside a cluster's members under its labels: the bootstrap node, arbitrators, and other pods (proxies,
//! Jobs, exporters, asynchronous replicas), which do not count.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::index::By;
use super::{Facts, Id, PodFact, View};
use crate::galera::image::Image;
use crate::galera::reading::ConfigMapFile;
use crate::galera::runs::Runs;
use crate::galera::{address, adopt, server};
use crate::revision;
use objects::{EnvVar, Literal, Meta, PodSpec, Workload};

/// The bootstrap node beside a cluster.
#[derive(Clone, Debug, Default)]
pub struct Bootstrap {
    pub deployments: Vec<String>,
    /// The pods of the bootstrap node that exist.
    pub pods: Vec<Arc<PodFact>>,
}

/// Returns the bootstrap node of a cluster, and the votes of its Ready arbitrators, at most one.
pub(super) fn of(id: &Id, workload: &Workload, facts: &Facts) -> (Bootstrap, i64) {
    let Some(instance) = adopt::instance(&workload.spec.template.metadata.labels) else {
        return Default::default();
    };
    let named = |by| facts.index.names(by, &id.namespace, instance);
    let pods = || facts.found(&facts.pods, By::PodOfInstance, &id.namespace, instance).map(Arc::clone);
    let template =
        |name: &str| facts.deployments.get(&Id::new(&id.namespace, name)).map(|it| &it.spec.template);
    let (deployments, others): (BTreeSet<_>, BTreeSet<_>) =
        named(By::DeploymentOfInstance).partition(|name| {
            template(name).is_some_and(|it| may_found(&id.namespace, &it.metadata, &it.spec, facts))
        });
    let is_of_bootstrap = |pod: &Arc<PodFact>| match &pod.owner {
        _ if !pod.server => false,
        Some((kind, _)) if kind == "StatefulSet" => false,
        _ => !pod.deployment().is_some_and(|name| others.contains(name)),
    };
    let bootstrap = Bootstrap {
        deployments: deployments.into_iter().map(str::to_owned).collect(),
        pods: pods().filter(is_of_bootstrap).collect(),
    };
    // An arbitrator that is Ready need not be in the group, so several count as one.
    let votes = pods().any(|pod| pod.votes);
    (bootstrap, i64::from(votes))
}

impl View<'_> {
    /// Returns whether a server like this one, without a StatefulSet, is or may be a bootstrap node.
    pub fn may_found(&self, namespace: &str, metadata: &Meta, spec: &PodSpec) -> bool {
        may_found(namespace, metadata, spec, &self.world.facts)
    }
}

/// Returns whether pods like this one found a cluster, or may found one because some of what they read is unknown. A
/// server that is known to have no cluster address is an asynchronous replica.
fn may_found(namespace: &str, metadata: &Meta, spec: &PodSpec, facts: &Facts) -> bool {
    let labels = &metadata.labels;
    let Some(server) = server::in_pod(metadata, spec) else { return adopt::is_bootstrap(labels) };
    let mut words = server.command.iter().chain(&server.args).map(Literal::look);
    let is_unclear_word = |word: &str| word.contains(['$', ' ']) || word.contains("wsrep");
    let is_unclear_variable = |var: &EnvVar| {
        let elsewhere = var.value_from.as_ref().is_some_and(|from| from.field_ref.is_none());
        elsewhere && !var.name.contains("PASSWORD") || var.name.contains("GALERA")
    };
    // What another image, a Secret, or an init container that writes files adds to the configuration is unknown.
    let unseen = !Image::read(&server.image).is_official()
        || !server.env_from.is_empty()
        || !spec.init_containers.is_empty()
        || spec.volumes.iter().any(|it| it.secret.is_some())
        || server.env.iter().any(is_unclear_variable)
        || words.any(is_unclear_word);
    if adopt::is_bootstrap(labels) || unseen || Runs::of(server) != Runs::Server {
        return true;
    }
    let mut files = Vec::new();
    let mut sources = revision::sources(spec, server);
    // Every pod mounts this ConfigMap.
    sources.remove("kube-root-ca.crt");
    for (map, keys) in &sources {
        let Some(known) = facts.config_maps.get(&Id::new(namespace, map)) else { return true };
        let read = known.data.iter().filter(|(key, _)| keys.contains(key));
        files.extend(read.map(|(key, text)| ConfigMapFile { map, key, text: text.look() }));
    }
    server::founds_new_cluster(server, &files).is_some() || address::of_container(server, &files).is_some()
}
