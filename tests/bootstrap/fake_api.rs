//! A fake API server in memory: the objects of a scene, and the effect of the plan's steps on them.

use facts::view::{Freshness, RemovalTarget, View, World};
use gatera::rulebook;
use leader::plan::{
    self, Announcement, Finish, LeaderStep, LookedUp, Mark, PendingDeletion, PlannedStep, Warrant,
};
use objects::{ConfigMapReader, Kind, Object};
use serde_json::{Value, json};

use super::{MEMBER_ADDRESSES, SERVICE, settings, uid_of};
use crate::scene::{self, BOOTSTRAP, STATEFUL_SET, Scene};

const MARK: &str = "gatera.dev/bootstrap";

#[derive(Clone)]
pub(super) struct FakeApi {
    objects: Vec<(Kind, Value)>,
    freshness: Freshness,
    pub(super) events: Vec<String>,
}

impl FakeApi {
    /// Returns the scene with uids, and with members that were injected while the bootstrap node was needed.
    pub(super) fn of(scene: &Scene) -> Self {
        let mut objects = scene.objects();
        if objects.iter().any(|(kind, it)| *kind == Kind::Deployment && it["metadata"]["name"] == BOOTSTRAP) {
            objects.push((Kind::ConfigMap, json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": BOOTSTRAP, "namespace": scene::NAMESPACE },
                "data": { "galera.cnf": "[galera]\nwsrep_on = ON\nwsrep_cluster_address = gcomm://\n" },
            })));
        }
        for (kind, it) in &mut objects {
            it["metadata"]["resourceVersion"] = json!("1");
            let needs_uid = it["metadata"]["uid"].is_null() && *kind != Kind::StatefulSet;
            if needs_uid {
                it["metadata"]["uid"] = json!("uid-0");
            }
            if *kind == Kind::Deployment && it["metadata"]["name"] == BOOTSTRAP {
                it["spec"]["template"]["spec"]["volumes"] =
                    json!([{ "name": "config", "configMap": { "name": BOOTSTRAP } }]);
            }
            let injected = it["metadata"]["annotations"]["gatera.dev/injected"].is_string();
            if *kind == Kind::Pod && injected {
                let with = MEMBER_ADDRESSES.replace("gcomm://", &format!("gcomm://{SERVICE},"));
                it["metadata"]["annotations"]["gatera.dev/my-cnf"] =
                    json!(format!("# written by gatera\n[mysqld]\nwsrep_cluster_address = {with}\n"));
            }
        }
        let freshness = match &*scene.view {
            "current" => Freshness::Current,
            "loading" => Freshness::Loading,
            _ => Freshness::Stale(jiff::SignedDuration::from_secs(42)),
        };
        Self { objects, freshness, events: Vec::new() }
    }

    pub(super) fn drop_bootstrap_from_addresses(&mut self) {
        for (_, it) in &mut self.objects {
            if let Some(text) = it["metadata"]["annotations"]["gatera.dev/my-cnf"].as_str() {
                it["metadata"]["annotations"]["gatera.dev/my-cnf"] =
                    json!(text.replace(&format!("{SERVICE},"), ""));
            }
        }
    }

    pub(super) fn with_view<T>(&self, ask: impl FnOnce(&View<'_>) -> T) -> T {
        let settings = settings();
        let mut facts = rulebook().facts(&settings.adoption);
        for (kind, object) in &self.objects {
            facts.put(Object::read(*kind, &object.to_string()).unwrap());
        }
        let world = World::build(facts, self.freshness);
        ask(&View::new(&world, scene::now(), &settings))
    }

    pub(super) fn object(&mut self, kind: &str, name: &str) -> Option<&mut Value> {
        let is = |(it, object): &&mut (Kind, Value)| it.name() == kind && object["metadata"]["name"] == name;
        self.objects.iter_mut().find(is).map(|(_, object)| object)
    }

    pub(super) fn add(&mut self, kind: Kind, object: Value) {
        self.objects.push((kind, object));
    }

    /// Returns the cluster address in the option file of a member.
    pub(super) fn address(&mut self, ordinal: usize) -> String {
        let pod = self.object("Pod", &format!("{STATEFUL_SET}-{ordinal}")).unwrap();
        let text = pod["metadata"]["annotations"]["gatera.dev/my-cnf"].as_str().unwrap();
        text.lines().find_map(|line| line.strip_prefix("wsrep_cluster_address = ")).unwrap().to_owned()
    }

    /// Carries out the first planned step.
    pub(super) fn step(&mut self) -> Option<PlannedStep> {
        let is_change = |planned: &PlannedStep| !matches!(planned.step, LeaderStep::Announce(_));
        let step = self.with_view(plan::next).into_iter().find(is_change)?;
        self.apply(&step);
        Some(step)
    }

    /// Carries out the planned steps, each this many times, until nothing is planned.
    pub(super) fn run(&mut self, times: usize) -> Vec<PlannedStep> {
        let mut done = Vec::new();
        while let Some(step) = self.step() {
            (1..times).for_each(|_| self.apply(&step));
            done.push(step);
            assert!(done.len() < 30, "the plan does not end: {done:?}");
        }
        done
    }

    fn apply(&mut self, planned: &PlannedStep) {
        match &planned.step {
            LeaderStep::Mark(mark) => self.mark(planned, mark),
            LeaderStep::UpdateOptionFile { pod, uid, text } => {
                let pod = self.object("Pod", &pod.name).unwrap();
                assert_eq!(uid_of(pod), uid);
                pod["metadata"]["annotations"]["gatera.dev/my-cnf"] = json!(text);
            }
            LeaderStep::MarkForRemoval(it) => self.mark_for_removal(it, &planned.uid),
            LeaderStep::Delete(it) => self.delete(it, &planned.uid),
            LeaderStep::CorrectRecord { events, mark } => {
                for reported in events {
                    self.publish(reported);
                }
                self.mark(planned, mark);
            }
            LeaderStep::Finish(it) => self.finish(planned, it),
            LeaderStep::Announce(reported) => self.publish(reported),
            // In this model no member reports its cluster (`identity.rs`) or changes its configuration (`rollout.rs`).
            LeaderStep::RecordIdentity
            | LeaderStep::AnnotateIdentity { .. }
            | LeaderStep::Configure(_)
            | LeaderStep::Evict { .. } => {}
        }
    }

    /// Finishes the removal as `reconcile/finish.rs` does.
    fn finish(&mut self, planned: &PlannedStep, it: &Finish) {
        let mut left = it.left.clone();
        for target in &it.remaining {
            match self.warrant(it, target) {
                Warrant::Gone => {}
                Warrant::Given(version) => {
                    self.delete(&PendingDeletion { target: target.clone(), version }, &planned.uid);
                }
                Warrant::Waits(what) => {
                    panic!("nothing is deleted by itself in this model, but the plan waits for {what}")
                }
                Warrant::Stays(why) => left.push((target.clone(), why)),
            }
        }
        for reported in it.events(&planned.id, &left) {
            self.publish(&reported);
        }
        self.mark(planned, &Mark::of_finished(&planned.uid));
    }

    /// Returns what may be done with this object now, after everything was looked up.
    pub(super) fn warrant(&self, finish: &Finish, target: &RemovalTarget) -> Warrant {
        let readers = ConfigMapReader::KINDS.iter().flat_map(|(kind, ..)| {
            let items = self.objects.iter().map(|(_, it)| it).filter(move |it| it["kind"] == *kind);
            items.map(move |it| ConfigMapReader::read(kind, &it.to_string()).unwrap())
        });
        let map = self.objects.iter().find(|(kind, it)| {
            *kind == Kind::ConfigMap && it["metadata"]["name"] == *target.name && target.kind == *kind
        });
        let map = map.map(|(kind, it)| match Object::read(*kind, &it.to_string()).unwrap() {
            Object::ConfigMap(map) => map,
            other => panic!("{other:?}"),
        });
        self.warrant_given(finish, target, &LookedUp { map, readers: Ok(readers.collect()) })
    }

    pub(super) fn warrant_given(&self, finish: &Finish, target: &RemovalTarget, found: &LookedUp) -> Warrant {
        self.with_view(|view| {
            let cluster = view.cluster(scene::NAMESPACE, STATEFUL_SET).unwrap();
            plan::warrant(cluster, view, finish, target, found)
        })
    }

    fn publish(&mut self, reported: &Announcement) {
        let event = format!("{}: {}", reported.reason, reported.note);
        if !self.events.contains(&event) {
            self.events.push(event);
        }
    }

    fn mark(&mut self, planned: &PlannedStep, mark: &Mark) {
        let set = self.object("StatefulSet", &planned.id.name).unwrap();
        assert_eq!(uid_of(set), planned.uid);
        if !mark.version.is_empty() && set["metadata"]["resourceVersion"] != *mark.version {
            return;
        }
        if mark.bootstrap.is_some() {
            set["metadata"]["annotations"]["gatera.dev/data"] = json!("present");
        }
        json_patch::merge(&mut set["metadata"]["annotations"], &json!({ MARK: mark.bootstrap }));
        bump(set);
    }

    fn mark_for_removal(&mut self, it: &PendingDeletion, owner: &str) {
        let object = self.object(it.target.kind.name(), &it.target.name).unwrap();
        if object["metadata"]["resourceVersion"] == *it.version && uid_of(object) == it.target.uid {
            object["metadata"]["annotations"]["gatera.dev/removing"] = json!(owner);
            bump(object);
        }
    }

    /// Deletes an object that has the guard's mark; the chart's policy allows no other deletion.
    fn delete(&mut self, it: &PendingDeletion, owner: &str) {
        let PendingDeletion { target, version } = it;
        let this = |kind: Kind, it: &Value| {
            kind == target.kind
                && it["metadata"]["name"] == *target.name
                && uid_of(it) == target.uid
                && it["metadata"]["resourceVersion"] == **version
        };
        let pod = |kind: Kind, it: &Value| {
            kind == Kind::Pod
                && target.kind == Kind::Deployment
                && it["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
        };
        let Some((_, found)) = self.objects.iter().find(|(kind, it)| this(*kind, it)) else { return };
        assert_eq!(found["metadata"]["annotations"]["gatera.dev/removing"], *owner, "{target}");
        self.objects.retain(|(kind, it)| !this(*kind, it) && !pod(*kind, it));
    }

    /// Applies the manifests again, as a person would: the objects are new, and the guard keeps the Deployment at 0 replicas.
    pub(super) fn apply_again(&mut self, before: &FakeApi) {
        for (kind, it) in &before.objects {
            let name = it["metadata"]["name"].as_str().unwrap();
            if *kind != Kind::Pod && name.contains("bootstrap") && self.object(kind.name(), name).is_none() {
                let mut new = it.clone();
                new["metadata"]["uid"] = json!("uid-new");
                new["metadata"]["annotations"] = json!({});
                if *kind == Kind::Deployment {
                    new["spec"]["replicas"] = json!(0);
                }
                self.objects.push((*kind, new));
            }
        }
    }

    /// Checks that nothing is left of the bootstrap node, and that no member's address names it.
    pub(super) fn assert_removed(&mut self) {
        let names = self.objects.iter().map(|(_, it)| it["metadata"]["name"].as_str().unwrap());
        let left: Vec<_> = names.filter(|name| name.contains("bootstrap")).collect();
        assert_eq!(left, [""; 0], "objects of the bootstrap node are left");
        for ordinal in 0..3 {
            assert_eq!(self.address(ordinal), MEMBER_ADDRESSES);
        }
        let marks = &self.object("StatefulSet", STATEFUL_SET).unwrap()["metadata"]["annotations"];
        assert_eq!((&marks["gatera.dev/data"], &marks[MARK]), (&json!("present"), &json!("removed 1")));
    }
}

fn bump(object: &mut Value) {
    let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
}

/// Describes a step in a few words.
pub(super) fn description(planned: &PlannedStep) -> String {
    let all =
        |targets: &[RemovalTarget]| targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match &planned.step {
        LeaderStep::Mark(mark) => format!("mark {}", mark.bootstrap.as_deref().unwrap_or("data")),
        LeaderStep::UpdateOptionFile { pod, .. } => format!("address {}", pod.name),
        LeaderStep::MarkForRemoval(it) => format!("mark {}", it.target),
        LeaderStep::Delete(it) => format!("delete {}", it.target),
        LeaderStep::CorrectRecord { mark, .. } => {
            format!("correct {}", mark.bootstrap.as_deref().unwrap_or("nothing"))
        }
        LeaderStep::Finish(it) => format!("finish {}", all(&it.remaining)),
        LeaderStep::Announce(reported) => format!("announce {}", reported.reason),
        LeaderStep::RecordIdentity => "ask".to_owned(),
        LeaderStep::Configure(it) => format!("configure {}", it.record.text()),
        LeaderStep::Evict { pod, .. } => format!("evict {pod}"),
        LeaderStep::AnnotateIdentity { value, .. } => format!("identity of a pod: {value}"),
    }
}
