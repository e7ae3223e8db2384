//! The replicas of the guard: each has its own view, fed by a watch that may be late or silent; they share the reservations.
//!
//! Owns: the events that each replica has received, and the record of reservations. Must not know: any rule. A review is text,
//! read by the real reader, judged by the real `evaluate`, amended by the real `amend`; this module only does what
//! `answer/judge.rs` does around them. Data: an AdmissionReview in, the decision and perhaps a patch out.

use gatera::rulebook;
use std::collections::{BTreeMap, BTreeSet};

use engine::amend::amend;
use engine::inject;
use engine::rules::{self, MemberRemoval};
use engine::verdict::Decision;
use facts::pages::Pages;
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::{Facts, Freshness, Id, Reservation, Reservations, View, World};
use jiff::SignedDuration;
use serde_json::Value;

use super::clock::{Millis, SECOND, timestamp};
use super::store::Store;

/// How long a reservation lasts, as in `reserve/ledger.rs`.
const RESERVATION_LASTS: Millis = 30 * SECOND;
/// A replica does not repeat its own reservation of the same pod within this time, as in `reserve/ledger.rs`.
const NOT_REPEATED_WITHIN: Millis = 2 * SECOND;

/// The guard's own identity at the API server.
pub const OWN_USER: &str = "system:serviceaccount:gatera:gatera";

/// One replica of the guard.
#[derive(Default)]
pub struct Replica {
    pub up: bool,
    facts: Facts,
    world: World,
    /// The number of events of the log that it has received.
    received: usize,
    /// The time at which it last received events.
    pub current_at: Millis,
    /// The time until which it receives no events.
    pub no_events_until: Millis,
    /// The time that each event takes to reach it.
    pub delay: Millis,
    /// The error of its node's clock.
    pub clock_is_off_by: SignedDuration,
    /// The reservations that it wrote itself.
    own: BTreeSet<u64>,
    /// The reservations that it knows of, each with the time at which it learned of it.
    known: BTreeMap<u64, Millis>,
}

pub struct Guard {
    pub settings: Settings,
    pub replicas: Vec<Replica>,
    pub leader: usize,
    /// All reservations that were ever made; elsewhere, a reservation is a number: its index here.
    reservations_made: Vec<MemberRemoval>,
    /// The reservations that are in the Lease now.
    lease: Vec<u64>,
}

/// The answer to one review.
pub struct Answer {
    pub decision: Decision,
    pub patch: Option<json_patch::Patch>,
    /// The refusal, as a person reads it.
    pub message: String,
    /// Whether the removal of a member is reserved.
    pub reserved: bool,
}

impl Guard {
    pub fn of(replicas: usize, settings: Settings) -> Self {
        let new = |_| {
            let world = World::empty(&settings.adoption, Freshness::Current);
            Replica { up: true, facts: rulebook().facts(&settings.adoption), world, ..Replica::default() }
        };
        let replicas = (0..replicas).map(new).collect();
        Self { settings, replicas, leader: 0, reservations_made: Vec::new(), lease: Vec::new() }
    }

    /// Lists the replicas that are ready to answer.
    pub fn ready(&self) -> Vec<usize> {
        (0..self.replicas.len()).filter(|index| self.replicas[*index].up).collect()
    }

    /// Delivers the events that have reached the replica by now.
    pub fn receive_events(&mut self, index: usize, store: &Store, now: Millis) {
        let replica = &mut self.replicas[index];
        if now < replica.no_events_until {
            return;
        }
        let until = now.saturating_sub(replica.delay);
        let mut changed = false;
        while let Some(change) = store.log.get(replica.received).filter(|it| it.at <= until) {
            replica.received += 1;
            changed = true;
            match &change.object {
                Some(object) => {
                    replica.facts.put(object.clone());
                }
                None => {
                    let namespaced = Id::new(super::store::NAMESPACE, &change.name);
                    replica.facts.remove(change.kind, &namespaced);
                }
            }
        }
        replica.current_at = now;
        if changed {
            replica.world = replica.world.after(&mut replica.facts);
            // A view that is updated event by event must equal one that is built from everything at once.
            if replica.received.is_multiple_of(64) {
                let rebuilt = World::build(replica.facts.clone(), Freshness::Current);
                let (updated, rebuilt) = (clusters(&replica.world), clusters(&rebuilt));
                assert_eq!(updated, rebuilt, "the updated view of guard-{index} differs from a new one");
            }
        }
    }

    /// Restarts the replica: it lists all objects, and knows of no reservation.
    pub fn restart(&mut self, index: usize, store: &Store, now: Millis) {
        let mut facts = rulebook().facts(&self.settings.adoption);
        for object in store.listed() {
            facts.put(object);
        }
        let world = World::build(facts.clone(), Freshness::Current);
        let (received, current_at) = (store.log.len(), now);
        let Replica { delay, clock_is_off_by, .. } = self.replicas[index];
        self.replicas[index] = Replica {
            up: true,
            facts,
            world,
            received,
            current_at,
            delay,
            clock_is_off_by,
            ..Replica::default()
        };
    }

    /// Calls the function with the current view of one replica.
    pub fn with_view<T>(&self, index: usize, now: Millis, ask: impl FnOnce(&View<'_>) -> T) -> T {
        let replica = &self.replicas[index];
        let age = SignedDuration::from_millis(i64::try_from(now - replica.current_at).unwrap());
        let (freshness, reservations) = (Freshness::at_age(Some(age)), self.reservations(index, now));
        let view = View::new(&replica.world, timestamp(now) + replica.clock_is_off_by, &self.settings);
        ask(&View { freshness, reservations: &reservations, ..view })
    }

    fn reservations(&self, index: usize, now: Millis) -> Reservations {
        let known = self.replicas[index].known.iter().filter(|(_, since)| now - **since < RESERVATION_LASTS);
        known
            .map(|(number, since)| {
                let MemberRemoval { cluster, pod, uid, .. } =
                    self.reservations_made[usize::try_from(*number).unwrap()].clone();
                Reservation { cluster, pod, uid, age: (now - since) / SECOND }
            })
            .collect()
    }

    /// Reads the reservations in the Lease. Each counts from the time at which the replica learns of it; an expired one stays
    /// known as long as it is in the Lease.
    fn read_lease(&mut self, index: usize, now: Millis) {
        let lease = &self.lease;
        let known = &mut self.replicas[index].known;
        known.retain(|number, since| now - *since < RESERVATION_LASTS || lease.contains(number));
        for number in lease {
            known.entry(*number).or_insert(now);
        }
    }

    /// Returns the snapshots that must be created before a new pod is judged.
    pub fn snapshots(&self, index: usize, origin: Origin, body: &str, now: Millis) -> Vec<Value> {
        if origin != Origin::Mutating {
            return Vec::new();
        }
        let incoming = review::read(body.as_bytes(), origin, rulebook().kinds())
            .expect("an API server writes readable reviews");
        self.with_view(index, now, |view| inject::missing_snapshots(&incoming.review, view))
    }

    /// Answers one review, from text to answer. `reachable`: whether the API server accepts the guard's own writes;
    /// `new_snapshots`: the names of the snapshots that were created for it.
    pub fn answer(
        &mut self,
        index: usize,
        origin: Origin,
        body: &str,
        now: Millis,
        reachable: bool,
        new_snapshots: &[String],
    ) -> Answer {
        let incoming = review::read(body.as_bytes(), origin, rulebook().kinds())
            .expect("an API server writes readable reviews");
        let review = &incoming.review;
        let mut decision = self.with_view(index, now, |view| rulebook().evaluate(review, view));
        let member_removal = self.with_view(index, now, |view| rules::member_removal(review, view));
        let member_removal = member_removal.filter(|_| decision.allowed());
        let mut reserved = false;
        if let Some(member_removal) = member_removal {
            if reachable {
                // Judged again with all reservations that the Lease shows at the moment of writing.
                self.read_lease(index, now);
                decision = self.with_view(index, now, |view| rulebook().evaluate(review, view));
                reserved = decision.allowed();
                if reserved {
                    self.write_reservation(index, member_removal, now);
                }
            } else {
                let problem = "the API server cannot be reached";
                self.with_view(index, now, |view| {
                    rules::refuse_unreserved(&member_removal, problem, review, view, &mut decision);
                });
            }
        }
        let object = incoming.object.filter(|_| origin == Origin::Mutating && decision.allowed());
        let patch = object.and_then(|object| {
            let amend = |view: &View<'_>| amend(review, &object, &decision, &View { new_snapshots, ..*view });
            self.with_view(index, now, amend)
        });
        let message = report::refusal(&review.subject(), &decision, &Pages::Program);
        Answer { decision, patch, message, reserved }
    }

    /// Writes a reservation into the Lease, together with all others that still count for this replica, unless the replica itself
    /// reserved this pod a moment ago.
    fn write_reservation(&mut self, index: usize, member_removal: MemberRemoval, now: Millis) {
        let of_this_pod =
            |number: u64| self.reservations_made[usize::try_from(number).unwrap()].uid == member_removal.uid;
        let Replica { known, own, .. } = &self.replicas[index];
        let last = known.keys().rev().find(|number| of_this_pod(**number));
        if last.is_some_and(|number| now - known[number] < NOT_REPEATED_WITHIN && own.contains(number)) {
            return;
        }
        let others = known
            .iter()
            .filter(|(number, since)| now - **since < RESERVATION_LASTS && !of_this_pod(**number));
        let new = self.reservations_made.len() as u64;
        self.lease = others.map(|(number, _)| *number).chain([new]).collect();
        self.reservations_made.push(member_removal);
        self.replicas[index].own.insert(new);
        self.read_lease(index, now);
    }
}

/// Returns everything that a World knows of all clusters, as text.
fn clusters(world: &World) -> String {
    format!("{:?}", world.clusters().collect::<Vec<_>>())
}
