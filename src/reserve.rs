//! Reservations: who was let go moments ago, agreed on by all replicas of the guard.
//!
//! Owns: the [`Book`]. Must not know: rules, HTTP. A member that goes is written into one of a few Leases of the guard's own
//! namespace (which one, its cluster says), over the version that was read last: of two replicas that let two members of a
//! cluster go at the same moment only one can write, and the other judges again with what it then reads. One write, and
//! only for what takes a member away. Ages are counted by each replica from when it learned of a reservation; no clock is
//! compared with another, so one that is learned again after a restart lasts a little longer.

mod note;

use std::collections::HashMap;
use std::sync::{Mutex as Lock, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::rules::Departure;
use crate::telemetry::chain;
use crate::view::{Release, Released};

use note::Note;

/// So many Leases. Clusters that share one only share its conflicts.
const SHARDS: usize = 8;
/// Longer than an API server lets another webhook think (30 s at most, 10 s by default) after we said "allowed", and than a view may
/// be old that still counts as current.
const LASTS: Duration = Duration::from_secs(30);
/// The same member again within this time needs no second note.
const AGAIN: Duration = Duration::from_secs(2);
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
    /// What each Lease held when it was read or written last.
    shards: [Mutex<Option<Lease>>; SHARDS],
    /// Since when each note is known. Those that are over stay as long as they are in a Lease, or they would begin anew.
    known: Lock<HashMap<Note, Instant>>,
}

impl Book {
    /// Nobody else lets members go.
    pub fn of_one_replica() -> Self {
        Self { leases: None, shards: Default::default(), known: Lock::default() }
    }

    /// Shared with the other replicas.
    pub fn shared(client: Client, namespace: &str) -> Self {
        Self { leases: Some(Api::namespaced(client, namespace)), ..Self::of_one_replica() }
    }

    /// Who was let go moments ago, as far as this replica knows.
    pub fn released(&self) -> Released {
        let known = self.known();
        let counts = known.iter().filter(|(_, since)| since.elapsed() < LASTS);
        counts
            .map(|(note, since)| Release {
                cluster: note.cluster(),
                pod: note.pod.clone(),
                uid: note.uid.clone(),
                age: since.elapsed().as_secs(),
            })
            .collect()
    }

    /// Reserves this departure, if it is `still_right` with everything that is known at the moment of writing.
    pub async fn reserve(&self, departure: &Departure, still_right: impl Fn(&Released) -> bool) -> Outcome {
        match timeout(PATIENCE, self.write(departure, still_right)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                warn!(cluster = %departure.cluster, pod = departure.pod, error = chain(&error), "reservation");
                Outcome::Unknown(short(&error))
            }
            Err(_) => {
                warn!(cluster = %departure.cluster, pod = departure.pod, error = "no answer", "reservation");
                Outcome::Unknown("the API server did not answer in time".to_owned())
            }
        }
    }

    async fn write(
        &self,
        departure: &Departure,
        still_right: impl Fn(&Released) -> bool,
    ) -> kube::Result<Outcome> {
        let shard = shard_of(departure);
        // One at a time in this replica; it is empty while nobody knows what became of a write.
        let mut place = self.shards[shard].lock().await;
        loop {
            let lease = match (place.take(), &self.leases) {
                (Some(lease), _) => lease,
                (None, Some(api)) => self.read(api, shard).await?,
                (None, None) => named(shard),
            };
            if !still_right(&self.released()) {
                *place = Some(lease);
                return Ok(Outcome::Lost);
            }
            let note = self.next_note(departure);
            if note.is_none() {
                *place = Some(lease);
                return Ok(Outcome::Reserved);
            }
            let notes =
                note::of(&lease).into_iter().filter(|other| self.counts(other) && other.uid != departure.uid);
            let notes: Vec<_> = notes.chain(note.clone()).collect();
            let lease = note::with(lease, &notes);
            let written = match &self.leases {
                Some(api) => api.replace(&name_of(shard), &PostParams::default(), &lease).await,
                None => Ok(lease),
            };
            match written {
                Ok(lease) => {
                    self.learn(notes);
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
        let lease = api.get_opt(&name_of(shard)).await?.unwrap_or_else(|| named(shard));
        self.learn(note::of(&lease));
        Ok(lease)
    }

    /// The note for this departure; `None`: there is one already.
    fn next_note(&self, departure: &Departure) -> Option<Note> {
        let known = self.known();
        let before =
            known.iter().filter(|(note, _)| note.uid == departure.uid).max_by_key(|(note, _)| note.times);
        match before {
            Some((_, since)) if since.elapsed() < AGAIN => None,
            before => Some(Note::of(departure, before.map_or(1, |(note, _)| note.times.saturating_add(1)))),
        }
    }

    fn counts(&self, note: &Note) -> bool {
        self.known().get(note).is_some_and(|since| since.elapsed() < LASTS)
    }

    /// Those that are new begin now.
    fn learn(&self, notes: Vec<Note>) {
        let mut known = self.known();
        known.retain(|note, since| since.elapsed() < LASTS || notes.contains(note));
        for note in notes {
            known.entry(note).or_insert_with(Instant::now);
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Note, Instant>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All departures from a cluster go into one Lease, whichever version of the guard writes it: FNV-1a, folded.
fn shard_of(departure: &Departure) -> usize {
    let name = departure.cluster.to_string();
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    usize::try_from((hash >> 16 ^ hash) % SHARDS as u32).unwrap_or_default()
}

/// The chart makes them by these names.
fn name_of(shard: usize) -> String {
    format!("gatera-let-go-{shard}")
}

fn named(shard: usize) -> Lease {
    Lease { metadata: ObjectMeta { name: Some(name_of(shard)), ..ObjectMeta::default() }, spec: None }
}

/// For the person who waits: what the API server said, without what a client library makes of it.
fn short(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        _ => "the API server cannot be reached".to_owned(),
    }
}
