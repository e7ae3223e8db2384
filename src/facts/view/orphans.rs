//! The StatefulSet as its pods show it, if it is gone: `kubectl delete --cascade=orphan` leaves the members running.
//!
//! The members without a StatefulSet still form the cluster. Owns: which pods are such members ([`former_set_of`]), the
//! StatefulSet that one of them shows ([`shown_by`]), and what a StatefulSet that adopts them, or a ConfigMap that is
//! created after its template, is compared with. Must not know: rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Facts, Id, TEMPLATE_LABEL, View, is_cluster};
use crate::galera::{added, adopt, server, start};
use crate::marks;
use crate::review::{Operation, Review};
use crate::revision::{self, Digest, Revision};
use objects::{
    AffinityTerm, AntiAffinity, ClaimTemplate, ConfigMap, Container, Fingerprint, Labels, Meta, Object, Pod,
    PodSpec, Retention, Template, Volume, Workload, WorkloadSpec, ordinal,
};

/// Returns the StatefulSet that left this pod behind: no controller owns the pod, a server runs in it, and it has a
/// claim named after it or the label in which the StatefulSet controller repeats a pod's name. A pod created by hand
/// that only has a member's name has neither.
fn former_set_of(pod: &Pod) -> Option<&str> {
    let meta = &pod.metadata;
    let is_member_of =
        |set: &str| ordinal(&meta.name, set).is_some_and(|number| (0..ORDINAL_LIMIT).contains(&number));
    let (set, _) = meta.name.rsplit_once('-').filter(|(set, _)| is_member_of(set))?;
    let has_own_claim = || pod.spec.volumes.iter().any(|volume| is_from_a_template(volume, &meta.name));
    let is_labelled = meta.labels.get(POD_NAME_LABEL) == Some(&meta.name);
    let is_member =
        meta.controller().is_none() && !adopt::is_bootstrap(&meta.labels) && (is_labelled || has_own_claim());
    (is_member && server::in_pod(meta, &pod.spec).is_some()).then_some(set)
}

/// Ordinals from this number on are not those of a member. Without this bound, the name of one pod could add thousands
/// of missing members.
const ORDINAL_LIMIT: i64 = 10_000;

/// The label in which the StatefulSet controller repeats a pod's name. It stays when the StatefulSet is deleted without its pods.
pub const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";

/// Returns whether the volume comes from a claim template: it has the template's name, and its claim is called
/// TEMPLATE-POD.
fn is_from_a_template(volume: &Volume, pod: &str) -> bool {
    let claim = volume.persistent_volume_claim.as_ref().map(|it| &*it.claim_name);
    claim.and_then(|claim| claim.strip_suffix(pod)?.strip_suffix('-')) == Some(&*volume.name)
}

/// Returns the StatefulSet that left this pod behind, with the template that the pod shows, without the additions of
/// the StatefulSet controller, the API server and injection.
pub(super) fn shown_by(pod: &Pod) -> Option<Workload> {
    let (set, meta) = (former_set_of(pod)?, &pod.metadata);
    let mut shown = Workload::default();
    (shown.metadata.name, shown.metadata.namespace) = (set.to_owned(), meta.namespace.clone());
    shown.spec.service_name.clone_from(&pod.spec.subdomain);
    let template = &mut *shown.spec.template;
    template.spec = pod.spec.clone();
    let from_a_template = |volume: &mut Volume| is_from_a_template(volume, &meta.name);
    for volume in template.spec.volumes.extract_if(.., from_a_template) {
        let mut claim = ClaimTemplate::default();
        claim.metadata.name = volume.name;
        shown.spec.volume_claim_templates.push(claim);
    }
    let injected = server::in_pod(meta, &pod.spec).filter(|_| meta.mark(marks::INJECTED).is_some());
    if let Some(server) = injected {
        remove_injection(&mut template.spec, &server.name);
    }
    if let Some(revision) = meta.mark(marks::REVISION).and_then(Revision::read) {
        point_at_sources(&mut template.spec, &revision);
    }
    remove_additions(&mut template.spec);
    let entries = |of: &Labels, keep: &dyn Fn(&str) -> bool| {
        of.iter().filter(|(key, _)| keep(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    template.metadata.labels = entries(&meta.labels, &|key| !ADDED_LABELS.contains(&key));
    template.metadata.marks = entries(&meta.marks, &|key| !marks::is_guards(key));
    shown.spec.selector.match_labels = template.metadata.labels.clone();
    Some(shown)
}

/// Returns the StatefulSet as its lowest Ready pod shows it, or its lowest pod if none is Ready; `None` if every pod is
/// being deleted.
pub(super) fn orphaned_set(set: &Id, facts: &Facts) -> Option<Workload> {
    let all: Vec<_> = shown_of(set, facts).collect();
    let ordinals = all.iter().map(|(_, ordinal, _)| *ordinal);
    let (first, last) = (ordinals.clone().min()?, ordinals.max()?);
    let (_, _, shown) = all.into_iter().min_by_key(|(is_unready, ordinal, _)| (*is_unready, *ordinal))?;
    let mut left = Workload::clone(shown);
    left.spec.set_members(first..last + 1);
    Some(left)
}

/// Returns for each pod that is not being deleted whether it is not Ready, its ordinal, and the StatefulSet that it
/// shows.
fn shown_of<'f>(set: &Id, facts: &'f Facts) -> impl Iterator<Item = (bool, i64, &'f Arc<Workload>)> {
    let (set, prefix) = (set.clone(), format!("{}-", set.name));
    let following = facts.pods.range(Id::new(&set.namespace, &prefix)..);
    let (namespace, name) = (set.namespace, set.name);
    let pods = following.take_while(move |(id, _)| id.namespace == namespace && id.name.starts_with(&prefix));
    pods.filter(|(_, pod)| !pod.terminating)
        .filter_map(move |(id, pod)| Some((!pod.ready, ordinal(&id.name, &name)?, pod.orphan_of.as_ref()?)))
}

/// The labels that the StatefulSet controller adds, and those that the API server adds to pods with a node.
const ADDED_LABELS: [&str; 5] = [
    TEMPLATE_LABEL,
    POD_NAME_LABEL,
    "apps.kubernetes.io/pod-index",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];
/// The beginning of the name of the volume that the API server adds for the token of the ServiceAccount.
const TOKEN_PREFIX: &str = "kube-api-access-";
/// The tolerations that the API server adds, with which pods stay for some minutes on a node that does not answer.
const ADDED_TOLERATIONS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

fn remove_additions(spec: &mut PodSpec) {
    spec.volumes.retain(|volume| !volume.name.starts_with(TOKEN_PREFIX));
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        container.volume_mounts.retain(|mount| !mount.name.starts_with(TOKEN_PREFIX));
    }
    spec.tolerations.retain(|it| !ADDED_TOLERATIONS.contains(&&*it.key));
    if spec.service_account_name == "default" {
        spec.service_account_name.clear();
    }
    spec.node_name.clear();
    spec.subdomain.clear();
    spec.ephemeral_containers.clear();
}

/// Removes what injection sets: the template may have had the same, another value, or none.
fn remove_injection(spec: &mut PodSpec, server: &str) {
    spec.volumes.retain(|volume| !added::VOLUMES.contains(&&*volume.name));
    spec.termination_grace_period_seconds = None;
    for container in spec.containers.iter_mut().filter(|container| container.name == server) {
        container.volume_mounts.retain(|mount| !added::VOLUMES.contains(&&*mount.name));
        added::remove_from(container);
        (container.liveness_probe, container.readiness_probe, container.startup_probe) = (None, None, None);
        container.lifecycle.pre_stop = None;
    }
}

/// Points references to snapshots back at their ConfigMaps.
fn point_at_sources(spec: &mut PodSpec, revision: &Revision) {
    let source_of = |snapshot: &str| {
        let digest = Digest::of_snapshot(snapshot)?;
        revision.iter().find(|(source, known)| **known == digest && known.snapshot_name(source) == snapshot)
    };
    for volume in &mut spec.volumes {
        let projected = volume.projected.iter_mut().flat_map(|it| &mut it.sources);
        let maps = projected.filter_map(|it| it.config_map.as_mut()).chain(&mut volume.config_map);
        for map in maps {
            if let Some((name, _)) = source_of(&map.name) {
                name.clone_into(&mut map.name);
            }
        }
    }
}

impl View<'_> {
    /// Returns whether members of a StatefulSet of this name run, whether or not it exists and was seen.
    pub fn members_run(&self, namespace: &str, stateful_set: &str) -> bool {
        let set = Id::new(namespace, stateful_set);
        self.world.facts.pods_of(&set).any(|pod| pod.server && pod.running && !pod.terminating)
    }

    /// Returns a request that creates a StatefulSet whose members already run, or a ConfigMap in place of one that they
    /// read, as an update of what they run with.
    pub fn taken_over(&self, review: &Review) -> Option<Review> {
        let is_creation = review.operation == Operation::Create && review.subresource.is_empty();
        let old = match review.new.as_ref().filter(|_| is_creation)? {
            Object::StatefulSet(new) => Object::StatefulSet(Box::new(self.template_before(review, new)?)),
            Object::ConfigMap(new) => Object::ConfigMap(self.config_map_before(review, new)?),
            _ => return None,
        };
        Some(Review { operation: Operation::Update, takes_over: true, old: Some(old), ..review.clone() })
    }

    fn template_before(&self, review: &Review, new: &Workload) -> Option<Workload> {
        // An operator that re-creates its own StatefulSet is not delayed.
        let is_managed = new.metadata.operator().is_some() && !is_cluster(new, self.adoption());
        let cluster =
            self.cluster(&review.namespace, &review.name).filter(|it| it.orphaned && !is_managed)?;
        // If members differ, compare with the one that already runs the new template.
        let shown = shown_of(&cluster.id, &self.world.facts).map(|(.., shown)| &**shown);
        let runs_new_template =
            |was: &Workload| was.spec.template.fingerprint == new.spec.template.fingerprint;
        let mut versions = shown.map(|shown| as_it_was(shown, &cluster.workload, new));
        Some(
            versions
                .find(runs_new_template)
                .unwrap_or_else(|| as_it_was(&cluster.workload, &cluster.workload, new)),
        )
    }

    /// Returns the earlier content for a ConfigMap that is created after the template that names it: what members read
    /// under names that are gone, or that the template no longer has, in one ConfigMap.
    fn config_map_before(&self, review: &Review, new: &ConfigMap) -> Option<ConfigMap> {
        let ns = &*review.namespace;
        let cluster = self.readers_of(ns, &new.metadata.name).find(|cluster| cluster.has_data())?;
        let (spec, server) = cluster.server()?;
        let named = revision::sources(spec, server);
        let pods = || cluster.members.iter().filter_map(|it| it.pod.as_deref());
        let ran = pods().filter(|pod| pod.ready).chain(pods()).find_map(|pod| pod.revision.as_ref());
        let ran = ran.or_else(|| Some(&cluster.rollout.as_ref()?.good))?;
        // If several ConfigMaps replace earlier ones, none of them can be compared alone.
        if named.keys().any(|name| *name != new.metadata.name && ran.get(name).is_none()) {
            return None;
        }
        let sources = ran.iter().map(|(source, _)| source);
        let is_gone = |source: &&str| !named.contains_key(*source) || self.config_map(ns, source).is_none();
        let mut earlier_maps = sources.filter(is_gone).map(|source| self.text_of(cluster, ran, source));
        let mut was = earlier_maps.next()??.clone();
        for earlier in earlier_maps {
            let entries = was.data.iter().chain(earlier?.data.iter());
            was.data = entries.map(|(key, text)| (key.clone(), text.clone())).collect();
        }
        was.metadata = Meta { name: new.metadata.name.clone(), namespace: ns.to_owned(), ..Meta::default() };
        Some(was)
    }
}

/// Returns the old side of the comparison: what a pod shows; fields that no pod shows are copied from the new
/// StatefulSet. A retention policy and `maxUnavailable` are not copied, because they would delete claims or stop
/// several members at once.
fn as_it_was(shown: &Workload, left: &Workload, new: &Workload) -> Workload {
    let mut was = new.clone();
    let (shown, new_spec) = (&shown.spec, &new.spec);
    (was.metadata.owner_references, was.metadata.marks) = (Vec::new(), Labels::default());
    was.spec.persistent_volume_claim_retention_policy = Retention::default();
    if let Some(details) = &mut was.spec.update_strategy.rolling_update {
        details.max_unavailable = None;
    }
    was.spec.set_members(left.ordinals());
    was.spec.service_name.clone_from(&shown.service_name);
    if !new_spec.selector.selects(&shown.template.metadata.labels) {
        was.spec.selector = shown.selector.clone();
    }
    // A pod has its volumes in any order.
    let names = |of: &[ClaimTemplate]| of.iter().map(|it| it.metadata.name.clone()).collect::<BTreeSet<_>>();
    if names(&shown.volume_claim_templates) != names(&new_spec.volume_claim_templates) {
        was.spec.volume_claim_templates.clone_from(&shown.volume_claim_templates);
    }
    let template = &mut was.spec.template;
    (template.metadata.labels, template.metadata.marks) =
        (shown.template.metadata.labels.clone(), shown.template.metadata.marks.clone());
    template.spec = completed(&shown.template, &new_spec.template);
    remove_added_terms(&mut template.spec.affinity.pod_anti_affinity, new_spec);
    if !is_equal_but_for_additions(template, &new_spec.template) {
        template.fingerprint = Fingerprint::default();
    }
    was
}

/// Returns whether the templates are equal, apart from what other webhooks add to pods: resources, and containers, volumes,
/// tolerations and labels that the new template does not have.
fn is_equal_but_for_additions(was: &Template, new: &Template) -> bool {
    let mut was = was.clone();
    let (spec, new_spec) = (&mut was.spec, &new.spec);
    spec.volumes.retain(|volume| new_spec.volumes.iter().any(|it| it.name == volume.name));
    spec.tolerations.retain(|it| new_spec.tolerations.contains(it));
    for (containers, new_containers) in
        [(&mut spec.containers, &new_spec.containers), (&mut spec.init_containers, &new_spec.init_containers)]
    {
        containers.retain(|container| new_containers.iter().any(|it| it.name == container.name));
        for (container, new_container) in containers.iter_mut().zip(new_containers) {
            container.resources = new_container.resources.clone();
        }
    }
    let labels = was.metadata.labels.iter().filter(|(key, _)| new.metadata.labels.contains_key(key));
    let labels: Labels = labels.map(|(key, value)| (key.clone(), value.clone())).collect();
    was.spec == new.spec && labels == new.metadata.labels && was.metadata.marks == new.metadata.marks
}

/// Removes the terms by which injection keeps members apart: they use the selector of their StatefulSet.
fn remove_added_terms(shown: &mut AntiAffinity, new: &WorkloadSpec) {
    let expressions = new.selector.as_expressions();
    let is_added = |term: &AffinityTerm| {
        let selector = term.label_selector.as_ref();
        selector.is_some_and(|it| it.match_labels.is_empty() && it.match_expressions == expressions)
    };
    let new_terms = &new.template.spec.affinity.pod_anti_affinity;
    shown.required.retain(|term| new_terms.required.contains(term) || !is_added(term));
    shown.preferred.retain(|it| new_terms.preferred.contains(it) || !is_added(&it.pod_affinity_term));
}

/// Returns what a pod shows, completed with fields of the new template.
fn completed(shown: &Template, new: &Template) -> PodSpec {
    let (mut spec, new) = (shown.spec.clone(), &new.spec);
    spec.termination_grace_period_seconds =
        spec.termination_grace_period_seconds.or(new.termination_grace_period_seconds);
    for (was, is) in
        [(&mut spec.service_account_name, &new.service_account_name), (&mut spec.subdomain, &new.subdomain)]
    {
        if was.is_empty() {
            was.clone_from(is);
        }
    }
    if new.image_pull_secrets.is_empty() {
        spec.image_pull_secrets.clear();
    }
    for container in &mut spec.containers {
        let Some(new) = new.containers.iter().find(|it| it.name == container.name) else { continue };
        complete(container, new);
    }
    spec
}

fn complete(was: &mut Container, new: &Container) {
    if start::started(was) == start::started(new) {
        (was.command, was.args) = (new.command.clone(), new.args.clone());
    }
    let probes = [
        (&mut was.liveness_probe, &new.liveness_probe),
        (&mut was.readiness_probe, &new.readiness_probe),
        (&mut was.startup_probe, &new.startup_probe),
        (&mut was.lifecycle.pre_stop, &new.lifecycle.pre_stop),
    ];
    for (was, is) in probes {
        if was.is_none() {
            was.clone_from(is);
        }
    }
}
