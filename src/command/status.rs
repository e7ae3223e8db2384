//! `gatera status`: how clusters are, what the guard does with them, and how it is itself.
//!
//! Owns: the way from a look to what `report/status.rs` prints.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use clap::Args;
use facts::view::{Cluster, World};
use inspect::audit;
use inspect::status::ClusterStatus;
use kube::Client;
use objects::visible;
use report;

use super::guided::{Printout, print_changes};
use super::look::{self, Output};
use super::site::{Clock, Site};
use super::terminal::progress::Progress;
use super::{Exit, doctor};
use crate::act::telemetry::chain;

/// Options that choose the clusters.
#[derive(Clone, Debug, Args)]
pub struct ClusterChoice {
    /// Name of one cluster: its StatefulSet, or the label that names it [default: all]
    #[arg(value_name = "CLUSTER")]
    cluster: Option<String>,
    #[command(flatten)]
    look: look::Look,
}

impl ClusterChoice {
    /// Where to look.
    pub fn look(&self) -> &look::Look {
        &self.look
    }

    /// The clusters that are meant.
    pub fn clusters<'w>(&self, world: &'w World) -> anyhow::Result<Vec<&'w Cluster>> {
        look::named(world, self.cluster.as_deref(), &self.look)
    }
}

/// What is asked on the command line.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// The clusters to show.
    #[command(flatten)]
    pub of: ClusterChoice,
    /// Print again whenever something changes, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
}

/// Pause between two looks with `--watch`.
const LOOK: Duration = Duration::from_secs(5);
/// Moves to the upper left corner, and clears the screen below it.
const ANEW: &str = "\u{1b}[H\u{1b}[J";

/// Prints the state of the clusters. `--watch` also prints errors on the way, and goes on.
pub fn run(ask: &StatusArgs, out: &mut impl Write) -> anyhow::Result<Exit> {
    let on_a_terminal = io::stdout().is_terminal();
    look::block_on(async {
        let client = ask.of.look.client().await?;
        let mut clock = Clock::ask(&client).await?;
        print_changes(LOOK, out, async |first| {
            let text = match printed(&ask.of, &client, &mut clock).await {
                Err(error) if !first && ask.watch => visible(&chain(error.as_ref())) + "\n",
                text => text?,
            };
            let header =
                format!("{ANEW}every {} s, since {:.0}; Ctrl-C ends it\n\n", LOOK.as_secs(), clock.now());
            let header = if ask.watch && on_a_terminal { header } else { String::new() };
            Ok(Printout { header, text, exit: (!ask.watch).then_some(Exit::Clean) })
        })
        .await
    })
}

async fn printed(of: &ClusterChoice, client: &Client, clock: &mut Clock) -> anyhow::Result<String> {
    let site = Site::of(client.clone(), of.look.config.as_deref()).await?;
    *clock = site.clock;
    let (_, mut guard) = doctor::of_the_guard(&site, &Progress::off()).await;
    let (world, _) = look::looked(&of.look, &site).await?;
    let view = site.view(&world);
    guard.extend(inspect::doctor::once_guarded(&view));
    guard.extend(inspect::doctor::lone_founders(&view));
    let audit = audit::run(crate::rulebook(), &view);
    let clusters = of.clusters(&world)?.into_iter();
    let all: Vec<_> =
        clusters.map(|cluster| ClusterStatus::of(cluster, &view).with_findings(&audit)).collect();
    Ok(match of.look.output {
        Output::Text if all.is_empty() => format!("no Galera cluster\n{}", report::status::guard(&guard)),
        Output::Text => report::status::text(&all) + &report::status::guard(&guard),
        Output::Json => format!("{:#}\n", report::status::json(&all, &guard)),
    })
}
