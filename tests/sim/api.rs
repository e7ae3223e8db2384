//! The API server: a request is sent to the webhooks, amended, judged, and then, perhaps a moment later, carried out.
//!
//! Owns: the path of a request, preconditions, deletion with grace. Must not know: who sends requests and why. Between the
//! guard's "allowed" and the write, another webhook may take seconds: this is modelled, because the guard's reservations exist
//! for it. Data: a [`Request`] in; the store changes, or there is a [`Refusal`] with a rule and a message.

use engine::verdict::{Downgrade, Effect};
use engine::webhooks::Endpoint;
use facts::review::{Operation, Origin};
use objects::Kind;
use serde_json::{Value, json};

use super::asked::{asks, verb};
use super::clock::{Millis, SECOND, written};
use super::laws::warned;
use super::stage::{Happening, Sim};
use super::store::{NAMESPACE, going, text, uid};

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub who: String,
    pub operation: Operation,
    pub kind: Kind,
    pub subresource: &'static str,
    pub name: String,
    pub object: Option<Value>,
    pub old: Option<Value>,
    pub options: Value,
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The rule; `None` if something else refused.
    pub rule: Option<&'static str>,
    pub words: String,
}

/// What permitted a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The guard judged and allowed it.
    Judged,
    /// An override permitted it.
    Overridden,
    /// No replica of the guard answered, and the entry fails open.
    Unasked,
    /// The guard allowed the deletion of a member that it did not see Ready.
    Starting,
    /// As `Starting`, but the member's node was unreachable: the member goes when the node is back, whatever has happened since.
    Unheard,
    /// The StatefulSet controller follows a new template.
    Rolled,
}

/// An allowed request, before the API server carries it out.
#[derive(Clone, Debug)]
pub struct Approved {
    pub request: Request,
    pub leave: Leave,
}

impl Request {
    fn of(who: &str, operation: Operation, kind: Kind, name: &str) -> Self {
        let (who, name) = (who.to_owned(), name.to_owned());
        Self { who, operation, kind, subresource: "", name, object: None, old: None, options: Value::Null }
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
            "userInfo": { "username": self.who, "groups": ["system:authenticated"] },
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

fn absent(kind: Kind, name: &str) -> Refusal {
    Refusal { rule: None, words: format!("{} \"{name}\" not found", kind.plural()) }
}

impl Sim {
    /// Creates an object, or replaces the one with its name, as `kubectl apply` does.
    pub fn apply(&mut self, who: &str, kind: Kind, object: Value) -> Result<(), Refusal> {
        let name = text(&object, "/metadata/name").to_owned();
        let old = self.store.get(kind, &name).cloned();
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let mut request = Request { old, ..Request::of(who, operation, kind, &name) };
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
        self.ask(request)
    }

    /// Changes an existing object.
    pub fn change(
        &mut self,
        who: &str,
        kind: Kind,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Result<(), Refusal> {
        let Some(old) = self.store.get(kind, name).cloned() else { return Err(absent(kind, name)) };
        let mut object = old.clone();
        edit(&mut object);
        let request = Request::of(who, Operation::Update, kind, name);
        self.ask(Request { object: Some(object), old: Some(old), ..request })
    }

    pub fn delete(&mut self, who: &str, kind: Kind, name: &str, options: Value) -> Result<(), Refusal> {
        let Some(old) = self.store.get(kind, name).cloned() else { return Err(absent(kind, name)) };
        let request = Request::of(who, Operation::Delete, kind, name);
        self.ask(Request { old: Some(old), options, ..request })
    }

    pub fn scale(&mut self, who: &str, kind: Kind, name: &str, replicas: i64) -> Result<(), Refusal> {
        let Some(parent) = self.store.get(kind, name) else { return Err(absent(kind, name)) };
        let body = |replicas: &Value| json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name, "namespace": NAMESPACE, "uid": uid(parent) }, "spec": { "replicas": replicas } });
        let (old, object) = (Some(body(&parent["spec"]["replicas"])), Some(body(&json!(replicas))));
        let request = Request::of(who, Operation::Update, kind, name);
        self.ask(Request { subresource: "scale", old, object, ..request })
    }

    pub fn evict(&mut self, who: &str, pod: &str) -> Result<(), Refusal> {
        if self.store.get(Kind::Pod, pod).is_none_or(going) {
            return Ok(());
        }
        let object = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": NAMESPACE } });
        let request = Request::of(who, Operation::Create, Kind::Pod, pod);
        let request = Request { subresource: "eviction", object: Some(object), ..request };
        self.ask(request)
    }

    /// Sends the request through the webhooks, and then carries it out.
    fn ask(&mut self, mut request: Request) -> Result<(), Refusal> {
        if let (Kind::StatefulSet, "", true, Some(object)) =
            (request.kind, request.subresource, self.knobs.spells_out, &mut request.object)
        {
            object["spec"]["updateStrategy"]["rollingUpdate"] = json!({ "partition": 0 });
        }
        let mut leave = Leave::Judged;
        for (endpoint, origin) in
            [(Endpoint::Mutate, Origin::Mutating), (Endpoint::Validate, Origin::Validating)]
        {
            let Some(fail_closed) = asks(endpoint, &request, &self.guard.settings) else { continue };
            match self.judged(&mut request, origin) {
                Some(verdict) => leave = verdict?,
                None if fail_closed => {
                    let words =
                        "failed calling webhook: no endpoints available for service \"gatera\"".to_owned();
                    return Err(Refusal { rule: None, words });
                }
                None => leave = Leave::Unasked,
            }
        }
        let by_person = !request.who.starts_with("system:");
        // Other webhooks are asked, too, which takes time.
        let after = match self.dice.below(40) {
            _ if !by_person => 0,
            0 => self.dice.between(SECOND, 9 * SECOND),
            _ => self.dice.between(1, 60),
        };
        let approved = Approved { request, leave };
        if after == 0 {
            self.commit(approved);
        } else {
            self.agenda.put(after, Happening::Commit(Box::new(approved)));
        }
        Ok(())
    }

    /// Has one replica of the guard judge the request; `None` if no replica answers.
    fn judged(&mut self, request: &mut Request, origin: Origin) -> Option<Result<Leave, Refusal>> {
        let ready = self.guard.ready();
        let index = *self.dice.one_of(&ready)?;
        let now = self.agenda.now;
        self.guard.listen(index, &self.store, now);
        // The snapshots that a new member needs are created before the request is judged.
        let copies = self.guard.copies(index, origin, &request.body(), now);
        let made = copies.iter().map(|copy| text(copy, "/metadata/name").to_owned()).collect::<Vec<_>>();
        for copy in copies {
            self.make_copy(copy);
        }
        let reachable = !self.dice.chance(self.knobs.lost_writes);
        let answer = self.guard.answer(index, origin, &request.body(), now, reachable, &made);
        self.laws.judged += 1;
        if let Some(refused) = answer.decision.with(Effect::Refused).next() {
            return Some(Err(Refusal { rule: Some(refused.finding.rule), words: answer.words }));
        }
        if let (Some(patch), Some(object)) = (answer.patch, &mut request.object) {
            json_patch::patch(object, &patch).expect("the guard's patch fits the object it was made for");
        }
        if answer.reserved {
            let pod = request.name.clone();
            self.story.tell(now, &format!("guard-{index}"), || format!("reserves a departure for {pod}"));
        }
        let starts = request.kind == Kind::Pod
            && self.guard.look(index, now, |view| {
                let cluster = view.cluster_of_pod(NAMESPACE, &request.name);
                cluster.and_then(|it| it.member(&request.name)).is_none_or(|it| !it.ready())
            });
        let by_override =
            |it: &engine::verdict::Judged| matches!(it.softened, Some(Downgrade::ByOverride(_)));
        let overridden = answer.decision.judged.iter().any(by_override);
        Some(Ok(match () {
            () if overridden => Leave::Overridden,
            () if starts => Leave::Starting,
            () => Leave::Judged,
        }))
    }

    /// Carries out a request, if the object it is about still exists unchanged.
    pub fn commit(&mut self, Approved { request, leave }: Approved) {
        let now = self.agenda.now;
        let current = self.store.get(request.kind, &request.name).cloned();
        if leave == Leave::Overridden {
            self.laws.excuse("an override was used");
        }
        match (request.operation, request.subresource) {
            (Operation::Create, "eviction") => self.evicted(&request, leave),
            (Operation::Update, "scale") => {
                let replicas = request.object.as_ref().unwrap()["spec"]["replicas"].clone();
                self.laws.look_for_warned(current.as_ref(), &json!({ "replicas": replicas }));
                self.store.edit(now, request.kind, &request.name, |it| it["spec"]["replicas"] = replicas);
            }
            (Operation::Create, _) if current.is_none() => self.created(request, leave),
            (Operation::Update, _) => {
                let (Some(object), Some(current)) = (request.object, current) else { return };
                let same = object["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"];
                if same {
                    if request.kind == Kind::StatefulSet {
                        self.laws.look_for_warned(Some(&current), &object["spec"]);
                    }
                    self.store.put(now, request.kind, object);
                } else {
                    self.story.tell(now, "api", || format!("conflict: {} has changed", request.name));
                }
            }
            (Operation::Delete, _) => {
                let known = request.old.as_ref().map(|it| uid(it).to_owned());
                if current.as_ref().map(|it| uid(it).to_owned()) == known {
                    self.deleted(&request, leave);
                }
            }
            _ => {}
        }
    }

    fn created(&mut self, request: Request, leave: Leave) {
        let mut object = request.object.unwrap();
        // These texts are two thirds of a pod. They have been judged and are not read again.
        for long in ["gatera.dev/script", "gatera.dev/start-script", "gatera.dev/bitnami-script"] {
            if let Some(text) = object["metadata"]["annotations"].get_mut(long) {
                *text = json!("(the script)");
            }
        }
        self.laws.taken_back |= request.kind == Kind::StatefulSet && self.galera.acknowledged > 0;
        if request.kind == Kind::Pod && leave == Leave::Unasked {
            self.laws.uninjected += 1;
        }
        self.store.put(self.agenda.now, request.kind, object);
    }

    fn evicted(&mut self, request: &Request, leave: Leave) {
        let Some(pod) = self.store.get(Kind::Pod, &request.name).cloned() else { return };
        if going(&pod) {
            return;
        }
        if let Some(why) = self.budget_refuses(&pod) {
            let name = request.name.clone();
            self.story.tell(self.agenda.now, "api", || format!("429 for {name}: {why}"));
            return;
        }
        self.mark_going(Kind::Pod, &request.name, None, leave);
    }

    fn deleted(&mut self, request: &Request, leave: Leave) {
        let (kind, name, now) = (request.kind, &*request.name, self.agenda.now);
        match kind {
            Kind::Pod => {
                let grace = request.options["gracePeriodSeconds"].as_i64();
                self.mark_going(kind, name, grace, leave);
            }
            // A claim in use waits for its pod; the controllers remove it.
            Kind::Claim => {
                if self.asked_for().is_none() {
                    self.laws.excuse(warned::CLAIM_LEFT_BEHIND);
                }
                self.mark_going(kind, name, None, leave);
            }
            Kind::StatefulSet if request.options["propagationPolicy"] == "Orphan" => {
                self.orphan(name);
                self.store.remove(now, kind, name);
            }
            _ => self.store.remove(now, kind, name),
        }
    }

    /// Marks an object as being deleted; a pod without a node, or with a grace period of 0, is removed at once.
    pub fn mark_going(&mut self, kind: Kind, name: &str, grace: Option<i64>, leave: Leave) {
        let now: Millis = self.agenda.now;
        let Some(object) = self.store.get(kind, name).cloned() else { return };
        if kind == Kind::Pod {
            let silent = self.silent(text(&object, "/spec/nodeName"));
            let leave = if leave == Leave::Starting && silent { Leave::Unheard } else { leave };
            self.laws.ordered_to_go(name, uid(&object), leave);
            let unscheduled = text(&object, "/spec/nodeName").is_empty();
            if grace == Some(0) || unscheduled {
                self.store.remove(now, kind, name);
                return;
            }
        }
        if !going(&object) {
            self.store.edit(now, kind, name, |it| it["metadata"]["deletionTimestamp"] = json!(written(now)));
        }
    }
}
