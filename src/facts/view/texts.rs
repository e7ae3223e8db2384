//! Texts of ConfigMaps: which ones are needed.
//!
//! A text for which there is no room is recorded under its name ([`Facts::cannot_read`]), and the verdict on an object
//! that reads it reports that it is missing (G00). Must not know: how a text is requested, or how many are kept
//! ([`TextRoom`](super::TextRoom)).

use std::collections::BTreeSet;

use super::index::By;
use super::{Facts, Id};
use crate::revision::UnknownRevision;
use objects::{Kind, Unreadable};

/// The index entries of readers of ConfigMaps.
const READS: [By; 4] = [By::SetThatReads, By::SetWithRollout, By::DeploymentThatReads, By::PodThatReads];

impl Facts {
    /// Returns the ConfigMaps whose text this object needs: those that a template refers to, and snapshots that are in
    /// use or requested.
    pub fn config_maps_of(&self, kind: Kind, id: &Id) -> impl Iterator<Item = Id> + use<> {
        let (words, namespace) = (self.words(kind, id).into_iter(), id.namespace.clone());
        words.filter(|(by, _)| READS.contains(by)).map(move |(_, name)| Id::new(&namespace, &name))
    }

    /// Returns whether an object needs the text of this ConfigMap.
    pub fn reads(&self, config_map: &Id) -> bool {
        let Id { namespace, name } = config_map;
        READS.into_iter().any(|by| self.index.names(by, namespace, name).next().is_some())
    }

    /// Returns all ConfigMaps whose text is needed.
    pub fn config_maps_that_are_read(&self) -> BTreeSet<Id> {
        let sets = self.stateful_sets.keys().map(|id| (Kind::StatefulSet, id));
        let deployments = self.deployments.keys().map(|id| (Kind::Deployment, id));
        let pods = self.pods.keys().map(|id| (Kind::Pod, id));
        sets.chain(deployments).chain(pods).flat_map(|(kind, id)| self.config_maps_of(kind, id)).collect()
    }

    /// Records whether the text of this ConfigMap was requested and has not arrived.
    pub fn set_awaited(&mut self, config_map: &Id, is_awaited: bool) {
        if is_awaited {
            self.awaited.insert(config_map.clone());
        } else {
            self.awaited.remove(config_map);
        }
    }

    /// Returns why the text of this ConfigMap is unknown, although it exists.
    pub fn without_room(&self, config_map: &Id) -> Option<&Unreadable> {
        let problem = self.unreadable.get(&(Kind::ConfigMap, config_map.clone()))?;
        matches!(problem, Unreadable::NotExamined(_)).then_some(problem)
    }

    /// Returns whether this ConfigMap need not be looked up: its text is known, there is no room for it, or, unless
    /// `may_be_new`, it did not exist when the watches last reported.
    pub(super) fn needs_no_lookup(&self, config_map: &Id, may_be_new: bool) -> bool {
        let is_without_room = || self.without_room(config_map).is_some();
        self.config_maps.contains_key(config_map)
            || !self.awaited.contains(config_map)
                && self.reads(config_map)
                && (!may_be_new || is_without_room())
    }

    /// Returns the problem, or its cause, if a ConfigMap only seems to be missing because there is no room for its text.
    pub(super) fn with_cause(&self, namespace: &str, problem: UnknownRevision) -> UnknownRevision {
        match problem {
            UnknownRevision::NotThere(name) => match self.without_room(&Id::new(namespace, &name)) {
                Some(why) => UnknownRevision::NoRoom(name, why.to_string()),
                None => UnknownRevision::NotThere(name),
            },
            other => other,
        }
    }
}
