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

use super::clock::{Millis, SECOND, moment};
use super::store::Store;

/// How long a reservation lasts, as in `reserve.rs`.
const LASTS: Millis = 30 * SECOND;
/// How long a replica does not repeat its own reservation of the same pod, as in `reserve/ledger.rs`.
const AGAIN: Millis = 2 * SECOND;

/// The guard's own identity at the API server.
pub const OWN_USER: &str = "system:serviceaccount:gatera:gatera";

/// One replica of the guard.
#[derive(Default)]
pub struct Replica {
    pub up: bool,
    facts: Facts,
    world: World,
    /// The number of events of the log that it has received.
    heard: usize,
    /// The time at which its watches were last alive.
    pub heard_at: Millis,
    /// The time until which its watches are silent.
    pub silent_until: Millis,
    /// The time that an event takes to reach it.
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
    /// All reservations ever made; other fields name one by its index here.
    book: Vec<MemberRemoval>,
    /// The reservations that are in the Lease now.
    lease: Vec<u64>,
}

/// The answer to one review.
pub struct Answer {
    pub decision: Decision,
    pub patch: Option<json_patch::Patch>,
    /// The refusal, as a person reads it.
    pub words: String,
    /// A reservation was written, because a member is about to go.
    pub reserved: bool,
}

impl Guard {
    pub fn of(replicas: usize, settings: Settings) -> Self {
        let new = |_| {
            let world = World::empty(&settings.adoption, Freshness::Current);
            Replica { up: true, facts: rulebook().facts(&settings.adoption), world, ..Replica::default() }
        };
        let replicas = (0..replicas).map(new).collect();
        Self { settings, replicas, leader: 0, book: Vec::new(), lease: Vec::new() }
    }

    /// Lists the replicas that are ready to answer.
    pub fn ready(&self) -> Vec<usize> {
        (0..self.replicas.len()).filter(|index| self.replicas[*index].up).collect()
    }

    /// Delivers the events that have reached the replica by now.
    pub fn listen(&mut self, index: usize, store: &Store, now: Millis) {
        let replica = &mut self.replicas[index];
        if now < replica.silent_until {
            return;
        }
        let until = now.saturating_sub(replica.delay);
        let mut news = false;
        while let Some(change) = store.log.get(replica.heard).filter(|it| it.at <= until) {
            replica.heard += 1;
            news = true;
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
        replica.heard_at = now;
        if news {
            replica.world = replica.world.after(&mut replica.facts);
            // A view that is updated event by event must equal one that is built from everything at once.
            if replica.heard.is_multiple_of(64) {
                let whole = World::build(replica.facts.clone(), Freshness::Current);
                assert_eq!(clusters(&replica.world), clusters(&whole));
            }
        }
    }

    /// Restarts the replica, which lists everything.
    pub fn restart(&mut self, index: usize, store: &Store, now: Millis) {
        let mut facts = rulebook().facts(&self.settings.adoption);
        for object in store.listed() {
            facts.put(object);
        }
        let world = World::build(facts.clone(), Freshness::Current);
        let (heard, heard_at) = (store.log.len(), now);
        let Replica { delay, clock_is_off_by, .. } = self.replicas[index];
        self.replicas[index] =
            Replica { up: true, facts, world, heard, heard_at, delay, clock_is_off_by, ..Replica::default() };
    }

    /// Calls the function with the view of one replica.
    pub fn look<T>(&self, index: usize, now: Millis, look: impl FnOnce(&View<'_>) -> T) -> T {
        let replica = &self.replicas[index];
        let age = SignedDuration::from_millis(i64::try_from(now - replica.heard_at).unwrap());
        let (freshness, reservations) = (Freshness::at_age(Some(age)), self.reservations(index, now));
        let view = View::new(&replica.world, moment(now) + replica.clock_is_off_by, &self.settings);
        look(&View { freshness, reservations: &reservations, ..view })
    }

    fn reservations(&self, index: usize, now: Millis) -> Reservations {
        let known = self.replicas[index].known.iter().filter(|(_, since)| now - **since < LASTS);
        known
            .map(|(note, since)| {
                let MemberRemoval { cluster, pod, uid, .. } =
                    self.book[usize::try_from(*note).unwrap()].clone();
                Reservation { cluster, pod, uid, age: (now - since) / SECOND }
            })
            .collect()
    }

    /// Reads the reservations in the Lease. Each counts from the time at which the replica learns of it; an expired one stays
    /// known as long as it is in the Lease.
    fn learn(&mut self, index: usize, now: Millis) {
        let lease = &self.lease;
        let known = &mut self.replicas[index].known;
        known.retain(|note, since| now - *since < LASTS || lease.contains(note));
        for note in lease {
            known.entry(*note).or_insert(now);
        }
    }

    /// Returns the snapshots that must be created for a new pod.
    pub fn copies(&self, index: usize, origin: Origin, body: &str, now: Millis) -> Vec<Value> {
        if origin != Origin::Mutating {
            return Vec::new();
        }
        let incoming = review::read(body.as_bytes(), origin, rulebook().kinds())
            .expect("an API server writes readable reviews");
        self.look(index, now, |view| inject::snapshots(&incoming.review, view))
    }

    /// Answers one review, from text to answer. `reachable`: the API server accepts the guard's own writes.
    pub fn answer(
        &mut self,
        index: usize,
        origin: Origin,
        body: &str,
        now: Millis,
        reachable: bool,
        made: &[String],
    ) -> Answer {
        let incoming = review::read(body.as_bytes(), origin, rulebook().kinds())
            .expect("an API server writes readable reviews");
        let review = &incoming.review;
        let mut decision = self.look(index, now, |view| rulebook().evaluate(review, view));
        let member_removal = self.look(index, now, |view| rules::member_removal(review, view));
        let member_removal = member_removal.filter(|_| decision.allowed());
        let mut reserved = false;
        if let Some(member_removal) = member_removal {
            if reachable {
                // Judged again with all reservations that the Lease shows at the moment of writing.
                self.learn(index, now);
                decision = self.look(index, now, |view| rulebook().evaluate(review, view));
                reserved = decision.allowed();
                if reserved {
                    self.note(index, member_removal, now);
                }
            } else {
                let problem = "the API server cannot be reached";
                self.look(index, now, |view| {
                    rules::refuse_unreserved(&member_removal, problem, review, view, &mut decision);
                });
            }
        }
        let object = incoming.object.filter(|_| origin == Origin::Mutating && decision.allowed());
        let patch = object.and_then(|object| {
            let amend = |view: &View<'_>| amend(review, &object, &decision, &View { made, ..*view });
            self.look(index, now, amend)
        });
        let words = report::refusal(&review.subject(), &decision, &Pages::Program);
        Answer { decision, patch, words, reserved }
    }

    /// Writes a reservation into the Lease, together with all others that still count for this replica, unless the replica itself
    /// reserved this pod a moment ago.
    fn note(&mut self, index: usize, member_removal: MemberRemoval, now: Millis) {
        let of_this_pod = |note: u64| self.book[usize::try_from(note).unwrap()].uid == member_removal.uid;
        let Replica { known, own, .. } = &self.replicas[index];
        let last = known.keys().rev().find(|note| of_this_pod(**note));
        if last.is_some_and(|note| now - known[note] < AGAIN && own.contains(note)) {
            return;
        }
        let others = known.iter().filter(|(note, since)| now - **since < LASTS && !of_this_pod(**note));
        let new = self.book.len() as u64;
        self.lease = others.map(|(note, _)| *note).chain([new]).collect();
        self.book.push(member_removal);
        self.replicas[index].own.insert(new);
        self.learn(index, now);
    }
}

/// Returns everything that the view knows of all clusters.
fn clusters(world: &World) -> String {
    format!("{:?}", world.clusters().collect::<Vec<_>>())
}
