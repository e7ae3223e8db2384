//! The API server: a request is sent to the webhooks, amended, judged, and then, perhaps a moment later, carried out.
//!
//! Owns: the path of a request, preconditions, deletion with grace. Must not know: who sends requests and why. Between the
//! guard's "allowed" and the write, another webhook may take seconds. This is modelled, because it is what the guard's
//! reservations are for. Data: a [`Request`] in; the store changes, or there is a [`Refusal`] with a rule and a message.

use engine::verdict::{Downgrade, Effect};
use engine::webhooks::Endpoint;
use facts::review::{Operation, Origin};
use objects::Kind;
use serde_json::{Value, json};

use super::asked::{fails_closed, verb};
use super::clock::{Millis, SECOND, api_time};
use super::laws::warned;
use super::stage::{Sim, SimEvent};
use super::store::{NAMESPACE, is_terminating, text, uid};

/// A request to the API server.
#[derive(Clone, Debug)]
pub struct Request {
    pub user: String,
    pub operation: Operation,
    pub kind: Kind,
    pub subresource: &'static str,
    pub name: String,
    pub object: Option<Value>,
    pub old: Option<Value>,
    pub options: Value,
}

/// The refusal of a request.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The rule; `None` if the API server itself refused.
    pub rule: Option<&'static str>,
    pub message: String,
}

/// What permitted a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The guard judged and allowed it.
    ByGuard,
    /// An override permitted it.
    ByOverride,
    /// No replica of the guard answered, and the entry fails open.
    FailedOpen,
    /// The guard allowed the deletion of a member that it did not see Ready.
    NotReady,
    /// As `NotReady`, but the member's node was unreachable: the pod is removed when the node is back, however much has changed
    /// by then.
    NodeUnreachable,
    /// The StatefulSet controller replaces the pod, because the template is new.
    TemplateRollout,
}

/// An allowed request, before the API server carries it out.
#[derive(Clone, Debug)]
pub struct Approved {
    pub request: Request,
    pub permission: Permission,
}

impl Request {
    fn of(user: &str, operation: Operation, kind: Kind, name: &str) -> Self {
        let (user, name) = (user.to_owned(), name.to_owned());
        Self { user, operation, kind, subresource: "", name, object: None, old: None, options: Value::Null }
    }

    /// Returns the AdmissionReview that an API server would send.
    fn body(&self) -> String {
        let (group, kind) = match self.subresource {
            "scale" => ("autoscaling", "Scale"),
            "eviction" => ("policy", "Eviction"),
            _ => (self.kind.group(), self.kind.name()),
        };
        let namespace = if matches!(self.kind, Kind::Node | Kind::Namespace) { "" } else { NAMESPACE };
        let text = |value: &Option<Value>| serde_json::to_string(value).unwrap();
        let mut request = json!({
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": group, "version": "v1", "kind": kind },
            "resource": { "group": self.kind.group(), "version": "v1", "resource": self.kind.plural() },
            "subResource": self.subresource,
            "namespace": namespace,
            "name": self.name,
            "operation": verb(self.operation),
            "userInfo": { "username": self.user, "groups": ["system:authenticated"] },
            "dryRun": false,
            "options": self.options,
        })
        .to_string();
        request.pop();
        let (object, old) = (text(&self.object), text(&self.old));
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request},"object":{object},"oldObject":{old}}}}}"#
        )
    }
}

fn not_found(kind: Kind, name: &str) -> Refusal {
    Refusal { rule: None, message: format!("{} \"{name}\" not found", kind.plural()) }
}

impl Sim {
    /// Creates an object, or replaces the one with its name; keeps the metadata and the status that a client does not write.
    pub fn apply(&mut self, user: &str, kind: Kind, object: Value) -> Result<(), Refusal> {
        let name = text(&object, "/metadata/name").to_owned();
        let old = self.store.get(kind, &name).cloned();
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let mut request = Request { old, ..Request::of(user, operation, kind, &name) };
        let mut object = object;
        if let Some(old) = &request.old {
            for kept in ["uid", "resourceVersion", "generation", "ownerReferences", "deletionTimestamp"] {
                if !old["metadata"][kept].is_null() {
                    object["metadata"][kept] = old["metadata"][kept].clone();
                }
            }
            object["status"] = old["status"].clone();
        }
        object["metadata"]["namespace"] = json!(NAMESPACE);
        request.object = Some(object);
        self.send(request)
    }

    /// Changes an existing object.
    pub fn change(
        &mut self,
        user: &str,
        kind: Kind,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Result<(), Refusal> {
        let Some(old) = self.store.get(kind, name).cloned() else { return Err(not_found(kind, name)) };
        let mut object = old.clone();
        edit(&mut object);
        let request = Request::of(user, Operation::Update, kind, name);
        self.send(Request { object: Some(object), old: Some(old), ..request })
    }

    pub fn delete(&mut self, user: &str, kind: Kind, name: &str, options: Value) -> Result<(), Refusal> {
        let Some(old) = self.store.get(kind, name).cloned() else { return Err(not_found(kind, name)) };
        let request = Request::of(user, Operation::Delete, kind, name);
        self.send(Request { old: Some(old), options, ..request })
    }

    pub fn scale(&mut self, user: &str, kind: Kind, name: &str, replicas: i64) -> Result<(), Refusal> {
        let Some(parent) = self.store.get(kind, name) else { return Err(not_found(kind, name)) };
        let body = |replicas: &Value| json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name, "namespace": NAMESPACE, "uid": uid(parent) }, "spec": { "replicas": replicas } });
        let (old, object) = (Some(body(&parent["spec"]["replicas"])), Some(body(&json!(replicas))));
        let request = Request::of(user, Operation::Update, kind, name);
        self.send(Request { subresource: "scale", old, object, ..request })
    }

    pub fn evict(&mut self, user: &str, pod: &str) -> Result<(), Refusal> {
        if self.store.get(Kind::Pod, pod).is_none_or(is_terminating) {
            return Ok(());
        }
        let object = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": NAMESPACE } });
        let request = Request::of(user, Operation::Create, Kind::Pod, pod);
        let request = Request { subresource: "eviction", object: Some(object), ..request };
        self.send(request)
    }

    /// Sends the request through the webhooks. If they allow it, it is carried out: a request of a controller at once, one of a
    /// person a moment later.
    fn send(&mut self, mut request: Request) -> Result<(), Refusal> {
        if let (Kind::StatefulSet, "", true, Some(object)) =
            (request.kind, request.subresource, self.knobs.adds_partition, &mut request.object)
        {
            object["spec"]["updateStrategy"]["rollingUpdate"] = json!({ "partition": 0 });
        }
        let mut permission = Permission::ByGuard;
        for (endpoint, origin) in
            [(Endpoint::Mutate, Origin::Mutating), (Endpoint::Validate, Origin::Validating)]
        {
            let Some(fail_closed) = fails_closed(endpoint, &request, &self.guard.settings) else { continue };
            match self.ask_replica(&mut request, origin) {
                Some(verdict) => permission = verdict?,
                None if fail_closed => {
                    let message =
                        "failed calling webhook: no endpoints available for service \"gatera\"".to_owned();
                    return Err(Refusal { rule: None, message });
                }
                None => permission = Permission::FailedOpen,
            }
        }
        let by_person = !request.user.starts_with("system:");
        // Requests of people also go through other webhooks, which take time.
        let after = match self.dice.below(40) {
            _ if !by_person => 0,
            0 => self.dice.between(SECOND, 9 * SECOND),
            _ => self.dice.between(1, 60),
        };
        let approved = Approved { request, permission };
        if after == 0 {
            self.commit(approved);
        } else {
            self.agenda.put(after, SimEvent::Commit(Box::new(approved)));
        }
        Ok(())
    }

    /// Has one replica of the guard judge the request; `None` if no replica answers.
    fn ask_replica(&mut self, request: &mut Request, origin: Origin) -> Option<Result<Permission, Refusal>> {
        let ready = self.guard.ready();
        let index = *self.dice.one_of(&ready)?;
        let now = self.agenda.now;
        self.guard.receive_events(index, &self.store, now);
        // The snapshots that a new member needs are created before the request is judged.
        let snapshots = self.guard.snapshots(index, origin, &request.body(), now);
        let new_snapshots =
            snapshots.iter().map(|snapshot| text(snapshot, "/metadata/name").to_owned()).collect::<Vec<_>>();
        for snapshot in snapshots {
            self.create_snapshot(snapshot);
        }
        let reachable = !self.dice.chance(self.knobs.lost_writes);
        let answer = self.guard.answer(index, origin, &request.body(), now, reachable, &new_snapshots);
        self.laws.judged += 1;
        if let Some(refused) = answer.decision.with(Effect::Refused).next() {
            return Some(Err(Refusal { rule: Some(refused.finding.rule), message: answer.message }));
        }
        if let (Some(patch), Some(object)) = (answer.patch, &mut request.object) {
            json_patch::patch(object, &patch).expect("the guard's patch applies to the object");
        }
        if answer.reserved {
            let pod = request.name.clone();
            self.story.record(now, &format!("guard-{index}"), || format!("reserves the removal of {pod}"));
        }
        let not_ready = request.kind == Kind::Pod
            && self.guard.with_view(index, now, |view| {
                let cluster = view.cluster_of_pod(NAMESPACE, &request.name);
                cluster.and_then(|it| it.member(&request.name)).is_none_or(|it| !it.ready())
            });
        let by_override =
            |it: &engine::verdict::Judged| matches!(it.softened, Some(Downgrade::ByOverride(_)));
        let overridden = answer.decision.judged.iter().any(by_override);
        Some(Ok(match () {
            () if overridden => Permission::ByOverride,
            () if not_ready => Permission::NotReady,
            () => Permission::ByGuard,
        }))
    }

    /// Carries out an allowed request, unless its object was changed (for an update) or replaced (for a deletion) since.
    pub fn commit(&mut self, Approved { request, permission }: Approved) {
        let now = self.agenda.now;
        let current = self.store.get(request.kind, &request.name).cloned();
        if permission == Permission::ByOverride {
            self.laws.excuse("an override was used");
        }
        match (request.operation, request.subresource) {
            (Operation::Create, "eviction") => self.evicted(&request, permission),
            (Operation::Update, "scale") => {
                let replicas = request.object.as_ref().unwrap()["spec"]["replicas"].clone();
                self.laws.note_template_change(current.as_ref(), &json!({ "replicas": replicas }));
                self.store.edit(now, request.kind, &request.name, |it| it["spec"]["replicas"] = replicas);
            }
            (Operation::Create, _) if current.is_none() => self.created(request, permission),
            (Operation::Update, _) => {
                let (Some(object), Some(current)) = (request.object, current) else { return };
                let unchanged =
                    object["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"];
                if unchanged {
                    if request.kind == Kind::StatefulSet {
                        self.laws.note_template_change(Some(&current), &object["spec"]);
                    }
                    self.store.put(now, request.kind, object);
                } else {
                    self.story.record(now, "api", || format!("conflict: {} has changed", request.name));
                }
            }
            (Operation::Delete, _) => {
                let known = request.old.as_ref().map(|it| uid(it).to_owned());
                if current.as_ref().map(|it| uid(it).to_owned()) == known {
                    self.deleted(&request, permission);
                }
            }
            _ => {}
        }
    }

    fn created(&mut self, request: Request, permission: Permission) {
        let mut object = request.object.unwrap();
        // The scripts are two thirds of a pod. They have been judged and are not read again.
        for script in ["gatera.dev/script", "gatera.dev/start-script", "gatera.dev/bitnami-script"] {
            if let Some(text) = object["metadata"]["annotations"].get_mut(script) {
                *text = json!("(the script)");
            }
        }
        self.laws.recreated |= request.kind == Kind::StatefulSet && self.galera.acknowledged > 0;
        if request.kind == Kind::Pod && permission == Permission::FailedOpen {
            self.laws.uninjected += 1;
        }
        self.store.put(self.agenda.now, request.kind, object);
    }

    fn evicted(&mut self, request: &Request, permission: Permission) {
        let Some(pod) = self.store.get(Kind::Pod, &request.name).cloned() else { return };
        if is_terminating(&pod) {
            return;
        }
        if let Some(why) = self.budget_refusal(&pod) {
            let name = request.name.clone();
            self.story.record(self.agenda.now, "api", || format!("429 for {name}: {why}"));
            return;
        }
        self.mark_terminating(Kind::Pod, &request.name, None, permission);
    }

    fn deleted(&mut self, request: &Request, permission: Permission) {
        let (kind, name, now) = (request.kind, &*request.name, self.agenda.now);
        match kind {
            Kind::Pod => {
                let grace = request.options["gracePeriodSeconds"].as_i64();
                self.mark_terminating(kind, name, grace, permission);
            }
            // A claim in use is kept until its pod is gone; then the controllers remove it.
            Kind::Claim => {
                if self.asked_for().is_none() {
                    self.laws.excuse(warned::CLAIM_LEFT_BEHIND);
                }
                self.mark_terminating(kind, name, None, permission);
            }
            Kind::StatefulSet if request.options["propagationPolicy"] == "Orphan" => {
                self.orphan_members();
                self.store.remove(now, kind, name);
            }
            _ => self.store.remove(now, kind, name),
        }
    }

    /// Marks an object as being deleted; a pod without a node, or with a grace period of 0, is removed at once.
    pub fn mark_terminating(&mut self, kind: Kind, name: &str, grace: Option<i64>, permission: Permission) {
        let now: Millis = self.agenda.now;
        let Some(object) = self.store.get(kind, name).cloned() else { return };
        if kind == Kind::Pod {
            let is_unreachable = self.is_unreachable(text(&object, "/spec/nodeName"));
            let permission = if permission == Permission::NotReady && is_unreachable {
                Permission::NodeUnreachable
            } else {
                permission
            };
            self.laws.removal_permitted(name, uid(&object), permission);
            let unscheduled = text(&object, "/spec/nodeName").is_empty();
            if grace == Some(0) || unscheduled {
                self.store.remove(now, kind, name);
                return;
            }
        }
        if !is_terminating(&object) {
            self.store.edit(now, kind, name, |it| it["metadata"]["deletionTimestamp"] = json!(api_time(now)));
        }
    }
}
