//! M02: a MariaDB stays a Galera cluster, and is not bootstrapped again while members serve.
//!
//! Refuses to turn Galera off (`galera.enabled`) in the MariaDB of an adopted cluster with data, and to name a member from which the
//! cluster starts again (`galera.recovery.forceClusterBootstrapInPod`) while members serve. Warns about a
//! `galera.recovery.minClusterSize` over one member, and about `suspend`.
//!
//! # Why
//!
//! Without Galera the members are separate servers: each keeps only the writes that its own clients send, and their data differs from
//! the first write on. If a member is named, the operator starts the cluster from it at the next recovery, without comparing its
//! data with that of the others, however old it is by then; the member stays named until the field is empty. If fewer members
//! than `galera.recovery.minClusterSize` form the cluster, the operator recovers it: it scales the cluster to 0, although the
//! members that serve have all data. While a MariaDB is suspended, its operator recovers nothing.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch mariadb galera --type=merge -p '{"spec":{"galera":{"enabled":false}}}'
//! [M02] MariaDB db/galera: turning Galera off makes each member a separate server (3 of 3 members Synced, seen now)
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

use super::{MARIADB, MariaDb, MariaDbSpec, driven};
use engine::rule::{All, Findings, Review, Rule, Verb, View};
use objects::scalar::Scalar;

pub(super) const RULE: Rule = Rule {
    id: "M02",
    name: "mariadb-settings",
    judges: &[(MARIADB, &[Verb::Update], All(check))],
    depends_on_state: true,
    source: include_str!("settings.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<MariaDb>() else { return Findings::new() };
    let Some(cluster) = driven(review, view).filter(|it| it.has_data()) else { return Findings::new() };
    let (before, after) = (&old.spec.galera, &new.spec.galera);
    let is_on = |it: &Scalar| it.look() == "true";
    let mut found = Findings::new();
    if is_on(&before.enabled) && !is_on(&after.enabled) {
        let says =
            format!("turning Galera off makes each member a separate server ({})", view.describe(cluster));
        let why = "each then keeps only the writes that its own clients send, and their data differs from the first write on";
        let instead = "leave it on; to move to a single server, restore a backup into another MariaDB";
        found.push(RULE.deny("spec.galera.enabled", says, why, instead));
    }
    let forced = |it: &super::Galera| it.recovery.force_cluster_bootstrap_in_pod.look().to_owned();
    if !forced(after).is_empty() && forced(after) != forced(before) && cluster.ready() > 0 {
        let says = format!(
            "the cluster serves ({}), and at the next recovery it would start from the member that is named here",
            view.describe(cluster)
        );
        let why = "the operator starts the cluster from that member without comparing its data with the others', however old it is by then";
        let instead = "name a member only while none is Ready, and empty the field when all are Ready again";
        let field = "spec.galera.recovery.forceClusterBootstrapInPod";
        found.push(RULE.deny(field, says, why, instead));
    }
    let least =
        |it: &MariaDbSpec| least_members(it.galera.recovery.min_cluster_size.look(), it.replicas.look());
    if let Some(least) = least(&new.spec).filter(|it| *it > 1 && least(&old.spec) != Some(*it)) {
        let says = format!(
            "with fewer than {least} members its operator scales the cluster to 0 to recover it, although members serve"
        );
        let why = "a member that serves has all data: stopping it is an outage, and gains nothing";
        let instead = "leave minClusterSize at 1";
        found.push(RULE.warn("spec.galera.recovery.minClusterSize", says, why, instead));
    }
    if is_on(&new.spec.suspend) && !is_on(&old.spec.suspend) {
        let says = "while it is suspended, its operator does not start the cluster again when all members have stopped".to_owned();
        let why = "the guard leaves the recovery of such a cluster to its operator";
        let instead = "set suspend: false as soon as the maintenance is over";
        found.push(RULE.warn("spec.suspend", says, why, instead));
    }
    found
}

/// Reads a number of members: `2`, or a percentage of the replicas, rounded up as the operator does.
fn least_members(written: &str, replicas: &str) -> Option<u64> {
    let Some(percent) = written.strip_suffix('%') else { return written.parse().ok() };
    let (percent, replicas) = (percent.parse::<u64>().ok()?, replicas.parse::<u64>().ok()?);
    Some(percent.checked_mul(replicas)?.div_ceil(100))
}
