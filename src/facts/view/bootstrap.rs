//! The bootstrap node's objects, and the record on a StatefulSet of their removal.
//!
//! Must not know: when they are removed (`plan/bootstrap.rs` decides that). The record outlives the leader that wrote it: once
//! the Deployment is gone, nothing else shows which Service and ConfigMap belonged to it.

use std::collections::BTreeSet;

use super::index::By;
use super::{Cluster, View};
use crate::galera::address::{Address, Host};
use crate::galera::adopt;
use crate::marks;
use objects::{ConfigMap, Kind, Labels, Meta, Service, Workload};

/// One object that is removed: exactly this one, not a successor of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemovalTarget {
    pub kind: Kind,
    pub name: String,
    pub uid: String,
}

impl RemovalTarget {
    fn of(kind: Kind, meta: &Meta) -> Self {
        Self { kind, name: meta.name.clone(), uid: meta.uid.clone() }
    }

    /// Reads one entry of the record. An entry that is not a kind, a name and a uid was not written by the guard.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (kind, name, uid) = (parts.next()?, parts.next()?.to_owned(), parts.next()?.to_owned());
        let kind = [Kind::Deployment, Kind::Service, Kind::ConfigMap]
            .into_iter()
            .find(|known| known.name() == kind)?;
        let is_plain = |text: &str, limit: usize| {
            let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            let is_allowed = |c: char| is_alphanumeric(c) || c == '-' || c == '.';
            // Only names that Kubernetes allows: none of them leads elsewhere as a part of a path.
            text.len() <= limit
                && text.starts_with(is_alphanumeric)
                && text.ends_with(is_alphanumeric)
                && text.chars().all(is_allowed)
        };
        (is_plain(&name, 253) && is_plain(&uid, 63) && parts.next().is_none()).then_some(Self {
            kind,
            name,
            uid,
        })
    }

    /// Returns whether it is exactly this object, not a successor of the same name.
    pub fn is(&self, kind: Kind, meta: &Meta) -> bool {
        self.kind == kind && self.name == meta.name && self.uid == meta.uid
    }
}

/// Prints the object, as in "Deployment galera-bootstrap".
impl std::fmt::Display for RemovalTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}

/// The record: `removing UID KIND/NAME/UID …` or `removed UID`. The first uid is the StatefulSet's own, so that a
/// manifest that was saved with the record says nothing about another cluster.
///
/// Every user who may change a StatefulSet may write such a record. It reminds the next leader of what was begun; the
/// objects that it names are removed only if the world agrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The guard is removing these objects, in this order.
    InProgress(Vec<RemovalTarget>),
    /// The objects are gone. If a user applies one again, it stays.
    Done,
    /// The record was not written by the guard.
    Invalid,
}

impl Removal {
    /// Reads the record on this StatefulSet; `None`: there is none, or it is about another StatefulSet.
    pub fn of(meta: &Meta) -> Option<Self> {
        let record = meta.mark(marks::BOOTSTRAP)?;
        let mut words = record.split_ascii_whitespace();
        let (state, uid) = (words.next()?, words.next());
        Some(match (state, uid) {
            ("removing" | "removed", Some(uid)) if uid != meta.uid => return None,
            ("removing", Some(_)) => {
                words.map(RemovalTarget::read).collect::<Option<_>>().map_or(Self::Invalid, Self::InProgress)
            }
            ("removed", Some(_)) => Self::Done,
            _ => Self::Invalid,
        })
    }

    /// Returns the record for the StatefulSet of this uid.
    pub fn record(&self, uid: &str) -> String {
        match self {
            Self::InProgress(targets) => targets.iter().fold(format!("removing {uid}"), |text, it| {
                format!("{text} {}/{}/{}", it.kind.name(), it.name, it.uid)
            }),
            Self::Done => format!("removed {uid}"),
            Self::Invalid => String::new(),
        }
    }
}

impl<'a> View<'a> {
    /// Returns the Service that leads to the bootstrap node of a cluster, while that node is needed.
    pub fn bootstrap_service(&self, cluster: &'a Cluster) -> Option<&'a str> {
        let instance = cluster.instance()?;
        // A record on a cluster without data is not the guard's, and must not cut joiners off.
        let is_being_removed = cluster.has_data()
            && matches!(Removal::of(&cluster.workload.metadata), Some(Removal::InProgress(_)));
        if is_being_removed || cluster.bootstrap.pods.is_empty() && cluster.has_data() {
            return None;
        }
        let namespace = &cluster.id.namespace;
        let mut services = self.services_of(namespace, instance);
        services
            .find(|service| leads_to_bootstrap(&service.spec.selector, instance))
            .map(|service| &*service.metadata.name)
    }

    /// Returns the Deployments of this cluster's bootstrap node.
    pub fn bootstrap_deployments(&self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Workload> {
        let (view, ns) = (*self, &*cluster.id.namespace);
        self.deployments_of(ns, cluster.member_labels()).filter(move |it| view.is_bootstrap_deployment(it))
    }

    /// Returns bootstrap nodes that run, or are about to, and whose StatefulSet does not exist.
    pub fn lone_bootstrap_deployments(&self) -> impl Iterator<Item = &'a Workload> {
        let view = *self;
        let is_alone = move |deployment: &&Workload| {
            let (ns, labels) = (&deployment.metadata.namespace, &deployment.spec.template.metadata.labels);
            deployment.replicas() > 0
                && view.is_bootstrap_deployment(deployment)
                && view.cluster_of(ns, labels).is_none()
        };
        self.world.facts.deployments.values().map(AsRef::as_ref).filter(is_alone)
    }

    fn is_bootstrap_deployment(&self, deployment: &Workload) -> bool {
        let (ns, template) = (&deployment.metadata.namespace, &deployment.spec.template);
        adopt::is_bootstrap(&template.metadata.labels)
            && self.founds_new_cluster(ns, &template.metadata, &template.spec).is_some()
    }

    /// Returns these Deployments and what is removed with them: Services that lead to no other pods, and ConfigMaps that
    /// have no other readers and are recognisably Galera's.
    pub fn removal_targets(&self, cluster: &'a Cluster, founders: &[&'a Workload]) -> Vec<RemovalTarget> {
        let ns = &*cluster.id.namespace;
        let services = cluster.instance().into_iter().flat_map(|instance| self.services_of(ns, instance));
        let services = services.filter(|service| {
            !service.metadata.is_terminating() && self.service_stays(cluster, service).is_none()
        });
        let names: BTreeSet<_> = founders.iter().flat_map(|it| it.spec.template.spec.config_maps()).collect();
        let maps = names.into_iter().filter_map(|name| self.config_map(ns, name));
        let maps = maps.filter(|map| {
            !map.metadata.is_terminating() && self.config_map_stays(cluster, map, founders).is_none()
        });
        let founders = founders.iter().map(|it| RemovalTarget::of(Kind::Deployment, &it.metadata));
        founders
            .chain(services.map(|it| RemovalTarget::of(Kind::Service, &it.metadata)))
            .chain(maps.map(|it| RemovalTarget::of(Kind::ConfigMap, &it.metadata)))
            .collect()
    }

    /// Returns why a Service stays when the bootstrap node of this cluster is removed; `None`: it belongs to that node
    /// alone.
    pub fn service_stays(&self, cluster: &Cluster, service: &Service) -> Option<String> {
        let (ns, name) = (&*cluster.id.namespace, &*service.metadata.name);
        if !cluster.instance().is_some_and(|instance| leads_to_bootstrap(&service.spec.selector, instance)) {
            return Some(format!("it does not lead to the bootstrap node of {}", cluster.id.name));
        }
        if let Some(twin) = self.twin(cluster) {
            return Some(format!("it leads to the bootstrap node of {} too", twin.id.name));
        }
        if let Some(governed) = self.governed_by(ns, name).first() {
            return Some(format!("it governs StatefulSet {}", governed.id.name));
        }
        let referrer =
            self.world.clusters().find(|it| it.id != cluster.id && self.address_names(it, ns, name))?;
        Some(format!("the address of StatefulSet {} names it", referrer.id))
    }

    /// Returns why a ConfigMap stays when these Deployments are removed, as far as the workloads in the view show; `None`:
    /// nothing else needs it.
    pub fn config_map_stays(
        &self,
        cluster: &Cluster,
        map: &ConfigMap,
        founders: &[&Workload],
    ) -> Option<String> {
        let (ns, name) = (&*cluster.id.namespace, &*map.metadata.name);
        let is_founder =
            |it: &&Workload| founders.iter().any(|founder| founder.metadata.name == it.metadata.name);
        if let Some(reader) = self.readers_of(ns, name).next() {
            return Some(format!("StatefulSet {} reads it", reader.id.name));
        }
        if let Some(reader) = self.deployments_that_read(ns, name).find(|it| !is_founder(it)) {
            return Some(format!("Deployment {} reads it", reader.metadata.name));
        }
        (!self.shows_galera(map)).then(|| "nothing in it shows that it is Galera's".to_owned())
    }

    /// Returns another cluster of the same instance: their labels do not show which one a bootstrap node belongs to.
    pub fn twin(&self, cluster: &Cluster) -> Option<&'a Cluster> {
        let ns = &cluster.id.namespace;
        self.world.clusters_by(By::SetOfInstance, ns, cluster.instance()?).find(|it| it.id != cluster.id)
    }

    /// Returns whether the address of this cluster's members names this Service.
    fn address_names(&self, cluster: &Cluster, ns: &str, service: &str) -> bool {
        let address = self.cluster_address(&cluster.id.namespace, &cluster.workload);
        let Some(Address::Peers(hosts)) = address.and_then(|address| Address::read(&address.text)) else {
            return false;
        };
        let is_same_namespace = cluster.id.namespace == ns;
        hosts.iter().any(|host| {
            let Host::Name(first, rest) = Host::read(host) else { return false };
            let labels: Vec<_> = std::iter::once(first).chain(rest.split('.')).take(3).collect();
            match labels.iter().position(|label| *label == service) {
                // The form is SERVICE or POD.SERVICE, followed by the namespace unless it is the same.
                Some(at @ (0 | 1)) => match labels.get(at + 1) {
                    None | Some(&"") => is_same_namespace,
                    Some(label) => *label == ns,
                },
                _ => false,
            }
        })
    }
}

/// Returns whether a Service with this selector leads to the bootstrap node of this instance, and to no other pods.
fn leads_to_bootstrap(selector: &Labels, instance: &str) -> bool {
    adopt::is_bootstrap(selector) && adopt::instance(selector) == Some(instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, record: &str) -> Meta {
        let mark = format!("{}{}", marks::PREFIX, marks::BOOTSTRAP);
        Meta { uid: uid.into(), marks: [(mark, record.into())].into(), ..Meta::default() }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let target = |kind, name: &str| RemovalTarget { kind, name: name.into(), uid: format!("uid-{name}") };
        let targets =
            vec![target(Kind::Deployment, "a"), target(Kind::Service, "b"), target(Kind::ConfigMap, "c")];
        for removal in [Removal::InProgress(targets), Removal::InProgress(Vec::new()), Removal::Done] {
            assert_eq!(Removal::of(&meta("1", &removal.record("1"))), Some(removal.clone()));
            assert_eq!(Removal::of(&meta("2", &removal.record("1"))), None, "the record of another cluster");
        }
        for nothing in ["", " "] {
            assert_eq!(Removal::of(&meta("1", nothing)), None);
        }
        for invalid in [
            "removing",
            "removed",
            "removing 1 Secret/a/b",
            "removing 1 StatefulSet/a/b",
            "removing 1 Service/a",
            "removing 1 Service/a/",
            "removing 1 Service//b",
            "removing 1 Service/a/b/c",
            "removing 1 Service/../b",
            "removing 1 Service/A%2fb/b",
            "removing 1 Service/a/b Service",
            "x 1",
        ] {
            assert_eq!(Removal::of(&meta("1", invalid)), Some(Removal::Invalid), "{invalid}");
        }
    }
}
