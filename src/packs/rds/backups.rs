//! R08: the backups of an Rds have a valid window and are kept for some days.
//!
//! Refuses a new Rds whose `backupstarttime` is not one hour of the form 01:00-02:00 that begins at :00, :15, :30 or :45, or
//! whose `backupkeepdays` is not 1 to 732; with PostgreSQL 0 days are allowed, too. R01 judges later changes.
//!
//! # Why
//!
//! The cloud refuses any other window, the operator ignores the error, and the instance is never created. An instance without
//! backups cannot be restored.
//!
//! # Example
//!
//! ```text
//! spec:
//!   backupstarttime: 01:10-02:10          # refused: does not begin at :00, :15, :30 or :45
//! ```
//!
//! # What to do instead
//!
//! `backupstarttime: 01:15-02:15` (UTC) and `backupkeepdays: 12`.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R08 until=TIME reason=…"`.

use super::{RDS, RdsWrite, contents, shown};
use engine::rule::{All, Findings, Review, Rule, Verb, View};

pub(super) const RULE: Rule = Rule {
    id: "R08",
    name: "rds-backups",
    judges: &[(RDS, &[Verb::Create], All(check))],
    depends_on_state: false,
    source: include_str!("backups.rs"),
};

const WHY: &str =
    "the cloud refuses it and the operator ignores the error, or there are no backups to restore from";

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(RdsWrite { new, .. }) = RdsWrite::of(review, view) else { return Findings::new() };
    let mut found = Findings::new();
    let window = new.spec.window();
    if !is_window(window) {
        let says = format!(
            "spec.backupstarttime {} is not one hour that begins at :00, :15, :30 or :45",
            shown(window)
        );
        found.push(RULE.deny("spec.backupstarttime", says, WHY, "write a time in UTC such as 01:15-02:15"));
    }
    let least = i64::from(new.spec.engine() != "PostgreSQL");
    if !new.spec.backup_days().is_some_and(|days| (least..=732).contains(&days)) {
        let says =
            format!("spec.backupkeepdays {} is not {least} to 732", contents(&new.spec.backupkeepdays));
        found.push(RULE.deny("spec.backupkeepdays", says, WHY, "write backupkeepdays: 12"));
    }
    found
}

/// Returns whether the text is one hour that begins at :00, :15, :30 or :45, as in 01:15-02:15.
fn is_window(text: &str) -> bool {
    let read = |it: &str| {
        let (hour, minute) =
            it.split_once(':').filter(|(hour, _)| hour.len() == 2 && !hour.starts_with('+'))?;
        let hour: u8 = hour.parse().ok().filter(|it| *it < 24)?;
        ["00", "15", "30", "45"].contains(&minute).then(|| (hour, minute.to_owned()))
    };
    let both = text.split_once('-').and_then(|(from, to)| Some((read(from)?, read(to)?)));
    both.is_some_and(|((from, at), (to, until))| (from + 1) % 24 == to && at == until)
}
