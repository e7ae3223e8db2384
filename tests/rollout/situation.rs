//! A situation: a cluster during a rollout, described in a few words, with the next step of the rollout.

use facts::settings::Settings;
use facts::view::{Freshness, Id, View, World};
use inspect::status::ClusterStatus;
use leader::plan::LeaderStep;
use leader::plan::rollout::{self, RolloutStage};
use objects::{Kind, Unreadable};
use serde_json::{Value, json};

use crate::scene::{self, STATEFUL_SET, Scene};

const CONFIG: &str = "galera-instance-nodeconfig";

/// The possible contents of the option file, one line each.
#[derive(Clone, Copy)]
pub(super) enum File {
    Old,
    New,
    Newer,
}

impl File {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Old => "[mysqld]\nmax_connections=1\n",
            Self::New => "[mysqld]\nmax_connections=2\n",
            Self::Newer => "[mysqld]\nmax_connections=2\ninnodb_log_file_size=1G\n",
        }
    }

    /// Returns its revision, as annotations name it.
    pub(super) fn revision(self) -> String {
        let world = Situation { live: self.text(), ..Situation::default() }.world();
        world.cluster(scene::NAMESPACE, STATEFUL_SET).unwrap().live.as_ref().unwrap().to_string()
    }

    /// Returns the ConfigMap that holds its snapshot.
    pub(super) fn snapshot(self) -> Value {
        let name = format!("{CONFIG}-gatera-{}", self.revision().rsplit('=').next().unwrap());
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "annotations": { "gatera.dev/keeps": CONFIG } }, "data": { "galera.cnf": self.text() } })
    }
}

/// A cluster of three members that run the old file, without a recorded configuration.
pub(super) struct Situation {
    /// The content of the ConfigMap.
    pub(super) live: &'static str,
    /// The recorded configuration.
    pub(super) record: Value,
    /// The members: the state of each, and the file that it runs.
    pub(super) members: Vec<(&'static str, Option<File>)>,
    /// A merge patch on the StatefulSet.
    pub(super) set: Value,
    pub(super) mode: &'static str,
    pub(super) data: &'static str,
    pub(super) bootstrap: &'static str,
    pub(super) also: Vec<Value>,
    pub(super) snapshots: Vec<File>,
    /// Snapshots that exist but are too large for the view.
    pub(super) unread: Vec<File>,
    /// The state that a readiness probe saw in member 2 a minute before now.
    pub(super) probe: Option<&'static str>,
}

impl Default for Situation {
    fn default() -> Self {
        Self {
            live: File::Old.text(),
            record: Value::Null,
            members: vec![("ready", None); 3],
            set: json!({}),
            mode: "enforce",
            data: "present",
            bootstrap: "absent",
            also: Vec::new(),
            snapshots: Vec::new(),
            unread: Vec::new(),
            probe: None,
        }
    }
}

impl Situation {
    /// The old file is recorded as good, and all members run it.
    pub(super) fn recorded() -> Self {
        Self {
            record: json!({ "good": File::Old.revision() }),
            members: vec![("ready", Some(File::Old)); 3],
            snapshots: vec![File::Old, File::New],
            ..Self::default()
        }
    }

    /// The new file is being rolled out.
    pub(super) fn under_way(canary: Option<i64>, members: [(&'static str, File); 3]) -> Self {
        let next = match canary {
            Some(canary) => json!({ "revision": File::New.revision(), "canary": canary }),
            None => json!({ "revision": File::New.revision() }),
        };
        Self {
            live: File::New.text(),
            record: json!({ "good": File::Old.revision(), "next": next }),
            members: members.map(|(word, file)| (word, Some(file))).to_vec(),
            ..Self::recorded()
        }
    }

    pub(super) fn world(&self) -> World {
        let mut set = json!({
            "metadata": { "annotations": {} },
            "spec": { "template": { "spec": { "containers": [{
                "name": "mariadb", "image": "mariadb:10.11", "ports": [{ "containerPort": 4567 }],
                "volumeMounts": [{ "name": "config", "mountPath": "/etc/mysql/conf.d" }],
            }] } } },
        });
        if !self.record.is_null() {
            set["metadata"]["annotations"]["gatera.dev/configuration"] = json!(self.record.to_string());
        }
        json_patch::merge(&mut set, &self.set);
        let scene = Scene {
            members: self.members.iter().map(|(word, _)| (*word).to_owned()).collect(),
            stateful_set: set,
            config: json!({ "data": { "galera.cnf": self.live } }),
            mode: Some(self.mode.to_owned()),
            data: self.data.to_owned(),
            bootstrap: self.bootstrap.to_owned(),
            ..Scene::default()
        };
        let mut also: Vec<_> = self.snapshots.iter().map(|it| it.snapshot()).collect();
        for (ordinal, (word, file)) in self.members.iter().enumerate() {
            if *word != "absent" {
                let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-{ordinal}"));
                if let Some(file) = file {
                    pod["metadata"]["annotations"]["gatera.dev/revision"] = json!(file.revision());
                }
                also.push(pod);
            }
        }
        also.extend(self.also.iter().cloned());
        let settings = Settings::default();
        let scene = Scene { also, ..scene };
        let mut facts = scene.facts(&settings);
        let id = Id::new(scene::NAMESPACE, &format!("{STATEFUL_SET}-2"));
        if let (Some(state), Some(uid)) = (self.probe, facts.pod(&id).map(|pod| pod.uid.clone())) {
            let says = format!("Readiness probe failed: the server is {state}\n");
            assert!(facts.add_report(&id, &uid, "2026-12-01T09:29:00Z".parse().unwrap(), &says), "{says}");
        }
        for file in &self.unread {
            let snapshot = file.snapshot();
            let id = Id::new(scene::NAMESPACE, snapshot["metadata"]["name"].as_str().unwrap());
            facts.cannot_read(Kind::ConfigMap, id, Unreadable::NotExamined("there is no room"));
        }
        World::build(facts, Freshness::Current)
    }

    /// Returns the output of `gatera status`.
    pub(super) fn status(&self) -> String {
        let (world, settings) = (self.world(), Settings::default());
        let view = View::new(&world, scene::now(), &settings);
        let cluster = world.cluster(scene::NAMESPACE, STATEFUL_SET).unwrap();
        report::status::text(&[ClusterStatus::of(cluster, &view)], false)
    }

    /// Returns the stage of the rollout and its next step.
    pub(super) fn stage(&self) -> (String, String) {
        let (world, settings) = (self.world(), Settings::default());
        let view = View::new(&world, scene::now(), &settings);
        let cluster = world.cluster(scene::NAMESPACE, STATEFUL_SET).unwrap();
        let (says, step) = match rollout::stage(cluster, &view) {
            RolloutStage::Absent => ("absent".to_owned(), None),
            RolloutStage::Settled => ("settled".to_owned(), None),
            RolloutStage::Held(why) => (format!("held: {why}"), None),
            RolloutStage::Waits(why) => (format!("waits: {why}"), None),
            RolloutStage::Rolls(says, step) => (says, step),
            RolloutStage::Stopped(says, step) => (format!("stopped: {says}"), step),
        };
        let short = |text: &str| {
            [(File::Old, "OLD"), (File::New, "NEW"), (File::Newer, "NEWER")]
                .iter()
                .fold(text.to_owned(), |text, (file, word)| text.replace(&file.revision(), word))
                .replace("galera-instance-galera-", "galera-")
        };
        let done = match step.as_deref() {
            None => String::new(),
            Some(LeaderStep::Configure(it)) => {
                let reported: Vec<_> =
                    it.events.iter().map(|it| format!(" event {}: {}", it.reason, it.note)).collect();
                format!("record {} after {}s{}", it.record.text(), it.patience.as_secs(), reported.concat())
            }
            Some(LeaderStep::Evict { pod, patience, .. }) => {
                format!("evict {pod} after {}s", patience.as_secs())
            }
            Some(LeaderStep::Announce(it)) => format!("event {}: {}", it.reason, it.note),
            Some(other) => panic!("{other:?}"),
        };
        (short(&says), short(&done))
    }
}
