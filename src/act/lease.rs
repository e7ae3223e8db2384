//! The election of the leader: one Lease (here also called the record) with one holder.
//!
//! Owns: `may_write`, which is pure, [`hold`], the loop that calls it, and [`Leading`], by which the leader's tasks check that
//! they may act. Must not know: what a leader does. Every write carries the resourceVersion on which the decision was based,
//! so at most one of two candidates wins. Times are counted by this process, and setting a clock does not change them: a
//! candidate measures the silence of a holder from when it *saw* the record change last, and a holder counts from when it
//! *requested* the renewal that succeeded. So a holder steps down before another replica may take over, however long an answer
//! takes.

mod seat;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use crate::act::api::{Fault, outcome_in_words};
use crate::act::lease_store::{LeaseStore, Leases};
use crate::act::ownership;
use crate::act::telemetry::repeated;

pub use seat::{Leading, Seat, seat};

/// Lease duration: other replicas wait this long before they take over.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// The time for which a holder acts after it requested a renewal. The rest of the lease duration is left for steps that have
/// begun, even if one waits for a slow connection.
const TERM: Duration = Duration::from_secs(10);
/// The time that a step begun at the last moment may take: about half of what is left until another replica may lead.
const STEP_GRACE: Duration = Duration::from_millis(2_500);
/// The interval at which the record is renewed, or read by a candidate.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// The deadline of a turn (reading and writing the record once), after which the next turn follows: three turns fit into
/// [`TERM`].
const TURN_DEADLINE: Duration = Duration::from_secs(3);
/// The pause after a turn that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The error that is logged for a turn without an answer.
const NO_ANSWER: &str = "no answer";

/// The name of the one Lease.
const LEASE_NAME: &str = "gatera";

/// Returns whether this replica may write the record: it is free or its own, or its holder is silent. `unchanged` is the time
/// for which this replica has seen the same version.
fn may_write(holder: &str, me: &str, unchanged: Duration) -> bool {
    holder.is_empty() || holder == me || unchanged >= LEASE_DURATION
}

/// Takes the lease whenever it is available and renews it, until `closing` is true; then gives it up at once.
pub async fn hold(
    client: Client,
    namespace: String,
    release: String,
    me: String,
    seat: Seat,
    closing: watch::Receiver<bool>,
) {
    let store = Leases::of(client, &namespace);
    let blank = Lease { metadata: ownership::metadata(&release, &namespace, LEASE_NAME), spec: None };
    Election { store, blank, me, seen: None }.run(seat, closing).await;
}

/// The record as it was last seen, and the time since which it has not changed.
struct SeenRecord {
    lease: Lease,
    since: Instant,
}

struct Election<S> {
    store: S,
    /// The Lease that is created if there is none.
    blank: Lease,
    me: String,
    seen: Option<SeenRecord>,
}

impl<S: LeaseStore> Election<S> {
    async fn run(mut self, seat: Seat, mut closing: watch::Receiver<bool>) {
        loop {
            let requested_at = Instant::now();
            let outcome = outcome_in_words(TURN_DEADLINE, NO_ANSWER, self.turn());
            let pause = match seat.stepping_down_in_time(outcome).await {
                Ok(true) => {
                    seat.take(requested_at + TERM);
                    RENEW_INTERVAL
                }
                Ok(false) => {
                    seat.leave();
                    RENEW_INTERVAL
                }
                Err(error) => {
                    if let Some(times) = repeated::times("lease", &error) {
                        warn!(error, times, "the lease could not be read or written; trying again");
                    }
                    RETRY_PAUSE
                }
            };
            let closes = async {
                tokio::select! {
                    () = tokio::time::sleep(pause) => false,
                    _ = closing.wait_for(|closing| *closing) => true,
                }
            };
            if seat.stepping_down_in_time(closes).await {
                break;
            }
        }
        let led = seat.is_taken();
        seat.leave();
        if led
            && let Err(error) =
                outcome_in_words(TURN_DEADLINE, NO_ANSWER, give_up(&self.store, &self.me)).await
        {
            warn!(error, "the lease could not be given up; another replica takes over when it expires");
        }
    }

    /// Reads the record once and writes it at most once; the holder writes over its own last version without reading it. Returns
    /// whether this replica holds the lease; after a conflict it does not, because another replica was faster.
    async fn turn(&mut self) -> kube::Result<bool> {
        let (me, seen) = (&*self.me, &mut self.seen);
        let ours = seen.as_ref().filter(|seen| holder(&seen.lease) == me).map(|seen| seen.lease.clone());
        let lease = match ours {
            Some(lease) => Some(lease),
            None => self.store.read(LEASE_NAME).await?.0,
        };
        if let Some(lease) = &lease {
            let version = &lease.metadata.resource_version;
            let known = seen.take().filter(|seen| seen.lease.metadata.resource_version == *version);
            let since = known.map_or_else(Instant::now, |seen| seen.since);
            let unchanged = since.elapsed();
            *seen = Some(SeenRecord { lease: lease.clone(), since });
            if !may_write(holder(lease), me, unchanged) {
                return Ok(false);
            }
        }
        let next = renewed(lease.unwrap_or_else(|| self.blank.clone()), me);
        // Even a write whose answer is not awaited may arrive, so the record that was seen may be out of date.
        *seen = None;
        match self.store.write(LEASE_NAME, &next).await {
            Ok((lease, _)) => {
                *seen = Some(SeenRecord { lease, since: Instant::now() });
                Ok(true)
            }
            // The record was changed, deleted or created meanwhile.
            Err(error) if matches!(Fault::of(&error), Fault::NotFound | Fault::Conflict | Fault::Invalid) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Returns the record with this replica as its holder. Its times are for people: no replica decides by them.
fn renewed(mut lease: Lease, me: &str) -> Lease {
    let now = MicroTime(Timestamp::now());
    let before = lease.spec.take().unwrap_or_default();
    let ours = before.holder_identity.as_deref() == Some(me);
    let changes = before.lease_transitions.unwrap_or(0);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
        acquire_time: before.acquire_time.filter(|_| ours).or_else(|| Some(now.clone())),
        renew_time: Some(now),
        lease_transitions: Some(if ours { changes } else { changes.saturating_add(1) }),
        ..LeaseSpec::default()
    });
    lease
}

/// Gives the lease up, if this replica holds it.
async fn give_up(store: &impl LeaseStore, me: &str) -> kube::Result<()> {
    let Some(mut lease) = store.read(LEASE_NAME).await?.0.filter(|it| holder(it) == me) else {
        return Ok(());
    };
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = Some(String::new());
    }
    store.write(LEASE_NAME, &lease).await.map(drop)
}
