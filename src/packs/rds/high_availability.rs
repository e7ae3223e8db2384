//! R04: an Rds is highly available in all its fields, or in none.
//!
//! Refuses a new Rds with a `hamode` that is not exactly `Ha`; one with `Ha` but without two zones or a replication mode of its
//! engine; and one without `hamode` but with two zones or a replication mode. R01 judges later changes.
//!
//! # Why
//!
//! The schema accepts everything that begins with Ha: `HaX` silently creates a single instance. If the cloud refuses the
//! combination, only the operator's log shows it; the operator ignores the error, and does not try again.
//!
//! # Example
//!
//! ```text
//! spec:
//!   hamode: Ha
//!   availabilityzone: eu-de-01            # refused: two zones are needed
//!   hareplicationmode: semisync
//! ```
//!
//! # What to do instead
//!
//! Write `hamode: Ha`, `availabilityzone: eu-de-01,eu-de-02` and a `hareplicationmode`: async or semisync for MySQL, async or sync for
//! PostgreSQL, sync for SQLServer. Or write none of them, and one zone.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R04 until=TIME reason=…"`.

use super::{RDS, RdsSpec, RdsWrite, contents, shown};
use engine::rule::{All, Finding, Findings, Review, Rule, Verb, View};

pub(super) const RULE: Rule = Rule {
    id: "R04",
    name: "rds-availability",
    judges: &[(RDS, &[Verb::Create], All(check))],
    depends_on_state: false,
    source: include_str!("high_availability.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(RdsWrite { new, .. }) = RdsWrite::of(review, view) else { return Findings::new() };
    let spec = &new.spec;
    if !spec.hamode.is_empty() && !spec.is_highly_available() {
        let says = format!("spec.hamode {} is not Ha", contents(&spec.hamode));
        return vec![finding("spec.hamode", says, "write hamode: Ha, or leave it out")];
    }
    zones(spec).into_iter().chain(replication(spec)).collect()
}

fn finding(field: &str, says: String, instead: &str) -> Finding {
    let why =
        "the cloud creates another instance than intended, or none, and only the operator's log shows it";
    RULE.deny(field, says, why, instead)
}

fn zones(spec: &RdsSpec) -> Option<Finding> {
    let zones = spec.zones();
    let whole = zones.iter().all(|it| !it.is_empty());
    let (wanted, mode, instead) = if spec.is_highly_available() {
        (
            2,
            "a highly available instance has two zones",
            "name two zones: availabilityzone: eu-de-01,eu-de-02",
        )
    } else {
        (1, "a single instance has one zone", "name one zone: availabilityzone: eu-de-01")
    };
    let says = format!("{mode}, but spec.availabilityzone is {}", shown(&zones.join(",")));
    (!whole || zones.len() != wanted).then(|| finding("spec.availabilityzone", says, instead))
}

fn replication(spec: &RdsSpec) -> Option<Finding> {
    let mode = &spec.hareplicationmode;
    let field = "spec.hareplicationmode";
    if !spec.is_highly_available() {
        let says = || format!("a single instance has no replication, but {field} is {}", contents(mode));
        return (!mode.is_empty())
            .then(|| finding(field, says(), "leave hareplicationmode out, or write hamode: Ha"));
    }
    let (known, instead): (&[&str], _) = match spec.engine() {
        "PostgreSQL" => (&["async", "sync"], "write hareplicationmode: async or sync"),
        "SQLServer" => (&["sync"], "write hareplicationmode: sync"),
        _ => (&["async", "semisync"], "write hareplicationmode: async or semisync"),
    };
    let says = format!("{field} {} is not a mode of {}", contents(mode), shown(spec.engine()));
    (!known.contains(&mode.look())).then(|| finding(field, says, instead))
}
