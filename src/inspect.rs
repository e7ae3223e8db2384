//! `gatera audit`: judges what a cluster holds already, once, with the rights of whoever asks.
//!
//! Owns: the way from a kubeconfig to an exit code. What is found and how it is laid out is the background audit's
//! (`audit.rs`, `report/audit.rs`); what is listed is what the watches list (`watch/once.rs`).

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::Timestamp;

use crate::audit::{self, Audit};
use crate::check::Outcome;
use crate::config::Settings;
use crate::telemetry::chain;
use crate::view::{Freshness, View, World};
use crate::{connect, report, watch};

/// Options of `gatera audit`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Kubeconfig [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// One namespace, for whoever may not list all
    #[arg(long, short)]
    namespace: Option<String>,
    /// How to print what is found
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

/// Lists, judges, prints.
pub fn run(options: &Options, settings: &Settings, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let audit = runtime.block_on(audited(options, settings))?;
    match options.output {
        Output::Text => out.write_all(report::audit::text(&audit).as_bytes())?,
        Output::Json => writeln!(out, "{:#}", report::audit::json(&audit))?,
    }
    Ok(if audit.refused() > 0 { Outcome::Refused } else { Outcome::Clean })
}

async fn audited(options: &Options, settings: &Settings) -> anyhow::Result<Audit> {
    let client = connect::person(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.as_deref();
    let listed = match watch::once(&client, namespace, &settings.adoption).await {
        Err(error) if error.forbidden() && namespace.is_none() => {
            anyhow::bail!("{}; --namespace NS needs rights in one namespace only", chain(&error));
        }
        listed => listed?,
    };
    if !listed.nodes {
        let _ = writeln!(io::stderr(), "gatera: nodes may not be listed; what depends on them is not judged");
    }
    let world = World::build(listed.facts, &settings.adoption, Freshness::Current);
    Ok(audit::run(&View::new(&world, Timestamp::now(), settings)))
}
