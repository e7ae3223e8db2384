//! K01: changing an Instance does not create its cluster a second time.
//!
//! Refuses a change of an Instance after which KUDO runs the plan `deploy` for a cluster that has data: a parameter with this plan, the
//! plan started by hand, or another version of the operator without a plan `upgrade` or `update`.
//!
//! # Why
//!
//! A parameter without a `trigger` runs the plan `update`, or `deploy` if there is none (the well-known Galera operator has none).
//! `deploy` creates the bootstrap node again, which creates a new, empty cluster, and puts it first in the members' address. G04 keeps
//! that node at 0 replicas, and KUDO treats this as done: its plan ends as COMPLETE, and the database is unchanged. Without G04 (its
//! mode is `warn`, or an override is set) there are two clusters.
//!
//! # Example
//!
//! ```text
//! $ kubectl kudo update --instance galera -p VOLUME_SIZE=20Gi
//! [K01] Instance db/galera: VOLUME_SIZE runs plan deploy again for cluster galera (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! Give the parameter a plan without the bootstrap steps in the operator's `params.yaml` (`trigger: node_update`), and the operator a
//! plan `update` without them, which runs at `kubectl kudo upgrade` and for every parameter without a trigger. KUDO upgrades only to a
//! higher `operatorVersion`. Change passwords in the database first (G12), and volumes through their claims.
//!
//! # Exceptions
//!
//! Annotate the Instance, for an hour at most: `gatera.dev/override: "K01 until=TIME reason=…"`. G04 still holds the
//! bootstrap node at 0 replicas.

use super::{INSTANCE, Instance, shown, written};
use engine::rule::{All, Findings, Review, Rule, Verb, Verdict, View};
use facts::view::Freshness;
use facts::way_out::{CommandLine, WayOut, say};

pub(super) const RULE: Rule = Rule {
    id: "K01",
    name: "kudo-deploy-again",
    judges: &[(INSTANCE, &[Verb::Update], All(check))],
    depends_on_state: true,
    source: include_str!("deploy_again.rs"),
};

/// The plan that KUDO runs if the operator has no other.
const DEPLOY: &str = "deploy";
const WHY: &str = "plan deploy creates the bootstrap node again, which creates a new, empty cluster beside this one; only G04 keeps that node at 0 replicas";

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((Some(old), new)) = written(review, view) else { return Findings::new() };
    let changed: Vec<_> = new.spec.changed(&old.spec).collect();
    let changes_version = old.spec.operator_version != new.spec.operator_version;
    let by_hand = new.spec.plan_execution.plan_name.look() == DEPLOY
        && old.spec.plan_execution != new.spec.plan_execution;
    if changed.is_empty() && !changes_version && !by_hand {
        return Findings::new();
    }
    let for_cluster = match view.cluster_called(&review.namespace, &new.metadata.name) {
        Some(cluster) if cluster.has_data() => {
            format!("for cluster {} ({})", cluster.id.name, view.describe(cluster))
        }
        // This is a first installation, or one that never formed a cluster.
        Some(_) => return Findings::new(),
        None if view.freshness == Freshness::Current => return Findings::new(),
        None => return vec![RULE.unknown("spec", "it is not known whether its cluster has data", WHY, view)],
    };
    let Some(version) = new.spec.version(&review.namespace, view) else {
        return unknown_version(new, &for_cluster);
    };
    let deploying: Vec<_> = changed.into_iter().filter(|name| version.plan_of(name) == DEPLOY).collect();
    let deny = |field: String, says: String, instead: WayOut| vec![RULE.deny(field, says, WHY, instead)];
    if let Some(first) = deploying.first() {
        let names = deploying.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
        let runs = if deploying.len() == 1 { "runs" } else { "run" };
        let Review { namespace, name, .. } = review;
        let upgrade = CommandLine::new(format!(
            "kubectl kudo upgrade FOLDER --instance {name} --namespace {namespace}"
        ));
        let instead = say("in params.yaml give the parameter a trigger whose plan has no bootstrap steps (node_update), give the operator a plan update \
                           without them, and raise operatorVersion in operator.yaml")
        .then(say("then ").run(upgrade).say(" (FOLDER: where the operator is), and repeat the command"));
        let says = format!("{names} {runs} plan {DEPLOY} again {for_cluster}");
        return deny(format!("spec.parameters[{first}]"), says, instead);
    }
    if changes_version && version.first_of(&["upgrade", "update", DEPLOY]) == DEPLOY {
        let says = format!("the other version of the operator runs plan {DEPLOY} again {for_cluster}");
        let instead = "give that version a plan upgrade or update without the bootstrap steps";
        return deny("spec.operatorVersion.name".to_owned(), says, instead.into());
    }
    // KUDO's own webhook names the plan of a changed parameter in the same request.
    if by_hand {
        let says = format!("plan {DEPLOY} would run again {for_cluster}");
        return deny(
            "spec.planExecution.planName".to_owned(),
            says,
            "run a plan without the bootstrap steps".into(),
        );
    }
    Findings::new()
}

fn unknown_version(new: &Instance, for_cluster: &str) -> Findings {
    let name = shown(new.spec.operator_version.name.look());
    let says =
        format!("OperatorVersion {name} is not known, so gatera cannot tell which plan runs {for_cluster}");
    let instead = say("install that version of the operator first; ")
        .run(CommandLine::new(format!("kubectl -n {} get operatorversions", new.metadata.namespace)))
        .say(" lists the installed ones");
    vec![RULE.finding(Verdict::Unknown, "spec.operatorVersion.name", says, WHY, instead)]
}
