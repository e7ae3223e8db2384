//! G12: a changed Secret changes no password in MariaDB.
//!
//! Refuses to change or remove a value that the servers of a cluster with data read from a Secret, or what prepares them.
//! Certificates and keys of TLS may change, and so may what only a side-car reads.
//!
//! # Why
//!
//! The image reads its password variables only when it initialises an empty data directory. Afterwards the password lives
//! in the database, and the Secret only says what members and clients *believe* it is. When both differ, every probe and
//! every state transfer that logs in fails, on all members at once; nothing is to be seen until the first one restarts.
//!
//! # Example
//!
//! ```text
//! $ kubectl edit secret galera
//! [G12] Secret db/galera: key root-password is read by the members of galera, and changing it changes no password in MariaDB
//! ```
//!
//! # What to do instead
//!
//! Let both passwords work, change the Secret, restart, drop the old one. Put your own values for the words in capitals.
//!
//! 1. On one member, for every host that the user has (`SELECT host FROM mysql.global_priv WHERE user = 'ACCOUNT'`; the
//!    official image makes root twice, at `%` and at `localhost`). It replicates. (MariaDB 10.4 or newer.) Log in
//!    with the new one before you go on.
//!
//!    ```text
//!    ALTER USER 'ACCOUNT'@'HOST' IDENTIFIED VIA mysql_native_password USING PASSWORD('NEW') OR mysql_native_password USING PASSWORD('OLD');
//!    ```
//! 2. Change the Secret, with the override of G12 in the same step; the time is an hour ahead at most. `--patch-file FILE`
//!    keeps the password out of the shell's history. Where the key holds more than the password, write all of it
//!    (`sst.cnf` of charts/galera is an option file).
//!
//!    ```text
//!    kubectl --namespace NAMESPACE patch secret SECRET --patch '{"metadata": {"annotations": {"gatera.dev/override": "G12 until=TIME reason=TEXT"}}, "stringData": {"KEY": "NEW"}}'
//!    ```
//! 3. Only for the user of the state transfer: on every member, because it does not replicate. A mistake here shows only
//!    when the next member copies everything, and fails.
//!
//!    ```text
//!    SET GLOBAL wsrep_sst_auth = 'ACCOUNT:NEW';
//!    ```
//! 4. Restart the members, which goes one at a time, and wait until it is through. Clients that read the Secret restart too.
//!
//!    ```text
//!    kubectl --namespace NAMESPACE rollout restart statefulset STATEFULSET
//!    kubectl --namespace NAMESPACE rollout status statefulset STATEFULSET
//!    ```
//! 5. Drop the old password, for the same hosts.
//!
//!    ```text
//!    ALTER USER 'ACCOUNT'@'HOST' IDENTIFIED BY 'NEW';
//!    ```
//!
//! # How to waive it
//!
//! Annotate the Secret, for an hour at most: `gatera.dev/override: "G12 until=2026-12-01T10:00:00Z reason=…"`.

use super::{Rule, Verb};
use crate::galera::server;
use crate::object::{Kind, Object, Secret, Volume};
use crate::review::Review;
use crate::verdict::{Finding, Findings, Verdict};
use crate::view::{Cluster, View};

pub(super) const RULE: Rule = Rule {
    id: "G12",
    name: "password-drift",
    touches: &[(Kind::Secret, &[Verb::Update])],
    source: include_str!("password_drift.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let (Some(Object::Secret(old)), Some(Object::Secret(new))) = (&review.old, &review.new) else {
        return Findings::new();
    };
    let mut found = Findings::new();
    for cluster in view.concerned(review).into_iter().filter(|cluster| cluster.has_data()) {
        for key in drifting(old, new, cluster, &review.name) {
            let gone = if new.data.contains_key(key) { "changing" } else { "removing" };
            found.push(finding(key, gone, cluster, review));
        }
    }
    // Two clusters may read the same key.
    found.sort_by(|a, b| a.field.cmp(&b.field));
    found.dedup_by(|a, b| a.field == b.field);
    found
}

/// Keys with another value, or none, that a member reads.
fn drifting<'a>(old: &'a Secret, new: &Secret, cluster: &Cluster, name: &str) -> Vec<&'a str> {
    let template = &cluster.workload.spec.template;
    let mut spec = template.spec.clone();
    if let Some(server) = server::of(template) {
        spec.containers.retain(|it| it.name == server.name);
        let mounted = |volume: &Volume| {
            let mut mounts =
                spec.containers.iter().chain(&spec.init_containers).flat_map(|it| &it.volume_mounts);
            mounts.any(|mount| mount.name == volume.name)
        };
        spec.volumes = spec.volumes.iter().filter(|it| mounted(it)).cloned().collect();
    }
    let uses = spec.uses_of_secret(name);
    let mut changed = old.changed_keys(new);
    changed.retain(|key| uses.reads(key) && !is_certificate(key) && !old.is_certificate(key));
    changed
}

/// Certificates are renewed all the time, and the server reads them by itself.
fn is_certificate(key: &str) -> bool {
    [".crt", ".key", ".pem", ".p12", ".jks"].iter().any(|end| key.ends_with(end))
}

const WHY: &str = "passwords are taken from the Secret only when an empty data directory is initialised; from then on \
    they live in the database, and a login with another one fails on all members at once";

fn finding(key: &str, gone: &str, cluster: &Cluster, review: &Review) -> Finding {
    let Review { namespace, name, .. } = review;
    let says = format!(
        "key {key} is read by the members of {}, and {gone} it changes no password in MariaDB",
        cluster.id.name
    );
    let instead = format!(
        "ALTER USER in MariaDB first, so that the old and the new password work; then change Secret {name} in {namespace} \
         with the override of G12 (gatera explain G12 shows the steps)"
    );
    RULE.finding(Verdict::Deny, format!("data[{key}]"), says, WHY, instead)
}
