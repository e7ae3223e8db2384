//! `gatera stop`: an orderly stop, the highest ordinal first, with the rights of whoever asks.
//!
//! Owns: the loop of looking and doing, and hearing where a member's data ended when it left. What comes next is `decide::stop`'s.

use std::io::Write;
use std::time::Instant;

use decide::config::Settings;
use decide::galera::start_note::{self, Position};
use decide::marks::stopped::Record;
use decide::marks::{OVERRIDE, PREFIX};
use decide::report::stop as report;
use decide::report::visible;
use decide::stop::{self, Step};
use decide::view::View;
use futures_util::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::Exit;
use super::look;
use super::walk::{LOOK, Of, Seen, Told, agrees, in_time, release};

/// For so long the last one may be stopped.
const ASKED: SignedDuration = SignedDuration::from_mins(2);

/// Stops it.
pub fn run(of: &Of, settings: &Settings, out: &mut impl Write) -> anyhow::Result<Exit> {
    look::block_on(go(of, settings, out))
}

async fn go(of: &Of, settings: &Settings, out: &mut impl Write) -> anyhow::Result<Exit> {
    let (mut told, mut agreed) = (Told::default(), of.agreed());
    let (mut since, mut before, mut fewest) = (Instant::now(), None, i64::MAX);
    loop {
        let seen = of.seen(settings).await?;
        let (cluster, view) = (seen.cluster()?, View::new(&seen.world, Timestamp::now(), settings));
        let step = stop::next(cluster, &view);
        match &step {
            Step::Stopped => {
                write!(out, "{}", report::stopped(cluster))?;
                return Ok(Exit::Clean);
            }
            Step::Cannot(why) => {
                writeln!(out, "{} cannot be stopped: {}", seen.id, visible(why))?;
                return Ok(Exit::Refused);
            }
            _ if cluster.workload.replicas() > fewest => {
                writeln!(out, "{}", report::healed(cluster, fewest))?;
                return Ok(Exit::Refused);
            }
            _ if !agreed => {
                write!(out, "{}", report::proposal(cluster, &view))?;
                if of.dry_run {
                    return Ok(Exit::Clean);
                }
                if !agrees(out)? {
                    return Ok(Exit::Refused);
                }
                agreed = true;
            }
            _ => {}
        }
        if before.as_ref() != Some(&step) {
            (since, before) = (Instant::now(), Some(step.clone()));
        }
        told.step(report::says(&step), out)?;
        if of.gives_up(since, out)? {
            return Ok(Exit::Undecided);
        }
        match (act(&seen, &step).await, &step) {
            (Ok(()), Step::Leave { to, .. }) => fewest = *to,
            (Ok(()), _) => {}
            (Err(problem), _) => told.problem(&problem, out)?,
        }
        sleep(LOOK).await;
    }
}

async fn act(seen: &Seen, step: &Step) -> anyhow::Result<()> {
    match step {
        Step::Record { claims } => record(seen, claims, None).await,
        Step::Leave { member, claims, to } => {
            // What it says at its end is said to whoever listens already.
            let from = seen.pods().get(member).await?.metadata.resource_version.unwrap_or_default();
            leave(seen, *to).await?;
            record(seen, claims, end_of(seen, member, from).await?).await
        }
        Step::Follow { member, claims } => {
            let Some(pod) = seen.pods().get_opt(member).await? else { return Ok(()) };
            let from = pod.metadata.resource_version.unwrap_or_default();
            record(seen, claims, end_of(seen, member, from).await?).await
        }
        Step::Stopped | Step::Wait(_) | Step::Cannot(_) => Ok(()),
    }
}

/// The guard keeps the last member, and rightly: so the person's word stands on the StatefulSet for that moment.
async fn leave(seen: &Seen, to: i64) -> anyhow::Result<()> {
    if to > 0 {
        return seen.scale(to).await;
    }
    let own = seen.cluster()?.workload.metadata.mark(OVERRIDE);
    let command = "kubectl annotate statefulset";
    anyhow::ensure!(
        own.is_none(),
        "there is an override on the StatefulSet already; take it off first: {command} {} -n {} gatera.dev/override-",
        seen.id.name,
        seen.id.namespace
    );
    seen.annotate(release("G01", ASKED, "gatera stop stops the last member")?).await?;
    let done = seen.scale(to).await;
    seen.annotate(json!({ format!("{PREFIX}{OVERRIDE}"): null })).await?;
    done
}

async fn record(seen: &Seen, claims: &[String], position: Option<Position>) -> anyhow::Result<()> {
    let cluster = seen.cluster()?;
    let of = cluster.stopped_members().unwrap_or_else(|| cluster.workload.replicas());
    let record = Record { position, of, since: in_time(SignedDuration::ZERO)? };
    seen.record(claims, Some(&record.to_string())).await
}

/// Follows the pod until it is gone, and returns where its data ended, if it told that.
async fn end_of(seen: &Seen, member: &str, mut from: String) -> anyhow::Result<Option<Position>> {
    let only = WatchParams::default().fields(&format!("metadata.name={member}"));
    let mut end = None;
    loop {
        let mut events = Box::pin(seen.pods().watch(&only, &from).await?);
        loop {
            match events.try_next().await {
                Ok(Some(WatchEvent::Modified(pod) | WatchEvent::Added(pod))) => end = told(&pod).or(end),
                Ok(Some(WatchEvent::Deleted(pod))) => return Ok(told(&pod).or(end)),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        // A watch ends now and then.
        match seen.pods().get_opt(member).await? {
            None => return Ok(end),
            Some(pod) => {
                end = told(&pod).or(end);
                from = pod.metadata.resource_version.unwrap_or_default();
            }
        }
    }
}

fn told(pod: &Pod) -> Option<Position> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    statuses
        .iter()
        .find_map(|it| start_note::end(it.state.as_ref()?.terminated.as_ref()?.message.as_deref()?))
}
