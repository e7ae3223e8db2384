//! `gatera audit`: lists the objects that would be refused or warned about if they were applied again today, unchanged.
//!
//! Owns: the way from the options to an exit code. `inspect::audit`, which the background audit also uses, judges the objects,
//! and `report` lays out the findings.

use std::io::Write;

use inspect::audit;
use inspect::status::ClusterStatus;

use super::look::{SurveyArgs, list_world, print_unlisted};
use super::{Exit, doctor};

/// Lists the objects, judges them, and prints the findings.
pub async fn run(options: &SurveyArgs, out: &mut impl Write) -> anyhow::Result<Exit> {
    let (output, colour) = (options.output()?, options.colour.wanted());
    let site = options.look.site(options.quiet).await?;
    let (world, unseen) = list_world(options.look.namespace(), &site).await?;
    print_unlisted(&unseen);
    let view = site.view(&world);
    let unguarded = doctor::unguarded(&site.client, options.look.namespace(), &view).await;
    let (audit, clusters) = (audit::run(crate::rulebook(), &view), ClusterStatus::all(&view));
    let text = || {
        let text = if options.quiet { report::audit::needing_attention } else { report::audit::text };
        text(&audit, &clusters, colour) + &report::audit::unguarded(&unguarded)
    };
    out.write_all(output.of(text, || report::audit::json(&audit, &clusters, &unguarded))?.as_bytes())?;
    Ok(if audit.refused() > 0 { Exit::Refused } else { Exit::Clean })
}
