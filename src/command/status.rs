//! `gatera status`: how clusters are and what the guard does with them.
//!
//! Owns: the way from a look to the story, which `report/status.rs` tells.

use std::io::Write;
use std::path::Path;

use clap::Args;
use decide::config::Settings;
use decide::report;
use decide::story::Story;
use decide::view::{Cluster, View, World};
use jiff::Timestamp;

use super::look::{self, Output};

/// Options of `gatera status`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Name of one cluster: its StatefulSet, or the label that names it [default: all]
    #[arg(value_name = "CLUSTER")]
    cluster: Option<String>,
    #[command(flatten)]
    look: look::Look,
}

impl Options {
    /// The settings file.
    pub fn config(&self) -> Option<&Path> {
        self.look.config.as_deref()
    }

    /// Where to look.
    pub fn look(&self) -> &look::Look {
        &self.look
    }

    /// The clusters that are meant.
    pub fn clusters<'w>(&self, world: &'w World) -> anyhow::Result<Vec<&'w Cluster>> {
        look::named(world, self.cluster.as_deref(), &self.look)
    }
}

/// Lists and tells the story.
pub fn run(options: &Options, settings: &Settings, out: &mut impl Write) -> anyhow::Result<()> {
    let (world, _) = look::block_on(look::listed(&options.look, settings))?;
    let view = View::new(&world, Timestamp::now(), settings);
    let all: Vec<_> =
        options.clusters(&world)?.into_iter().map(|cluster| Story::of(cluster, &view)).collect();
    match options.look.output {
        Output::Text if all.is_empty() => writeln!(out, "no Galera cluster")?,
        Output::Text => out.write_all(report::status::text(&all).as_bytes())?,
        Output::Json => writeln!(out, "{:#}", report::status::json(&all))?,
    }
    Ok(())
}
