//! Kubelets: pods that are bound to a node run there, are probed, and are stopped.
//!
//! Owns: the life of each pod's container, and its reported status. Must not know: the guard. The option file is the ConfigMap
//! that the pod's own volumes name, as it is when the container starts; where the step script was injected, the kubelet does what
//! `start-member.sh` does. Data: pods in; servers start and end in `galera.rs`.

use facts::marks;
use jiff::SignedDuration;
use objects::Kind;
use serde_json::{Value, json};

use super::clock::{Millis, SECOND, api_time_by};
use super::galera::{Phase, Server, Start};
use super::manifests::{BOOTSTRAP, BOOTSTRAP_SERVICE};
use super::stage::{Sim, SimEvent};
use super::store::{is_terminating, mark, text, uid};

/// The container of a pod.
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that a kubelet knows")]
#[derive(Clone, Debug, Default)]
pub struct Container {
    pub uid: String,
    pub node: String,
    /// The server that runs in it.
    run: Option<u64>,
    began: Millis,
    /// The error of the node's clock when the container started.
    clock_error: SignedDuration,
    pub ready: bool,
    changed_at: Millis,
    started: bool,
    probing: bool,
    restarts: u32,
    pub stopping: bool,
    /// Whether its readiness probe is the injected one, which succeeds only while the server is Synced.
    pub proves_synced: bool,
    /// The content of its mounted option files when the container last started.
    option_files: String,
    message: String,
}

/// How long a server looks for a member to join before it ends.
const LOOKING_TIMEOUT: Millis = 30 * SECOND;

impl Sim {
    /// Whether the control plane gets no reports from this node's kubelet.
    pub fn is_unreachable(&self, node: &str) -> bool {
        self.without_power.contains_key(node) || self.galera.isolated.contains(node)
    }

    /// Runs one pass of all kubelets.
    pub fn kubelets(&mut self) {
        let now = self.agenda.now;
        let forgotten = self
            .containers
            .iter()
            .filter(|(pod, container)| self.this_pod(pod, &container.uid).is_none() && !container.stopping);
        for (pod, container) in
            forgotten.map(|(pod, container)| (pod.clone(), container.clone())).collect::<Vec<_>>()
        {
            if !self.is_unreachable(&container.node) {
                self.containers.get_mut(&pod).unwrap().stopping = true;
                self.report_removal(&pod, &container.uid);
                let after = self.dice.between(SECOND, 4 * SECOND);
                self.agenda.put(after, SimEvent::Stopped { pod, uid: container.uid });
            }
        }
        let bound = self.store.all(Kind::Pod).filter(|(_, pod)| {
            let node = text(pod, "/spec/nodeName");
            !node.is_empty() && !self.is_unreachable(node)
        });
        for (name, pod) in bound.map(|(name, pod)| (name.to_owned(), pod.clone())).collect::<Vec<_>>() {
            match self.containers.get_mut(&name) {
                None if is_terminating(&pod) => self.store.remove(now, Kind::Pod, &name),
                None => {
                    let (uid, node) = (uid(&pod).to_owned(), text(&pod, "/spec/nodeName").to_owned());
                    let proves_synced =
                        mark(&pod, marks::INJECTED).is_some_and(|it| !it.ends_with(marks::UNPROVEN));
                    let container = Container {
                        uid: uid.clone(),
                        node,
                        proves_synced,
                        changed_at: now,
                        ..Container::default()
                    };
                    self.containers.insert(name.clone(), container);
                    let after = self.dice.between(SECOND, 4 * SECOND);
                    self.agenda.put(after, SimEvent::Start { pod: name, uid });
                }
                Some(container)
                    if container.uid == uid(&pod) && is_terminating(&pod) && !container.stopping =>
                {
                    container.stopping = true;
                    let uid = container.uid.clone();
                    self.report_removal(&name, &uid);
                    self.stop(&name, &uid);
                }
                Some(_) => {}
            }
        }
    }

    /// Starts a container, or tries again later if a ConfigMap that it mounts is missing.
    pub fn start(&mut self, name: &str, uid: &str) {
        let Some(pod) = self.this_pod(name, uid).cloned() else { return };
        let Some(container) =
            self.containers.get(name).filter(|it| it.uid == uid && !it.stopping && it.run.is_none())
        else {
            return;
        };
        if self.is_unreachable(&container.node) {
            return;
        }
        let Some(option_files) = self
            .mounted_option_files(&pod)
            .or_else(|| Some(container.option_files.clone()).filter(|it| !it.is_empty()))
        else {
            // The container never ran, and a ConfigMap is missing: the kubelet tries again.
            return self
                .agenda
                .put(5 * SECOND, SimEvent::Start { pod: name.to_owned(), uid: uid.to_owned() });
        };
        let (run, now) = (self.galera.next_id(), self.agenda.now);
        let clock_error = self.clock_errors.get(&container.node).copied().unwrap_or_default();
        let container = self.containers.get_mut(name).unwrap();
        (container.option_files, container.run, container.began, container.started) =
            (option_files, Some(run), now, false);
        container.clock_error = clock_error;
        let claim = pod["spec"]["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|it| it["persistentVolumeClaim"]["claimName"].as_str());
        let disk = claim.map_or_else(|| uid.to_owned(), str::to_owned);
        let node = container.node.clone();
        self.galera.disks.entry(disk.clone()).or_default();
        let start = Start { recovers: has_step_script(&pod), ..Start::default() };
        let server = Server {
            uid: uid.to_owned(),
            node,
            disk,
            run,
            phase: Phase::Preparing,
            component: None,
            donor: None,
            stopping: false,
            start,
        };
        self.galera.servers.insert(name.to_owned(), server);
        self.report(name);
        let after = self.dice.between(SECOND / 2, 3 * SECOND);
        self.agenda.put(after, SimEvent::Prepared { pod: name.to_owned(), run });
    }

    /// Returns the option files that the pod's own volumes name; `None` if one is missing.
    fn mounted_option_files(&self, pod: &Value) -> Option<String> {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let names = volumes.filter_map(|it| it["configMap"]["name"].as_str());
        names
            .map(|name| Some(text(self.store.get(Kind::ConfigMap, name)?, "/data/galera.cnf").to_owned()))
            .collect()
    }

    /// Starts the server itself, after the step script if there is one.
    pub fn prepared(&mut self, name: &str, run: u64) {
        let Some(server) = self.galera.servers.get(name).filter(|it| it.run == run && !it.stopping) else {
            return;
        };
        let Some(pod) = self.this_pod(name, &server.uid).cloned() else { return };
        let option_files = self.containers[name].option_files.clone();
        let address = setting(mark(&pod, marks::MY_CNF).unwrap_or_default(), "wsrep_cluster_address")
            .or_else(|| setting(&option_files, "wsrep_cluster_address"))
            .unwrap_or_default();
        let hosts: Vec<_> = address
            .trim_start_matches("gcomm://")
            .split(',')
            .filter(|it| !it.is_empty())
            .map(|it| self.resolve(it))
            .collect();
        let has_argument = pod["spec"]["containers"][0]["args"].to_string().contains("--wsrep-new-cluster");
        let founds =
            hosts.is_empty() || has_argument || setting(&option_files, "wsrep_new_cluster").is_some();
        let identity = mark(&pod, marks::IDENTITY).unwrap_or_default();
        let gated = ![marks::UNKNOWN, marks::FOUNDS, marks::FREE, ""].contains(&identity);
        let refused = match () {
            () if is_fatal(&option_files) => Some("an option kills the server"),
            () if founds && gated && server.start.recovers => {
                Some("gatera did not start the server: it would found a new cluster")
            }
            () => None,
        };
        let server = self.galera.servers.get_mut(name).unwrap();
        (server.start.hosts, server.start.founds) = (hosts, founds);
        let outcome = refused.map_or_else(|| self.galera.connect(name), Err);
        if let Err(why) = outcome {
            self.story.record(self.agenda.now, name, || format!("ends: {why}"));
            why.clone_into(&mut self.containers.get_mut(name).unwrap().message);
            return self.server_ended(name, run);
        }
        self.agenda.put(LOOKING_TIMEOUT, SimEvent::GivesUp { pod: name.to_owned(), run });
    }

    /// Returns the name of the pod that a host name leads to, or the beginning of the name: a Service leads to many.
    fn resolve(&self, host: &str) -> String {
        let first = host.split(['.', ':']).next().unwrap_or_default();
        let exists = self.store.get(Kind::Service, first).is_some();
        if first == BOOTSTRAP_SERVICE && exists { format!("{BOOTSTRAP}-") } else { first.to_owned() }
    }

    pub fn gives_up(&mut self, name: &str, run: u64) {
        let looks = |it: &Server| it.run == run && it.phase == Phase::Looking && !it.stopping;
        if self.galera.servers.get(name).is_some_and(looks) {
            self.story.record(self.agenda.now, name, || "found no member to join, and ends".to_owned());
            self.server_ended(name, run);
        }
    }

    /// Handles a server that has ended by itself: its container starts again, each time after a longer pause.
    pub fn server_ended(&mut self, name: &str, run: u64) {
        if self.galera.servers.get(name).is_none_or(|it| it.run != run) {
            return;
        }
        self.galera.kill(name, 0);
        let now = self.agenda.now;
        let Some(container) = self.containers.get_mut(name).filter(|it| it.run == Some(run)) else { return };
        if container.ready {
            (container.ready, container.changed_at) = (false, now);
        }
        container.run = None;
        if container.stopping {
            return;
        }
        container.restarts = if now - container.began > 600 * SECOND { 1 } else { container.restarts + 1 };
        let pause =
            if container.restarts <= 1 { 1 } else { (10 << (container.restarts - 2).min(5)).min(300) };
        let uid = container.uid.clone();
        self.agenda.put(pause * SECOND, SimEvent::Start { pod: name.to_owned(), uid });
        self.report(name);
    }

    /// Stops a container. The hook of an injected pod first waits until the server is no longer a donor.
    pub fn stop(&mut self, name: &str, uid: &str) {
        let Some(container) = self.containers.get(name).filter(|it| it.uid == uid) else { return };
        let waits = container.proves_synced && self.galera.is_donor(name);
        let serves =
            self.galera.servers.get(name).is_some_and(|it| matches!(it.phase, Phase::Synced | Phase::CutOff));
        if waits {
            return self.agenda.put(2 * SECOND, SimEvent::Stop { pod: name.to_owned(), uid: uid.to_owned() });
        }
        if let Some(server) = self.galera.servers.get_mut(name) {
            server.stopping = true;
        }
        let after = if serves {
            self.dice.between(SECOND, 6 * SECOND)
        } else {
            self.dice.between(SECOND, 4 * SECOND)
        };
        self.agenda.put(after, SimEvent::Stopped { pod: name.to_owned(), uid: uid.to_owned() });
    }

    /// Completes a stop: the container and its pod are removed. The server was killed if the pod was already gone.
    pub fn stopped(&mut self, name: &str, uid: &str) {
        let Some(container) = self.containers.get(name).filter(|it| it.uid == uid).cloned() else { return };
        if self.is_unreachable(&container.node) {
            return;
        }
        let forced = self.this_pod(name, uid).is_none();
        if self.galera.servers.get(name).is_some_and(|it| it.uid == uid) {
            if forced { self.galera.kill(name, 0) } else { self.galera.stop(name) }
        }
        self.containers.remove(name);
        self.galera.disks.remove(uid);
        self.story.record(self.agenda.now, name, || "has stopped".to_owned());
        if forced {
            self.agenda.put(SECOND, SimEvent::Kubelets);
        } else {
            self.store.remove(self.agenda.now, Kind::Pod, name);
        }
    }

    /// Schedules a probe for each container whose readiness differs from its status; it notices this some seconds later.
    pub fn schedule_probes(&mut self) {
        let changed: Vec<_> = self
            .containers
            .iter()
            .filter(|(pod, container)| {
                !container.probing && self.probe_succeeds(pod, container) != container.ready
            })
            .map(|(pod, container)| (pod.clone(), container.uid.clone(), container.ready))
            .collect();
        for (pod, uid, was_ready) in changed {
            self.containers.get_mut(&pod).unwrap().probing = true;
            let after = if was_ready { self.dice.between(5, 10) } else { self.dice.between(1, 5) };
            self.agenda.put(after * SECOND, SimEvent::Probe { pod, uid });
        }
    }

    /// Whether the readiness probe succeeds. The injected probe proves Synced; the template's own probe connects to the database,
    /// which also answers while it is cut off.
    fn probe_succeeds(&self, pod: &str, container: &Container) -> bool {
        let server = self.galera.servers.get(pod).filter(|it| Some(it.run) == container.run);
        server.is_some_and(|it| match it.phase {
            Phase::Synced => true,
            Phase::CutOff => !container.proves_synced,
            _ => false,
        })
    }

    pub fn probe(&mut self, name: &str, uid: &str) {
        let Some(container) = self.containers.get(name).filter(|it| it.uid == uid) else { return };
        let (ready, now) = (self.probe_succeeds(name, container), self.agenda.now);
        let container = self.containers.get_mut(name).unwrap();
        container.probing = false;
        if container.ready != ready {
            (container.ready, container.changed_at) = (ready, now);
            container.started |= ready;
            self.report(name);
        }
    }

    /// Writes a pod's status, unless the node is unreachable.
    pub fn report(&mut self, name: &str) {
        let Some(container) = self.containers.get(name).cloned() else { return };
        if self.is_unreachable(&container.node) || self.this_pod(name, &container.uid).is_none() {
            return;
        }
        // All times in the status are by the node's clock as it was when the container started.
        let api_time = |at| api_time_by(container.clock_error, at);
        let state = match container.run {
            Some(_) => json!({ "running": { "startedAt": api_time(container.began) } }),
            None if container.restarts > 1 => json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
            None => json!({ "waiting": { "reason": "ContainerCreating" } }),
        };
        let last = if container.restarts > 0 {
            json!({ "terminated": { "startedAt": api_time(container.began), "message": container.message } })
        } else {
            json!({})
        };
        let status = json!({
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": if container.ready { "True" } else { "False" }, "lastTransitionTime": api_time(container.changed_at) }],
            "containerStatuses": [{ "name": "mariadb", "state": state, "lastState": last, "started": container.started }],
        });
        self.store.edit(self.agenda.now, Kind::Pod, name, |it| it["status"] = status);
    }

    /// Reports the removal of a pod, and what permitted it, to the laws.
    fn report_removal(&mut self, pod: &str, uid: &str) {
        // Without a StatefulSet, every ordinal counts as wanted.
        let asked_for = self.asked_for().unwrap_or(i64::MAX);
        self.laws.judge_removal(pod, uid, asked_for, &self.galera, self.agenda.now);
    }
}

/// Whether the server is started by the step script.
fn has_step_script(pod: &Value) -> bool {
    pod["spec"]["containers"][0]["command"].to_string().contains("start-member.sh")
}

/// Returns the last value of an option.
fn setting<'a>(file: &'a str, key: &str) -> Option<&'a str> {
    let mut values =
        file.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| name.trim() == key);
    values.next_back().map(|(_, value)| value.trim())
}

/// Whether the file has an option with which no server starts on existing data.
fn is_fatal(file: &str) -> bool {
    setting(file, "sim_fatal").is_some() || setting(file, "innodb_page_size").is_some()
}
