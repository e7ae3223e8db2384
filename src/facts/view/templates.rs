//! The template that each revision of a StatefulSet stands for. These revisions are those of the StatefulSet controller, not
//! those of a configuration.
//!
//! Pods carry the name of the revision that they were created from; a request shows a template without that name. A
//! StatefulSet whose controller has seen its last change shows both. Must not know: rules. Each process learns this
//! from its watch, so one that started in the middle of a rollout has only the newest.

use imbl::OrdMap;

use super::{Id, View};
use objects::{Fingerprint, Template, Workload};

/// The templates of each StatefulSet, by revision: the newest, and the one that its controller replaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Templates(OrdMap<Id, Vec<(String, Fingerprint)>>);

impl Templates {
    /// Records the revision and the template that a StatefulSet shows now.
    pub(super) fn record(&mut self, id: &Id, set: &Workload) {
        let status = &set.status;
        if status.update_revision.is_empty() || !set.is_observed() {
            return;
        }
        let mut known = self.0.get(id).cloned().unwrap_or_default();
        known.retain(|(revision, _)| {
            *revision == status.current_revision && *revision != status.update_revision
        });
        known.push((status.update_revision.clone(), set.spec.template.fingerprint));
        self.0.insert(id.clone(), known);
    }

    /// Drops the templates of a StatefulSet that is gone.
    pub(super) fn remove(&mut self, id: &Id) {
        self.0.remove(id);
    }
}

impl View<'_> {
    /// Returns the revision of this StatefulSet that stands for this template, if that is known.
    pub fn revision_of(&self, id: &Id, template: &Template) -> Option<&str> {
        let known = self.world.facts().templates.0.get(id)?;
        known.iter().find(|(_, it)| *it == template.fingerprint).map(|(revision, _)| &**revision)
    }

    /// Returns whether the template of this revision is known.
    pub fn knows_revision(&self, id: &Id, revision: &str) -> bool {
        let known = self.world.facts().templates.0.get(id);
        known.is_some_and(|known| known.iter().any(|(it, _)| it == revision))
    }
}
