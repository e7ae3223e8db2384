//! Galera: servers, their disks, and the Primary components they form.
//!
//! Owns: the members of each component, the donor of each joiner, the content of each disk. Must not know: Kubernetes (a server
//! is named after its pod, a disk after its claim), the guard. Data: kubelets start, stop and kill servers; [`Galera::settle`]
//! derives the consequences. Rows are numbered in the order in which they were acknowledged, so one number says which rows a disk
//! holds.

use std::collections::{BTreeMap, BTreeSet};

/// The content of a claim.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// The number of the last row; the disk holds all rows up to it.
    pub rows: u64,
    /// The history the rows belong to; `None` if the disk is empty.
    pub history: Option<u64>,
    /// Whether no state transfer to this disk was interrupted.
    pub complete: bool,
    /// Whether its server was stopped in order, so that grastate.dat holds the position.
    pub stopped_in_order: bool,
    /// Whether its server was the last one to leave the cluster.
    pub safe_to_bootstrap: bool,
    /// The members of the last Primary component that its server was in (gvwstate.dat).
    pub view: Option<BTreeSet<String>>,
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its position is being recovered.
    Preparing,
    /// It looks for a serving member.
    Looking,
    /// It waits for the other members of its last view.
    Waiting,
    /// It has joined a component and lacks rows: all of them if `full`.
    Joining {
        full: bool,
    },
    Synced,
    /// It has served, but no longer reaches a majority.
    CutOff,
}

/// A server process.
#[derive(Clone, Debug)]
pub struct Server {
    /// The uid of its pod.
    pub uid: String,
    pub node: String,
    pub disk: String,
    /// A number that is unique to this run.
    pub run: u64,
    pub phase: Phase,
    /// The Primary component it is in.
    pub component: Option<u64>,
    pub donor: Option<String>,
    /// Whether it was asked to stop.
    pub stopping: bool,
    pub start: Start,
}

/// How a server was started.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The pods and Services in its cluster address.
    pub hosts: Vec<String>,
    /// Whether it founds a cluster.
    pub founds: bool,
    /// Whether it knows its position even after a crash, because the step script recovers it.
    pub recovers: bool,
}

/// A Primary component.
#[derive(Clone, Debug)]
pub struct Component {
    pub history: u64,
    pub members: BTreeSet<String>,
}

/// An event that the laws judge.
#[derive(Clone, Debug)]
pub enum Alarm {
    Founded {
        by: String,
        rows: u64,
    },
    LostPrimary {
        of: BTreeSet<String>,
    },
    /// A component formed although not all positions were known, so that they were not compared.
    Uncompared {
        by: BTreeSet<String>,
    },
}

#[derive(Default)]
pub struct Galera {
    pub disks: BTreeMap<String, Disk>,
    pub servers: BTreeMap<String, Server>,
    pub components: BTreeMap<u64, Component>,
    /// The number of rows that were acknowledged to clients.
    pub acknowledged: u64,
    /// The nodes without a network.
    pub isolated: BTreeSet<String>,
    pub alarms: Vec<Alarm>,
    /// The servers that gave up joining and have not been handled by the stage yet.
    pub aborted: Vec<(String, u64)>,
    last_id: u64,
}

/// The largest number of missing rows that a donor can send; if more are missing, a full copy is needed.
const MAX_INCREMENTAL_ROWS: u64 = 60;

impl Galera {
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Returns the id of a history as Galera writes it.
    pub fn id(history: u64) -> String {
        format!("{history:08x}-51a1-11f0-8000-{history:012x}")
    }

    /// Returns the part of the network that the server is in: an isolated node is a part of its own.
    fn partition(&self, pod: &str) -> &str {
        let node = self.servers.get(pod).map_or("", |it| &it.node);
        if self.isolated.contains(node) { node } else { "network" }
    }

    /// Continues the start of a server after its preparation: it founds a cluster, waits, or looks for others. `Err`: it ends,
    /// for this reason.
    pub fn connect(&mut self, pod: &str) -> Result<(), &'static str> {
        let server = &self.servers[pod];
        let (start, name) = (server.start.clone(), server.disk.clone());
        let disk = self.disks.entry(name).or_default();
        if start.founds {
            if disk.history.is_some() && !disk.safe_to_bootstrap {
                return Err("it may not be safe to bootstrap the cluster from this node");
            }
            let rows = disk.rows;
            let history = self.next_id();
            self.alarms.push(Alarm::Founded { by: pod.to_owned(), rows });
            self.enter(pod, history, [pod.to_owned()].into(), history);
            return Ok(());
        }
        let compares = start.recovers || disk.stopped_in_order;
        let waits =
            disk.view.is_some() && disk.complete && compares || disk.view.is_some() && !start.recovers;
        self.servers.get_mut(pod).unwrap().phase = if waits { Phase::Waiting } else { Phase::Looking };
        Ok(())
    }

    /// Makes a server Synced in a component of these members.
    fn enter(&mut self, pod: &str, component: u64, members: BTreeSet<String>, history: u64) {
        let server = self.servers.get_mut(pod).unwrap();
        (server.phase, server.component, server.donor) = (Phase::Synced, Some(component), None);
        let disk = self.disks.entry(server.disk.clone()).or_default();
        (disk.history, disk.complete, disk.stopped_in_order, disk.safe_to_bootstrap) =
            (Some(history), true, false, false);
        disk.view = Some(members.clone());
        self.components.insert(component, Component { history, members });
    }

    /// Derives the consequences of an event: components split, servers join them, components form again.
    pub fn settle(&mut self) {
        self.split_components();
        self.join_components();
        self.form_components();
        self.join_components();
        self.abort_orphaned_joiners();
        self.write_views();
    }

    /// Splits components. A part continues if it is a majority of the last view, in which killed members still count.
    fn split_components(&mut self) {
        for id in self.components.keys().copied().collect::<Vec<_>>() {
            let Component { members, .. } = self.components[&id].clone();
            let mut partitions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
            for pod in &members {
                if self.servers.get(pod).is_some_and(|it| it.component == Some(id)) {
                    partitions.entry(self.partition(pod)).or_default().insert(pod.clone());
                }
            }
            let largest = partitions.into_values().find(|partition| partition.len() * 2 > members.len());
            if largest.as_ref() == Some(&members) {
                continue;
            }
            let stay = largest.unwrap_or_default();
            for pod in members.difference(&stay) {
                if let Some(server) = self.servers.get_mut(pod).filter(|it| it.component == Some(id)) {
                    (server.component, server.donor) = (None, None);
                    match server.phase {
                        Phase::Synced => server.phase = Phase::CutOff,
                        _ => self.aborted.push((pod.clone(), server.run)),
                    }
                }
            }
            if stay.is_empty() {
                self.components.remove(&id);
                if !members.is_empty() {
                    self.alarms.push(Alarm::LostPrimary { of: members });
                }
            } else {
                self.components.get_mut(&id).unwrap().members = stay;
            }
        }
    }

    /// Makes servers join a Primary component that they reach.
    fn join_components(&mut self) {
        let out = |server: &Server| {
            let seeks = matches!(server.phase, Phase::Looking | Phase::Waiting | Phase::CutOff);
            server.component.is_none() && seeks && !server.stopping
        };
        for pod in
            self.servers.iter().filter(|(_, it)| out(it)).map(|(pod, _)| pod.clone()).collect::<Vec<_>>()
        {
            let server = &self.servers[&pod];
            let knows = |member: &String| {
                let listed = server.start.hosts.iter().any(|host| host == member || member.starts_with(host));
                let synced = self.servers.get(member).is_some_and(|it| it.phase == Phase::Synced);
                synced
                    && self.partition(member) == self.partition(&pod)
                    && (listed || server.phase == Phase::CutOff)
            };
            let found = self.components.iter().find(|(_, it)| it.members.iter().any(knows));
            let Some((id, component)) = found.map(|(id, it)| (*id, it.clone())) else { continue };
            let rows = self.rows_of(&component);
            let disk = &self.disks[&server.disk];
            let compares = server.start.recovers || disk.stopped_in_order || server.phase == Phase::CutOff;
            let same = disk.history == Some(component.history) && disk.complete && compares;
            let full = !same || disk.rows > rows || rows - disk.rows > MAX_INCREMENTAL_ROWS;
            let server = self.servers.get_mut(&pod).unwrap();
            (server.phase, server.component) = (Phase::Joining { full }, Some(id));
            self.components.get_mut(&id).unwrap().members.insert(pod);
        }
    }

    /// Forms a component when enough of a lost view is together again: a majority of members that never stopped, or all members.
    fn form_components(&mut self) {
        let mut by_view: BTreeMap<(String, BTreeSet<String>), BTreeSet<String>> = BTreeMap::new();
        for (pod, server) in &self.servers {
            let waits = matches!(server.phase, Phase::Waiting | Phase::CutOff) && !server.stopping;
            if let Some(view) = self.disks[&server.disk].view.clone().filter(|_| waits) {
                by_view.entry((self.partition(pod).to_owned(), view)).or_default().insert(pod.clone());
            }
        }
        for ((_, view), present) in by_view {
            let never_stopped = present.iter().filter(|it| self.servers[*it].phase == Phase::CutOff).count();
            if never_stopped * 2 <= view.len() && present != view {
                continue;
            }
            let uncompared = |pod: &&String| {
                let server = &self.servers[*pod];
                let disk = &self.disks[&server.disk];
                server.phase == Phase::Waiting && !server.start.recovers && !disk.stopped_in_order
            };
            if present.iter().any(|pod| uncompared(&pod)) {
                self.alarms.push(Alarm::Uncompared { by: present.clone() });
            }
            let newest = present.iter().max_by_key(|pod| self.disks[&self.servers[*pod].disk].rows).unwrap();
            let (rows, history) = {
                let disk = &self.disks[&self.servers[newest].disk];
                (disk.rows, disk.history.unwrap())
            };
            let id = self.next_id();
            for pod in &present {
                let lacks = self.disks[&self.servers[pod].disk].rows < rows;
                self.enter(pod, id, present.clone(), history);
                if lacks {
                    self.servers.get_mut(pod).unwrap().phase = Phase::Joining { full: false };
                }
            }
        }
    }

    /// Ends joiners whose donor no longer serves: a partial state transfer is useless.
    fn abort_orphaned_joiners(&mut self) {
        let served = |donor: &String| self.servers.get(donor).is_some_and(|it| it.phase == Phase::Synced);
        let orphaned = self.servers.iter().filter(|(_, it)| it.donor.as_ref().is_some_and(|it| !served(it)));
        let orphaned: Vec<_> = orphaned.map(|(pod, it)| (pod.clone(), it.run)).collect();
        for (pod, _) in &orphaned {
            self.servers.get_mut(pod).unwrap().donor = None;
        }
        self.aborted.extend(orphaned);
    }

    /// Writes the current view to the disk of each Synced member.
    fn write_views(&mut self) {
        for component in self.components.values() {
            for pod in &component.members {
                let server = &self.servers[pod];
                if server.phase == Phase::Synced {
                    self.disks.get_mut(&server.disk).unwrap().view = Some(component.members.clone());
                }
            }
        }
    }

    /// Begins a state transfer to each joiner for which there is a free donor. Returns pod and run of these joiners; `true`
    /// means a full copy.
    pub fn begin_transfers(&mut self) -> Vec<(String, u64, bool)> {
        let mut begun = Vec::new();
        for pod in self.servers.keys().cloned().collect::<Vec<_>>() {
            let server = &self.servers[&pod];
            let (Phase::Joining { full }, Some(id), None) = (server.phase, server.component, &server.donor)
            else {
                continue;
            };
            let gives = |donor: &&String| {
                let it = &self.servers[*donor];
                it.phase == Phase::Synced
                    && !it.stopping
                    && self.servers.values().all(|it| it.donor.as_ref() != Some(donor))
            };
            let Some(donor) = self.components[&id].members.iter().find(gives).cloned() else { continue };
            if full {
                *self.disks.get_mut(&server.disk).unwrap() = Disk::default();
            }
            let server = self.servers.get_mut(&pod).unwrap();
            server.donor = Some(donor);
            begun.push((pod, server.run, full));
        }
        begun
    }

    /// Completes a state transfer. Returns false if it was aborted before.
    pub fn transferred(&mut self, pod: &str, run: u64) -> bool {
        let Some(server) = self.servers.get(pod).filter(|it| it.run == run && it.donor.is_some()) else {
            return false;
        };
        let Some(id) = server.component else { return false };
        let component = self.components[&id].clone();
        let (rows, disk) = (self.rows_of(&component), server.disk.clone());
        self.enter(pod, id, component.members, component.history);
        self.disks.get_mut(&disk).unwrap().rows = rows;
        true
    }

    /// Returns the number of rows that the Synced members of a component have.
    pub fn rows_of(&self, component: &Component) -> u64 {
        let synced = component.members.iter().filter_map(|pod| self.servers.get(pod));
        let synced = synced.filter(|it| it.phase == Phase::Synced);
        synced.map(|it| self.disks[&it.disk].rows).max().unwrap_or_default()
    }

    /// Writes rows to a component that has every acknowledged row: all its Synced members get them, and they are acknowledged.
    /// Without such a component, nothing is written.
    pub fn write(&mut self, rows: u64) {
        let Some(component) = self.components.values().find(|it| self.rows_of(it) == self.acknowledged)
        else {
            return;
        };
        self.acknowledged += rows;
        for pod in component.members.clone() {
            let server = &self.servers[&pod];
            if server.phase == Phase::Synced {
                self.disks.get_mut(&server.disk).unwrap().rows = self.acknowledged;
            }
        }
    }

    /// Stops a server in order: the remaining members keep their component.
    pub fn stop(&mut self, pod: &str) {
        let Some(server) = self.servers.remove(pod) else { return };
        let disk = self.disks.entry(server.disk.clone()).or_default();
        if server.phase == Phase::Synced || server.phase == Phase::CutOff {
            (disk.view, disk.stopped_in_order, disk.safe_to_bootstrap) = (None, true, false);
        }
        if let Some(component) = server.component.and_then(|id| self.components.get_mut(&id)) {
            component.members.remove(pod);
            if component.members.is_empty() {
                self.disks.get_mut(&server.disk).unwrap().safe_to_bootstrap = server.phase == Phase::Synced;
                self.components.remove(&server.component.unwrap());
            }
        }
        self.settle();
    }

    /// Ends a server without notice. Its last `unwritten` rows were not on its disk yet; other members have them.
    pub fn kill(&mut self, pod: &str, unwritten: u64) {
        let Some(server) = self.servers.remove(pod) else { return };
        let disk = self.disks.entry(server.disk).or_default();
        disk.stopped_in_order = false;
        disk.rows -= unwritten.min(disk.rows);
    }

    pub fn synced(&self, pod: &str) -> bool {
        self.servers.get(pod).is_some_and(|it| it.phase == Phase::Synced && it.component.is_some())
    }

    /// Whether the server is the donor of a joiner.
    pub fn is_donor(&self, pod: &str) -> bool {
        self.servers.values().any(|it| it.donor.as_deref() == Some(pod))
    }
}
