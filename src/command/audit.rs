//! `gatera audit`: what would be refused or warned about if it were applied today as it is.
//!
//! Owns: the way from a look to an exit code. What is found is the background audit's (`decide::audit`), laid out in `report`.

use std::io::{self, Write};

use decide::audit;
use decide::config::Settings;
use decide::report;
use decide::view::View;
use jiff::Timestamp;

use super::Exit;
use super::look::{Look, Output, block_on, looked};

/// Lists, judges, prints.
pub fn run(look: &Look, settings: &Settings, out: &mut impl Write) -> anyhow::Result<Exit> {
    let (world, _, unseen) = block_on(looked(look, settings))?;
    for plural in unseen {
        let _ =
            writeln!(io::stderr(), "gatera: {plural} may not be listed; what depends on them is not judged");
    }
    let audit = audit::run(&View::new(&world, Timestamp::now(), settings));
    match look.output {
        Output::Text => out.write_all(report::audit::text(&audit).as_bytes())?,
        Output::Json => writeln!(out, "{:#}", report::audit::json(&audit))?,
    }
    Ok(if audit.refused() > 0 { Exit::Refused } else { Exit::Clean })
}
