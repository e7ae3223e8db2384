//! Galera: servers, their disks, and the Primary components they form.
//!
//! Owns: who is in which component, who copies from whom, what is on which disk. Must not know: Kubernetes (a server is
//! named after its pod, a disk after its claim), the guard. Data: kubelets start, stop and kill servers;
//! [`Galera::settle`] draws the conclusions. Rows are numbered in the order in which they were acknowledged, so a disk
//! holds all up to a number.

use std::collections::{BTreeMap, BTreeSet};

/// What is on a claim.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// All rows up to this one.
    pub rows: u64,
    /// The history they belong to; `None`: empty.
    pub history: Option<u64>,
    /// No transfer was cut short on it.
    pub whole: bool,
    /// It was stopped in order, so its position stands in grastate.dat.
    pub in_order: bool,
    /// It left last.
    pub safe: bool,
    /// The last Primary component it was in (gvwstate.dat).
    pub view: Option<BTreeSet<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Recovers its position.
    Preparing,
    /// Looks for somebody who serves.
    Looking,
    /// Waits for everybody of its last view.
    Waiting,
    /// Has joined, and lacks rows.
    Joining {
        full: bool,
    },
    Synced,
    /// Served, and reaches no majority.
    CutOff,
}

/// A server process.
#[derive(Clone, Debug)]
pub struct Server {
    /// Of its pod.
    pub uid: String,
    pub node: String,
    pub disk: String,
    /// No two runs have the same.
    pub run: u64,
    pub doing: Doing,
    /// The Primary component it is in.
    pub component: Option<u64>,
    pub donor: Option<String>,
    /// Was told to stop.
    pub stopping: bool,
    pub start: Start,
}

/// How a server was started.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Pods and Services of its address.
    pub hosts: Vec<String>,
    /// Its address names nobody.
    pub founds: bool,
    /// It knows its position after a crash.
    pub recovers: bool,
}

/// A Primary component.
#[derive(Clone, Debug)]
pub struct Component {
    pub history: u64,
    pub members: BTreeSet<String>,
}

/// What the laws want to know.
#[derive(Clone, Debug)]
pub enum Alarm {
    Founded {
        by: String,
        rows: u64,
    },
    LostPrimary {
        of: BTreeSet<String>,
    },
    /// Positions were not compared.
    Blind {
        by: BTreeSet<String>,
    },
}

#[derive(Default)]
pub struct Galera {
    pub disks: BTreeMap<String, Disk>,
    pub servers: BTreeMap<String, Server>,
    pub components: BTreeMap<u64, Component>,
    /// Rows that clients know to be safe.
    pub acknowledged: u64,
    /// Nodes that reach nobody else.
    pub isolated: BTreeSet<String>,
    pub alarms: Vec<Alarm>,
    /// Servers that ended by themselves, since somebody asked last.
    pub aborted: Vec<(String, u64)>,
    last: u64,
}

/// More missing rows than this need a full copy.
const KEPT_ROWS: u64 = 60;

impl Galera {
    pub fn fresh(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The id of a history, as Galera writes it.
    pub fn id(history: u64) -> String {
        format!("{history:08x}-51a1-11f0-8000-{history:012x}")
    }

    fn cell(&self, pod: &str) -> &str {
        let node = self.servers.get(pod).map_or("", |it| &it.node);
        if self.isolated.contains(node) { node } else { "network" }
    }

    /// A server that has its position goes on: founds, waits, or looks for others. `Err`: it ends instead.
    pub fn connect(&mut self, pod: &str) -> Result<(), &'static str> {
        let server = &self.servers[pod];
        let (start, name) = (server.start.clone(), server.disk.clone());
        let disk = self.disks.entry(name).or_default();
        if start.founds {
            if disk.history.is_some() && !disk.safe {
                return Err("it may not be safe to bootstrap the cluster from this node");
            }
            let rows = disk.rows;
            let history = self.fresh();
            self.alarms.push(Alarm::Founded { by: pod.to_owned(), rows });
            self.enter(pod, history, [pod.to_owned()].into(), history);
            return Ok(());
        }
        let compares = start.recovers || disk.in_order;
        let waits = disk.view.is_some() && disk.whole && compares || disk.view.is_some() && !start.recovers;
        self.servers.get_mut(pod).unwrap().doing = if waits { Doing::Waiting } else { Doing::Looking };
        Ok(())
    }

    /// This server serves in a component of these members from now on.
    fn enter(&mut self, pod: &str, component: u64, members: BTreeSet<String>, history: u64) {
        let server = self.servers.get_mut(pod).unwrap();
        (server.doing, server.component, server.donor) = (Doing::Synced, Some(component), None);
        let disk = self.disks.entry(server.disk.clone()).or_default();
        (disk.history, disk.whole, disk.in_order, disk.safe) = (Some(history), true, false, false);
        disk.view = Some(members.clone());
        self.components.insert(component, Component { history, members });
    }

    /// Everything that follows: who has lost whom, who finds whom again, who joins.
    pub fn settle(&mut self) {
        self.shrink();
        self.rejoin();
        self.form();
        self.rejoin();
        self.abort_orphaned_joiners();
        self.write_views();
    }

    /// Members that vanished count against the majority of the last view.
    fn shrink(&mut self) {
        for id in self.components.keys().copied().collect::<Vec<_>>() {
            let Component { members, .. } = self.components[&id].clone();
            let mut cells: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
            for pod in &members {
                if self.servers.get(pod).is_some_and(|it| it.component == Some(id)) {
                    cells.entry(self.cell(pod)).or_default().insert(pod.clone());
                }
            }
            let largest = cells.into_values().find(|cell| cell.len() * 2 > members.len());
            if largest.as_ref() == Some(&members) {
                continue;
            }
            let stay = largest.unwrap_or_default();
            for pod in members.difference(&stay) {
                if let Some(server) = self.servers.get_mut(pod).filter(|it| it.component == Some(id)) {
                    (server.component, server.donor) = (None, None);
                    match server.doing {
                        Doing::Synced => server.doing = Doing::CutOff,
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

    /// Whoever reaches a Primary component joins it.
    fn rejoin(&mut self) {
        let out = |server: &Server| {
            let seeks = matches!(server.doing, Doing::Looking | Doing::Waiting | Doing::CutOff);
            server.component.is_none() && seeks && !server.stopping
        };
        for pod in
            self.servers.iter().filter(|(_, it)| out(it)).map(|(pod, _)| pod.clone()).collect::<Vec<_>>()
        {
            let server = &self.servers[&pod];
            let knows = |member: &String| {
                let listed = server.start.hosts.iter().any(|host| host == member || member.starts_with(host));
                let synced = self.servers.get(member).is_some_and(|it| it.doing == Doing::Synced);
                synced && self.cell(member) == self.cell(&pod) && (listed || server.doing == Doing::CutOff)
            };
            let found = self.components.iter().find(|(_, it)| it.members.iter().any(knows));
            let Some((id, component)) = found.map(|(id, it)| (*id, it.clone())) else { continue };
            let rows = self.rows_of(&component);
            let disk = &self.disks[&server.disk];
            let compares = server.start.recovers || disk.in_order || server.doing == Doing::CutOff;
            let same = disk.history == Some(component.history) && disk.whole && compares;
            let full = !same || disk.rows > rows || rows - disk.rows > KEPT_ROWS;
            let server = self.servers.get_mut(&pod).unwrap();
            (server.doing, server.component) = (Doing::Joining { full }, Some(id));
            self.components.get_mut(&id).unwrap().members.insert(pod);
        }
    }

    /// Enough of a view that was lost are together again: most of those that never stopped, or all.
    fn form(&mut self) {
        let mut by_view: BTreeMap<(String, BTreeSet<String>), BTreeSet<String>> = BTreeMap::new();
        for (pod, server) in &self.servers {
            let waits = matches!(server.doing, Doing::Waiting | Doing::CutOff) && !server.stopping;
            if let Some(view) = self.disks[&server.disk].view.clone().filter(|_| waits) {
                by_view.entry((self.cell(pod).to_owned(), view)).or_default().insert(pod.clone());
            }
        }
        for ((_, view), present) in by_view {
            let never_stopped = present.iter().filter(|it| self.servers[*it].doing == Doing::CutOff).count();
            if never_stopped * 2 <= view.len() && present != view {
                continue;
            }
            let blind = |pod: &&String| {
                let server = &self.servers[*pod];
                let disk = &self.disks[&server.disk];
                server.doing == Doing::Waiting && !server.start.recovers && !disk.in_order
            };
            if present.iter().any(|pod| blind(&pod)) {
                self.alarms.push(Alarm::Blind { by: present.clone() });
            }
            let newest = present.iter().max_by_key(|pod| self.disks[&self.servers[*pod].disk].rows).unwrap();
            let (rows, history) = {
                let disk = &self.disks[&self.servers[newest].disk];
                (disk.rows, disk.history.unwrap())
            };
            let id = self.fresh();
            for pod in &present {
                let lacks = self.disks[&self.servers[pod].disk].rows < rows;
                self.enter(pod, id, present.clone(), history);
                if lacks {
                    self.servers.get_mut(pod).unwrap().doing = Doing::Joining { full: false };
                }
            }
        }
    }

    /// A joiner whose donor is gone ends, and what it has received is of no use.
    fn abort_orphaned_joiners(&mut self) {
        let served = |donor: &String| self.servers.get(donor).is_some_and(|it| it.doing == Doing::Synced);
        let orphaned = self.servers.iter().filter(|(_, it)| it.donor.as_ref().is_some_and(|it| !served(it)));
        let orphaned: Vec<_> = orphaned.map(|(pod, it)| (pod.clone(), it.run)).collect();
        for (pod, _) in &orphaned {
            self.servers.get_mut(pod).unwrap().donor = None;
        }
        self.aborted.extend(orphaned);
    }

    fn write_views(&mut self) {
        for component in self.components.values() {
            for pod in &component.members {
                let server = &self.servers[pod];
                if server.doing == Doing::Synced {
                    self.disks.get_mut(&server.disk).unwrap().view = Some(component.members.clone());
                }
            }
        }
    }

    /// Joiners that may begin to receive now, each with its donor; `true`: everything is copied.
    pub fn begin_transfers(&mut self) -> Vec<(String, u64, bool)> {
        let mut begun = Vec::new();
        for pod in self.servers.keys().cloned().collect::<Vec<_>>() {
            let server = &self.servers[&pod];
            let (Doing::Joining { full }, Some(id), None) = (server.doing, server.component, &server.donor)
            else {
                continue;
            };
            let gives = |donor: &&String| {
                let it = &self.servers[*donor];
                it.doing == Doing::Synced
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

    /// A transfer has come to its end.
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

    /// What a component has.
    pub fn rows_of(&self, component: &Component) -> u64 {
        let synced = component.members.iter().filter_map(|pod| self.servers.get(pod));
        let synced = synced.filter(|it| it.doing == Doing::Synced);
        synced.map(|it| self.disks[&it.disk].rows).max().unwrap_or_default()
    }

    /// A client's rows reach everybody who is Synced, and are acknowledged.
    pub fn write(&mut self, rows: u64) {
        let Some(component) = self.components.values().find(|it| self.rows_of(it) == self.acknowledged)
        else {
            return;
        };
        self.acknowledged += rows;
        for pod in component.members.clone() {
            let server = &self.servers[&pod];
            if server.doing == Doing::Synced {
                self.disks.get_mut(&server.disk).unwrap().rows = self.acknowledged;
            }
        }
    }

    /// It says good-bye: whoever stays is a whole component.
    pub fn leave(&mut self, pod: &str) {
        let Some(server) = self.servers.remove(pod) else { return };
        let disk = self.disks.entry(server.disk.clone()).or_default();
        if server.doing == Doing::Synced || server.doing == Doing::CutOff {
            (disk.view, disk.in_order, disk.safe) = (None, true, false);
        }
        if let Some(component) = server.component.and_then(|id| self.components.get_mut(&id)) {
            component.members.remove(pod);
            if component.members.is_empty() {
                self.disks.get_mut(&server.disk).unwrap().safe = server.doing == Doing::Synced;
                self.components.remove(&server.component.unwrap());
            }
        }
        self.settle();
    }

    /// It is gone without a word. What it had not written yet, others have: `unwritten` rows.
    pub fn vanish(&mut self, pod: &str, unwritten: u64) {
        let Some(server) = self.servers.remove(pod) else { return };
        let disk = self.disks.entry(server.disk).or_default();
        disk.in_order = false;
        disk.rows -= unwritten.min(disk.rows);
    }

    pub fn synced(&self, pod: &str) -> bool {
        self.servers.get(pod).is_some_and(|it| it.doing == Doing::Synced && it.component.is_some())
    }

    /// Somebody copies from it.
    pub fn gives(&self, pod: &str) -> bool {
        self.servers.values().any(|it| it.donor.as_deref() == Some(pod))
    }
}
