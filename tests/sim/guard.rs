//! The replicas of the guard: each has its own view, fed by a watch that may be late or silent; who was let go they
//! share.
//!
//! Owns: what each replica has heard, and the book of those that were let go. Must not know: any rule. A review is
//! text, read by the real reader, judged by the real `evaluate`, amended by the real `amend`; here is only what
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

/// As `reserve.rs` has it.
const LASTS: Millis = 30 * SECOND;
const AGAIN: Millis = 2 * SECOND;

/// The guard's own identity at the API server.
pub const OWN_USER: &str = "system:serviceaccount:gatera:gatera";

/// One replica.
#[derive(Default)]
pub struct Replica {
    pub up: bool,
    facts: Facts,
    world: World,
    /// What it has heard of the log.
    heard: usize,
    /// When it heard its watches last.
    pub heard_at: Millis,
    /// Its watches are silent until then.
    pub silent_until: Millis,
    /// How long an event travels.
    pub delay: Millis,
    /// How far its node's clock is from what everybody else's shows.
    pub clock_is_off_by: SignedDuration,
    /// Notes that it wrote itself.
    own: BTreeSet<u64>,
    /// Notes it knows of, and since when.
    known: BTreeMap<u64, Millis>,
}

pub struct Guard {
    pub settings: Settings,
    pub replicas: Vec<Replica>,
    pub leader: usize,
    /// All that were ever let go; a note is a place in it.
    book: Vec<MemberRemoval>,
    /// The notes that stand in the Lease now.
    lease: Vec<u64>,
}

/// The answer to one review.
pub struct Answer {
    pub decision: Decision,
    pub patch: Option<json_patch::Patch>,
    /// The refusal, as a person reads it.
    pub words: String,
    /// Somebody goes, and everybody is to know.
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

    /// Those that are ready to answer.
    pub fn ready(&self) -> Vec<usize> {
        (0..self.replicas.len()).filter(|index| self.replicas[*index].up).collect()
    }

    /// It hears what has reached it by now.
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
            // What is drawn change by change is what would be drawn of everything at once.
            if replica.heard.is_multiple_of(64) {
                let whole = World::build(replica.facts.clone(), Freshness::Current);
                assert_eq!(clusters(&replica.world), clusters(&whole));
            }
        }
    }

    /// It starts anew, and lists everything.
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

    /// Looks through the eyes of one replica.
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

    /// What stands in the Lease begins to count when it is learned; what is over stays known as long as it stands
    /// there.
    fn learn(&mut self, index: usize, now: Millis) {
        let lease = &self.lease;
        let known = &mut self.replicas[index].known;
        known.retain(|note, since| now - *since < LASTS || lease.contains(note));
        for note in lease {
            known.entry(*note).or_insert(now);
        }
    }

    /// The copies that a new pod needs made.
    pub fn copies(&self, index: usize, origin: Origin, body: &str, now: Millis) -> Vec<Value> {
        if origin != Origin::Mutating {
            return Vec::new();
        }
        let incoming = review::read(body.as_bytes(), origin, rulebook().kinds())
            .expect("an API server writes readable reviews");
        self.look(index, now, |view| inject::copies(&incoming.review, view))
    }

    /// One review, from text to answer. `reachable`: the API server takes the guard's own writes.
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
                // Judged again with everything that the Lease shows at the moment of writing.
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
            let amend = |view: &View<'_>| amend(review, object.get(), &mut decision, &View { made, ..*view });
            self.look(index, now, amend)
        });
        let words = report::refusal(&review.subject(), &decision, &Pages::Program);
        Answer { decision, patch, words, reserved }
    }

    /// Writes a note into the Lease, with all others that still count for this replica; unless it wrote a fresh one of this
    /// pod itself.
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

/// All that is known of every cluster.
fn clusters(world: &World) -> String {
    format!("{:?}", world.clusters().collect::<Vec<_>>())
}
