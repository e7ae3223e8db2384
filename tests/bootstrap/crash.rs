//! The leader is killed during a removal, and the next leader finishes it. Each round kills it after another number of writes:
//! some numbers by default, all with `GATERA_CRASHES=all`.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::MEMBER_ADDRESSES;
use super::gate::Gate;
use super::live::{addresses, assert_nothing_is_left, events, existing};
use crate::cluster::STATEFUL_SET;
use crate::guarded::{Guard, Start, free_lease, install, program};
use crate::lab::{ControlPlane, User, eventually};
use crate::living_cluster::Alive;
use crate::wire::Balancer;

/// A guard and the proxy between it and the API server. When it is killed, another guard takes its place.
pub struct Leader {
    pub gate: Gate,
    guard: Guard,
    number: usize,
}

/// A control plane whose guards are killed.
pub struct CrashLab {
    pub plane: &'static ControlPlane,
    service: Balancer,
    // Two guards on one control plane would wait for the same Lease.
    _alone: MutexGuard<'static, ()>,
}

impl CrashLab {
    /// Returns a control plane of its own, because its guards are killed.
    pub fn new() -> Self {
        static PLANE: LazyLock<ControlPlane> = LazyLock::new(|| ControlPlane::start_with_nodes(4));
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        install(&PLANE);
        let lease = ["get", "lease/gatera", "--namespace=gatera", "--ignore-not-found", "--output=name"];
        if !PLANE.kubectl(User::Admin, &lease).succeeded().is_empty() {
            free_lease(&PLANE);
        }
        Self { plane: &PLANE, service: Balancer::start(), _alone: alone }
    }

    pub fn leader(&self, number: usize) -> Leader {
        let gate = Gate::start(self.plane);
        let start = Start {
            identity: format!("leader-{number}"),
            api_server: Some(gate.url()),
            url: Some(format!("https://{}", self.service.address)),
            ..Start::default()
        };
        let guard = Guard::start(self.plane, &program(), &start);
        self.service.set_backends(&[guard.webhooks]);
        guard.until_registered();
        Leader { gate, guard, number }
    }

    /// Kills the leader, frees its Lease so that the next leader need not wait until it expires, and returns the next leader.
    pub fn kill(&self, leader: Leader) -> Leader {
        let Leader { gate, guard, number } = leader;
        drop(guard);
        drop(gate);
        free_lease(self.plane);
        self.leader(number + 1)
    }

    pub fn namespace(&self) -> Alive {
        let ns = self.plane.namespace_with_labels("crash", &[("gatera.dev/mode", "enforce")]);
        Alive { plane: self.plane, ns }
    }
}

impl Alive {
    fn bootstrap_annotation(&self) -> String {
        self.stateful_set()["metadata"]["annotations"]["gatera.dev/bootstrap"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

#[test]
fn the_next_leader_finishes_a_removal() {
    let lab = CrashLab::new();
    let mut leader = lab.leader(0);
    let mut stopped_at = Vec::new();
    // The first write, a mark, two of the deletions, and no crash at all.
    let usual = [0, 8, 11, 13, usize::MAX];
    let all = std::env::var("GATERA_CRASHES").is_ok_and(|it| it == "all");
    for writes in (0..).map_while(|turn| if all { Some(turn) } else { usual.get(turn).copied() }) {
        let alive = lab.namespace();
        leader.gate.allow_writes(&alive.ns, writes);
        alive.apply(&[]).succeeded();
        // The webhooks keep working, so members are injected.
        alive.until_ready(3);
        let members = alive.members();
        let held = eventually("a write of the leader to be held, or the removal to be done", || {
            // In this order, because the last write is visible before its answer is held back.
            let done = alive.bootstrap_annotation().starts_with("removed ") && leader.gate.is_idle();
            let held = leader.gate.holds_a_request();
            (held || done).then_some(held)
        });
        if held {
            let existing = existing(&alive, &[]);
            let left = ["deployment", "service", "configmap"]
                .map(|kind| existing.iter().any(|it| it.starts_with(kind)));
            stopped_at
                .push((alive.bootstrap_annotation().split(' ').next().unwrap_or_default().to_owned(), left));
            leader = lab.kill(leader);
        }
        alive.until_bootstrap_removed();
        assert_nothing_is_left(&alive);
        assert_eq!(addresses(&alive), vec![MEMBER_ADDRESSES; 3], "after {writes} writes");
        assert_eq!(alive.members(), members, "a member was restarted after {writes} writes");
        assert_eq!(alive.stateful_set()["metadata"]["annotations"]["gatera.dev/data"], "present");
        let reported = events(&alive, "BootstrapRemoved");
        assert_eq!(reported.len(), 1, "after {writes} writes: {reported:?}");
        let asked = alive.plane.asked_by_the_guard();
        let mut deleted: Vec<_> = asked
            .iter()
            .filter(|it| it.namespace == alive.ns && it.verb == "delete" && it.code == 200)
            .map(|it| &*it.resource)
            .collect();
        deleted.sort_unstable();
        assert_eq!(
            deleted,
            ["configmaps", "deployments", "services"],
            "each object is deleted once, after {writes} writes"
        );
        if !held {
            break;
        }
    }
    // The writes in their order: a snapshot and its annotation, the data, the annotation, three members, three marks, the
    // Deployment, the Service, the ConfigMap, the Event, the annotation.
    assert!(stopped_at.len() >= if all { 15 } else { 4 }, "too few crashes: {stopped_at:?}");
    // The audit also writes, so not every run stops between the Service and the ConfigMap.
    let half = |left: &[bool; 3]| !left[0] && (left[1] || left[2]);
    let stopped = |bootstrap_annotation: &str, is: &dyn Fn(&[bool; 3]) -> bool| {
        assert!(
            stopped_at.iter().any(|(at, left)| at == bootstrap_annotation && is(left)),
            "no crash while the annotation was {bootstrap_annotation:?} and these objects were left: {stopped_at:?}"
        );
    };
    stopped("", &|left| *left == [true; 3]);
    stopped("removing", &|left| *left == [true; 3]);
    stopped("removing", &half);
    let alive = lab.namespace();
    check_namespace_deleted_midway(&lab, leader, &alive);
}

/// Checks that nothing more is done in a namespace that is being deleted, and that its end is not delayed.
fn check_namespace_deleted_midway(lab: &CrashLab, leader: Leader, alive: &Alive) {
    leader.gate.allow_writes(&alive.ns, 5);
    alive.apply(&[]).succeeded();
    alive.until_ready(3);
    eventually("a write of the leader to be held", || leader.gate.holds_a_request().then_some(()));
    assert!(alive.bootstrap_annotation().starts_with("removing "));
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
    let override_mark = format!("gatera.dev/override=G03 until={until} reason=the end");
    alive.admin(&["annotate", "namespace", &alive.ns, &override_mark]).succeeded();
    alive.admin(&["annotate", "statefulset", STATEFUL_SET, &override_mark]).succeeded();
    alive.admin(&["delete", "namespace", &alive.ns, "--wait=false"]).succeeded();
    let leader = lab.kill(leader);
    eventually("the namespace to be gone", || {
        (alive.admin(&["get", "namespace", &alive.ns]).status == 1).then_some(())
    });
    let deleted = alive
        .plane
        .asked_by_the_guard()
        .into_iter()
        .filter(|it| it.namespace == alive.ns && it.verb == "delete");
    assert_eq!(deleted.count(), 0, "{}", leader.guard.log());
}
