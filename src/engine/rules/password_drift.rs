//! G12: changing a Secret does not change the password in MariaDB.
//!
//! Refuses to change or remove a value that the servers of a cluster with data, or their init containers, read from a Secret.
//! TLS certificates and keys may change, and so may scripts, values that only a sidecar reads, and variables that hold no
//! password. A file of encryption keys is recognised by its lines (`N;hex`): lines may be added, but not removed or changed. An
//! option file is judged by its options, as far as the guard can see them: it knows which options change, but not the values.
//! Warns about a template that reads a password from another Secret or another key: the guard keeps no values, so it cannot
//! compare them. The annotation that `gatera passwd` writes lets one write change one key: by then MariaDB already accepts the
//! new password. `gatera check NEW --against OLD` compares both Secrets if they are among the files, and refuses a value that
//! differs, as if it had been changed in place.
//!
//! # Why
//!
//! The image reads its password variables only when it initialises an empty data directory. Afterwards the password lives
//! in the database, and the Secret only says what members and clients *believe* it is. When the two differ, every probe and
//! every state transfer that logs in fails, on all members at once; nothing shows this until the first one restarts.
//!
//! # Example
//!
//! ```text
//! $ kubectl edit secret galera
//! [G12] Secret db/galera: the members of galera read key root-password, but changing it does not change the password in MariaDB
//! ```
//!
//! # What to do instead
//!
//! `gatera passwd galera -n db` changes the password of root, and with `--user sst` or `--user NAME` that of another account: it
//! makes a new one valid beside the old one, changes the Secret, restarts the workloads that read it (members one at a time), and
//! then invalidates the old one. If you run it again, it continues where it stopped; `--abort` reverses it. Or do the same by
//! hand: make both passwords valid, change the Secret, restart, drop the old password. Replace the words in capitals by your
//! values.
//!
//! 1. On one member, for every host that the user has (`SELECT host FROM mysql.global_priv WHERE user = 'ACCOUNT'`; the
//!    official image creates root twice, at `%` and at `localhost`). It replicates. (MariaDB 10.4 or newer.) Log in
//!    with the new password before you continue.
//!
//!    ```text
//!    ALTER USER 'ACCOUNT'@'HOST' IDENTIFIED VIA mysql_native_password USING PASSWORD('NEW') OR mysql_native_password USING PASSWORD('OLD');
//!    ```
//!
//! 2. Change the Secret, with the override of G12 in the same step; the time is an hour ahead at most. `--patch-file FILE`
//!    keeps the password out of the shell's history. Where the key holds more than the password, write all of it
//!    (`sst.cnf` of charts/galera is an option file).
//!
//!    ```text
//!    kubectl --namespace NAMESPACE patch secret SECRET --patch '{"metadata": {"annotations": {"gatera.dev/override": "G12 until=TIME reason=TEXT"}}, "stringData": {"KEY": "NEW"}}'
//!    ```
//!
//! 3. Only for the user of the state transfer: on every member, because it does not replicate. A mistake here shows only
//!    when the next member copies everything, and fails.
//!
//!    ```text
//!    SET GLOBAL wsrep_sst_auth = 'ACCOUNT:NEW';
//!    ```
//!
//! 4. Restart the members one at a time, and wait until all are done. Restart clients that read the Secret too.
//!
//!    ```text
//!    kubectl --namespace NAMESPACE rollout restart statefulset STATEFULSET
//!    kubectl --namespace NAMESPACE rollout status statefulset STATEFULSET
//!    ```
//!
//! 5. Drop the old password, for the same hosts.
//!
//!    ```text
//!    ALTER USER 'ACCOUNT'@'HOST' IDENTIFIED BY 'NEW';
//!    ```
//!
//! An encryption key is not a password, and no SQL statement changes it. With a key file the steps above lose the encrypted
//! tables. Keep every line, add new keys with new numbers, and change the Secret only if the new file contains every old line.
//!
//! # Exceptions
//!
//! Annotate the Secret, for an hour at most: `gatera.dev/override: "G12 until=2026-12-01T10:00:00Z reason=…"`.

mod places;

use std::collections::{BTreeMap, BTreeSet};

use self::places::MovedSource;
use super::plain_password::is_secret_name;
use crate::rule::{All, Finding, Findings, OfTemplates, Review, Rule, Verb, View};
use facts::galera::options::keys::{self, Class};
use facts::galera::{credentials, driver, server};
use facts::marks::PASSWORD;
use facts::marks::password::PasswordMark;
use facts::view::Cluster;
use facts::way_out::{WayOut, page, run, say};
use objects::{Fingerprint, Form, HiddenValue, Kind, PodSpec, Secret, Shared, Template, Volume, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G12",
    name: "password-drift",
    judges: &[
        (Kind::Secret, &[Verb::Update], All(secret)),
        (Kind::StatefulSet, &[Verb::Update], OfTemplates(taken_from_elsewhere)),
    ],
    depends_on_state: true,
    source: include_str!("password_drift.rs"),
};

fn secret(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<Secret>() else { return Findings::new() };
    let Review { namespace, name, .. } = review;
    let mut found = Findings::new();
    // The operator of a driven cluster applies a changed Secret to the accounts itself.
    let judged = |it: &&Cluster| it.has_data() && driver::of(&it.workload).is_none();
    for cluster in view.clusters_concerned(review).into_iter().filter(judged) {
        let spec = of_server(&cluster.workload.spec.template);
        let then = format!("change Secret {name} in {namespace}");
        let change = new.metadata.mark(PASSWORD).and_then(PasswordMark::read);
        let prepared =
            change.filter(|it| it.permits(&cluster.id.name, &it.key, &old.metadata.resource_version));
        let prepared = prepared.map(|it| it.key);
        let readers = SecretReaders { cluster, spec: &spec, secret: name, then, prepared };
        let read = spec.uses_of_secret(name);
        let changed = old.data.iter().filter(|(key, was)| new.data.get(key) != Some(was) && read.reads(key));
        found.extend(changed.flat_map(|(key, was)| judge(key, was, new.data.get(key), &readers)));
    }
    // Two clusters may read the same key.
    found.sort_by(|a, b| a.field.cmp(&b.field));
    found.dedup_by(|a, b| a.field == b.field);
    found
}

/// Returns findings about values that the server reads from another Secret or key than before. If both Secrets are known (files),
/// a value that differs is judged as one that changes in place. Otherwise a password gets a warning.
fn taken_from_elsewhere(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = review.both::<Workload>() else { return Findings::new() };
    let templates = [&old.spec.template, &new.spec.template];
    let changed = templates[0].fingerprint != templates[1].fingerprint;
    let cluster = view.cluster(&review.namespace, &review.name).filter(|it| changed && it.has_data());
    let Some(cluster) = cluster else { return Findings::new() };
    let [was, is] = templates.map(of_server);
    let [before, after] =
        view.secrets.map(|all| move || all.iter().filter(|it| it.metadata.namespace == review.namespace));
    let keys: BTreeSet<_> = before().chain(after()).flat_map(|it| it.data.keys()).map(|key| &**key).collect();
    let (mut found, mut judged) = (Findings::new(), BTreeSet::new());
    for moved in places::moved(&was, &is, &keys) {
        let ((from, key), (to, its)) = (moved.from, moved.to);
        let (Some(old), Some(new)) = (only_secret_named(before(), from), only_secret_named(after(), to))
        else {
            found.extend(may_differ(&moved));
            continue;
        };
        let (Some(value), becomes) = (old.data.get(key), new.data.get(its)) else { continue };
        let reads = || was.uses_of_secret(from).reads(key);
        if Some(value) == becomes || !reads() || !judged.insert(moved.from) {
            continue;
        }
        let then = format!("let StatefulSet {} in {} read Secret {to}", review.name, review.namespace);
        let all = judge(
            key,
            value,
            becomes,
            &SecretReaders { cluster, spec: &was, secret: from, then, prepared: None },
        );
        found.extend(all.into_iter().map(|it| Finding {
            field: moved.field.clone(),
            says: format!("key {its} of Secret {to} replaces {key} of {from}: {}", it.says),
            ..it
        }));
    }
    found
}

/// Returns the Secret of this name; `None` if folders for several clusters hold different ones.
fn only_secret_named<'a>(all: impl Iterator<Item = &'a Secret>, name: &str) -> Option<&'a Secret> {
    let mut named = all.filter(|it| it.metadata.name == name);
    let first = named.next()?;
    named.all(|it| it.data == first.data).then_some(first)
}

/// Returns a warning about a password that the server reads from another place, while its values are not known.
fn may_differ(moved: &MovedSource<'_>) -> Option<Finding> {
    let ((from, key), (to, its)) = (moved.from, moved.to);
    let name = moved.variable.filter(|name| is_secret_name(name))?;
    Some(RULE.warn(
        moved.field.clone(),
        format!("{name} comes from key {its} of Secret {to} instead of {key} of {from}"),
        WHY,
        say("if the value differs, first change the password in MariaDB (ALTER USER): ").page("G12"),
    ))
}

/// The readers of a Secret, and the step that changes its value.
struct SecretReaders<'a> {
    cluster: &'a Cluster,
    spec: &'a PodSpec,
    secret: &'a str,
    /// The step after `ALTER USER`.
    then: String,
    /// The key whose new password MariaDB accepts already, so that it may change in this write.
    prepared: Option<String>,
}

/// Returns the pod spec with only the server, the init containers and their volumes.
fn of_server(template: &Shared<Template>) -> PodSpec {
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
    spec
}

/// Returns findings about a key that a member reads and that changes or is removed.
fn judge(key: &str, was: &HiddenValue, is: Option<&HiddenValue>, readers: &SecretReaders<'_>) -> Findings {
    let (stays, cluster) = (is.is_some(), readers.cluster);
    let key_removed = || (!stays).then(|| key_removed(key, cluster));
    let found = match (&was.form, is.map_or(&Form::Plain, |it| &it.form)) {
        (Form::Certificate, _) => None,
        (Form::Script, _) => key_removed(),
        (Form::Keys(old), Form::Keys(new)) if old.is_subset(new) => None,
        (Form::Keys(old), Form::Keys(new)) => {
            let lost =
                format!("{} of its {} keys are removed or changed", old.difference(new).count(), old.len());
            Some(keys_lost(key, &lost, cluster))
        }
        (Form::Keys(_), _) => Some(keys_lost(key, "its keys are removed", cluster)),
        (Form::Encrypted, _) => {
            Some(keys_lost(key, "it is encrypted, so gatera cannot compare its keys", cluster))
        }
        (Form::Options(old), Form::Options(new)) => return options(key, old, new, readers),
        _ if is_certificate(key) => None,
        _ if names_no_password(key, readers.spec, readers.secret) => key_removed(),
        _ if stays && readers.prepared.as_deref() == Some(key) => None,
        _ => Some(finding(key, stays, readers, account_of_variable(key, readers))),
    };
    found.into_iter().collect()
}

/// Returns the account whose password a variable reads from this key, if `gatera passwd` can change it.
fn account_of_variable(key: &str, readers: &SecretReaders<'_>) -> Option<String> {
    readers.spec.containers.iter().find_map(|it| credentials::account_of_key(it, readers.secret, key))
}

/// The last words of names of variables that hold no password.
const NO_PASSWORDS: [&str; 12] = [
    "USER", "USERNAME", "DATABASE", "DB", "HOST", "PORT", "NAME", "ADDRESS", "SIZE", "MODE", "CHARSET",
    "TIMEZONE",
];

/// Returns whether the last word of this name means something else than a password.
fn names_another_thing(name: &str) -> bool {
    let last = name.rsplit(['_', '-', '.']).next().unwrap_or_default();
    NO_PASSWORDS.iter().any(|word| last.eq_ignore_ascii_case(word)) && !is_secret_name(name)
}

/// Returns whether only variables read the key, and none of them holds a password, but a name, a host or a size.
fn names_no_password(key: &str, spec: &PodSpec, secret: &str) -> bool {
    let files = PodSpec { volumes: spec.volumes.clone(), ..PodSpec::default() };
    let of_containers = || spec.all_containers().map(|(_, it)| it);
    let mut whole = of_containers().flat_map(|it| &it.env_from).filter_map(|it| it.secret_ref.as_ref());
    let mut named = of_containers().flat_map(|it| &it.env).filter(|var| {
        let source = var.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
        source.is_some_and(|it| it.name == secret && it.key == key)
    });
    let whole = whole.any(|it| it.name == secret) && !names_another_thing(key);
    let variables = named.all(|var| names_another_thing(&var.name));
    !files.uses_of_secret(secret).reads(key) && !whole && variables
}

/// Returns findings about an option file: its passwords, and options that are fixed for data or common to all members.
fn options(
    key: &str,
    old: &BTreeMap<String, Fingerprint>,
    new: &BTreeMap<String, Fingerprint>,
    readers: &SecretReaders<'_>,
) -> Findings {
    let cluster = readers.cluster;
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    let changed = names.filter(|name| old.get(*name) != new.get(*name));
    let judge = |name: &String| {
        // An added password is not in use yet.
        if !keys::may_be_shown(name) {
            let stays = new.contains_key(name);
            let judged = old.contains_key(name) && !(stays && readers.prepared.as_deref() == Some(key));
            let user = (name == "wsrep_sst_auth").then(|| "sst".to_owned());
            return judged.then(|| finding(key, stays, readers, user));
        }
        let fixed = |class: &Class| match class {
            Class::Format(_) => true,
            // After an orderly stop all members start with the same value, and `socket.dynamic` accepts both kinds of peers.
            Class::Cluster { fatal: true, .. } => {
                !cluster.is_stopped() && (name != "socket.dynamic" || old.contains_key(name))
            }
            Class::Kept(_) => !new.contains_key(name),
            _ => false,
        };
        let row = keys::rows(name).iter().find(|row| fixed(&row.class))?;
        let says = format!("{key} is an option file of {}, and {name} changes in it", cluster.id.name);
        Some(RULE.deny(
            format!("data[{key}].{name}"),
            says,
            row.why,
            row.way_out(&format!("{} -n {}", cluster.id.name, cluster.id.namespace)),
        ))
    };
    changed.filter_map(judge).collect()
}

/// Returns whether the key is a certificate: these are renewed regularly, and the server reloads them.
fn is_certificate(key: &str) -> bool {
    [".crt", ".pem", ".p12", ".jks"].iter().any(|end| key.ends_with(end))
}

/// Returns the finding for a removed key without a password: a pod that refers to it cannot start.
fn key_removed(key: &str, cluster: &Cluster) -> Finding {
    RULE.deny(
        format!("data[{key}]"),
        format!("key {key} is removed, but the members of {} refer to it", cluster.id.name),
        "Kubernetes does not start a container whose variables or files refer to a missing key: the next member that restarts stays down",
        "keep the key, or first remove the references from the template and wait until all members have restarted",
    )
}

fn keys_lost(key: &str, how: &str, cluster: &Cluster) -> Finding {
    RULE.deny(
        format!("data[{key}]"),
        format!("{key} holds encryption keys of {}, and {how}", cluster.id.name),
        "pages can only be read with the key that encrypted them: a member that restarts without it loses those tables, and no \
         statement restores them",
        say("keep every line, and add new keys with new numbers")
            .then(page("G12"))
            .say(" explains how keys differ from passwords"),
    )
}

const WHY: &str = "the image reads passwords from the Secret only when it initialises an empty data directory; afterwards \
    they are in the database, and a login with another one fails on all members at once";

/// Returns the finding about a password; `user` is the account, if `gatera passwd` can change it.
fn finding(key: &str, keeps_key: bool, readers: &SecretReaders<'_>, user: Option<String>) -> Finding {
    let (name, action) = (&readers.cluster.id.name, if keeps_key { "changing" } else { "removing" });
    let says = format!(
        "the members of {name} read key {key}, but {action} it does not change the password in MariaDB"
    );
    let user = user.filter(|_| keeps_key);
    let begin = if user.is_some() { "by hand: " } else { "" };
    let by_hand =
        say(format!("{begin}ALTER USER in MariaDB first, so that both the old and the new password work"))
            .then(format!("then {} with the override of G12 (", readers.then))
            .page("G12")
            .say(" shows the steps)");
    let instead = match user {
        Some(user) => {
            let first = match readers.cluster {
                it if it.is_stopped() => run(it.start_command()).say(" first, then "),
                it if it.ready() == 0 => run(it.recover_command()).say(" first, then "),
                _ => WayOut::default(),
            };
            first
                .and(run(readers.cluster.passwd_command(&user)))
                .say(" changes it in MariaDB, in the Secret and in the pods that read it")
                .or(by_hand)
        }
        None => by_hand,
    };
    RULE.deny(format!("data[{key}]"), says, WHY, instead)
}
