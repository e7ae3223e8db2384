//! `gatera rollout`: shows how far the rollout of a configuration is, and records what a person asks for, with that person's
//! rights.
//!
//! Owns: the way from a command to one annotation of the StatefulSet. `leader/plan/rollout.rs` decides what follows from the
//! annotation, and `report/rollout.rs` lays out the result.

use std::io::Write;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use facts::marks::{self, PREFIX};
use facts::revision::{Digest, Revision};
use facts::view::{Cluster, RolloutRequest};
use inspect::status::ClusterStatus;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use objects::visible;
use report::rollout as report;
use serde_json::json;

use super::guided::{Printout, print_changes};
use super::look::{self, ObservedCluster};
use super::site::Site;
use super::status;
use super::{Exit, complete};
use crate::act::api::{Exactly, annotate};

/// Subcommands of `gatera rollout`.
#[derive(Clone, Debug, Subcommand)]
pub enum RolloutCommand {
    /// Show the progress of a rollout
    #[command(
        after_help = "Exit codes: 0 if every member runs its configuration, 1 if not yet, or given up; 2 if unknown"
    )]
    Status {
        /// The clusters to show.
        #[command(flatten)]
        clusters: status::ClusterChoice,
        /// Print again whenever something changes, until the rollout ends or waits for you
        #[arg(long, short)]
        watch: bool,
    },
    /// List the kept revisions of a configuration, and which members run them
    History(RolloutArgs),
    /// Pause: restart no member until the rollout is resumed
    Pause(RolloutArgs),
    /// Resume after a pause or an undo
    Resume(RolloutArgs),
    /// Retry a revision that was given up, once you have removed the cause
    Retry(RolloutArgs),
    /// Return to an earlier revision until the ConfigMap changes again
    Undo {
        /// The cluster.
        #[command(flatten)]
        cluster: RolloutArgs,
        /// Revision, as `gatera rollout history` prints it [default: the one before]
        #[arg(long, value_name = "REVISION")]
        to: Option<String>,
    },
}

/// Options that name one cluster.
#[derive(Clone, Debug, Args)]
pub struct RolloutArgs {
    /// Name of the cluster: its StatefulSet, or the label that names it
    #[arg(value_name = "CLUSTER", add = ArgValueCompleter::new(complete::clusters))]
    cluster: String,
    #[command(flatten)]
    look: look::LookArgs,
}

impl RolloutArgs {
    async fn seen(&self) -> anyhow::Result<ObservedCluster> {
        look::observe(&self.cluster, &self.look, &self.look.site(false).await?).await
    }
}

/// Runs the subcommand.
pub async fn run(command: &RolloutCommand, out: &mut impl Write) -> anyhow::Result<Exit> {
    match command {
        RolloutCommand::Status { clusters, watch } => return status(clusters, *watch, out).await,
        RolloutCommand::History(args) => history(args, out).await?,
        RolloutCommand::Pause(args) => {
            let seen = args.seen().await?;
            seen.set_request(Some(RolloutRequest::Paused)).await?;
            writeln!(
                out,
                "{} is paused: no member restarts with a changed configuration until `gatera rollout resume`; a member that fails with a new one still returns to the previous one",
                seen.id
            )?;
        }
        RolloutCommand::Resume(args) => {
            let seen = args.seen().await?;
            seen.set_request(None).await?;
            let goes_on = || {
                "continues: members that run another configuration restart, one after the other, with what its ConfigMaps hold".to_owned()
            };
            let stays = |why| {
                format!(
                    "does not continue, because the revision was given up: {why}; `gatera rollout retry` tries it once more"
                )
            };
            writeln!(out, "{} {}", seen.id, visible(&seen.given_up().map_or_else(goes_on, stays)))?;
        }
        RolloutCommand::Retry(args) => {
            let seen = args.seen().await?;
            let why = seen.given_up().with_context(|| {
                format!("{} has no revision that was given up, so there is nothing to retry", seen.id)
            })?;
            if RolloutRequest::of(&seen.cluster()?.workload.metadata) == Some(RolloutRequest::Paused) {
                anyhow::bail!("{} is paused; run `gatera rollout resume` first", seen.id);
            }
            seen.set_request(Some(RolloutRequest::Retry(format!("{:.0}", seen.clock.now())))).await?;
            writeln!(out, "{} retries the revision that was given up ({})", seen.id, visible(why))?;
        }
        RolloutCommand::Undo { cluster, to } => undo(cluster, to.as_deref(), out).await?,
    }
    Ok(Exit::Clean)
}

/// The pause between two looks with `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(2);

/// Prints the status of rollouts. The exit code is 1 if one is not done yet, was given up, or is held (for example, paused), so
/// that a pipeline continues only if every member runs its configuration.
async fn status(choice: &status::ClusterChoice, watch: bool, out: &mut impl Write) -> anyhow::Result<Exit> {
    let client = choice.look.client().await?;
    print_changes(WATCH_PAUSE, out, async |first| {
        // Clock and settings are read at each look, because `--watch` may run for days.
        let site = Site::for_judging(client.clone(), choice.look.config.as_deref()).await?;
        if first {
            site.print_source();
        }
        let (world, _) = look::list_world(choice.look.namespace(), &site).await?;
        let view = site.view(&world);
        let clusters = choice.clusters(&world)?.into_iter();
        let all: Vec<_> = clusters.map(|cluster| ClusterStatus::of(cluster, &view)).collect();
        let exit = if all.iter().all(report::is_done) { Exit::Clean } else { Exit::Refused };
        let ends = !watch || !all.iter().any(report::continues);
        let text = all.iter().map(report::status).collect();
        Ok(Printout { header: String::new(), text, exit: ends.then_some(exit) })
    })
    .await
}

async fn history(args: &RolloutArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let seen = args.seen().await?;
    let snapshots = seen.snapshots().await?;
    let cluster = seen.cluster()?;
    Ok(out.write_all(report::history(cluster, &snapshots).as_bytes())?)
}

async fn undo(args: &RolloutArgs, to: Option<&str>, out: &mut impl Write) -> anyhow::Result<()> {
    let seen = args.seen().await?;
    let (cluster, snapshots) = (seen.cluster()?, seen.snapshots().await?);
    let live = cluster.live.as_ref().map_err(|unknown| anyhow::anyhow!("{unknown}"))?;
    let revision = match to {
        Some(text) => Revision::read(text)
            .with_context(|| format!("{text} is not a revision; `gatera rollout history` lists them"))?,
        None => earlier_revision(cluster, &snapshots)
            .context("no earlier revision is kept; `gatera rollout history` lists those that are")?,
    };
    if revision == *live {
        anyhow::bail!(
            "the ConfigMap already holds that revision; `gatera rollout resume` makes members run it"
        );
    }
    let known = |name: String| snapshots.iter().any(|snapshot| snapshot.name == name);
    if !revision.snapshots().all(known) {
        anyhow::bail!(
            "there is no snapshot of {revision}; `gatera rollout history` lists those that are kept"
        );
    }
    let request = RolloutRequest::Keep { revision: revision.clone(), instead_of: live.clone() };
    seen.set_request(Some(request)).await?;
    let revision = visible(&revision.to_string());
    writeln!(
        out,
        "members of {} that do not run {revision} will restart with it, one after the other",
        seen.id
    )?;
    writeln!(out, "the ConfigMap still holds {live}; its next change ends the undo and is rolled out")?;
    Ok(())
}

/// Returns the revision for an undo: while the ConfigMaps hold another revision than the good one, the good one; otherwise the
/// newest one before it.
fn earlier_revision(cluster: &Cluster, snapshots: &[report::KeptSnapshot]) -> Option<Revision> {
    let record = cluster.rollout.as_ref()?;
    let live = cluster.live.as_ref().ok();
    if live.is_some_and(|live| *live != record.good) {
        return Some(record.good.clone());
    }
    // The earlier revision differs from the good one in one ConfigMap.
    snapshots.iter().find_map(|snapshot| {
        let digest = Digest::of_snapshot(&snapshot.name)?;
        let other = record.good.with(&snapshot.source, digest);
        (other != record.good).then_some(other)
    })
}

impl ObservedCluster {
    /// Returns why the revision that the ConfigMaps hold now was given up, if it was.
    fn given_up(&self) -> Option<&str> {
        let cluster = self.cluster().ok()?;
        let stopped = cluster.rollout.as_ref()?.stopped.as_ref()?;
        cluster.live.as_ref().is_ok_and(|live| *live == stopped.revision).then_some(&*stopped.why)
    }

    /// Returns the snapshots of the cluster's ConfigMaps, newest first.
    async fn snapshots(&self) -> anyhow::Result<Vec<report::KeptSnapshot>> {
        let ours = ListParams::default().labels(&format!("{PREFIX}{}={}", marks::KEEPS, self.id.name));
        let list = self.api::<ConfigMap>().list_metadata(&ours).await;
        let list = list.context("listing the snapshots of its ConfigMaps")?;
        let snapshot = |it: PartialObjectMeta<ConfigMap>| report::KeptSnapshot {
            name: it.name_any(),
            source: it.annotations().get(&format!("{PREFIX}{}", marks::KEEPS)).cloned().unwrap_or_default(),
            made: it.creation_timestamp().map(|time| time.0),
        };
        let mut all: Vec<_> = list.items.into_iter().map(snapshot).collect();
        all.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.made));
        Ok(all)
    }

    async fn set_request(&self, request: Option<RolloutRequest>) -> anyhow::Result<()> {
        let value = request.map(|request| request.to_string());
        let uid = &self.cluster()?.workload.metadata.uid;
        let annotations = json!({ format!("{PREFIX}{}", marks::ROLLOUT): value });
        let it = Exactly { name: &self.id.name, uid, version: "" };
        let done = annotate(&self.api::<StatefulSet>(), it, "gatera-rollout", &annotations).await;
        done.map(drop).context("annotating the StatefulSet")
    }
}
