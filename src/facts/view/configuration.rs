//! The rollout of the configuration that a cluster's servers read: the record on its StatefulSet, and what follows for
//! each pod.
//!
//! Owns: the [`RolloutRecord`], as it is written, and [`View::revision_for`]. Must not know: when the next step is due
//! (`plan/rollout.rs`). The record only names revisions: a revision counts only while its snapshots exist, with the
//! content whose digests their names contain.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Cluster, Id, RolloutRequest, View};
use crate::marks;
use crate::revision::{self, Contents, Digest, Keys, Revision, UnknownRevision};
use objects::{ConfigMap, Meta, Pod, ordinal};

/// The record of the revisions that members start with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RolloutRecord {
    /// The revision that all members ran well with.
    pub good: Revision,
    /// The revision that is rolled out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Candidate>,
    /// The revision that was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<GivenUpRevision>,
}

/// A revision that is rolled out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Candidate {
    pub revision: Revision,
    /// The canary: the only member that starts with the revision; once the canary is well, all members do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<i64>,
    /// Name and uid of a pod that was created without the guard, and that the guard re-creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healed: Option<(String, String)>,
}

impl Candidate {
    /// Returns a candidate without a canary: all members start with it.
    pub fn of(revision: &Revision) -> Self {
        Self { revision: revision.clone(), canary: None, healed: None }
    }
}

/// A revision that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GivenUpRevision {
    pub revision: Revision,
    /// The member that did not run with it, and what is new in it.
    pub why: String,
    /// The last request to retry it that the guard carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<String>,
}

impl RolloutRecord {
    /// Returns the record of a cluster whose members all run this revision.
    pub fn settled(good: Revision) -> Self {
        Self { good, next: None, stopped: None }
    }

    /// Returns the record as it is written.
    pub fn text(&self) -> String {
        // Serializing strings and numbers never fails.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the record; `None` if the guard cannot have written it.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the revision that a member of this ordinal starts with.
    pub fn revision_of(&self, ordinal: i64) -> &Revision {
        match &self.next {
            Some(next) if next.canary.is_none_or(|canary| canary == ordinal) => &next.revision,
            _ => &self.good,
        }
    }

    /// Returns whether this revision failed, and no retry was requested since.
    pub fn has_given_up(&self, revision: &Revision, meta: &Meta) -> bool {
        let retry = RolloutRequest::of(meta).and_then(RolloutRequest::retry);
        let given_up = |stopped: &GivenUpRevision| {
            stopped.revision == *revision && (retry.is_none() || stopped.retried == retry)
        };
        self.stopped.as_ref().is_some_and(given_up)
    }

    /// Returns every revision that the record names.
    pub fn revisions(&self) -> impl Iterator<Item = &Revision> {
        let next = self.next.iter().map(|next| &next.revision);
        next.chain(self.stopped.iter().map(|stopped| &stopped.revision)).chain([&self.good])
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        Self::read(&text).ok_or_else(|| de::Error::custom("not a revision"))
    }
}

/// Returns the snapshots that a StatefulSet's annotations name.
pub(super) fn snapshots_named(meta: &Meta) -> impl Iterator<Item = String> {
    let kept = match RolloutRequest::of(meta) {
        Some(RolloutRequest::Keep { revision, .. }) => Some(revision),
        _ => None,
    };
    let record = meta.mark(marks::CONFIGURATION).and_then(RolloutRecord::read);
    let recorded = record.into_iter().flat_map(|record| record.revisions().cloned().collect::<Vec<_>>());
    recorded.chain(kept).flat_map(|revision| revision.snapshots().collect::<Vec<_>>())
}

impl<'a> View<'a> {
    /// Returns the digests of a ConfigMap's content that revisions need, if its text is known.
    pub fn contents(&self, namespace: &str, config_map: &str) -> Option<&'a Contents> {
        self.world.facts.contents.get(&Id::new(namespace, config_map)).map(AsRef::as_ref)
    }

    /// Returns the snapshot with this content of a ConfigMap, if it exists, is the guard's, and holds the content that
    /// its name promises.
    pub fn snapshot_of(&self, namespace: &str, source: &str, digest: &Digest) -> Option<&'a ConfigMap> {
        let name = digest.snapshot_name(source);
        let is_intact = self.contents(namespace, &name)?.matches(digest);
        let is_ours = |map: &&ConfigMap| {
            map.metadata.mark(marks::KEEPS) == Some(source) && !map.metadata.is_terminating()
        };
        self.config_map(namespace, &name).filter(|map| is_intact && is_ours(map))
    }

    /// Returns whether all snapshots of this revision exist.
    pub fn is_kept(&self, namespace: &str, revision: &Revision) -> bool {
        revision.iter().all(|(source, digest)| self.snapshot_of(namespace, source, digest).is_some())
    }

    /// Returns whether a snapshot of this revision does not exist. A snapshot does exist if only its text is unknown, because the
    /// guard has no room for it or it did not arrive in time.
    pub fn lacks_snapshot(&self, namespace: &str, revision: &Revision) -> bool {
        let exists = |source: &str, digest: &Digest| {
            self.world.facts.without_room(&Id::new(namespace, &digest.snapshot_name(source))).is_some()
        };
        let is_missing = |(source, digest): (&str, &Digest)| {
            self.snapshot_of(namespace, source, digest).is_none() && !exists(source, digest)
        };
        revision.iter().any(is_missing)
    }

    /// Returns the revision that a pod of this cluster starts with. A pod of a new template takes the current content
    /// of the ConfigMaps, because a user who changed both wants both. So does a pod that a user deletes to restart it
    /// (OnDelete), and every pod while no member holds data. `None`: no revision is recorded or known, or a server with
    /// the current content would found a cluster.
    pub fn revision_for(&self, cluster: &'a Cluster, pod: &Pod) -> Option<&'a Revision> {
        let live = match &cluster.live {
            Ok(live) => Some(live).filter(|live| !live.is_empty()),
            Err(UnknownRevision::Founds(_)) => return None,
            Err(_) => None,
        };
        let chosen = chosen_for(cluster, live, pod)?;
        // Equal revisions may differ in spelling and in the cluster's address: then those of now are better.
        live.filter(|live| *live == chosen).or(Some(chosen))
    }

    /// Returns a ConfigMap of a cluster with the content that this revision names, if that is known.
    pub fn text_of(&self, cluster: &Cluster, revision: &Revision, source: &str) -> Option<&'a ConfigMap> {
        let (ns, digest) = (&*cluster.id.namespace, revision.get(source)?);
        let is_live = cluster.live.as_ref().is_ok_and(|live| live.get(source) == Some(digest));
        self.snapshot_of(ns, source, digest).or_else(|| self.config_map(ns, source).filter(|_| is_live))
    }

    /// Returns the options, and the other keys of ConfigMaps, in which two revisions of a cluster differ, as far as
    /// both are known.
    pub fn differences(&self, cluster: &Cluster, one: &Revision, other: &Revision) -> Vec<String> {
        let text = |revision: &Revision, source: &str| self.text_of(cluster, revision, source);
        let read = cluster.server().map(|(spec, server)| revision::sources(spec, server)).unwrap_or_default();
        let sources: BTreeSet<_> = one.iter().chain(other.iter()).map(|(source, _)| source).collect();
        let differs = |source: &&str| one.get(source) != other.get(source);
        let differences = sources.into_iter().filter(differs).flat_map(|source| {
            match (text(one, source), text(other, source)) {
                (Some(one), Some(other)) => {
                    revision::differences(one, other, read.get(source).unwrap_or(&Keys::ALL))
                }
                _ => vec![format!("ConfigMap {source}")],
            }
        });
        differences.collect()
    }
}

fn chosen_for<'a>(cluster: &'a Cluster, live: Option<&'a Revision>, pod: &Pod) -> Option<&'a Revision> {
    let Some(record) = &cluster.rollout else { return live };
    let (meta, workload) = (&pod.metadata, &cluster.workload);
    let current = &*workload.status.current_revision;
    let template = meta.labels.get(TEMPLATE_LABEL).map_or("", String::as_str);
    let of_a_new_template = !current.is_empty() && !template.is_empty() && template != current;
    // In these cases the guard restarts no members, so a user who restarts one wants the current content.
    let restarted_by_user = workload.spec.update_strategy.on_delete() || workload.replicas() == 1;
    let requested = match RolloutRequest::of(&workload.metadata) {
        Some(RolloutRequest::Paused) => true,
        Some(RolloutRequest::Keep { instead_of, .. }) => live.is_some_and(|live| *live == instead_of),
        Some(RolloutRequest::Invalid | RolloutRequest::Retry(_)) | None => false,
    };
    if (of_a_new_template || restarted_by_user) && !requested || !cluster.has_data() {
        let is_allowed = |live: &&Revision| !record.has_given_up(live, &workload.metadata);
        return live.filter(is_allowed).or(Some(&record.good));
    }
    let ordinal = ordinal(&meta.name, &cluster.id.name)?;
    Some(record.revision_of(ordinal))
}

/// The StatefulSet controller's label for the template that a pod was created from.
pub const TEMPLATE_LABEL: &str = "controller-revision-hash";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let revision = |letter: &str| Revision::read(&format!("conf={}", letter.repeat(32))).unwrap();
        let next = Candidate { canary: Some(2), ..Candidate::of(&revision("b")) };
        let stopped = GivenUpRevision {
            revision: revision("c"),
            why: "galera-2 keeps failing".to_owned(),
            retried: None,
        };
        let record = RolloutRecord { good: revision("a"), next: Some(next), stopped: Some(stopped) };
        assert_eq!(RolloutRecord::read(&record.text()), Some(record.clone()));
        assert_eq!(record.text().find("\"good\":\"conf=aaaaaaaaaaaaaaaa"), Some(1));
        assert_eq!((record.revision_of(1), record.revision_of(2)), (&revision("a"), &revision("b")));
        for invalid in [
            "",
            "{}",
            "null",
            r#"{"good":"x"}"#,
            r#"{"good":"c=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","next":{}}"#,
        ] {
            assert_eq!(RolloutRecord::read(invalid), None, "{invalid}");
        }
    }
}
