//! A cluster that a GitOps engine deploys: its repository, the commits, and the state that the engine shows.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::galera::{Galera, patiently, series};
use crate::guard::chart;
use crate::lab::{Asked, ControlPlane, Repository, User};

/// What the repository contains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// Manifests, with those of the bootstrap node.
    Manifests,
    /// A release of charts/galera.
    Release,
}

/// A GitOps engine, which is controlled by its own objects.
pub trait GitOpsEngine {
    /// Returns the namespace of its service accounts.
    fn namespace(&self) -> &'static str;
    /// Returns the objects that make it follow a repository.
    fn objects_to_follow(&self, shop: &Shop<'_>) -> Vec<Value>;
    /// Returns the file in the repository that describes a release with these values.
    fn release(&self, shop: &Shop<'_>, values: &Value) -> Value;
    /// Returns whether this commit is applied and healthy, and the state that the engine shows.
    fn state_of(&self, shop: &Shop<'_>, commit: &str) -> (bool, String);
    /// Returns a text that the engine shows after the cluster was removed from the repository.
    fn text_after_removal(&self, content: Content) -> &'static str;
    /// Does what a revert of that removal needs besides the commit.
    fn finish_revert(&self, shop: &Shop<'_>);
    /// Returns the objects that make it install charts/gatera from a repository, with the values in `values.yaml`. Deleting the
    /// last one uninstalls it.
    fn objects_to_install_the_guard(&self, repository: &Repository) -> Vec<Value>;
    /// Returns whether this commit of charts/gatera is applied and healthy, and the state that the engine shows.
    fn state_of_the_guard(&self, lab: &ControlPlane, commit: &str) -> (bool, String);
}

/// Returns the writes of the engine so far, without those that only report its state.
pub fn written_by(lab: &ControlPlane, engine: &dyn GitOpsEngine) -> Vec<Asked> {
    without_reports(lab.asked_by_accounts_of(engine.namespace()))
}

fn without_reports(all: Vec<Asked>) -> Vec<Asked> {
    let own = ["event", "kustomization", "helmrelease", "gitrepositor", "helmchart", "application"];
    let reports = |it: &Asked| own.iter().any(|own| it.resource.starts_with(own));
    all.into_iter().filter(|it| it.writes() && !reports(it)).collect()
}

/// A cluster that an engine deploys, with its repository.
pub struct Shop<'a> {
    pub galera: Galera<'a>,
    pub repository: Repository,
    pub content: Content,
    pub engine: &'a dyn GitOpsEngine,
    began: Instant,
}

/// The content of a commit.
pub struct Wanted {
    pub config: String,
    pub members: u64,
    pub bootstrap: bool,
    /// Whether the repository contains the cluster at all.
    pub present: bool,
    /// The override on the StatefulSet, in manifests.
    pub overridden: Option<String>,
}

/// Returns the content of a good commit: a cluster of three members, with its bootstrap node.
pub fn good() -> Wanted {
    Wanted { config: pool(32), members: 3, bootstrap: true, present: true, overridden: None }
}

pub fn pool(megabytes: u64) -> String {
    format!("innodb_buffer_pool_size = {megabytes}M")
}

/// Returns the values of charts/galera.
fn values(wanted: &Wanted) -> Value {
    json!({
        "image": { "tag": series() },
        "resources": { "requests": { "cpu": "10m", "memory": "128Mi" } },
        "volumeSize": "1Gi",
        "gcacheSize": "16M",
        "antiAffinity": false,
        "allowEvenOrSmall": true,
        "auth": { "existingSecret": "passwords" },
        "config": wanted.config,
        "nodeCount": wanted.members,
        "bootstrap": { "enabled": wanted.bootstrap },
    })
}

impl<'a> Shop<'a> {
    /// Creates a repository with the charts, and a namespace. Nothing is committed and nothing is applied yet.
    pub fn new(lab: &'a ControlPlane, engine: &'a dyn GitOpsEngine, content: Content, name: &str) -> Self {
        let namespace = lab.namespace_with_labels(name, &[("gatera.dev/mode", "enforce")]);
        let repository = with_charts(lab, name);
        Self {
            galera: Galera::new(lab, &namespace, name),
            repository,
            content,
            engine,
            began: Instant::now(),
        }
    }
}

/// Creates a repository with the charts, which are not committed yet.
pub fn with_charts(lab: &ControlPlane, name: &str) -> Repository {
    let repository = lab.repository(name);
    let charts = repository.folder().join("charts");
    let copied = Command::new("cp").args(["-R", &chart("")]).arg(&charts).status();
    assert!(copied.unwrap().success());
    repository
}

impl Shop<'_> {
    /// Prints what happens, with the time since the beginning.
    pub fn note(&self, what: &str) {
        println!("{:7.1} {what}", self.began.elapsed().as_secs_f64());
    }

    /// Returns an object, or null if it does not exist.
    pub fn read(&self, object: &str) -> Value {
        let text = self.galera.kubectl(&["get", object, "--output=json", "--ignore-not-found"]).succeeded();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Commits this content. Returns the commit.
    pub fn commit(&self, who: &str, what: &str, wanted: &Wanted) -> String {
        let folder = self.repository.folder().join("deploy");
        fs::remove_dir_all(&folder).unwrap_or_default();
        fs::create_dir_all(&folder).unwrap();
        let team = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "of-the-team" } });
        fs::write(folder.join("team.yaml"), team.to_string()).unwrap();
        if wanted.present {
            let text = match self.content {
                Content::Manifests => self.manifests(wanted),
                Content::Release => self.engine.release(self, &values(wanted)).to_string(),
            };
            fs::write(folder.join("shop.yaml"), text).unwrap();
        }
        self.note(&format!("{who} commits: {what}"));
        self.repository.commit(who, what)
    }

    fn manifests(&self, wanted: &Wanted) -> String {
        let values_file = self.repository.folder().join("deploy/values.json");
        fs::write(&values_file, values(wanted).to_string()).unwrap();
        let file = format!("--values={}", values_file.display());
        let template = [
            "template",
            &self.galera.name,
            &chart("galera"),
            "--namespace",
            &self.galera.namespace,
            "--skip-tests",
            &file,
        ];
        let text = self.galera.lab.helm(User::Admin, &template).succeeded();
        fs::remove_file(values_file).unwrap();
        let lines = text.lines().filter(|line| !line.contains("helm.sh/hook"));
        let text = lines.collect::<Vec<_>>().join("\n");
        match &wanted.overridden {
            None => text,
            Some(annotation) => text.replace(
                "kind: StatefulSet\nmetadata:\n",
                &format!(
                    "kind: StatefulSet\nmetadata:\n  annotations: {{gatera.dev/override: \"{annotation}\"}}\n"
                ),
            ),
        }
    }

    /// Waits until the engine reports this commit as applied and healthy.
    pub fn until_healthy(&self, commit: &str) {
        patiently(&format!("the engine reports commit {commit} as applied and healthy"), || {
            let (healthy, shown) = self.engine.state_of(self, commit);
            if healthy { Ok(()) } else { Err(shown) }
        });
        self.note("applied and healthy");
    }

    /// Waits until the engine shows this text.
    pub fn until_shown(&self, commit: &str, text: &str) {
        let shown = patiently(&format!("the engine shows {text}"), || {
            let (_, shown) = self.engine.state_of(self, commit);
            if shown.contains(text) { Ok(shown) } else { Err(shown) }
        });
        self.note(&format!("the engine shows: {shown}"));
    }

    /// Returns the writes of the engine and of the guard to objects of the namespace so far.
    pub fn writes(&self) -> [Vec<Asked>; 2] {
        let lab = self.galera.lab;
        let here =
            |all: Vec<Asked>| all.into_iter().filter(|it| it.namespace == self.galera.namespace).collect();
        [written_by(lab, self.engine), without_reports(lab.asked_by_the_guard())].map(here)
    }

    /// Checks that neither engine nor guard writes for a minute, in which the engine reconciles three times.
    pub fn nothing_is_written(&self) {
        let before = self.writes().map(|all| all.len());
        thread::sleep(Duration::from_secs(60));
        let [engine, guard] = self.writes();
        assert_eq!(engine[before[0]..], [], "the engine writes though there is nothing to do");
        assert_eq!(guard[before[1]..], [], "the guard writes though there is nothing to do");
        self.note("nothing was written for a minute");
    }

    /// Reverts the last commit, and waits until the engine reports the revert as applied and healthy.
    pub fn revert_and_wait(&self) {
        let commit = self.repository.revert();
        self.note("reverted");
        self.until_healthy(&commit);
    }
}
