//! Who leads: one Lease, one holder.
//!
//! Owns: [`decide`], which is pure, and [`hold`], the loop that asks it. Must not know: what a leader does. Every write
//! carries the resourceVersion it was decided on, so of two candidates at most one wins. Whether a holder is gone is
//! measured from when *we* saw the record change last, never from the other's clock.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::telemetry::{Metrics, chain};

/// So long a silent holder is respected.
const LASTS: SignedDuration = SignedDuration::from_secs(15);
/// Three chances to renew before it is over.
const EVERY: Duration = Duration::from_secs(5);

/// The record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Empty: given up.
    pub holder: String,
    /// Changes with every write.
    pub version: String,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is none: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It is free, or its holder is silent: take it.
    Take,
    /// It is somebody else's.
    Wait,
}

/// Decides. `since` is when we first saw this version of the record.
pub fn decide(record: Option<&Record>, me: &str, since: Timestamp, now: Timestamp) -> Step {
    match record {
        None => Step::Create,
        Some(record) if record.holder == me => Step::Renew,
        Some(record) if record.holder.is_empty() => Step::Take,
        Some(_) if since.duration_until(now) >= LASTS => Step::Take,
        Some(_) => Step::Wait,
    }
}

/// Holds the lease whenever it can be had, and tells `leading`, until `closing`; then gives it up at once.
pub async fn hold(
    client: Client,
    namespace: String,
    me: String,
    leading: watch::Sender<bool>,
    metrics: Arc<crate::guard::Guard>,
    mut closing: watch::Receiver<bool>,
) {
    let metrics: &Metrics = &metrics.metrics;
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    let mut seen: Option<(String, Timestamp)> = None;
    let mut renewed = Timestamp::now();
    loop {
        let now = Timestamp::now();
        match turn(&api, &namespace, &me, &mut seen, now).await {
            Ok(held) => {
                if held {
                    renewed = now;
                }
                tell(&leading, held, metrics);
            }
            // The API server is out of reach: we lead only as long as nobody else can have taken over.
            Err(error) => {
                warn!(error = chain(&error), "lease");
                if renewed.duration_until(Timestamp::now()) >= LASTS {
                    tell(&leading, false, metrics);
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = closing.wait_for(|closing| *closing) => break,
        }
    }
    if *leading.borrow() {
        tell(&leading, false, metrics);
        if let Err(error) = give_up(&api).await {
            warn!(error = chain(&error), "giving up the lease; another replica takes it when it has run out");
        }
    }
}

fn tell(leading: &watch::Sender<bool>, now: bool, metrics: &Metrics) {
    metrics.leader.set(i64::from(now));
    leading.send_if_modified(|before| {
        let changed = *before != now;
        if changed {
            info!(leading = now, "lease");
        }
        *before = now;
        changed
    });
}

/// One look and at most one write. A conflict is an answer: somebody else was faster.
async fn turn(
    api: &Api<Lease>,
    namespace: &str,
    me: &str,
    seen: &mut Option<(String, Timestamp)>,
    now: Timestamp,
) -> kube::Result<bool> {
    let lease = api.get_opt(NAME).await?;
    let record = lease.as_ref().map(read);
    let version = record.as_ref().map(|record| record.version.clone()).unwrap_or_default();
    let since = match seen {
        Some((known, since)) if *known == version => *since,
        _ => seen.insert((version, now)).1,
    };
    let step = decide(record.as_ref(), me, since, now);
    let written = match (step, lease) {
        (Step::Wait, _) => return Ok(false),
        (Step::Create, _) => {
            let metadata = ObjectMeta {
                name: Some(NAME.into()),
                namespace: Some(namespace.into()),
                ..ObjectMeta::default()
            };
            api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec(None, me, now)) }).await
        }
        (_, Some(lease)) => {
            let spec = Some(spec(lease.spec.as_ref(), me, now));
            api.replace(NAME, &PostParams::default(), &Lease { spec, ..lease }).await
        }
        (_, None) => return Ok(false),
    };
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

const NAME: &str = "gatera";

fn read(lease: &Lease) -> Record {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    Record { holder, version: lease.metadata.resource_version.clone().unwrap_or_default() }
}

fn spec(before: Option<&LeaseSpec>, me: &str, now: Timestamp) -> LeaseSpec {
    let ours = before.filter(|spec| spec.holder_identity.as_deref() == Some(me));
    let changes = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(LASTS.as_secs()).ok(),
        acquire_time: ours.and_then(|spec| spec.acquire_time.clone()).or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if ours.is_some() { changes } else { changes + 1 }),
        ..LeaseSpec::default()
    }
}

async fn give_up(api: &Api<Lease>) -> kube::Result<()> {
    let Some(mut lease) = api.get_opt(NAME).await? else { return Ok(()) };
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = Some(String::new());
    }
    api.replace(NAME, &PostParams::default(), &lease).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let held_by = |holder: &str| Some(Record { holder: holder.into(), version: "7".into() });
        for (record, waited, step) in [
            (None, 0, Step::Create),
            (held_by("me"), 0, Step::Renew),
            (held_by("me"), 100, Step::Renew),
            (held_by(""), 0, Step::Take),
            (held_by("other"), 0, Step::Wait),
            (held_by("other"), 14, Step::Wait),
            (held_by("other"), 15, Step::Take),
            (held_by("other"), -100, Step::Wait),
        ] {
            assert_eq!(decide(record.as_ref(), "me", at(0), at(waited)), step, "{record:?} after {waited}s");
        }
    }
}
