//! The view: immutable facts about every cluster, as far as the API server shows them.
//!
//! Owns: [`Facts`] (what the watches know), [`World`] (what follows from it, swapped as a whole) and [`View`] (what a
//! rule gets: the world, the time, the settings). Must not know: watches, requests, rules. Data: objects go into Facts,
//! and [`World::after`] builds the clusters that they changed. `gatera check` builds the same World from files.

mod beside;
mod bootstrap;
mod claim;
mod cluster;
mod commands;
mod concerns;
pub mod condition;
mod configuration;
mod environment;
mod facts;
mod id;
mod index;
mod kept;
mod left_claims;
mod orphans;
mod pod_fact;
mod reads;
mod reservations;
mod rollout_request;
mod room;
mod state;
mod templates;
mod text_room;
mod texts;
pub mod transfer;
mod world;
mod world_diff;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::galera::adopt;
use crate::marks;
use crate::marks::overrides::{self, InvalidException, Override};
use crate::mode::Mode;
use crate::settings::Settings;
use objects::{Claim, ConfigMap, Kind, Labels, Node, Object, Secret, Workload};

pub use beside::Bootstrap;
pub use bootstrap::{Removal, RemovalTarget};
pub use claim::MemberClaim;
pub use cluster::{Cluster, Member};
pub use commands::{out_of_service_command, way_out_of_silent_node};
pub use configuration::{Candidate, GivenUpRevision, RolloutRecord, TEMPLATE_LABEL};
pub use facts::Facts;
pub use id::Id;
pub use kept::{KeepsDeployment, read};
pub use orphans::POD_NAME_LABEL;
pub use pod_fact::{HANGS_AFTER, PodFact, Reads};
pub use reservations::{Reservation, Reservations};
pub use rollout_request::RolloutRequest;
pub use state::State;
pub use text_room::TextRoom;
pub use world::{World, is_cluster, is_cluster_by_template};
pub use world_diff::{Changed, Places, WorldDiff};

/// Namespaces that no rule ever touches: the control plane must be able to repair itself.
pub const NEVER_GUARDED: [&str; 2] = ["kube-system", "kube-node-lease"];
/// The label of a namespace in which objects without labels of their own are guarded, too. Its value is the mode.
pub const MODE_LABEL: &str = "gatera.dev/mode";

/// The time for which a failed creation counts: longer than a StatefulSet controller waits before it tries again.
const RECENT_FAILURE: SignedDuration = SignedDuration::from_mins(20);

/// How current the facts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// The first lists are not complete.
    #[default]
    Loading,
    /// Every watch reported a moment ago.
    Current,
    /// A watch has been silent for this long: later changes are unknown.
    Stale(SignedDuration),
    /// Every watch reported a moment ago, but the guard has no room for some objects of this namespace.
    Partial,
}

impl Freshness {
    /// The age up to which facts are current: longer than any of our watches is silent while the API server can be
    /// reached.
    const CURRENT_AGE: SignedDuration = SignedDuration::from_secs(15);

    /// Returns the freshness of facts by the age of their most silent watch; `None`: one of them has no complete list yet.
    pub fn at_age(age: Option<SignedDuration>) -> Self {
        match age {
            None => Self::Loading,
            Some(age) if age <= Self::CURRENT_AGE => Self::Current,
            Some(age) => Self::Stale(age),
        }
    }
}

/// Returns the objects of a namespace with their ids, without a scan of other namespaces.
pub fn entries_in<'a, T>(
    known: &'a facts::Map<T>,
    namespace: &str,
) -> impl Iterator<Item = (&'a Id, &'a T)> + use<'a, T> {
    let (from, namespace) = (Id::new(namespace, ""), namespace.to_owned());
    known.range(from..).take_while(move |(id, _)| id.namespace == namespace).map(|(id, it)| (id, &**it))
}

/// Returns the objects of a namespace.
fn within<'a, T>(known: &'a facts::Map<T>, namespace: &str) -> impl Iterator<Item = &'a T> + use<'a, T> {
    entries_in(known, namespace).map(|(_, it)| it)
}

/// The input of a rule.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub world: &'a World,
    /// The time of the evaluation.
    pub now: Timestamp,
    pub settings: &'a Settings,
    /// The ids of all rules, while rules are applied: an override may name one that does not exist.
    pub known_rules: &'a [&'static str],
    /// How current the world is now: it ages while no watch reports.
    pub freshness: Freshness,
    /// Reservations: members whose removal was allowed moments ago.
    pub reservations: &'a Reservations,
    /// Snapshots that were created moments ago, by name.
    pub new_snapshots: &'a [String],
    /// ConfigMaps that were requested for a new template: the world holds only ConfigMaps that a known workload reads.
    pub fetched: &'a [ConfigMap],
    /// The ConfigMap that the request writes, in the new version.
    pub written: Option<&'a ConfigMap>,
    /// Whether ConfigMaps of a new template could not be requested, because others were being read.
    pub busy: bool,
    /// Secrets before and after a change, from files: the guard itself reads none.
    pub secrets: [&'a [Secret]; 2],
    /// Whether the world was built from files, so that the state of members is assumed.
    pub from_files: bool,
}

static NO_RESERVATIONS: Reservations = Reservations::none();

impl<'a> View<'a> {
    /// Returns a view of a world, with the freshness that it was built with and without reservations.
    pub fn new(world: &'a World, now: Timestamp, settings: &'a Settings) -> Self {
        Self {
            world,
            now,
            settings,
            known_rules: &[],
            freshness: world.freshness,
            reservations: &NO_RESERVATIONS,
            new_snapshots: &[],
            fetched: &[],
            written: None,
            busy: false,
            secrets: [&[]; 2],
            from_files: false,
        }
    }

    /// Returns the view as it is once this ConfigMap has been written.
    #[must_use]
    pub fn with_config_map(self, written: &'a ConfigMap) -> Self {
        Self { written: Some(written), ..self }
    }

    /// Returns the view of one namespace: partial, if there is no room for some of its objects.
    #[must_use]
    pub fn of_namespace(self, namespace: &str) -> Self {
        let partial = self.freshness == Freshness::Current && self.world.facts.lacks_objects_of(namespace);
        if partial { Self { freshness: Freshness::Partial, ..self } } else { self }
    }

    /// Returns the adoption rules in force when this World was built, even if the settings have changed since.
    pub fn adoption(&self) -> &'a adopt::Adoption {
        self.world.facts.adoption()
    }

    /// Returns the cluster of this pod, whether the pod is a member or is leaving.
    pub fn cluster_of_pod(&self, namespace: &str, pod: &str) -> Option<&'a Cluster> {
        let (kind, owner) = self.world.facts.pods.get(&Id::new(namespace, pod))?.owner.as_ref()?;
        (kind == "StatefulSet").then(|| self.cluster(namespace, owner)).flatten()
    }

    /// Returns the clusters of a namespace.
    pub fn clusters_in(&self, namespace: &str) -> impl Iterator<Item = &'a Cluster> + use<'a> {
        within(&self.world.clusters, namespace)
    }

    /// Returns the clusters of all namespaces.
    pub fn clusters(&self) -> impl Iterator<Item = &'a Cluster> {
        self.world.clusters()
    }

    /// Returns what is known of a node; `None`: there is no such node.
    pub fn node(&self, name: &str) -> Option<&'a Node> {
        self.world.facts.nodes.get(name).map(Arc::as_ref)
    }

    /// Returns whether nodes are known, and this is not one of them. Without permission to list nodes, none counts as
    /// gone.
    pub fn node_is_gone(&self, name: &str) -> bool {
        let nodes = &self.world.facts.nodes;
        !nodes.is_empty() && !nodes.contains_key(name)
    }

    /// Returns the custom resources of this kind in a namespace, as their pack reads them, except those that are too large.
    pub fn resources(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = &'a Object> + use<'a> {
        let all = self.world.facts.kept.of(kind).into_iter();
        let namespace = namespace.to_owned();
        all.flat_map(move |map| within(map, &namespace))
    }

    /// Returns the custom resources of this kind in every namespace, like [`Self::resources`].
    pub fn resources_anywhere(&self, kind: Kind) -> impl Iterator<Item = &'a Object> + use<'a> {
        self.world.facts.kept.of(kind).into_iter().flat_map(imbl::OrdMap::values).map(|it| &**it)
    }

    /// Returns the names of the custom resources of this kind in a namespace, including those of which only the name is
    /// known.
    pub fn resource_names(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let kept = self.resources(kind, namespace).map(|it| &*it.meta().name);
        let unreadable = self.world.facts.unreadable.range((kind, Id::new(namespace, ""))..);
        let namespace = namespace.to_owned();
        let here = move |(of, id): &&(Kind, Id)| *of == kind && id.namespace == namespace;
        kept.chain(unreadable.map(|(of, _)| of).take_while(here).map(|(_, id)| &*id.name))
    }

    /// Counts the custom resources of this kind in every namespace.
    pub fn resource_count(&self, kind: Kind) -> usize {
        let facts = self.world.facts();
        let kept = facts.kept.of(kind).map_or(0, imbl::OrdMap::len);
        kept + facts.unreadable.keys().filter(|(of, _)| *of == kind).count()
    }

    /// Returns whether it is known now that no namespace has an object of this kind.
    pub fn has_none(&self, kind: Kind) -> bool {
        self.freshness == Freshness::Current && !self.is_unlisted(kind) && self.resource_count(kind) == 0
    }

    /// Returns whether the API server offers this kind, but does not list it.
    pub fn is_unlisted(&self, kind: Kind) -> bool {
        self.world.facts.kept.unlisted().contains(&kind)
    }

    /// Returns the cluster of this StatefulSet.
    pub fn cluster(&self, namespace: &str, name: &str) -> Option<&'a Cluster> {
        self.world.cluster(namespace, name)
    }

    /// Returns the cluster with this name in the labels of its pods.
    pub fn cluster_called(&self, namespace: &str, instance: &str) -> Option<&'a Cluster> {
        self.world.cluster_of_instance(namespace, instance)
    }

    /// Returns the cluster that these pod labels belong to.
    pub fn cluster_of(&self, namespace: &str, labels: &Labels) -> Option<&'a Cluster> {
        self.world.cluster_of_instance(namespace, adopt::instance(labels)?)
    }

    /// Returns all claims of a namespace.
    pub fn claims_in(&self, namespace: &str) -> impl Iterator<Item = &'a Claim> + use<'a> {
        within(&self.world.facts.claims, namespace)
    }

    /// Returns the claims that exist for a StatefulSet, whether or not the StatefulSet does.
    pub fn claims_of(&self, namespace: &str, workload: &Workload) -> Vec<MemberClaim> {
        claim::of(&Id::new(namespace, &workload.metadata.name), workload, &self.world.facts)
    }

    /// Returns why missing members of this cluster could not be created, if that failed recently.
    pub fn not_created(&self, cluster: &Cluster) -> Option<&'a str> {
        let failure = self.world.facts.not_created.get(&cluster.id)?;
        let is_recent = self.now.duration_since(failure.at) <= RECENT_FAILURE;
        is_recent.then_some(&*failure.why)
    }

    /// Returns the mode of a rule in a namespace: the namespace's label can only make it milder.
    pub fn mode(&self, rule: &str, namespace: &str) -> Mode {
        self.modes(namespace)(rule)
    }

    /// Returns the function that returns the mode of each rule in a namespace.
    pub fn modes(&self, namespace: &str) -> impl Fn(&str) -> Mode + use<'a> {
        let (settings, mildest) = (self.settings, self.namespace_mode(namespace).unwrap_or(Mode::Enforce));
        move |rule| settings.mode(rule).min(mildest)
    }

    /// Returns the mode in the namespace's label, if it is a valid one.
    pub fn namespace_mode(&self, namespace: &str) -> Option<Mode> {
        let label = self.world.facts.namespaces.get(namespace).and_then(|meta| meta.labels.get(MODE_LABEL));
        label.and_then(|text| Mode::read(text))
    }

    /// Returns the mode of the namespace, if the guard changes nothing in it.
    pub fn read_only_mode(&self, namespace: &str) -> Option<Mode> {
        self.namespace_mode(namespace).filter(|mode| matches!(mode, Mode::Audit | Mode::Off))
    }

    /// Returns whether the namespace is in mode off, in which the guard leaves it alone.
    pub fn is_mode_off(&self, namespace: &str) -> bool {
        self.namespace_mode(namespace) == Some(Mode::Off)
    }

    /// Returns StatefulSets that were guarded and that no selector adopts now, with their uids, except in namespaces in
    /// mode off.
    pub fn no_longer_adopted(&self) -> impl Iterator<Item = (&'a Id, &'a str)> {
        let all = self.world.facts.no_longer_adopted.iter();
        all.filter(|(id, _)| !self.is_mode_off(&id.namespace)).map(|(id, uid)| (id, &**uid))
    }

    /// Returns whether the namespace is known and lacks the mode label.
    pub fn namespace_is_unlabelled(&self, namespace: &str) -> bool {
        self.world.facts.namespaces.get(namespace).is_some_and(|meta| !meta.labels.contains_key(MODE_LABEL))
    }

    /// Returns the break-glass exception of a namespace that is in effect now.
    pub fn active_break_glass(&self, namespace: &str) -> Option<Override> {
        let meta = self.world.facts.namespaces.get(namespace)?;
        Override::break_glass(meta.mark(marks::BREAK_GLASS)?, self.now).ok()
    }

    /// Returns why the break-glass annotation of this namespace suspends nothing now; `None`: there is none, or it is
    /// in effect.
    pub fn invalid_break_glass(&self, namespace: &str) -> Option<InvalidException> {
        let meta = self.world.facts.namespaces.get(namespace)?;
        Override::break_glass(meta.mark(marks::BREAK_GLASS)?, self.now).err()
    }

    /// Returns the value of the namespace's mode label, if it is not a mode.
    pub fn invalid_mode(&self, namespace: &str) -> Option<&'a str> {
        let label = self.world.facts.namespaces.get(namespace)?.labels.get(MODE_LABEL)?;
        Mode::read(label).is_none().then_some(&**label)
    }

    /// Returns the namespaces with a break-glass exception that is in effect now.
    pub fn break_glasses(&self) -> impl Iterator<Item = (&'a str, Override)> {
        let names = self.world.facts.namespaces.keys();
        names.filter_map(|name| Some((&**name, self.active_break_glass(name)?)))
    }

    /// Returns whether the namespace is being deleted: a refusal would save nothing in it.
    pub fn namespace_is_terminating(&self, namespace: &str) -> bool {
        self.world.facts.namespaces.get(namespace).is_some_and(|meta| meta.is_terminating())
    }

    /// Returns the end that advice suggests for an override: early enough to be allowed, and late enough for one step.
    pub fn example_override_end(&self) -> Timestamp {
        overrides::example_end(self.now)
    }

    /// Returns how current a live fact is, as in "seen now" or "seen 42s ago".
    pub fn seen(&self) -> String {
        match self.freshness {
            _ if self.from_files => "assumed here".to_owned(),
            Freshness::Stale(age) => format!("seen {}s ago", age.as_secs()),
            Freshness::Loading => "not seen yet".to_owned(),
            Freshness::Current => "seen now".to_owned(),
            Freshness::Partial => "part of its namespace did not fit into gatera's memory".to_owned(),
        }
    }

    /// Returns the state of a cluster, as far as it can be known now.
    pub fn state(&self, cluster: &Cluster) -> State {
        let view = self.of_namespace(&cluster.id.namespace);
        if view.freshness == Freshness::Current { cluster.state() } else { State::Unknown }
    }

    /// Returns "3 of 3 members Synced, seen now", for messages that already name the problem.
    pub fn count(&self, cluster: &Cluster) -> String {
        format!("{}, {}", cluster.count(), self.seen())
    }

    /// Returns "2 of 3 members Synced, galera-2 is not Ready yet, seen now".
    pub fn describe(&self, cluster: &Cluster) -> String {
        format!("{}, {}", cluster.describe(), self.seen())
    }
}
