//! R17: what an Rds holds is not readable for every pod.
//!
//! Refuses a ClusterRoleBinding of a role of the operator (`rdsoperator` in its name) to all ServiceAccounts or to everybody.
//!
//! # Why
//!
//! The chart of the operator binds `rdsoperator-view` to the group `system:serviceaccounts`. An Rds holds passwords in plain text: with
//! that binding any pod of the cluster reads the root password of every database.
//!
//! # Example
//!
//! ```text
//! subjects:
//! - {kind: Group, name: "system:serviceaccounts"}      # refused
//! ```
//!
//! # What to do instead
//!
//! Bind the role to the people and accounts that need it, with a RoleBinding in each namespace.
//!
//! # How to waive it
//!
//! Annotate the ClusterRoleBinding, for an hour at most: `gatera.dev/override: "R17 until=TIME reason=…"`.

use serde::Deserialize;

use crate::object::{Kind, Meta, Object, or_default};
use crate::packs::loose::{self, Listed, Loose};
use crate::review::Review;
use crate::rules::{Rule, WRITTEN};
use crate::verdict::{Findings, Verdict};
use crate::view::View;

pub(super) const RULE: Rule = Rule {
    id: "R17",
    name: "rds-binding",
    touches: &[(Kind::ClusterRoleBinding, WRITTEN)],
    source: include_str!("binding.rs"),
    check,
};

/// Who may do what a role says, everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterRoleBinding {
    /// Name, labels, marks.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    #[serde(deserialize_with = "loose::map")]
    role_ref: Named,
    subjects: Listed<Named>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Named {
    kind: Loose,
    name: Loose,
}

const EVERYBODY: [&str; 3] = ["system:serviceaccounts", "system:authenticated", "system:unauthenticated"];

fn check(review: &Review, _: &View<'_>) -> Findings {
    let Some(Object::ClusterRoleBinding(it)) = &review.new else { return Findings::new() };
    let role = it.role_ref.name.look();
    let group =
        it.subjects.all().iter().find(|it| it.kind.look() == "Group" && EVERYBODY.contains(&it.name.look()));
    let Some(group) = group.filter(|_| role.contains("rdsoperator")) else { return Findings::new() };
    let group = group.name.look();
    let says =
        format!("role {} for group {group} shows every database password to every pod", super::shown(role));
    let why = "an Rds holds passwords in plain text, and pods of all namespaces are in this group";
    let instead = "bind the role to the accounts that need it, with a RoleBinding in each namespace";
    vec![RULE.finding(Verdict::Deny, format!("subjects[{group}]"), says, why, instead)]
}
