//! `gatera audit` and `gatera status`: one look at what a cluster holds, with the rights of whoever asks.
//!
//! Owns: the way from a kubeconfig to an exit code. What is found is the background audit's and the controller's plan
//! (`audit.rs`, `plan.rs`), laid out in `report`; what is listed is what the watches list (`watch/once.rs`).

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::Client;

use crate::check::Outcome;
use crate::telemetry::chain;
use crate::{connect, watch};
use decide::audit;
use decide::config::Settings;
use decide::report;
use decide::report::status::Status;
use decide::view::{Cluster, Freshness, View, World};

/// Options of `gatera audit`, and of every look.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Kubeconfig [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// One namespace, for whoever may not list all
    #[arg(long, short)]
    namespace: Option<String>,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Settings file: adopt (label selectors), modes (per rule)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Options of `gatera status`.
#[derive(Clone, Debug, Args)]
pub struct StatusOptions {
    /// Name of one cluster: its StatefulSet, or the label that names it [default: all]
    #[arg(value_name = "CLUSTER")]
    cluster: Option<String>,
    #[command(flatten)]
    look: Options,
}

impl StatusOptions {
    /// The settings file.
    pub fn config(&self) -> Option<&Path> {
        self.look.config.as_deref()
    }

    /// Where to look.
    pub fn look(&self) -> &Options {
        &self.look
    }

    /// The clusters that are meant.
    pub fn clusters<'w>(&self, world: &'w World) -> anyhow::Result<Vec<&'w Cluster>> {
        named(world, self.cluster.as_deref(), &self.look)
    }
}

/// Lists, judges, prints.
pub fn run(options: &Options, settings: &Settings, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let (world, _, nodes) = block_on(looked(options, settings))?;
    if !nodes {
        let _ = writeln!(io::stderr(), "gatera: nodes may not be listed; what depends on them is not judged");
    }
    let audit = audit::run(&View::new(&world, Timestamp::now(), settings));
    match options.output {
        Output::Text => out.write_all(report::audit::text(&audit).as_bytes())?,
        Output::Json => writeln!(out, "{:#}", report::audit::json(&audit))?,
    }
    Ok(if audit.refused() > 0 { Outcome::Refused } else { Outcome::Clean })
}

/// Lists and tells the story.
pub fn status(options: &StatusOptions, settings: &Settings, out: &mut impl Write) -> anyhow::Result<()> {
    let (world, _) = block_on(listed(&options.look, settings))?;
    let view = View::new(&world, Timestamp::now(), settings);
    let all: Vec<_> =
        options.clusters(&world)?.into_iter().map(|cluster| Status::of(cluster, &view)).collect();
    match options.look.output {
        Output::Text if all.is_empty() => writeln!(out, "no Galera cluster")?,
        Output::Text => out.write_all(report::status::text(&all).as_bytes())?,
        Output::Json => writeln!(out, "{:#}", report::status::json(&all))?,
    }
    Ok(())
}

/// The clusters of this name, or all.
pub fn named<'w>(
    world: &'w World,
    name: Option<&str>,
    options: &Options,
) -> anyhow::Result<Vec<&'w Cluster>> {
    let wanted = |it: &&Cluster| name.is_none_or(|name| it.id.name == name || it.instance() == Some(name));
    let all: Vec<_> = world.clusters().filter(wanted).collect();
    if let (Some(name), true) = (name, all.is_empty()) {
        let place = options.namespace.as_ref().map(|ns| format!(" in namespace {ns}")).unwrap_or_default();
        anyhow::bail!("there is no Galera cluster {name}{place}; `gatera status` lists all");
    }
    Ok(all)
}

/// On a runtime of its own.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(work)
}

/// The world, and by whom it was asked.
pub async fn listed(options: &Options, settings: &Settings) -> anyhow::Result<(World, Client)> {
    let (world, client, _) = looked(options, settings).await?;
    Ok((world, client))
}

/// The world, by whom it was asked, and whether its nodes are known.
async fn looked(options: &Options, settings: &Settings) -> anyhow::Result<(World, Client, bool)> {
    let client = connect::person(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.as_deref();
    let listed = match watch::once(&client, namespace, &settings.adoption).await {
        Err(error) if error.forbidden() && namespace.is_none() => {
            anyhow::bail!("{}; --namespace NS needs rights in one namespace only", chain(&error));
        }
        listed => listed?,
    };
    Ok((World::build(listed.facts, &settings.adoption, Freshness::Current), client, listed.nodes))
}
