//! The leader: one replica plans from its own view, with the real planner, and carries out the steps that are due.
//!
//! Owns: the effect of each step on the API server. Must not know: why a step is right, or when it is due (the real
//! `plan::StepScheduler` decides). A new step needs an arm in [`Sim::execute`] and one in [`description`].

use std::collections::BTreeSet;
use std::time::Duration;

use engine::inject;
use engine::snapshot::{Snapshot, snapshot};
use facts::galera::identity::{Identity, IdentityReport};
use facts::marks::{self, PREFIX};
use facts::view::{Id, RemovalTarget, View};
use leader::plan::identity::{self, Conclusion};
use leader::plan::rollout::Configure;
use leader::plan::{
    self, Announcement, Finish, LeaderStep, LookedUp, Mark, PendingDeletion, PlannedStep, Warrant,
};
use objects::{ConfigMap, ConfigMapReader, Kind, Object};
use serde_json::{Value, json};

use super::clock::{SECOND, timestamp};
use super::galera::Galera;
use super::stage::{Sim, SimEvent};
use super::store::{is_terminating, text, uid};

impl Sim {
    /// Runs one pass of the leader.
    pub fn lead(&mut self) {
        let (index, now) = (self.guard.leader, self.agenda.now);
        if !self.guard.replicas[index].up {
            return;
        }
        self.guard.receive_events(index, &self.store, now);
        let time = Duration::from_millis(now);
        let steps = self.guard.with_view(index, now, |view| self.planner.next(view, time));
        // After a destructive step of a cluster, its other steps must be planned again.
        let mut changed = BTreeSet::new();
        for step in self.scheduler.due(&steps, time).into_iter().cloned().collect::<Vec<_>>() {
            if changed.contains(&step.id) {
                continue;
            }
            if step.destroys() {
                changed.insert(step.id.clone());
                // A destructive step must still follow from the current view.
                if !self.guard.with_view(index, now, |view| plan::still_due(&step, view)) {
                    continue;
                }
            }
            let outcome = self.execute(&step);
            let (name, short) = (format!("guard-{index} leads"), description(&step.step));
            self.story.record(now, &name, || match &outcome {
                Ok(()) => format!("does {short}"),
                Err(why) => format!("tries {short}: {why}"),
            });
            self.scheduler.record_done(&step, time);
            self.laws.step_done(now, &short);
        }
        let again =
            u64::try_from(self.scheduler.time_until_due(&steps, time).as_millis()).unwrap().max(SECOND / 10);
        if self.next_look <= now || now + again < self.next_look {
            self.next_look = now + again;
            self.agenda.put(again, SimEvent::Leader);
        }
    }

    /// Carries out a step at the API server; the error says why it did nothing.
    fn execute(&mut self, planned: &PlannedStep) -> Result<(), String> {
        let PlannedStep { id, uid: set_uid, step } = planned;
        match step {
            LeaderStep::Mark(it) => self.write_mark(planned, it),
            LeaderStep::UpdateOptionFile { pod, uid, text } => {
                self.annotate(Kind::Pod, &pod.name, uid, "", marks::MY_CNF, Some(text))
            }
            LeaderStep::RecordIdentity => self.record_identity(id, set_uid),
            LeaderStep::AnnotateIdentity { pod, uid, value } => {
                self.annotate(Kind::Pod, &pod.name, uid, "", marks::IDENTITY, Some(value))
            }
            LeaderStep::Configure(it) => self.configure_members(planned, it),
            LeaderStep::Evict { pod, uid: wanted, .. } => {
                let there = self.store.get(Kind::Pod, pod).is_some_and(|it| uid(it) == wanted);
                if !there {
                    return Err("the pod is gone, or another pod has its name".to_owned());
                }
                self.evict(super::guard::OWN_USER, pod).map_err(|refusal| refusal.message)
            }
            LeaderStep::MarkForRemoval(it) => self.set_removing(it, Some(set_uid)),
            LeaderStep::Delete(it) => self.delete_pending(it),
            LeaderStep::CorrectRecord { mark, events } => {
                for reported in events {
                    self.publish(reported);
                }
                let Mark { version, bootstrap } = mark;
                match bootstrap {
                    Some(_) => self.write_mark(planned, mark),
                    None => {
                        self.annotate(Kind::StatefulSet, &id.name, set_uid, version, marks::BOOTSTRAP, None)
                    }
                }
            }
            LeaderStep::Finish(it) => self.finish(planned, it),
            LeaderStep::Announce(reported) => {
                self.publish(reported);
                Ok(())
            }
        }
    }

    /// Writes the snapshots that a recorded configuration names, and then the record.
    fn configure_members(&mut self, planned: &PlannedStep, it: &Configure) -> Result<(), String> {
        let (index, now, PlannedStep { id, uid, .. }) = (self.guard.leader, self.agenda.now, planned);
        let next = it.record.next.iter().map(|next| &next.revision);
        for revision in next.chain([&it.record.good]) {
            for (source, digest) in revision.iter() {
                let object = self.guard.with_view(index, now, |view| {
                    let cluster = view.cluster(&id.namespace, &id.name)?;
                    Some(snapshot(cluster, view, source, digest))
                });
                match object {
                    Some(Snapshot::ToCreate(object)) => self.create_snapshot(object),
                    Some(Snapshot::Lost) if *revision != it.record.good => {
                        return Err("the configuration has changed".to_owned());
                    }
                    _ => {}
                }
            }
        }
        for reported in &it.events {
            self.publish(reported);
        }
        let record = it.record.text();
        self.annotate(Kind::StatefulSet, &id.name, uid, "", marks::CONFIGURATION, Some(&record))
    }

    /// Creates a snapshot unless it exists.
    pub fn create_snapshot(&mut self, object: Value) {
        if self.store.get(Kind::ConfigMap, text(&object, "/metadata/name")).is_none() {
            self.store.put(self.agenda.now, Kind::ConfigMap, object);
        }
    }

    fn publish(&mut self, reported: &Announcement) {
        self.story.record(self.agenda.now, "event", || format!("{}: {}", reported.reason, reported.note));
    }

    /// Writes one annotation of the object with this uid, in this version; an empty version matches any.
    fn annotate(
        &mut self,
        kind: Kind,
        name: &str,
        wanted: &str,
        version: &str,
        mark: &str,
        value: Option<&str>,
    ) -> Result<(), String> {
        let object = self.store.get(kind, name).filter(|it| uid(it) == wanted).ok_or("the object is gone")?;
        if !version.is_empty() && text(object, "/metadata/resourceVersion") != version {
            return Err("conflict".to_owned());
        }
        self.store.edit(self.agenda.now, kind, name, |it| {
            let key = format!("{PREFIX}{mark}");
            match (value, it["metadata"]["annotations"].as_object_mut()) {
                (Some(value), _) => it["metadata"]["annotations"][key] = json!(value),
                (None, Some(annotations)) => drop(annotations.remove(&key)),
                (None, None) => {}
            }
        });
        Ok(())
    }

    fn write_mark(&mut self, planned: &PlannedStep, it: &Mark) -> Result<(), String> {
        let (PlannedStep { id, uid, .. }, Mark { version, bootstrap }) = (planned, it);
        self.annotate(Kind::StatefulSet, &id.name, uid, version, marks::DATA, Some("present"))?;
        bootstrap.iter().try_for_each(|note| {
            self.annotate(Kind::StatefulSet, &id.name, uid, "", marks::BOOTSTRAP, Some(note))
        })
    }

    /// Sets or removes the mark of an object that is going to be deleted.
    fn set_removing(&mut self, it: &PendingDeletion, value: Option<&str>) -> Result<(), String> {
        let RemovalTarget { kind, name, uid } = &it.target;
        self.annotate(*kind, name, uid, &it.version, marks::REMOVING, value)
    }

    fn delete_pending(&mut self, it: &PendingDeletion) -> Result<(), String> {
        let RemovalTarget { kind, name, uid: wanted } = &it.target;
        let Some(object) = self.store.get(*kind, name) else { return Ok(()) };
        if uid(object) != wanted || text(object, "/metadata/resourceVersion") != it.version {
            return Err("conflict".to_owned());
        }
        self.store.remove(self.agenda.now, *kind, name);
        Ok(())
    }

    /// Deletes what remains of the bootstrap node, if each object may be deleted, and records the end.
    fn finish(&mut self, planned: &PlannedStep, it: &Finish) -> Result<(), String> {
        let (index, now, id) = (self.guard.leader, self.agenda.now, &planned.id);
        let mut left = it.left.clone();
        for target in &it.remaining {
            let found = self.look_up(target);
            let warrant = self.guard.with_view(index, now, |view| {
                Some(plan::warrant(view.cluster(&id.namespace, &id.name)?, view, it, target, &found))
            });
            match warrant {
                None | Some(Warrant::Gone) => {}
                Some(Warrant::Given(version)) => {
                    self.delete_pending(&PendingDeletion { target: target.clone(), version })?;
                }
                Some(Warrant::Waits(what)) => return Err(what),
                Some(Warrant::Stays(why)) => left.push((target.clone(), why)),
            }
        }
        for reported in it.events(id, &left) {
            self.publish(&reported);
        }
        self.write_mark(planned, &Mark::of_finished(&planned.uid))
    }

    /// Returns the ConfigMap as it is now, and everything that may read it.
    fn look_up(&self, target: &RemovalTarget) -> LookedUp {
        let map = self.store.get(target.kind, &target.name).filter(|_| target.kind == Kind::ConfigMap);
        let map: Option<ConfigMap> =
            map.and_then(|it| match Object::read(Kind::ConfigMap, &it.to_string()) {
                Ok(Object::ConfigMap(map)) => Some(map),
                _ => None,
            });
        let of = |kind: Kind| -> Vec<&Value> { self.store.all(kind).map(|(_, it)| &**it).collect() };
        let kinds = [Kind::Pod, Kind::StatefulSet, Kind::Deployment].into_iter();
        let all = kinds.flat_map(|kind| of(kind).into_iter().map(move |it| (kind.name(), it.to_string())));
        let readers = all.map(|(kind, it)| ConfigMapReader::read(kind, &it).unwrap()).collect();
        LookedUp { map, readers: Ok(readers) }
    }

    /// Reads the cluster's id that Ready servers report through their probes, and records the conclusion.
    fn record_identity(&mut self, id: &Id, wanted: &str) -> Result<(), String> {
        let (index, now) = (self.guard.leader, self.agenda.now);
        let reported: identity::PodReports = self
            .containers
            .iter()
            .filter(|(_, container)| container.ready)
            .filter_map(|(pod, container)| {
                let component = self.galera.components.get(&self.galera.servers.get(pod)?.component?)?;
                let is = Identity::read(&Galera::id(component.history))?;
                Some((container.uid.clone(), (timestamp(now), IdentityReport::Is(is))))
            })
            .collect();
        let look = |view: &View<'_>| {
            let cluster =
                view.cluster(&id.namespace, &id.name).filter(|it| it.workload.metadata.uid == wanted)?;
            let found = identity::conclusion(cluster, view, &reported)?;
            let word = inject::identity::reported_value(cluster, view, found.identity.as_ref()).to_owned();
            Some((found, word, cluster.workload.metadata.resource_version.clone()))
        };
        let found = self.guard.with_view(index, now, look);
        let Some((Conclusion { identity, is_new, unannotated, events }, word, version)) = found else {
            return Err(
                "its members have not reported the id of their cluster, or their reports differ".to_owned()
            );
        };
        if is_new {
            let mark = inject::identity::mark_value(identity.as_ref()).to_owned();
            self.annotate(Kind::StatefulSet, &id.name, wanted, &version, marks::IDENTITY, Some(&mark))?;
        }
        for reported in &events {
            self.publish(reported);
        }
        for (pod, uid) in unannotated
            .iter()
            .filter(|(pod, _)| self.store.get(Kind::Pod, pod).is_some_and(|it| !is_terminating(it)))
            .cloned()
            .collect::<Vec<_>>()
        {
            self.annotate(Kind::Pod, &pod, &uid, "", marks::IDENTITY, Some(&word))?;
        }
        Ok(())
    }
}

/// How the description of an announcement begins; the laws look for it.
pub const ANNOUNCE: &str = "Announce ";
/// The description of the step that records an identity; the laws look for it.
pub const RECORD_IDENTITY: &str = "RecordIdentity";

/// Describes a step in a few words, for the story and the laws.
fn description(step: &LeaderStep) -> String {
    match step {
        LeaderStep::Mark(it) => format!("Mark {}", it.bootstrap.as_deref().unwrap_or("data")),
        LeaderStep::UpdateOptionFile { pod, .. } => format!("UpdateOptionFile of {}", pod.name),
        LeaderStep::RecordIdentity => RECORD_IDENTITY.to_owned(),
        LeaderStep::AnnotateIdentity { pod, value, .. } => {
            format!("AnnotateIdentity of {}: {value}", pod.name)
        }
        LeaderStep::Configure(it) => format!("Configure {}", it.record.text()),
        LeaderStep::Evict { pod, .. } => format!("Evict {pod}"),
        LeaderStep::MarkForRemoval(it) => format!("MarkForRemoval {}", it.target),
        LeaderStep::Delete(it) => format!("Delete {}", it.target),
        LeaderStep::CorrectRecord { .. } => "CorrectRecord".to_owned(),
        LeaderStep::Finish(_) => "Finish".to_owned(),
        LeaderStep::Announce(reported) => format!("{ANNOUNCE}{}", reported.reason),
    }
}
