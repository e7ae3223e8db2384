//! M02: a MariaDB stays a Galera cluster, and is not founded anew while members serve.
//!
//! Refuses to turn Galera off (`galera.enabled`) in the MariaDB of an adopted cluster with data, and to name a member from which the
//! cluster starts again (`galera.recovery.forceClusterBootstrapInPod`) while members serve.
//!
//! # Why
//!
//! Without Galera the members are single servers: each keeps what it is sent, and they differ from the first write on. A member that is
//! named starts the cluster at the next recovery without its data being compared with the others', however old it is by then, and it
//! stays named until the field is empty.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch mariadb galera --type=merge -p '{"spec":{"galera":{"enabled":false}}}'
//! [M02] MariaDB db/galera: turning Galera off makes single servers of its members (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! To move to a single server: restore a backup into another MariaDB. Name a member only while the cluster is down and its operator does
//! not recover it, and empty the field when all members are Ready.
//!
//! # Exceptions
//!
//! Annotate the MariaDB, for an hour at most: `gatera.dev/override: "M02 until=TIME reason=…"`.

use super::{MARIADB, MariaDb, driven};
use engine::rule::Check::All;
use engine::rule::{Rule, Verb};
use engine::verdict::{Findings, Verdict};
use facts::review::{Change, Review};
use facts::view::View;
use objects::scalar::Scalar;

pub(super) const RULE: Rule = Rule {
    id: "M02",
    name: "mariadb-settings",
    judges: &[(MARIADB, &[Verb::Update], All(check))],
    depends_on_state: true,
    source: include_str!("settings.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Change { old: Some(old), new: Some(new) } = review.change::<MariaDb>() else {
        return Findings::new();
    };
    let Some(cluster) = driven(review, view).filter(|it| it.has_data()) else { return Findings::new() };
    let (before, after) = (&old.spec.galera, &new.spec.galera);
    let is_on = |it: &Scalar| it.look() == "true";
    let mut found = Findings::new();
    if is_on(&before.enabled) && !is_on(&after.enabled) {
        let says =
            format!("turning Galera off makes single servers of its members ({})", view.describe(cluster));
        let why = "each member keeps what it is sent, and they differ from the first write on";
        let instead = "leave it on; to move to a single server, restore a backup into another MariaDB";
        found.push(RULE.finding(Verdict::Deny, "spec.galera.enabled", says, why, instead));
    }
    let forced = |it: &super::Galera| it.recovery.force_cluster_bootstrap_in_pod.look().to_owned();
    if !forced(after).is_empty() && forced(after) != forced(before) && cluster.ready() > 0 {
        let says = format!(
            "the cluster serves ({}), and at the next recovery it would start again from the member that is named here",
            view.describe(cluster)
        );
        let why = "a member that is named starts without its data being compared with the others', however old it is by then";
        let instead = "name a member only while no member is Ready, and empty the field when all are";
        let field = "spec.galera.recovery.forceClusterBootstrapInPod";
        found.push(RULE.finding(Verdict::Deny, field, says, why, instead));
    }
    found
}
