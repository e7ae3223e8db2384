//! K01: a changed parameter of an Instance does not found its cluster a second time.
//!
//! Refuses a change of an Instance that has KUDO run the plan `deploy` over a cluster that has data: a parameter whose plan that is, the
//! plan by hand, or another version of the operator without a plan `upgrade` or `update`.
//!
//! # Why
//!
//! A parameter without a `trigger` runs the plan `update`, and where there is none (the well-known Galera operator has none) `deploy`. That
//! makes the bootstrap node again, which founds a new, empty cluster, and puts it first in the address that members start with. G04 keeps
//! that node at 0 replicas, so the database is safe; but KUDO then waits for a node that never comes, and the plan never ends.
//!
//! # Example
//!
//! ```text
//! $ kubectl kudo update --instance galera -p VOLUME_SIZE=20Gi
//! [K01] Instance db/galera: VOLUME_SIZE runs plan deploy again over cluster galera (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! Give the parameter a plan without the bootstrap steps in the operator's `params.yaml` (`trigger: node_update`), and `kubectl kudo
//! upgrade` to that version; name a plan `update` in it for all that have no trigger. Passwords change in the database first (G12), volumes
//! by their claims.
//!
//! # How to waive it
//!
//! Annotate the Instance, for an hour at most: `gatera.dev/override: "K01 until=TIME reason=…"`. G04 still holds the
//! bootstrap node at 0 replicas.

use super::written;
use crate::object::Kind;
use crate::review::Review;
use crate::rules::{Rule, Verb};
use crate::verdict::{Findings, Verdict};
use crate::view::View;

pub(super) const RULE: Rule = Rule {
    id: "K01",
    name: "kudo-deploy-again",
    touches: &[(Kind::Instance, &[Verb::Update])],
    source: include_str!("deploy_again.rs"),
    check,
};

/// KUDO's law: what an operator without a better plan runs.
const DEPLOY: &str = "deploy";

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((Some(old), new)) = written(review, view) else { return Findings::new() };
    let cluster = view.cluster_called(&review.namespace, &new.metadata.name).filter(|it| it.has_data());
    let Some(cluster) = cluster else { return Findings::new() };
    let mut found = Findings::new();
    let mut add = |verdict, field: String, says: String, instead: &str| {
        let why = "plan deploy makes the bootstrap node again: a new, empty cluster; it is kept from starting, and then KUDO waits for ever";
        found.push(RULE.finding(verdict, field, says, why, instead));
    };
    let over = format!("over cluster {} ({})", cluster.id.name, view.describe(cluster));
    let changed: Vec<_> = new.changed(old).collect();
    let moves = old.spec.operator_version != new.spec.operator_version;
    match new.version(&review.namespace, view) {
        None if moves || !changed.is_empty() => {
            let name = new.spec.operator_version.name.look();
            let says =
                format!("OperatorVersion {name} is not known, so nobody can tell which plan runs {over}");
            let instead = "install that version of the operator first; kubectl get operatorversions lists what there is";
            add(Verdict::Unknown, "spec.operatorVersion.name".to_owned(), says, instead);
        }
        None => {}
        Some(version) => {
            let again: Vec<_> = changed.into_iter().filter(|name| version.plan_of(name) == DEPLOY).collect();
            if let Some(first) = again.first() {
                let (names, runs) = (again.join(", "), if again.len() == 1 { "runs" } else { "run" });
                let says = format!("{names} {runs} plan {DEPLOY} again {over}");
                add(
                    Verdict::Deny,
                    format!("spec.parameters[{first}]"),
                    says,
                    "give it a trigger without the bootstrap steps in params.yaml (trigger: node_update), and kubectl kudo upgrade",
                );
            } else if moves && version.first_of(&["upgrade", "update", DEPLOY]) == DEPLOY {
                let says = format!("the other version of the operator runs plan {DEPLOY} again {over}");
                add(
                    Verdict::Deny,
                    "spec.operatorVersion.name".to_owned(),
                    says,
                    "give that version a plan upgrade without the bootstrap steps",
                );
            }
        }
    }
    // KUDO's own webhook names the plan of a changed parameter in the same request.
    let by_hand = new.spec.plan_execution.plan_name.look() == DEPLOY
        && old.spec.plan_execution != new.spec.plan_execution;
    if by_hand && found.is_empty() {
        let says = format!("plan {DEPLOY} would run again {over}");
        let why = "plan deploy makes the bootstrap node again: a new, empty cluster; it is kept from starting, and then KUDO waits for ever";
        found.push(RULE.finding(
            Verdict::Deny,
            "spec.planExecution.planName",
            says,
            why,
            "run a plan without the bootstrap steps",
        ));
    }
    found
}
