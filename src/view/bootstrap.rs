//! The bootstrap node's objects, and the note on a StatefulSet that says what becomes of them.
//!
//! Must not know: when they go (`plan/bootstrap.rs` does). The note outlives the leader that wrote it: once the Deployment
//! is gone, nothing else tells which Service and ConfigMap belonged to it.

use super::{Cluster, View};
use crate::galera::address::{Address, Host};
use crate::galera::adopt;
use crate::marks;
use crate::object::{ConfigMap, Kind, Labels, Meta, Workload};

/// One object that is removed: this one, not a successor of its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Target {
    fn of(kind: Kind, meta: &Meta) -> Self {
        Self { kind, name: meta.name.clone(), uid: meta.uid.clone() }
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (kind, name, uid) = (parts.next()?, parts.next()?.to_owned(), parts.next()?.to_owned());
        let kind =
            [Kind::Deployment, Kind::Service, Kind::ConfigMap].into_iter().find(|it| it.name() == kind)?;
        parts.next().is_none().then_some(Self { kind, name, uid })
    }
}

/// "Deployment galera-bootstrap".
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}

/// What the note says: `removing UID KIND/NAME/UID …` or `removed UID`. The first uid is the StatefulSet's own, so that a
/// manifest that was saved with the note says nothing about another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// These objects go, in this order.
    Going(Vec<Target>),
    /// They are gone. What is applied again stays.
    Done,
}

impl Removal {
    /// The note on this StatefulSet, if there is one that can be read.
    pub fn of(meta: &Meta) -> Option<Self> {
        let mut words = meta.mark(marks::BOOTSTRAP)?.split_ascii_whitespace();
        let (state, uid) = (words.next()?, words.next()?);
        match state {
            _ if uid != meta.uid => None,
            "removing" => words.map(Target::read).collect::<Option<_>>().map(Self::Going),
            "removed" => Some(Self::Done),
            _ => None,
        }
    }

    /// The note for the StatefulSet of this uid.
    pub fn note(&self, uid: &str) -> String {
        match self {
            Self::Going(targets) => targets.iter().fold(format!("removing {uid}"), |note, it| {
                format!("{note} {}/{}/{}", it.kind.name(), it.name, it.uid)
            }),
            Self::Done => format!("removed {uid}"),
        }
    }
}

impl<'a> View<'a> {
    /// The Service that leads to the bootstrap node of a cluster, while that node is needed.
    pub fn bootstrap_service(&self, cluster: &'a Cluster) -> Option<&'a str> {
        let instance = cluster.instance()?;
        let goes = matches!(Removal::of(&cluster.workload.metadata), Some(Removal::Going(_)));
        if goes || cluster.bootstrap.pods.is_empty() && cluster.has_data() {
            return None;
        }
        let namespace = &cluster.id.namespace;
        self.services_in(namespace).find(|it| leads(&it.spec.selector, instance)).map(|it| &*it.metadata.name)
    }

    /// The Deployments of this cluster's bootstrap node.
    pub fn founders(&self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Workload> {
        let (view, ns) = (*self, &*cluster.id.namespace);
        let founds = move |it: &Workload| {
            let template = &it.spec.template;
            let (labels, named) = (&template.metadata.labels, template.metadata.mark(marks::CONTAINER));
            adopt::is_bootstrap(labels)
                && view.founds_new_cluster(ns, labels, &template.spec, named).is_some()
        };
        self.deployments_of(ns, cluster.member_labels()).map(|(_, it)| it).filter(move |it| founds(it))
    }

    /// What goes with these Deployments: the Services that lead to nobody else, and the ConfigMaps that nobody else reads
    /// and that show that they are Galera's.
    pub fn goes_with(&self, cluster: &'a Cluster, founders: &[&'a Workload]) -> Vec<Target> {
        let (ns, instance) = (&*cluster.id.namespace, cluster.instance().unwrap_or_default());
        let services = self.services_in(ns).filter(|it| {
            let meta = &it.metadata;
            leads(&it.spec.selector, instance) && !meta.going() && !self.others_need(cluster, &meta.name)
        });
        let only_theirs = |map: &&ConfigMap| {
            let name = &*map.metadata.name;
            !map.metadata.going()
                && self.readers_of(ns, name).next().is_none()
                && !self.others_read(ns, name, founders)
                && self.shows_galera(map)
        };
        let mut names: Vec<_> = founders.iter().flat_map(|it| it.spec.template.spec.config_maps()).collect();
        names.sort_unstable();
        names.dedup();
        let maps = names.into_iter().filter_map(|name| self.config_map(ns, name)).filter(only_theirs);
        let founders = founders.iter().map(|it| Target::of(Kind::Deployment, &it.metadata));
        founders
            .chain(services.map(|it| Target::of(Kind::Service, &it.metadata)))
            .chain(maps.map(|it| Target::of(Kind::ConfigMap, &it.metadata)))
            .collect()
    }

    /// A cluster is governed by this Service, or another one's address names it.
    fn others_need(&self, cluster: &Cluster, service: &str) -> bool {
        let ns = &*cluster.id.namespace;
        let names = |it: &Cluster| {
            let placed = self.cluster_address(ns, &it.workload, None);
            let Some(Address::Peers(hosts)) = placed.and_then(|it| Address::read(&it.text)) else {
                return false;
            };
            hosts.iter().any(|host| matches!(Host::read(host), Host::Name(name, _) if name == service))
        };
        self.clusters_in(ns)
            .any(|it| it.workload.spec.service_name == service || it.id != cluster.id && names(it))
    }

    /// A Deployment besides these reads this ConfigMap.
    fn others_read(&self, ns: &str, config_map: &str, founders: &[&Workload]) -> bool {
        let others = self
            .deployments_in(ns)
            .filter(|it| founders.iter().all(|own| own.metadata.name != it.metadata.name));
        others.into_iter().any(|it| it.spec.template.spec.config_maps().any(|name| name == config_map))
    }
}

/// A Service with this selector leads to the bootstrap node of this instance, and to nobody else's.
fn leads(selector: &Labels, instance: &str) -> bool {
    adopt::is_bootstrap(selector) && adopt::instance(selector) == Some(instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, note: &str) -> Meta {
        let mark = format!("{}{}", marks::PREFIX, marks::BOOTSTRAP);
        Meta { uid: uid.into(), marks: [(mark, note.into())].into(), ..Meta::default() }
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let target = |kind, name: &str| Target { kind, name: name.into(), uid: format!("uid-{name}") };
        let targets =
            vec![target(Kind::Deployment, "a"), target(Kind::Service, "b"), target(Kind::ConfigMap, "c")];
        for removal in [Removal::Going(targets), Removal::Going(Vec::new()), Removal::Done] {
            assert_eq!(Removal::of(&meta("1", &removal.note("1"))), Some(removal.clone()));
            assert_eq!(Removal::of(&meta("2", &removal.note("1"))), None, "another cluster's");
        }
        for odd in [
            "",
            "removing",
            "removed",
            "removing 1 Secret/a/b",
            "removing 1 Service/a",
            "removing 1 Service/a/b/c",
            "x 1",
        ] {
            assert_eq!(Removal::of(&meta("1", odd)), None, "{odd}");
        }
    }
}
