//! What stands beside a cluster's members under its labels: the bootstrap node, arbitrators, and what is neither (proxies, Jobs,
//! exporters, asynchronous replicas), which counts for nothing.

use std::sync::Arc;

use super::index::By;
use super::{Facts, Id, PodFact, View};
use crate::galera::image::Image;
use crate::galera::reading::File;
use crate::galera::runs::Runs;
use crate::galera::{address, adopt, server};
use crate::object::{Meta, PodSpec, Workload};
use crate::revision;

/// The bootstrap node beside a cluster.
#[derive(Clone, Debug, Default)]
pub struct Bootstrap {
    /// Its Deployments, by name.
    pub deployments: Vec<String>,
    /// Its pods that are there.
    pub pods: Vec<Arc<PodFact>>,
}

/// The bootstrap node of a cluster, and how many of its arbitrators are Ready.
pub(super) fn of(id: &Id, workload: &Workload, facts: &Facts) -> (Bootstrap, i64) {
    let Some(instance) = adopt::instance(&workload.spec.template.metadata.labels) else {
        return Default::default();
    };
    let named = |by| facts.index.names(by, &id.namespace, instance);
    let pods = || {
        named(By::PodOfInstance)
            .filter_map(|name| facts.pods.get(&Id::new(&id.namespace, name)))
            .map(Arc::clone)
    };
    let template =
        |name: &str| facts.deployments.get(&Id::new(&id.namespace, name)).map(|it| &it.spec.template);
    let (deployments, others): (Vec<_>, Vec<_>) = named(By::DeploymentOfInstance).partition(|name| {
        template(name).is_some_and(|it| may_found(&id.namespace, &it.metadata, &it.spec, facts))
    });
    let is_bootstraps = |pod: &Arc<PodFact>| match &pod.owner {
        _ if !pod.server => false,
        Some((kind, _)) if kind == "StatefulSet" => false,
        _ => !others.iter().any(|name| pod.is_of_deployment(name)),
    };
    let bootstrap = Bootstrap {
        deployments: deployments.into_iter().map(str::to_owned).collect(),
        pods: pods().filter(is_bootstraps).collect(),
    };
    let votes = pods().filter(|pod| pod.votes).count();
    (bootstrap, i64::try_from(votes).unwrap_or(i64::MAX))
}

impl View<'_> {
    /// A server like this one, which no StatefulSet makes, is a bootstrap node, or may be.
    pub fn may_found(&self, namespace: &str, metadata: &Meta, spec: &PodSpec) -> bool {
        may_found(namespace, metadata, spec, &self.world.facts)
    }
}

/// Pods like this one found a cluster, or may, as far as is known. A server that is told of no cluster at all is an asynchronous
/// replica.
fn may_found(namespace: &str, metadata: &Meta, spec: &PodSpec, facts: &Facts) -> bool {
    let labels = &metadata.labels;
    let Some(server) = server::in_pod(metadata, spec) else { return adopt::is_bootstrap(labels) };
    let elsewhere = server.env_from.iter().any(|it| it.config_map_ref.is_some())
        || server
            .env
            .iter()
            .filter_map(|it| it.value_from.as_ref())
            .any(|it| it.config_map_key_ref.is_some());
    // What another image brings along, or a Secret holds, is not seen.
    let image = Image::read(&server.image);
    let unseen = elsewhere || !image.is_of_the_library() || spec.volumes.iter().any(|it| it.secret.is_some());
    if adopt::is_bootstrap(labels) || unseen || Runs::of(server) != Runs::Server {
        return true;
    }
    let mut files = Vec::new();
    let mut reaching = revision::sources(spec, server);
    // Every pod has it.
    reaching.remove("kube-root-ca.crt");
    for (map, keys) in &reaching {
        let Some(known) = facts.config_maps.get(&Id::new(namespace, map)) else { return true };
        let read = known.data.iter().filter(|(key, _)| keys.hold(key));
        files.extend(read.map(|(key, text)| File { map, key, text: text.look() }));
    }
    server::founds_new_cluster(server, &files).is_some() || address::of_container(server, &files).is_some()
}
