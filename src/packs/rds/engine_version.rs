//! R05: the engine, the version and the port of an Rds fit together.
//!
//! Refuses a new Rds with an engine that the cloud does not have, a version that this engine does not have, or a port that this engine
//! does not allow. R01 judges later changes.
//!
//! # Why
//!
//! The schema checks each of the three alone: it accepts PostgreSQL 8.0 on port 0000. The cloud then refuses it, the operator ignores
//! the error, and the instance is never created.
//!
//! # Example
//!
//! ```text
//! spec:
//!   datastoretype: PostgreSQL
//!   datastoreversion: "8.0"               # refused: a version of MySQL, and the default
//! ```
//!
//! # What to do instead
//!
//! | engine | versions | ports |
//! |---|---|---|
//! | MySQL | 5.6, 5.7, 8.0 | 1024 to 65535 except 12017 and 33071 |
//! | PostgreSQL | 9.5, 9.6, 10, 11, 12 | 2100 to 9500 |
//! | SQLServer | 2014 SE, 2016 SE, 2016 EE, 2017 SE, 2017 EE | 1433, or 2100 to 9500 except 5355 and 5985 |
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R05 until=TIME reason=…"`. Use it if the cloud has a newer version
//! than this table.

use super::{RDS, RdsSpec, RdsWrite, shown};
use engine::rule::{All, Finding, Findings, Review, Rule, Verb, View};

pub(super) const RULE: Rule = Rule {
    id: "R05",
    name: "rds-engine",
    judges: &[(RDS, &[Verb::Create], All(check))],
    depends_on_state: false,
    source: include_str!("engine_version.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some(RdsWrite { new, .. }) = RdsWrite::of(review, view) else { return Findings::new() };
    let engine = new.spec.engine();
    if !["MySQL", "PostgreSQL", "SQLServer"].contains(&engine) {
        let says = format!("spec.datastoretype {} is not an engine of the cloud", shown(engine));
        return vec![finding("spec.datastoretype", says, "write MySQL, PostgreSQL or SQLServer")];
    }
    version(&new.spec).into_iter().chain(port(&new.spec)).collect()
}

fn finding(field: &str, says: String, instead: &str) -> Finding {
    let why = "the cloud refuses it and the operator ignores the error: the instance is never created";
    RULE.deny(field, says, why, instead)
}

fn version(spec: &RdsSpec) -> Option<Finding> {
    let version = spec.version();
    let (known, instead) = match spec.engine() {
        "MySQL" => (matches!(version, "5.6" | "5.7" | "8.0"), "write 5.6, 5.7 or 8.0"),
        "PostgreSQL" => {
            (matches!(version, "9.5" | "9.6" | "10" | "11" | "12"), "write 9.5, 9.6, 10, 11 or 12")
        }
        _ => (
            matches!(version, "2014 SE" | "2016 SE" | "2016 EE" | "2017 SE" | "2017 EE"),
            "write it as the operator's schema does: 2014 SE, 2016 SE, 2016 EE, 2017 SE or 2017 EE",
        ),
    };
    let says = format!("spec.datastoreversion {} is not a version of {}", shown(version), spec.engine());
    (!known).then(|| finding("spec.datastoreversion", says, instead))
}

fn port(spec: &RdsSpec) -> Option<Finding> {
    let port = spec.port().parse::<u16>().ok();
    let (may, instead) = match spec.engine() {
        "MySQL" => (
            port.is_some_and(|it| it >= 1024 && !matches!(it, 12_017 | 33_071)),
            "choose a port from 1024 to 65535 except 12017 and 33071, such as 3306",
        ),
        "PostgreSQL" => (
            port.is_some_and(|it| (2100..=9500).contains(&it)),
            "choose a port from 2100 to 9500, such as 5432",
        ),
        _ => (
            port.is_some_and(|it| it == 1433 || (2100..=9500).contains(&it) && !matches!(it, 5355 | 5985)),
            "choose 1433, or a port from 2100 to 9500 except 5355 and 5985",
        ),
    };
    let says = format!("spec.port {} is not allowed for {}", shown(spec.port()), spec.engine());
    (!may).then(|| finding("spec.port", says, instead))
}
