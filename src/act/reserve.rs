//! Reservations: who was let go moments ago, agreed on by all replicas of the guard.
//!
//! Owns: the [`Book`]. Must not know: rules, HTTP. A member that goes is written into one of a few Leases of the guard's own
//! namespace (which one, its cluster says), over the version that was read last: of two replicas that let two members of a
//! cluster go at the same moment only one can write, and the other judges again with what it then reads. One write, and
//! only for what takes a member away. Ages are counted by each replica from when it learned of a reservation; no clock is
//! compared with another, so one that is learned again after a restart lasts a little longer.

mod note;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex as Lock, PoisonError};
use std::time::Duration;

use decide::rules::Departure;
use decide::view::{Id, Reservation, Reservations};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::act::ownership;
use crate::act::telemetry::chain;

use note::Note;

/// So many Leases. Clusters that share one only share its conflicts.
const SHARDS: u32 = 8;
/// Longer than an API server lets another webhook think after we said "allowed" (10 s by default, 30 s at most), and than
/// a view may be old that still counts as current.
const LASTS: Duration = Duration::from_secs(30);
/// The same member again within this time needs no second note.
const AGAIN: Duration = Duration::from_secs(2);
/// More than a drain of many nodes asks for at once. Beyond it a request is refused at once, so that made-up ones do not
/// take the places of all others.
const AT_ONCE: usize = 32;
/// API servers wait two seconds for some answers.
const PATIENCE: Duration = Duration::from_millis(1_200);

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everybody knows: it may go.
    Reserved,
    /// With what is known now it may not go.
    Lost,
    /// Nobody can be told, in words: why.
    Unknown(String),
}

/// Who was let go.
#[derive(Debug)]
pub struct Book {
    /// `None`: there is one replica, which remembers.
    leases: Option<Api<Lease>>,
    /// Namespace and Helm release of the Leases, for one that has to be made again.
    home: (String, String),
    turns: Semaphore,
    /// What each Lease held when it was read or written last.
    shards: [Mutex<Option<Lease>>; SHARDS as usize],
    /// Since when each note is known. Those that are over stay as long as they are in a Lease, or they would begin anew.
    known: Lock<HashMap<Note, Instant>>,
    /// Those that this replica wrote itself.
    own: Lock<HashSet<Note>>,
}

impl Book {
    /// Nobody else lets members go.
    pub fn of_one_replica() -> Self {
        Self {
            leases: None,
            home: Default::default(),
            turns: Semaphore::new(AT_ONCE),
            shards: Default::default(),
            known: Lock::default(),
            own: Lock::default(),
        }
    }

    /// Shared with the other replicas.
    pub fn shared(client: Client, namespace: &str, release: &str) -> Self {
        let leases = Some(Api::namespaced(client, namespace));
        Self { leases, home: (namespace.to_owned(), release.to_owned()), ..Self::of_one_replica() }
    }

    /// Who was let go moments ago, as far as this replica knows.
    pub fn reservations(&self) -> Reservations {
        let known = self.known();
        let counts = known.iter().filter(|(_, since)| since.elapsed() < LASTS);
        counts
            .map(|(note, since)| Reservation {
                cluster: note.cluster(),
                pod: note.pod.clone(),
                uid: note.uid.clone(),
                age: since.elapsed().as_secs(),
            })
            .collect()
    }

    /// Reserves this departure, if it is `still_right` with everything that is known at the moment of writing.
    pub async fn reserve(
        &self,
        departure: &Departure,
        still_right: impl Fn(&Reservations) -> bool,
    ) -> Outcome {
        let Ok(_turn) = self.turns.try_acquire() else {
            return Outcome::Unknown("too many members are asked to go at once".to_owned());
        };
        let (problem, error) = match timeout(PATIENCE, self.write(departure, still_right)).await {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(error)) => (short(&error), chain(&error)),
            Err(_) => ("the API server did not answer in time".to_owned(), "no answer".to_owned()),
        };
        warn!(cluster = %departure.cluster, pod = departure.pod, error, "reservation");
        Outcome::Unknown(problem)
    }

    async fn write(
        &self,
        departure: &Departure,
        still_right: impl Fn(&Reservations) -> bool,
    ) -> kube::Result<Outcome> {
        let shard = shard_of(&departure.cluster);
        // One at a time in this replica; it is empty while nobody knows what became of a write.
        let mut place = self.shards[shard].lock().await;
        loop {
            let lease = match (place.take(), &self.leases) {
                (Some(lease), _) => lease,
                (None, Some(api)) => self.read(api, shard).await?,
                (None, None) => self.blank(shard),
            };
            if !still_right(&self.reservations()) {
                *place = Some(lease);
                return Ok(Outcome::Lost);
            }
            let note = self.next_note(departure);
            let Some(note) = note else {
                *place = Some(lease);
                return Ok(Outcome::Reserved);
            };
            let notes: Vec<_> =
                self.others(shard, &departure.uid).into_iter().chain([note.clone()]).collect();
            let lease = note::with(lease, &notes);
            let written = match &self.leases {
                Some(api) => api.replace(&name_of(shard), &PostParams::default(), &lease).await,
                None => Ok(lease),
            };
            match written {
                Ok(lease) => {
                    self.learn(shard, notes);
                    self.own().insert(note);
                    *place = Some(lease);
                    return Ok(Outcome::Reserved);
                }
                // Another replica wrote, or it was deleted or made meanwhile: look again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn read(&self, api: &Api<Lease>, shard: usize) -> kube::Result<Lease> {
        let lease = api.get_opt(&name_of(shard)).await?.unwrap_or_else(|| self.blank(shard));
        self.learn(shard, note::of(&lease));
        Ok(lease)
    }

    fn blank(&self, shard: usize) -> Lease {
        let (namespace, release) = &self.home;
        Lease { metadata: ownership::object_meta(release, namespace, &name_of(shard)), spec: None }
    }

    /// The note for this departure; `None`: this replica wrote one a moment ago. One that it has only read may be old, and over
    /// for everybody else.
    fn next_note(&self, departure: &Departure) -> Option<Note> {
        let known = self.known();
        let before =
            known.iter().filter(|(note, _)| note.uid == departure.uid).max_by_key(|(note, _)| note.times);
        match before {
            Some((note, since)) if since.elapsed() < AGAIN && self.own().contains(note) => None,
            before => Some(Note::of(departure, before.map_or(1, |(note, _)| note.times.saturating_add(1)))),
        }
    }

    /// All that counts in this Lease besides what is known of this pod. Not what the Lease holds: it may have been deleted.
    fn others(&self, shard: usize, uid: &str) -> Vec<Note> {
        let known = self.known();
        let counts = known.iter().filter(|(note, since)| since.elapsed() < LASTS && note.uid != uid);
        counts.map(|(note, _)| note.clone()).filter(|note| shard_of(&note.cluster()) == shard).collect()
    }

    /// This stands in a Lease: what is new begins now, and what is over and no longer there is forgotten.
    fn learn(&self, shard: usize, notes: Vec<Note>) {
        let mut known = self.known();
        known.retain(|note, since| {
            since.elapsed() < LASTS || notes.contains(note) || shard_of(&note.cluster()) != shard
        });
        self.own().retain(|note| known.contains_key(note));
        for note in notes {
            known.entry(note).or_insert_with(Instant::now);
        }
    }

    fn own(&self) -> std::sync::MutexGuard<'_, HashSet<Note>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Note, Instant>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All departures from a cluster go into one Lease, whichever version of the guard writes it: FNV-1a, folded.
fn shard_of(cluster: &Id) -> usize {
    let name = cluster.to_string();
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    usize::try_from((hash >> 16 ^ hash) % SHARDS).unwrap_or_default()
}

/// All Leases, by name. The chart makes them, and names them in the guard's rights.
pub fn leases() -> impl Iterator<Item = String> {
    (0..SHARDS as usize).map(name_of)
}

fn name_of(shard: usize) -> String {
    format!("gatera-let-go-{shard}")
}

/// For the person who waits: what the API server said, without what a client library makes of it.
fn short(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        _ => "the API server cannot be reached".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn departure(cluster: &str, pod: &str) -> Departure {
        Departure { cluster: Id::new("db", cluster), pod: pod.into(), uid: format!("uid-{pod}"), rule: "G02" }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_ends_by_itself_and_begins_anew_when_its_pod_is_let_go_again() {
        let book = Book::of_one_replica();
        let counts = || book.reservations() != Reservations::nobody();
        assert_eq!(book.reserve(&departure("a", "a-0"), |_| true).await, Outcome::Reserved);
        assert_eq!(
            book.reserve(&departure("a", "a-1"), |known| *known == Reservations::nobody()).await,
            Outcome::Lost
        );
        let almost = Duration::from_secs(29);
        advance(almost).await;
        assert!(counts());
        assert_eq!(book.reserve(&departure("a", "a-0"), |_| true).await, Outcome::Reserved);
        advance(almost).await;
        assert!(counts());
        advance(Duration::from_secs(1)).await;
        assert!(!counts());
    }

    /// What a Lease has held for long is over for whoever has known it for long, however often it is read.
    #[tokio::test(start_paused = true)]
    async fn what_is_over_does_not_begin_anew_when_it_is_read_again() {
        let book = Book::of_one_replica();
        let cluster = Id::new("db", "a");
        let shard = shard_of(&cluster);
        let note = Note::of(&departure("a", "a-0"), 1);
        book.learn(shard, vec![note.clone()]);
        advance(LASTS).await;
        book.learn(shard + 1, Vec::new());
        book.learn(shard, vec![note.clone()]);
        assert_eq!(book.reservations(), Reservations::nobody());
        book.learn(shard, Vec::new());
        book.learn(shard, vec![note]);
        assert_ne!(
            book.reservations(),
            Reservations::nobody(),
            "it was gone meanwhile, so this is another one"
        );
    }

    /// A pod was let go long ago, and stayed. Whoever reads that only now does not know that it is over for everybody else.
    #[tokio::test(start_paused = true)]
    async fn what_was_only_read_spares_no_write() {
        let (book, departure) = (Book::of_one_replica(), departure("a", "a-0"));
        book.learn(shard_of(&departure.cluster), vec![Note::of(&departure, 1)]);
        assert_eq!(book.next_note(&departure), Some(Note::of(&departure, 2)));
        assert_eq!(book.reserve(&departure, |_| true).await, Outcome::Reserved);
        assert_eq!(book.next_note(&departure), None, "it wrote that itself, a moment ago");
    }

    #[test]
    fn what_stands_in_a_lease_is_read_as_it_was_written_and_nonsense_is_nobody() {
        let notes = [Note::of(&departure("a", "a-0"), 1), Note::of(&departure("b", "b-2"), 7)];
        let lease = note::with(Lease::default(), &notes);
        assert_eq!(note::of(&lease), notes);
        for odd in ["", "{}", "[1]", "[{\"pod\":\"a\"}]", "null"] {
            let mut lease = lease.clone();
            for text in lease.metadata.annotations.iter_mut().flat_map(|all| all.values_mut()) {
                odd.clone_into(text);
            }
            assert_eq!(note::of(&lease), [], "{odd}");
        }
    }
}
