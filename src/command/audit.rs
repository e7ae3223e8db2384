//! `gatera audit`: what would be refused or warned about if it were applied today as it is.
//!
//! Owns: the way from a look to an exit code. What is found is the background audit's (`inspect::audit`), laid out in `report`.

use std::io::Write;

use inspect::audit;
use report;

use super::Exit;
use super::look::{Output, Survey, block_on, looked, tell_unseen};

/// Lists, judges, prints.
pub fn run(options: &Survey, out: &mut impl Write) -> anyhow::Result<Exit> {
    let look = options.look()?;
    let audit = block_on(async {
        let site = options.site().await?;
        let (world, unseen) = looked(look, &site).await?;
        tell_unseen(&unseen);
        Ok(audit::run(crate::rulebook(), &site.view(&world)))
    })?;
    match look.output {
        Output::Text if options.quiet => out.write_all(report::audit::not_well(&audit).as_bytes())?,
        Output::Text => out.write_all(report::audit::text(&audit).as_bytes())?,
        Output::Json => writeln!(out, "{:#}", report::audit::json(&audit))?,
    }
    Ok(if audit.refused() > 0 { Exit::Refused } else { Exit::Clean })
}
