//! The facts at one moment, and the clusters that are built from them.
//!
//! A World never changes. The next one shares with it everything unchanged, so its cost depends on the size of the change
//! and not on the number of clusters.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;

use super::index::By;
use super::{Cluster, Facts, Freshness, Id};
use crate::galera::{adopt, server};
use objects::{Node, PodSpec, Workload};

/// All facts and clusters at one moment.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// How current the facts were when it was built.
    pub freshness: Freshness,
    pub(super) facts: Facts,
    pub(super) clusters: OrdMap<Id, Arc<Cluster>>,
}

impl World {
    /// Returns the world before anything is known.
    pub fn empty(adoption: &adopt::Adoption, freshness: Freshness) -> Self {
        Self { freshness, facts: Facts::of(adoption), ..Self::default() }
    }

    /// Builds all clusters from the facts.
    pub fn build(mut facts: Facts, freshness: Freshness) -> Self {
        facts.touch_all();
        Self { freshness, ..Self::default() }.after(&mut facts)
    }

    /// Returns the world that follows this one. The facts are those that it was built from, with later changes: only
    /// clusters that these touch are built again.
    #[must_use]
    pub fn after(&self, facts: &mut Facts) -> Self {
        let mut clusters = self.clusters.clone();
        for id in facts.take_touched() {
            match facts.stateful_set(&id).filter(|it| is_cluster(it, facts.adoption())) {
                Some(workload) => {
                    let cluster = Cluster::gather(id.clone(), Arc::clone(workload), facts);
                    clusters.insert(id, Arc::new(cluster));
                }
                None => drop(clusters.remove(&id)),
            }
        }
        Self { freshness: self.freshness, facts: facts.clone(), clusters }
    }

    /// Returns the cluster of this StatefulSet.
    pub fn cluster(&self, namespace: &str, name: &str) -> Option<&Cluster> {
        self.clusters.get(&Id::new(namespace, name)).map(Arc::as_ref)
    }

    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values().map(Arc::as_ref)
    }

    /// Returns the clusters whose StatefulSets are found by this word.
    pub(super) fn clusters_by<'a, 'n>(
        &'a self,
        by: By,
        namespace: &'n str,
        word: &str,
    ) -> impl Iterator<Item = &'a Cluster> + use<'a, 'n> {
        self.facts.found(&self.clusters, by, namespace, word).map(Arc::as_ref)
    }

    /// Returns the cluster of this instance. If two clusters have the same one, the cluster with data counts.
    pub(super) fn cluster_of_instance(&self, namespace: &str, instance: &str) -> Option<&Cluster> {
        let clusters: Vec<_> = self.clusters_by(By::SetOfInstance, namespace, instance).collect();
        clusters.iter().find(|it| it.has_data()).or(clusters.last()).copied()
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the number of objects that the view holds, by kind, for metrics.
    pub fn sizes(&self) -> [(&'static str, usize); 3] {
        [
            ("clusters", self.clusters.len()),
            ("pods", self.facts.pods.len()),
            ("claims", self.facts.claims.len()),
        ]
    }

    /// Returns how many nodes an ordinary pod could be placed on now.
    pub fn schedulable_nodes(&self) -> usize {
        self.facts.nodes.values().filter(|node| node.schedulable()).count()
    }

    /// Returns how many nodes this pod could be placed on now; `None` if only the scheduler knows.
    pub fn nodes_for(&self, pod: &PodSpec) -> Option<usize> {
        self.suitable_nodes(pod).map(Iterator::count)
    }

    /// Returns how many values this label has on those nodes; `None` also if one of them lacks it.
    pub fn domains_for(&self, pod: &PodSpec, label: &str) -> Option<usize> {
        let values: Option<BTreeSet<_>> =
            self.suitable_nodes(pod)?.map(|node| node.metadata.labels.get(label)).collect();
        values.map(|values| values.len())
    }

    fn suitable_nodes<'a>(&'a self, pod: &'a PodSpec) -> Option<impl Iterator<Item = &'a Node>> {
        let known = pod.affinity.node_affinity.required.is_none() && !self.facts.nodes.is_empty();
        known.then(|| self.facts.nodes.values().map(Arc::as_ref).filter(|node| node.accepts(pod)))
    }
}

/// Returns whether a StatefulSet is a cluster: its *template* is adopted (real manifests often label nothing else), a
/// server runs in it, and no other operator manages it, unless the label `gatera.dev/cluster` shows that it is ours.
pub fn is_cluster(workload: &Workload, adoption: &adopt::Adoption) -> bool {
    let on_purpose = workload.spec.template.metadata.labels.contains_key("gatera.dev/cluster");
    is_cluster_by_template(workload, adoption) && (on_purpose || workload.metadata.operator().is_none())
}

/// Returns whether it would be a cluster if no other operator managed it.
pub fn is_cluster_by_template(workload: &Workload, adoption: &adopt::Adoption) -> bool {
    let template = &workload.spec.template;
    adoption.adopts(&template.metadata.labels) && server::of(template).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use objects::{Kind, Object};

    /// Kind and name of an object, and its new JSON; `None`: the object is deleted.
    type ObjectChange = (Kind, String, Option<String>);

    fn change() -> impl Strategy<Value = ObjectChange> {
        let one = |texts: &[&str]| select(texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        let labels = one(&["", r#""app":"galera","instance":"x""#, r#""app":"galera","instance":"y""#]);
        let set = (one(&["a", "b-a"]), labels.clone(), one(&["one", "two"]), 0..3).prop_map(
            |(name, labels, reads, replicas)| {
                let volumes = format!(r#"[{{"name":"conf","configMap":{{"name":"{reads}"}}}}]"#);
                let mounts = r#"[{"name":"conf","mountPath":"/etc/mysql/conf.d"}]"#;
                let containers = format!(r#"[{{"name":"mariadb","image":"mariadb:10.11","volumeMounts":{mounts}}}]"#);
                let template = format!(
                    r#"{{"metadata":{{"labels":{{{labels}}}}},"spec":{{"containers":{containers},"volumes":{volumes}}}}}"#
                );
                let claims = r#"[{"metadata":{"name":"data"}},{"metadata":{"name":"b"}}]"#;
                let spec = format!(
                    r#"{{"replicas":{replicas},"template":{template},"volumeClaimTemplates":{claims}}}"#
                );
                (Kind::StatefulSet, name, spec)
            },
        );
        let deployment = (one(&["boot", "c"]), labels.clone()).prop_map(|(name, labels)| {
            let spec = format!(
                r#"{{"template":{{"metadata":{{"labels":{{{labels}}}}},"spec":{{"containers":[]}}}}}}"#
            );
            (Kind::Deployment, name, spec)
        });
        let owner = one(&["StatefulSet/a", "StatefulSet/b-a", "ReplicaSet/boot", ""]);
        let pod = (one(&["a-0", "a-1", "b-a-0", "boot-0"]), labels.clone(), owner).prop_map(
            |(name, labels, owner)| {
                let owners = owner.split_once('/').map_or(String::new(), |(kind, name)| {
                    format!(r#"{{"apiVersion":"apps/v1","kind":"{kind}","name":"{name}","uid":"1","controller":true}}"#)
                });
                let meta = format!(
                    r#"{{"name":"{name}","namespace":"db","labels":{{{labels}}},"ownerReferences":[{owners}]}}"#
                );
                let state = r#"{"running":{"startedAt":"2026-12-01T09:00:00Z"}}"#;
                let text = format!(
                    r#"{{"metadata":{meta},"spec":{{"containers":[{{"name":"mariadb","image":"mariadb:10.11"}}],
                    "volumes":[{{"name":"data","persistentVolumeClaim":{{"claimName":"data-{name}"}}}}]}},
                    "status":{{"containerStatuses":[{{"name":"mariadb","state":{state}}}]}}}}"#
                );
                (Kind::Pod, name, text)
            },
        );
        let claim = (one(&["data-a-0", "b-a-0", "data-b-a-0", "x"]), labels, one(&["Bound", "Pending"]))
            .prop_map(|(name, labels, phase)| {
                let meta = format!(r#"{{"name":"{name}","namespace":"db","labels":{{{labels}}}}}"#);
                (Kind::Claim, name, format!(r#"{{"metadata":{meta},"status":{{"phase":"{phase}"}}}}"#))
            });
        let config = (one(&["one", "two"]), one(&["[galera]", "[mysqld]"])).prop_map(|(name, text)| {
            let meta = format!(r#"{{"name":"{name}","namespace":"db"}}"#);
            (Kind::ConfigMap, name, format!(r#"{{"metadata":{meta},"data":{{"a.cnf":"{text}"}}}}"#))
        });
        let whole = |(kind, name, spec): (Kind, String, String)| {
            let meta = format!(r#"{{"name":"{name}","namespace":"db"}}"#);
            (kind, name, format!(r#"{{"metadata":{meta},"spec":{spec}}}"#))
        };
        let put = prop_oneof![set.prop_map(whole), deployment.prop_map(whole), pod, claim, config];
        (put, prop::bool::weighted(0.3))
            .prop_map(|((kind, name, text), gone)| (kind, name, (!gone).then_some(text)))
    }

    proptest! {
        #[test]
        fn a_world_built_change_by_change_equals_one_built_at_once(
            changes in prop::collection::vec(change(), 1..24)
        ) {
            let adoption = adopt::Adoption::default();
            let (mut facts, mut there) = (Facts::of(&adoption), BTreeMap::new());
            let mut world = World::empty(&adoption, Freshness::Current);
            for (kind, name, text) in changes {
                match &text {
                    Some(text) => facts.put(Object::read(kind, text).unwrap()),
                    None => {
                        facts.remove(kind, &Id::new("db", &name));
                        true
                    }
                };
                there.insert((kind, name), text);
                // The keeper does the same after a change. It clears the note that room was freed, which is not in a world that
                // is built at once.
                let _ = facts.kinds_that_may_fit();
                world = world.after(&mut facts);
                let mut anew = Facts::of(&adoption);
                for ((kind, _), text) in &there {
                    if let Some(text) = text {
                        anew.put(Object::read(*kind, text).unwrap());
                    }
                }
                let anew = World::build(anew, Freshness::Current);
                prop_assert_eq!(format!("{world:#?}"), format!("{anew:#?}"));
            }
        }
    }
}
