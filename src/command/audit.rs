//! `gatera audit`: what would be refused or warned about if it were applied today as it is.
//!
//! Owns: the way from a look to an exit code. What is found is the background audit's (`decide::audit`), laid out in `report`.

use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use decide::audit;
use decide::config::Settings;
use decide::report;
use decide::view::View;
use jiff::Timestamp;

use super::Exit;
use super::look::{Look, Output, block_on, looked};

/// Options of `gatera audit`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    look: Look,
    /// Only what is not well, and nothing if all is
    #[arg(long, short)]
    quiet: bool,
}

impl Options {
    /// The settings file.
    pub fn config(&self) -> Option<&Path> {
        self.look.config.as_deref()
    }

    /// A person is to read it.
    pub fn is_for_people(&self) -> bool {
        self.look.is_for_people()
    }
}

/// Lists, judges, prints.
pub fn run(options: &Options, settings: &Settings, out: &mut impl Write) -> anyhow::Result<Exit> {
    let Options { look, quiet } = options;
    look.may_be_quiet(*quiet)?;
    let (world, _, unseen) = block_on(looked(look, settings))?;
    for plural in unseen {
        let _ =
            writeln!(io::stderr(), "gatera: {plural} may not be listed; what depends on them is not judged");
    }
    let audit = audit::run(&View::new(&world, Timestamp::now(), settings));
    match look.output {
        Output::Text if *quiet => out.write_all(report::audit::not_well(&audit).as_bytes())?,
        Output::Text => out.write_all(report::audit::text(&audit).as_bytes())?,
        Output::Json => writeln!(out, "{:#}", report::audit::json(&audit))?,
    }
    Ok(if audit.refused() > 0 { Exit::Refused } else { Exit::Clean })
}
