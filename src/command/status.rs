//! `gatera status`: shows the state of clusters, what the guard does with them, and the state of the guard.
//!
//! Owns: collecting what `report/status.rs` lays out.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use facts::galera::adopt::{BadSelector, TextSelector};
use facts::view::{Cluster, World};
use inspect::audit;
use inspect::status::ClusterStatus;
use kube::Client;
use objects::visible;

use super::guided::{Printout, print_changes};
use super::look::{self, OutputFormat};
use super::site::{Clock, Site};
use super::terminal::Colour;
use super::terminal::progress::Progress;
use super::{Exit, complete, doctor};
use crate::act::telemetry::chain;

/// Options that choose the clusters.
#[derive(Clone, Debug, Args)]
pub struct ClusterChoice {
    /// Name of one cluster: its StatefulSet, or the label that names it [default: all]
    #[arg(value_name = "CLUSTER", add = ArgValueCompleter::new(complete::clusters))]
    cluster: Option<String>,
    /// Only clusters with these labels, such as team=a
    #[arg(long, short = 'l', value_name = "LABELS", value_parser = labels)]
    selector: Option<TextSelector>,
    #[command(flatten)]
    pub look: look::LookArgs,
}

fn labels(text: &str) -> Result<TextSelector, String> {
    let read = text.parse();
    read.map_err(|_: BadSelector| "write it as key, key=value or key in (a, b), joined by commas".to_owned())
}

impl ClusterChoice {
    /// Returns the clusters that the options choose.
    pub fn clusters<'w>(&self, world: &'w World) -> anyhow::Result<Vec<&'w Cluster>> {
        let mut all = look::clusters_named(world, self.cluster.as_deref(), &self.look)?;
        let labels =
            |it: &&Cluster| self.selector.as_ref().is_none_or(|by| by.selects(&it.workload.metadata.labels));
        all.retain(labels);
        Ok(all)
    }
}

/// Options of `gatera status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// The clusters to show.
    #[command(flatten)]
    clusters: ClusterChoice,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = StatusForm::Text)]
    output: StatusForm,
    /// Omit the header line of --output wide
    #[arg(long)]
    no_headers: bool,
    /// Print again whenever something changes, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
    #[command(flatten)]
    colour: Colour,
}

impl StatusArgs {
    /// Returns whether the output may be folded at the width of the terminal, which would break a table or a name.
    pub fn is_for_people(&self) -> bool {
        self.output == StatusForm::Text
    }
}

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StatusForm {
    /// For people
    Text,
    /// A table with one line for each cluster
    Wide,
    /// NAMESPACE/NAME of each cluster
    Name,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
}

/// The pause between two looks with `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(5);
/// The escape sequence that moves to the upper left corner, and clears the screen below it.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[J";

/// Prints the state of the clusters. With `--watch`, it also prints errors that occur later, and continues.
pub async fn run(args: &StatusArgs, out: &mut impl Write) -> anyhow::Result<Exit> {
    let on_a_terminal = io::stdout().is_terminal();
    let client = args.clusters.look.client().await?;
    let mut clock = Clock::ask(&client).await?;
    print_changes(WATCH_PAUSE, out, async |first| {
        let text = match printed(args, &client, &mut clock).await {
            Err(error) if !first && args.watch => visible(&chain(error.as_ref())) + "\n",
            text => text?,
        };
        let header = format!(
            "{CLEAR_SCREEN}every {} s, since {:.0}; Ctrl-C ends it\n\n",
            WATCH_PAUSE.as_secs(),
            clock.now()
        );
        let header = if args.watch && on_a_terminal { header } else { String::new() };
        Ok(Printout { header, text, exit: (!args.watch).then_some(Exit::Clean) })
    })
    .await
}

async fn printed(args: &StatusArgs, client: &Client, clock: &mut Clock) -> anyhow::Result<String> {
    let look = &args.clusters.look;
    let site = Site::of(client.clone(), look.config.as_deref()).await?;
    *clock = site.clock;
    let shows_guard = !matches!(args.output, StatusForm::Wide | StatusForm::Name);
    let mut guard =
        if shows_guard { doctor::guard_rows(&site, &Progress::off()).await.1 } else { Vec::new() };
    let (world, _) = look::list_world(look.namespace(), &site).await?;
    let view = site.view(&world);
    guard.extend(inspect::doctor::once_guarded(&view));
    guard.extend(inspect::doctor::lone_bootstrap_nodes(&view));
    if shows_guard {
        guard.extend(doctor::unguarded(client, look.namespace(), &view).await);
    }
    let audit = audit::run(crate::rulebook(), &view);
    let clusters = args.clusters.clusters(&world)?.into_iter();
    let all: Vec<_> =
        clusters.map(|cluster| ClusterStatus::of(cluster, &view).with_findings(&audit)).collect();
    let colour = args.colour.wanted();
    let json = || report::status::json(&all, &guard);
    let text = || {
        let clusters = match &all[..] {
            [] => "no Galera cluster\n".to_owned(),
            all => report::status::text(all, colour),
        };
        clusters + &report::status::guard(&guard)
    };
    match args.output {
        StatusForm::Text => OutputFormat::Text.of(text, json),
        StatusForm::Json => OutputFormat::Json.of(text, json),
        StatusForm::Yaml => OutputFormat::Yaml.of(text, json),
        StatusForm::Wide => Ok(report::status::table(&all, clock.now(), !args.no_headers, colour)),
        StatusForm::Name => Ok(all.iter().map(|it| format!("{}\n", it.cluster.id)).collect()),
    }
}
