//! Who leads: one Lease, one holder.
//!
//! Owns: `may_write`, which is pure, [`hold`], the loop that asks it, and [`Leading`], by which the leader's tasks know that
//! they may act. Must not know: what a leader does. Every write carries the resourceVersion it was decided on, so of two
//! candidates at most one wins. Times are this process's own and cannot be set: whether a holder is gone is measured from
//! when *we* saw the record change last, and a holder counts from when it *asked* for the renewal that succeeded. So it
//! steps down before another replica may take over, however long an answer takes.

mod seat;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::act::api::Fault;
use crate::act::lease_store::{LeaseStore, Leases};
use crate::act::ownership;
use crate::act::telemetry::{chain, repeated};

pub use seat::{Leading, Seat, seat};

/// Lease duration: other replicas wait this long before they take over.
const RESPECTED: Duration = Duration::from_secs(15);
/// A holder acts on a renewal for this long. The rest of the time is room for what it had begun: one slow connect.
const ACTS: Duration = Duration::from_secs(10);
/// A step that began at the last moment may take this long: about half of what is left until another replica may lead.
const SPARE: Duration = Duration::from_millis(2_500);
/// How often the record is renewed, or looked at.
const EVERY: Duration = Duration::from_secs(3);
/// A turn that has no answer by then is tried again: three fit into the time a holder acts.
const TURN_DEADLINE: Duration = Duration::from_secs(3);
/// After a turn that failed.
const AGAIN: Duration = Duration::from_millis(500);

/// Said of a turn that was given up.
const NO_ANSWER: &str = "no answer";

/// The name of the one Lease.
const NAME: &str = "gatera";

/// The record is free, ours, or its holder is silent. `unchanged` is how long we have seen this version of it.
fn may_write(holder: &str, me: &str, unchanged: Duration) -> bool {
    holder.is_empty() || holder == me || unchanged >= RESPECTED
}

/// Holds the lease whenever it can be had until `closing`; then gives it up at once.
pub async fn hold(
    client: Client,
    namespace: String,
    release: String,
    me: String,
    seat: Seat,
    closing: watch::Receiver<bool>,
) {
    let store = Leases::of(client, &namespace);
    let blank = Lease { metadata: ownership::object_meta(&release, &namespace, NAME), spec: None };
    Election { store, blank, me, seen: None, seat }.run(closing).await;
}

/// The record as it was seen last, and the time since which it is so.
struct SeenRecord {
    lease: Lease,
    since: Instant,
}

struct Election<S> {
    store: S,
    /// What is created if there is none.
    blank: Lease,
    me: String,
    seen: Option<SeenRecord>,
    seat: Seat,
}

impl<S: LeaseStore> Election<S> {
    async fn run(mut self, mut closing: watch::Receiver<bool>) {
        loop {
            let asked = Instant::now();
            let seat = &self.seat;
            let outcome = timeout(TURN_DEADLINE, turn(&self.store, &self.blank, &self.me, &mut self.seen));
            let pause = match seat.stepping_down_in_time(outcome).await {
                Ok(Ok(true)) => {
                    seat.take(asked + ACTS);
                    EVERY
                }
                Ok(Ok(false)) => {
                    seat.leave();
                    EVERY
                }
                failed => {
                    let error = match failed {
                        Ok(outcome) => outcome.map_err(|error| chain(&error)).err().unwrap_or_default(),
                        Err(_) => NO_ANSWER.to_owned(),
                    };
                    if let Some(times) = repeated::times("lease", &error) {
                        warn!(error, times, "the lease could not be read or written and is tried again");
                    }
                    AGAIN
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
        let led = self.seat.is_taken();
        self.seat.leave();
        if led {
            let trouble = match timeout(TURN_DEADLINE, give_up(&self.store, &self.me)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => chain(&error),
                Err(_) => NO_ANSWER.to_owned(),
            };
            warn!(
                error = trouble,
                "the lease could not be given up; another replica takes it when it has run out"
            );
        }
    }
}

/// One look and at most one write; the holder writes over what it wrote, without a look. A conflict is an answer: another
/// replica was faster.
async fn turn(
    store: &impl LeaseStore,
    blank: &Lease,
    me: &str,
    seen: &mut Option<SeenRecord>,
) -> kube::Result<bool> {
    let ours = seen.as_ref().filter(|seen| holder(&seen.lease) == me).map(|seen| seen.lease.clone());
    let lease = match ours {
        Some(lease) => Some(lease),
        None => store.read(NAME).await?.0,
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
    let written = store.write(NAME, &renewed(lease.unwrap_or_else(|| blank.clone()), me)).await;
    // The write may have arrived or not: what was known is no longer what is there.
    *seen = None;
    match written {
        Ok((lease, _)) => {
            *seen = Some(SeenRecord { lease, since: Instant::now() });
            Ok(true)
        }
        // Changed, or gone, or created meanwhile.
        Err(error) if matches!(Fault::of(&error), Fault::NotFound | Fault::Conflict | Fault::Invalid) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// The record with our name. Its times are for people: no replica decides by them.
fn renewed(mut lease: Lease, me: &str) -> Lease {
    let now = MicroTime(Timestamp::now());
    let before = lease.spec.take().unwrap_or_default();
    let ours = before.holder_identity.as_deref() == Some(me);
    let changes = before.lease_transitions.unwrap_or(0);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(RESPECTED.as_secs()).ok(),
        acquire_time: before.acquire_time.filter(|_| ours).or_else(|| Some(now.clone())),
        renew_time: Some(now),
        lease_transitions: Some(if ours { changes } else { changes.saturating_add(1) }),
        ..LeaseSpec::default()
    });
    lease
}

/// Only what is ours is given up.
async fn give_up(store: &impl LeaseStore, me: &str) -> kube::Result<()> {
    let Some(mut lease) = store.read(NAME).await?.0.filter(|it| holder(it) == me) else { return Ok(()) };
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = Some(String::new());
    }
    store.write(NAME, &lease).await.map(drop)
}
