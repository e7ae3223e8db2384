//! R17: not every pod can read the passwords in an Rds.
//!
//! Refuses a ClusterRoleBinding of a role of the operator (`rdsoperator` in its name) to all ServiceAccounts or to all users. Only warns
//! if Helm creates it: the operator's own chart does so if `rbac.master.enabled` is set, and none of its values leaves out only
//! this binding.
//!
//! # Why
//!
//! The chart of the operator binds `rdsoperator-view` to the group `system:serviceaccounts`. An Rds holds passwords in plain text: with
//! that binding any pod of the cluster can read the root password of every database.
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
//! Bind the role to the users and accounts that need it, with a RoleBinding in each namespace. After an installation with Helm create a
//! binding for the operator's account, and delete that of the group; repeat this after each `helm upgrade`. For a release called
//! rdsoperator in a namespace of the same name:
//!
//! ```sh
//! kubectl create clusterrolebinding rdsoperator-own --clusterrole=rdsoperator-view --serviceaccount=rdsoperator:rdsoperator-otc-rds-operator
//! kubectl delete clusterrolebinding rdsoperator-otc-rds-operator-view
//! ```
//!
//! # Exceptions
//!
//! Annotate the ClusterRoleBinding, for an hour at most: `gatera.dev/override: "R17 until=TIME reason=…"`.

use serde::Deserialize;

use engine::rule::{Finding, One, Review, Rule, Verdict, View, WRITTEN};
use facts::way_out::{CommandLine, page, run};
use objects::scalar::{self, Listed, Scalar};
use objects::{Custom, CustomKind, Kind, KindNames, Meta, or_default};

pub(super) const RULE: Rule = Rule {
    id: "R17",
    name: "rds-binding",
    judges: &[(Kind::Custom(KIND), WRITTEN, One(check))],
    depends_on_state: false,
    source: include_str!("binding.rs"),
};

pub(super) const KIND: &CustomKind = &CustomKind {
    names: KindNames {
        group: "rbac.authorization.k8s.io",
        version: "v1",
        name: "ClusterRoleBinding",
        plural: "clusterrolebindings",
    },
    watched: false,
    cluster_wide: true,
    read: CustomKind::read_into::<ClusterRoleBinding>,
};

impl Custom for ClusterRoleBinding {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A ClusterRoleBinding, with the fields that the rule reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterRoleBinding {
    #[serde(deserialize_with = "or_default")]
    metadata: Meta,
    #[serde(deserialize_with = "scalar::map")]
    role_ref: RoleRef,
    subjects: Listed<RoleRef>,
}

/// The role of a binding, or one of its subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: Scalar,
    name: Scalar,
}

/// The groups that contain all ServiceAccounts or all users.
const ALL_USERS: [&str; 3] = ["system:serviceaccounts", "system:authenticated", "system:unauthenticated"];

fn check(review: &Review, _: &View<'_>) -> Option<Finding> {
    let binding = review.change::<ClusterRoleBinding>().new?;
    let role = binding.role_ref.name.look();
    let mut subjects = binding.subjects.all().iter();
    let subject = subjects.find(|it| it.kind.look() == "Group" && ALL_USERS.contains(&it.name.look()));
    let group = subject.filter(|_| role.contains("rdsoperator"))?.name.look();
    let says =
        format!("role {} for group {group} shows every database password to every pod", super::shown(role));
    let why = "an Rds holds passwords in plain text, and pods of all namespaces are in this group";
    let (verdict, instead) = if binding.metadata.helm_release().is_some() {
        // A refusal would leave the release half installed, and the chart has no value to leave this object out.
        (Verdict::Warn, page(RULE.id).say(" has the two commands that fix it after the installation"))
    } else {
        let bind = CommandLine::new("kubectl -n NAMESPACE create rolebinding").arg(role);
        let bind = bind.arg(format!("--clusterrole={role}")).arg("--serviceaccount=NAMESPACE:ACCOUNT");
        let each =
            "do this in each namespace with an Rds, with one --serviceaccount for each account that needs it";
        (Verdict::Deny, run(bind).then(each))
    };
    Some(RULE.finding(verdict, format!("subjects[{group}]"), says, why, instead))
}
