//! Reservations: which members were allowed to leave moments ago, agreed on by all replicas of the guard.
//!
//! Owns: the [`ReservationStore`]. Must not know: rules, HTTP, how old a reservation is (`ledger.rs` does). A removal is
//! reserved in one of a few Leases in the guard's own namespace, chosen by the id of the cluster. A write succeeds only if the
//! Lease has not changed since it was read: if two replicas want to allow two members of a cluster to leave at the same moment,
//! only one can write, and the other reads the Lease and judges again. A removal costs one write, and other requests none. The
//! chart creates these Leases, so a Lease that does not exist was deleted: it is created again, and no member of its clusters
//! leaves until the reservations that it may have held expire.

mod ledger;
mod note;
#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;

use std::sync::{Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use engine::rules::MemberRemoval;
use facts::view::{Id, Reservations};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::act::api::Fault;
use crate::act::lease_store::{LeaseStore, Leases};
use crate::act::ownership;
use crate::act::telemetry::chain;

use ledger::{Ledger, LedgerStep, ServerClock};
use note::ReservationNote;

/// The number of Leases. Clusters that share a Lease share its write conflicts, and wait together after it was deleted or could
/// not be read.
const SHARDS: u32 = 8;
/// The number of reservations that may be in progress, which is more than a drain of many nodes requests at once. Any more are
/// refused immediately: a request that waits for its reservation holds one of the guard's request permits, and forged requests
/// must not hold them all.
const MAX_IN_PROGRESS: usize = 32;
/// The deadline of a reservation: for entries with failurePolicy Ignore, API servers wait only two seconds for the answer.
const RESERVATION_DEADLINE: Duration = Duration::from_millis(1_200);
/// The number of notes with a wrong time that one request may write. By then the clocks of the API servers evidently differ, so
/// the next note carries no time.
const MAX_WRONG_TIMES: usize = 2;

/// The outcome of the attempt to reserve a removal.
#[derive(Debug, PartialEq, Eq)]
pub enum Reserving {
    /// The removal is reserved for all replicas, and the member may leave.
    Reserved,
    /// The member may not leave because of these reservations, which are known now.
    Lost(Reservations),
    /// The removal could not be reserved, for this reason.
    Unknown(String),
}

/// The outcome of writing notes into a Lease.
enum NotesWrite {
    Written,
    /// The notes were written, but the time of the first one does not agree with the date of the answer.
    WrongTime,
    /// Another replica wrote the Lease, or it was deleted or created meanwhile.
    Overtaken,
}

/// The reservations of the members that were allowed to leave.
#[derive(Debug)]
pub struct ReservationStore<S = Leases> {
    /// Where reservations are kept; `None`: there is one replica, which keeps them in memory.
    store: Option<S>,
    /// The namespace and the Helm release of the Leases, for a Lease that has to be created again.
    owner: (String, String),
    permits: Semaphore,
    /// Each Lease as it was last read or written; `None`: it must be read.
    shards: [Mutex<Option<Lease>>; SHARDS as usize],
    ledger: Lock<Ledger>,
}

impl ReservationStore {
    /// Creates the store of a guard that has only one replica.
    pub fn of_one_replica() -> Self {
        Self::new(None, Default::default())
    }

    /// Creates a store that is shared with the other replicas.
    pub fn shared(client: Client, namespace: &str, release: &str) -> Self {
        let store = Leases::of(client, namespace);
        Self::new(Some(store), (namespace.to_owned(), release.to_owned()))
    }
}

impl<S: LeaseStore> ReservationStore<S> {
    fn new(store: Option<S>, owner: (String, String)) -> Self {
        let permits = Semaphore::new(MAX_IN_PROGRESS);
        Self { store, owner, permits, shards: Default::default(), ledger: Lock::default() }
    }

    /// Returns which members were allowed to leave moments ago, as far as this replica knows.
    pub fn current(&self) -> Reservations {
        self.ledger().reservations(Instant::now())
    }

    /// Reserves this removal, if it is `still_allowed` given all reservations that are known at the moment of writing.
    pub async fn reserve(
        &self,
        member_removal: &MemberRemoval,
        still_allowed: impl Fn(&Reservations) -> bool,
    ) -> Reserving {
        let Ok(_permit) = self.permits.try_acquire() else {
            return Reserving::Unknown("too many members are being removed at the same time".to_owned());
        };
        let (problem, error) =
            match timeout(RESERVATION_DEADLINE, self.reserve_in_lease(member_removal, still_allowed)).await {
                Ok(Ok(outcome)) => return outcome,
                Ok(Err(error)) => (api_message(&error), chain(&error)),
                Err(_) => ("the API server did not answer in time".to_owned(), "no answer".to_owned()),
            };
        let MemberRemoval { cluster, pod, .. } = member_removal;
        warn!(%cluster, pod, error, "the removal of a member could not be reserved");
        Reserving::Unknown(problem)
    }

    async fn reserve_in_lease(
        &self,
        member_removal: &MemberRemoval,
        still_allowed: impl Fn(&Reservations) -> bool,
    ) -> kube::Result<Reserving> {
        let shard = shard_of(&member_removal.cluster);
        // This replica makes one reservation per Lease at a time. The slot is empty while the outcome of a write is unknown.
        let mut cached = self.shards[shard].lock().await;
        let mut wrong_time_count = 0;
        loop {
            let Some(lease) = self.lease(&mut cached, shard).await? else { continue };
            let known = self.current();
            if !still_allowed(&known) {
                *cached = Some(lease);
                return Ok(Reserving::Lost(known));
            }
            let next = self.ledger().next(member_removal, wrong_time_count < MAX_WRONG_TIMES, Instant::now());
            let outcome = match next {
                LedgerStep::Reserved => Reserving::Reserved,
                LedgerStep::Unsure => Reserving::Unknown(format!(
                    "Lease {} was deleted or cannot be read, so another member may have been allowed to leave",
                    lease_name(shard)
                )),
                LedgerStep::Write(notes) => match self.write_notes(&mut cached, shard, lease, notes).await? {
                    NotesWrite::Written => return Ok(Reserving::Reserved),
                    NotesWrite::WrongTime => {
                        wrong_time_count += 1;
                        continue;
                    }
                    NotesWrite::Overtaken => continue,
                },
            };
            *cached = Some(lease);
            return Ok(outcome);
        }
    }

    /// Returns the Lease as it was last seen, or reads it. `None`: it did not exist, and this or another replica has created it
    /// again.
    async fn lease(&self, cached: &mut Option<Lease>, shard: usize) -> kube::Result<Option<Lease>> {
        let known = cached.take();
        let Some(store) = self.store.as_ref().filter(|_| known.is_none()) else {
            return Ok(Some(known.unwrap_or_else(|| self.empty_lease(shard))));
        };
        let asked = Instant::now();
        let (lease, date) = store.read(&lease_name(shard)).await?;
        let now = Instant::now();
        let notes = {
            let mut ledger = self.ledger();
            ledger.observe_clock(server_clock(date, asked, now));
            if let Some(lease) = &lease {
                ledger.learn(shard, note::of(lease), asked, now);
            }
            ledger.notes_for_replacement(shard, now)
        };
        if lease.is_none() {
            self.write_notes(cached, shard, self.empty_lease(shard), notes).await?;
        }
        Ok(lease)
    }

    /// Writes these notes into the Lease.
    async fn write_notes(
        &self,
        cached: &mut Option<Lease>,
        shard: usize,
        lease: Lease,
        notes: Vec<ReservationNote>,
    ) -> kube::Result<NotesWrite> {
        let lease = note::with(lease, &notes);
        let asked = Instant::now();
        let written = match &self.store {
            Some(store) => store.write(&lease_name(shard), &lease).await,
            None => Ok((lease, None)),
        };
        let (lease, date) = match written {
            Ok(written) => written,
            Err(error) if matches!(Fault::of(&error), Fault::NotFound | Fault::Conflict | Fault::Invalid) => {
                return Ok(NotesWrite::Overtaken);
            }
            Err(error) => return Err(error),
        };
        *cached = Some(lease);
        let (now, mut ledger) = (Instant::now(), self.ledger());
        ledger.observe_clock(server_clock(date, asked, now));
        let time_is_right = ledger.record_written(shard, notes, asked, now);
        Ok(if time_is_right { NotesWrite::Written } else { NotesWrite::WrongTime })
    }

    fn empty_lease(&self, shard: usize) -> Lease {
        let (namespace, release) = &self.owner;
        Lease { metadata: ownership::metadata(release, namespace, &lease_name(shard)), spec: None }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn server_clock(date: Option<Timestamp>, asked: Instant, answered: Instant) -> Option<ServerClock> {
    Some(ServerClock { date: date?, asked, answered })
}

/// Returns the shard of a cluster (FNV-1a, folded): all removals from it go into one Lease, whichever version of the guard
/// writes it.
fn shard_of(cluster: &Id) -> usize {
    let name = cluster.to_string();
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    usize::try_from((hash >> 16 ^ hash) % SHARDS).unwrap_or_default()
}

/// Lists the names of all Leases. The chart creates them, and names them in the guard's permissions.
pub fn lease_names() -> impl Iterator<Item = String> {
    (0..SHARDS as usize).map(lease_name)
}

fn lease_name(shard: usize) -> String {
    format!("gatera-let-go-{shard}")
}

/// Returns the API server's own message for the person who waits, without the text of the client library.
fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        _ => "the API server cannot be reached".to_owned(),
    }
}
