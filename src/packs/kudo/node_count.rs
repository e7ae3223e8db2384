//! K02: NODE_COUNT of an Instance keeps a majority at every step.
//!
//! Refuses a NODE_COUNT that is not a whole number, that stops every member, or that removes the majority in one step; warns about an
//! even number and about fewer than three. It judges a step as G01 judges the same step of the StatefulSet, but before KUDO begins.
//!
//! # Why
//!
//! KUDO reads the number as a string: "abc" is 0, and 0 members stop the database. A step that G01 refuses at the StatefulSet leaves
//! KUDO in the middle of its plan, with a configuration that already names other members.
//!
//! # Example
//!
//! ```text
//! $ kubectl kudo update --instance galera -p NODE_COUNT=1
//! [K02] Instance db/galera: NODE_COUNT: 5 -> 1 replicas would leave 1 of 5 members; 3 is the smallest next step
//! ```
//!
//! # What to do instead
//!
//! Go down in steps (5, 3, then 2 and 1), and wait between them until all members are Ready. If a member is not Ready, the refusal
//! says what to do first.
//!
//! # Exceptions
//!
//! Annotate the Instance, for an hour at most: `gatera.dev/override: "K02 until=TIME reason=…"`. G01 still judges the StatefulSet.

use super::{INSTANCE, changed_parameter};
use engine::rule::{All, Finding, Findings, Review, Rule, View, WRITTEN};
use engine::rules::scale_order;
use facts::view::Cluster;
use facts::way_out::{CommandLine, say};

pub(super) const RULE: Rule = Rule {
    id: "K02",
    name: "kudo-node-count",
    judges: &[(INSTANCE, WRITTEN, All(check))],
    depends_on_state: true,
    source: include_str!("node_count.rs"),
};

const NAME: &str = "NODE_COUNT";

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((new, count)) = changed_parameter(review, view, NAME).filter(|(_, it)| it.is_present()) else {
        return Findings::new();
    };
    let field = format!("spec.parameters[{NAME}]");
    let Ok(to) = count.look().parse::<i64>() else {
        let says = format!("{NAME} is not a whole number");
        let why = "KUDO reads a value that is not a number as 0, and 0 members stop the database";
        return vec![RULE.deny(field, says, why, "write a number in quotes: \"3\"")];
    };
    if to <= 0 {
        let says = format!("{NAME} {to} stops every member");
        let why = "after a full stop no member may start by itself, and KUDO starts none";
        let stop = view.cluster_called(&review.namespace, &new.metadata.name).map_or_else(
            || CommandLine::new(format!("gatera stop CLUSTER -n {}", review.namespace)),
            Cluster::stop_command,
        );
        let stop = say("to stop the cluster in order: ").run(stop);
        return vec![RULE.deny(field, says, why, say("keep at least 1").or(stop))];
    }
    let found = match view.cluster_called(&review.namespace, &new.metadata.name) {
        Some(cluster) if cluster.has_data() => scale_order::resized(review, cluster, to, view),
        _ => scale_order::created(to),
    };
    let here = |it: Finding| Finding {
        rule: RULE.id,
        field: field.clone(),
        says: format!("{NAME}: {}", it.says),
        ..it
    };
    found.into_iter().map(here).collect()
}
