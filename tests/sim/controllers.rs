//! The control plane's controllers: StatefulSet, Deployment, scheduler, garbage collector, budgets.
//!
//! Must not know: the guard (controllers send requests to the API server like every other client), Galera. One pass creates or
//! deletes at most one pod of the StatefulSet, as the real controller does with `OrderedReady`; each change wakes the controllers
//! again.

use std::collections::BTreeMap;
use std::rc::Rc;

use objects::Kind;
use serde_json::{Value, json};

use super::api::Permission;
use super::clock::{Millis, SECOND};
use super::manifests::{BOOTSTRAP, CLUSTER, NODES, node_name};
use super::stage::{Sim, SimEvent};
use super::store::{is_terminating, ordinal, owner, text, uid};

const STATEFUL_SETS: &str = "system:serviceaccount:kube-system:statefulset-controller";
const REPLICA_SETS: &str = "system:serviceaccount:kube-system:replicaset-controller";

#[derive(Default)]
pub struct Controllers {
    /// Every template that ever existed, by its revision.
    templates: BTreeMap<String, Value>,
    /// The revisions, oldest first.
    pub history: Vec<String>,
    /// The number of bootstrap pods that were created.
    bootstrap_pods: u64,
    /// For each controller whose request was refused: the pause before its next try, and the time of that try.
    retries: BTreeMap<&'static str, (Millis, Millis)>,
}

/// Returns the name of a template's ControllerRevision, which is derived from its content.
fn revision_of(template: &Value) -> String {
    let hash =
        serde_json::to_string(template).unwrap().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{CLUSTER}-{hash:016x}")
}

fn revision(pod: &Value) -> &str {
    text(pod, "/metadata/labels/controller-revision-hash")
}

fn count(pods: &[Rc<Value>], of: impl Fn(&Value) -> bool) -> i64 {
    i64::try_from(pods.iter().filter(|it| of(it)).count()).unwrap()
}

pub fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    !is_terminating(pod) && conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

impl Sim {
    /// Runs one pass of all controllers.
    pub fn control(&mut self) {
        self.collect_garbage();
        self.delete_claims();
        self.control_stateful_set();
        self.control_deployment();
        self.schedule();
    }

    /// Deletes the pods whose owner is gone.
    fn collect_garbage(&mut self) {
        let gone =
            |(kind, uid): (Kind, &str)| self.store.all(kind).all(|(_, it)| super::store::uid(it) != uid);
        let orphaned = self.store.all(Kind::Pod).filter(|(_, pod)| {
            !is_terminating(pod)
                && match owner(pod) {
                    Some(("StatefulSet", _, uid)) => gone((Kind::StatefulSet, uid)),
                    Some(("ReplicaSet", _, uid)) => gone((Kind::Deployment, uid.trim_end_matches("-rs"))),
                    _ => false,
                }
        });
        for pod in orphaned.map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            self.mark_terminating(Kind::Pod, &pod, None, Permission::ByGuard);
        }
    }

    /// Removes deleted claims, with their data, once no pod uses them.
    fn delete_claims(&mut self) {
        let used = |claim: &str| {
            self.store.all(Kind::Pod).any(|(pod, _)| claim.ends_with(&format!("-{pod}")))
                || self.galera.servers.values().any(|server| server.disk == claim)
        };
        let claims = self.store.all(Kind::Claim).filter(|(name, it)| is_terminating(it) && !used(name));
        for claim in claims.map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            self.store.remove(self.agenda.now, Kind::Claim, &claim);
            self.galera.disks.remove(&claim);
            self.story
                .record(self.agenda.now, "controllers", || format!("{claim} is removed, with its data"));
        }
    }

    fn control_stateful_set(&mut self) {
        let Some(set) = self.store.get(Kind::StatefulSet, CLUSTER).cloned() else { return };
        let now = self.agenda.now;
        let newest = revision_of(&set["spec"]["template"]);
        self.controllers.templates.insert(newest.clone(), set["spec"]["template"].clone());
        if self.controllers.history.last() != Some(&newest) {
            self.controllers.history.push(newest.clone());
        }
        let current = match text(&set, "/status/currentRevision") {
            "" => newest.clone(),
            known => known.to_owned(),
        };
        self.adopt_orphans(&set);
        self.scale_or_roll(&set, &current, &newest);
        let own = self.members();
        let updated = own.iter().filter(|pod| revision(pod) == newest && !is_terminating(pod)).count();
        let all_ready = set["spec"]["replicas"] == own.len() && own.iter().all(|it| ready(it));
        let current = if updated == own.len() && all_ready { newest.clone() } else { current };
        let generation = set["metadata"]["generation"].clone();
        self.store.edit(now, Kind::StatefulSet, CLUSTER, |it| {
            it["status"] = json!({
                "observedGeneration": generation,
                "replicas": own.len(),
                "readyReplicas": own.iter().filter(|it| ready(it)).count(),
                "updatedReplicas": updated,
                "currentReplicas": count(&own, |pod| revision(pod) == current && !is_terminating(pod)),
                "currentRevision": current,
                "updateRevision": newest,
            });
        });
    }

    /// Returns the template before the newest one.
    pub fn previous_template(&self) -> Option<Value> {
        let history = &self.controllers.history;
        let before = history.len().checked_sub(2)?;
        self.controllers.templates.get(&history[before]).cloned()
    }

    /// Lists the pods of the StatefulSet by ordinal.
    pub fn members(&self) -> Vec<Rc<Value>> {
        let of_set = |pod: &&Rc<Value>| {
            owner(pod).is_some_and(|(kind, name, _)| (kind, name) == ("StatefulSet", CLUSTER))
        };
        let mut own: Vec<_> = self.store.all(Kind::Pod).map(|(_, it)| it).filter(of_set).cloned().collect();
        own.sort_by_key(|pod| ordinal(text(pod, "/metadata/name")));
        own
    }

    /// Creates a missing member, or deletes one that is not wanted or has an old template.
    fn scale_or_roll(&mut self, set: &Value, current: &str, newest: &str) {
        let replicas = set["spec"]["replicas"].as_i64().unwrap_or(1);
        let own = self.members();
        let named = |wanted: i64| own.iter().find(|pod| ordinal(text(pod, "/metadata/name")) == wanted);
        let details = &set["spec"]["updateStrategy"]["rollingUpdate"];
        let not_reached = if details.is_null() { count(&own, |pod| revision(pod) == current) } else { 0 };
        for wanted in 0..replicas {
            match named(wanted) {
                None => {
                    // During a rollout, members that it has not reached are recreated from the old template, unless
                    // `rollingUpdate` is set.
                    let revision = if wanted < not_reached { current } else { newest };
                    return self.create_member(set, wanted, revision);
                }
                Some(pod) if !ready(pod) => return,
                Some(_) => {}
            }
        }
        let beyond = own.iter().rev().find(|pod| ordinal(text(pod, "/metadata/name")) >= replicas);
        if let Some(pod) = beyond {
            if !is_terminating(pod) {
                self.delete_member(pod, None);
            }
            return;
        }
        if let Some(pod) = own.iter().rev().find(|pod| revision(pod) != newest) {
            self.delete_member(pod, Some(Permission::TemplateRollout));
        }
    }

    fn delete_member(&mut self, pod: &Value, rolled: Option<Permission>) {
        let why = if rolled.is_some() { "its template is old" } else { "its ordinal is beyond the replicas" };
        let name = text(pod, "/metadata/name").to_owned();
        self.story.record(self.agenda.now, "statefulset", || format!("deletes {name}: {why}"));
        if let Some(permission) = rolled {
            self.laws.removal_permitted(&name, uid(pod), permission);
        }
        self.delete(STATEFUL_SETS, Kind::Pod, &name, json!({}))
            .expect("the pod exists, and the controller is exempt");
    }

    fn create_member(&mut self, set: &Value, ordinal: i64, revision: &str) {
        let name = format!("{CLUSTER}-{ordinal}");
        let claim = format!("datadir-{name}");
        match self.store.get(Kind::Claim, &claim) {
            _ if self.is_backing_off(STATEFUL_SETS) => return,
            Some(claim) if is_terminating(claim) => return,
            Some(_) => {}
            None => {
                let labels = &set["spec"]["selector"]["matchLabels"];
                let object = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": claim, "labels": labels }, "status": { "phase": "Bound" } });
                self.store.put(self.agenda.now, Kind::Claim, object);
            }
        }
        let template = self.controllers.templates.get(revision).unwrap_or(&set["spec"]["template"]).clone();
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"], "status": { "phase": "Pending" } });
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"]["controller-revision-hash"] = json!(revision);
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": CLUSTER, "uid": uid(set), "controller": true }]);
        let volume = json!({ "name": "datadir", "persistentVolumeClaim": { "claimName": claim } });
        pod["spec"]["volumes"].as_array_mut().unwrap().push(volume);
        self.create_pod(STATEFUL_SETS, pod);
    }

    fn create_pod(&mut self, user: &'static str, pod: Value) {
        let name = text(&pod, "/metadata/name").to_owned();
        let outcome = self.apply(user, Kind::Pod, pod);
        self.story.record(self.agenda.now, user.rsplit_once(':').unwrap().1, || match &outcome {
            Ok(()) => format!("creates {name}"),
            Err(refusal) => {
                format!("may not create {name}: {}", refusal.message.lines().next().unwrap_or_default())
            }
        });
        self.controllers.retries.retain(|it, _| outcome.is_err() || *it != user);
        if let Err(refusal) = outcome {
            self.laws.check_refusal(&refusal);
            self.back_off(user);
        }
    }

    /// Delays the next try of a controller: longer after each refusal, up to five minutes.
    fn back_off(&mut self, user: &'static str) {
        let (pause, not_before) = self.controllers.retries.entry(user).or_default();
        *pause = (*pause * 2).clamp(SECOND, 300 * SECOND);
        *not_before = self.agenda.now + *pause;
        let after = *pause;
        self.agenda.put(after, SimEvent::Controllers);
    }

    fn is_backing_off(&self, user: &str) -> bool {
        self.controllers.retries.get(user).is_some_and(|(_, not_before)| self.agenda.now < *not_before)
    }

    /// Makes the StatefulSet the owner of pods that have none and are named like its members.
    fn adopt_orphans(&mut self, set: &Value) {
        let orphans = self
            .store
            .all(Kind::Pod)
            .filter(|(name, it)| owner(it).is_none() && name.starts_with("galera-") && ordinal(name) >= 0);
        for name in orphans.map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            self.store.edit(self.agenda.now, Kind::Pod, &name, |it| {
                it["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": CLUSTER, "uid": uid(set), "controller": true }]);
            });
        }
    }

    /// Removes the owner from all members, which keep running.
    pub fn orphan_members(&mut self) {
        for pod in self.members() {
            self.store.edit(self.agenda.now, Kind::Pod, text(&pod, "/metadata/name"), |it| {
                it["metadata"]["ownerReferences"] = json!([]);
            });
        }
    }

    fn control_deployment(&mut self) {
        let Some(deployment) = self.store.get(Kind::Deployment, BOOTSTRAP).cloned() else { return };
        let of_deployment = |pod: &&Rc<Value>| {
            owner(pod).is_some_and(|(kind, _, _)| kind == "ReplicaSet") && !is_terminating(pod)
        };
        let own: Vec<_> =
            self.store.all(Kind::Pod).map(|(_, it)| it).filter(of_deployment).cloned().collect();
        match (deployment["spec"]["replicas"].as_i64().unwrap_or(1), own.first()) {
            (0, Some(pod)) => {
                let name = text(pod, "/metadata/name").to_owned();
                self.delete(REPLICA_SETS, Kind::Pod, &name, json!({}))
                    .expect("the pod exists, and the controller is exempt");
            }
            (1.., None) if !self.is_backing_off(REPLICA_SETS) => {
                self.controllers.bootstrap_pods += 1;
                let template = &deployment["spec"]["template"];
                let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"], "status": { "phase": "Pending" } });
                pod["metadata"]["name"] =
                    json!(format!("{BOOTSTRAP}-6d5f7-x{}", self.controllers.bootstrap_pods));
                pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{BOOTSTRAP}-6d5f7"), "uid": format!("{}-rs", uid(&deployment)), "controller": true }]);
                self.create_pod(REPLICA_SETS, pod);
            }
            _ => {}
        }
    }

    /// Binds pods to nodes. Volumes are local, so a member always has the same node.
    fn schedule(&mut self) {
        let unbound = self.store.all(Kind::Pod).filter(|(_, it)| text(it, "/spec/nodeName").is_empty());
        for pod in unbound.map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            let number = usize::try_from(ordinal(&pod)).unwrap_or(NODES - 1) % NODES;
            let node = node_name(number);
            let accepts_pods = self.store.get(Kind::Node, &node).is_some_and(|it| {
                it["spec"]["unschedulable"] != true && it["status"]["conditions"][0]["status"] == "True"
            });
            if accepts_pods {
                self.store.edit(self.agenda.now, Kind::Pod, &pod, |it| it["spec"]["nodeName"] = json!(node));
            }
        }
    }

    /// Returns why the disruption budget refuses this eviction, if it does.
    pub fn budget_refusal(&self, pod: &Value) -> Option<String> {
        owner(pod).filter(|(kind, ..)| *kind == "StatefulSet")?;
        self.store.all(Kind::Budget).next()?;
        let (own, asked) = (self.members(), self.asked_for().unwrap_or_default());
        let healthy = count(&own, ready);
        (healthy < asked && ready(pod))
            .then(|| format!("{healthy} of {asked} members are healthy, and only one may be unavailable"))
    }
}
