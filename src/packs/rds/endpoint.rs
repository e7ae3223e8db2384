//! R16: the endpoint that can enlarge an Rds is an https URL.
//!
//! Refuses an `endpoint` that is not an https URL with a host name.
//!
//! # Why
//!
//! With an endpoint the operator enlarges the disk and the flavor when the cloud calls that address, and it does not check the caller:
//! over http anyone on the network path can read and repeat the call, and an IP address or `localhost` cannot be verified. If the
//! endpoint is removed later, the alarms in the cloud stay.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch rds orders --type=merge -p '{"spec":{"endpoint":"http://10.0.0.7/"}}'
//! [R16] Rds shop/orders: spec.endpoint is not https
//! ```
//!
//! # What to do instead
//!
//! Use `https://NAME/…` of an ingress that only accepts the cloud's addresses.
//!
//! # Exceptions
//!
//! Annotate the Rds, for an hour at most: `gatera.dev/override: "R16 until=TIME reason=…"`.

use super::{RDS, RdsWrite, patch, shown};
use engine::rule::{Finding, One, Review, Rule, Verdict, View, WRITTEN};
use facts::way_out::WayOut;

pub(super) const RULE: Rule = Rule {
    id: "R16",
    name: "rds-endpoint",
    judges: &[(RDS, WRITTEN, One(check))],
    depends_on_state: false,
    source: include_str!("endpoint.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let write = RdsWrite::of_part(review, view, |it| &it.endpoint)?;
    let was = write.old.map_or("", |old| old.spec.endpoint.look());
    let is = &write.new.spec.endpoint;
    let finding = |verdict, says: String, instead: WayOut| {
        let why = "each call to this URL makes the operator enlarge the database, which costs money and cannot be undone";
        Some(RULE.finding(verdict, "spec.endpoint", says, why, instead))
    };
    if is.is_empty() {
        let says = "the alarms of the endpoint stay in the cloud, and keep calling it".to_owned();
        return if was.is_empty() {
            None
        } else {
            finding(Verdict::Warn, says, "delete the alarms in the cloud".into())
        };
    }
    let instead = match write.old {
        None => "write endpoint: https://NAME/…, the address of an ingress".into(),
        Some(_) => patch(review, r#"{"spec":{"endpoint":"https://NAME/…"}}"#),
    };
    let Some(rest) = is.look().strip_prefix("https://") else {
        return finding(Verdict::Deny, "spec.endpoint is not https".to_owned(), instead);
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default();
    let is_name = host.contains('.')
        && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
        && !host.chars().all(|c| c.is_ascii_digit() || c == '.');
    if is_name {
        return None;
    }
    finding(Verdict::Deny, format!("spec.endpoint does not name a host: {}", shown(host)), instead)
}
