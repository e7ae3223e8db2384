//! W05: only one server writes to the database of a WordPress, and its version can read the data.
//!
//! Refuses more than one replica, another volume or folder for the data (also by `--datadir`), an image of another vendor, of an
//! older series, or of a newer series if that skips one with long-term support, and an earlier release of MySQL 8.0 (8.0.32 to
//! 8.0.28). Changes a strategy that would start the new server before the old one has ended to Recreate. Warns about an earlier
//! release of any other series than 8.0, about an image that can change by itself, and about a new server with an existing claim, because it
//! is not known which version wrote its data.
//!
//! # Why
//!
//! Two servers that use one folder destroy the data in it. A rolling update starts the second before the first has ended: on one
//! node both get the volume, on two nodes the update never ends. A server that is newer by more than one series, older, or
//! another vendor's does not start, or begins to convert the data and cannot go back.
//!
//! # Example
//!
//! ```text
//! $ kubectl scale deployment wordpress-mysql --replicas=2
//! [W05] Deployment web/wordpress-mysql: 2 servers would write to one volume
//! ```
//!
//! # What to do instead
//!
//! Keep one replica; for several servers use a Galera cluster (charts/wordpress, `database.galera`). Take a backup, and upgrade from
//! series to series: 5.6, 5.7, 8.0, 8.4, 9.7; you may skip MySQL's series between those.
//!
//! # Exceptions
//!
//! Annotate the Deployment, for an hour at most: `gatera.dev/override: "W05 until=TIME reason=…"`.

use serde_json::json;

use super::{Tier, part};
use engine::rule::{All, Change, Finding, Findings, One, Origin, Review, Rule, Verb, Verdict, View, WRITTEN};
use facts::galera::data::{Backing, DataFolder};
use facts::galera::image::{Image, Series, Vendor, VersionChange};
use facts::galera::server::DATA_DIRECTORIES;
use facts::way_out::say;
use objects::{Container, Kind, Mount, Scale, Workload};

pub(super) const RULE: Rule = Rule {
    id: "W05",
    name: "wp-database",
    judges: &[(Kind::Deployment, WRITTEN, All(written)), (Kind::Deployment, &[Verb::Scale], One(scaled))],
    depends_on_state: false,
    source: include_str!("database.rs"),
};

fn written(review: &Review, view: &View<'_>) -> Findings {
    let Change { old, new } = review.change::<Workload>();
    let Some(new) = new.filter(|it| part(&it.metadata) == Some(Tier::Database)) else {
        return Findings::new();
    };
    let mut findings: Findings = too_many_replicas(new.replicas()).into_iter().collect();
    findings.extend(strategy(review, new));
    findings.extend(changing_image(new));
    match old {
        Some(old) => findings.extend(changed(old, new)),
        None => findings.extend(over_old_data(review, new, view)),
    }
    findings
}

fn scaled(review: &Review, view: &View<'_>) -> Option<Finding> {
    let to = review.change::<Scale>().new?.spec.replicas;
    // A Scale has no labels, so the Deployment's name and a claim with the label of a database decide.
    let claims = view.claims_in(&review.namespace);
    let mut database_claims = claims.filter(|it| part(&it.metadata) == Some(Tier::Database));
    let has_usual_name = review.name.ends_with("wordpress-mysql");
    too_many_replicas(to).filter(|_| has_usual_name && database_claims.next().is_some())
}

fn too_many_replicas(replicas: i64) -> Option<Finding> {
    let says = format!("{replicas} servers would write to one volume");
    let why = "two servers that write to one folder destroy the database";
    let instead =
        say("keep one").or("for several servers use a Galera cluster (charts/wordpress, database.galera)");
    (replicas > 1).then(|| RULE.deny("spec.replicas", says, why, instead))
}

fn strategy(review: &Review, new: &Workload) -> Option<Finding> {
    let kind = &new.spec.strategy.kind;
    if kind == "Recreate" {
        return None;
    }
    let why = "an update would start the second server in the same folder before the first has ended";
    let finding = |verdict, says| {
        RULE.finding(verdict, "spec.strategy.type", says, why, "write strategy: {type: Recreate}")
    };
    Some(if review.origin == Origin::Mutating {
        finding(Verdict::Amend, "spec.strategy is changed to Recreate")
            .amended_by("spec/strategy", json!({ "type": "Recreate" }))
    } else {
        finding(Verdict::Deny, "spec.strategy is RollingUpdate")
    })
}

/// Returns the container of the server: the one that mounts the data, or else the first.
fn server(workload: &Workload) -> Option<&Container> {
    let containers = &workload.spec.template.spec.containers;
    containers.iter().find(|it| it.volume_mounts.iter().any(is_data)).or(containers.first())
}

fn is_data(mount: &Mount) -> bool {
    mount.mount_path.trim_end_matches('/') == DATA_DIRECTORIES[0]
}

fn changing_image(new: &Workload) -> Option<Finding> {
    let server = server(new).filter(|it| Image::read(&it.image).floats())?;
    let says = format!("image {} can change at any restart", server.image);
    let why = "the next restart may start a version that converts the data, which cannot be undone";
    Some(RULE.warn(image_field(server), says, why, "name the version"))
}

fn image_field(server: &Container) -> String {
    format!("spec.template.spec.containers[{}].image", server.name)
}

fn changed(old: &Workload, new: &Workload) -> Findings {
    let mut findings = Findings::new();
    let (Some(old_server), Some(new_server)) = (server(old), server(new)) else { return findings };
    let field = format!("spec.template.spec.containers[{}].volumeMounts", new_server.name);
    let instead = "keep the volume, its claim, its folder and datadir as they are";
    let mut moved = |verdict, says: String| {
        let why = "an empty folder becomes an empty database, and the site starts with its setup page";
        findings.push(RULE.finding(verdict, field.clone(), says, why, instead));
    };
    match (DataFolder::of(old, old_server, &[]), DataFolder::of(new, new_server, &[])) {
        // Data outside a volume cannot be lost by this change.
        (Some(before), _) if matches!(before.backing, Backing::Volume(_) | Backing::Container) => {}
        (Some(before), Some(after)) if !before.is_same(&after) => {
            moved(Verdict::Deny, format!("the server would look for its data on {after}, not on {before}"));
        }
        (Some(before), None) => {
            moved(
                Verdict::Warn,
                format!("it is not known whether the server still looks for its data on {before}"),
            );
        }
        _ => {}
    }
    findings.extend(another_server(old_server, new_server));
    findings
}

fn another_server(old_server: &Container, new_server: &Container) -> Option<Finding> {
    let [from, to] = [old_server, new_server].map(|it| Image::read(&it.image));
    let (old_vendor, new_vendor) = (from.vendor()?, to.vendor()?);
    let finding = |what: String, instead: String| {
        let says = format!("{} -> {}: {what}", old_server.image, new_server.image);
        let why = "a server does not start with data that it cannot read, or converts it and cannot go back";
        RULE.deny(image_field(new_server), says, why, instead)
    };
    if old_vendor != new_vendor {
        let instead = "dump the database, and load it into a new one".to_owned();
        return Some(finding("the data was written by another vendor's server".to_owned(), instead));
    }
    match old_vendor.step(from.series()?, to.series()?) {
        VersionChange::Same => earlier(old_server, new_server),
        VersionChange::Up => None,
        VersionChange::Skips(next) => {
            let instead = format!("take a backup, upgrade to {next}, then repeat the command");
            Some(finding(format!("{next} comes first"), instead))
        }
        VersionChange::Down => {
            Some(finding("an older server".to_owned(), "load a backup into a new database".to_owned()))
        }
    }
}

/// Returns a finding about an earlier release of the same series. MySQL 8.0 changes its dictionary between releases, and an
/// earlier release does not start with the dictionary of a later one; for other series this is uncertain.
fn earlier(old_server: &Container, new_server: &Container) -> Option<Finding> {
    let [from, to] = [old_server, new_server].map(|it| Image::read(&it.image));
    to.is_earlier_than(&from).filter(|it| *it)?;
    let cannot_start = from.vendor() != Some(Vendor::MariaDb) && from.series() == Some(Series(8, 0));
    let verdict = if cannot_start { Verdict::Deny } else { Verdict::Warn };
    let says = format!("{} -> {}: an earlier release", old_server.image, new_server.image);
    let why = "a server may not start with data that a later release has written";
    let instead =
        say(format!("keep {}", old_server.image)).or("to go back, load a backup into a new database");
    Some(RULE.finding(verdict, image_field(new_server), says, why, instead))
}

fn over_old_data(review: &Review, new: &Workload, view: &View<'_>) -> Option<Finding> {
    let server = server(new)?;
    let mut volumes =
        new.spec.template.spec.volumes.iter().filter_map(|it| it.persistent_volume_claim.as_ref());
    let claims = view.claims_in(&review.namespace);
    let bound: Vec<_> = claims.filter(|it| it.bound()).map(|it| &it.metadata.name).collect();
    let warns_once = review.origin.is_final() || review.origin == Origin::Check;
    let claim = volumes.find(|it| bound.contains(&&it.claim_name)).filter(|_| warns_once)?;
    let says = format!(
        "claim {} exists already, and image {} starts with the data on it",
        claim.claim_name, server.image
    );
    let why =
        "it is not known which version wrote it: a newer server converts the data, which cannot be undone";
    let instead = "start it with the image that wrote the data (the operator's was mysql:5.6), take a backup, and upgrade from series to series";
    Some(RULE.warn(image_field(server), says, why, instead))
}
