//! G07: a member's data survives a careless command.
//!
//! Refuses to delete the claim of a member, also of one that `gatera stop` stopped and whose StatefulSet is deleted; to give
//! it an owner (`metadata.ownerReferences`) with which it would be deleted; to remove its finalizer while it is being deleted
//! and a pod uses it; a retention policy that deletes claims; a data directory that is lost with the pod
//! (emptyDir, an ephemeral volume, no volume at all) or shared by several members; and a change that makes members look
//! for their data elsewhere: another volume, another folder of it (`subPath`, `datadir`), or no mount at all. Refuses a new
//! StatefulSet that would not use the existing claims of its cluster, and containers that empty the data directory, or write
//! `safe_to_bootstrap`, whenever they run. Warns about volumes that are too small for an empty MariaDB.
//!
//! # Why
//!
//! Deleting the claim of a running member looks harmless: nothing happens. The claim stays `Terminating` until the pod
//! restarts, and then the member starts empty. If the whole cluster is down, an empty member is even "safe to
//! bootstrap": it creates a new cluster, and the others discard their data when they join it. Moving a mount has the
//! same effect without deleting anything: every member starts empty, one after the other, and becomes Ready.
//!
//! An owner has the same effect: Kubernetes deletes an object when its last owner is deleted, and at once if that owner never
//! existed. A claim must outlive everything, so only the control plane may give it an owner.
//!
//! # Example
//!
//! ```text
//! $ kubectl delete pvc datadir-galera-1
//! [G07] PersistentVolumeClaim db/datadir-galera-1: it holds the data of member galera-1 (3 of 3 members Synced, seen now)
//! ```
//!
//! # What to do instead
//!
//! To let one member copy everything again: with all members Ready, annotate its claim with the override, delete the claim,
//! then its pod; then wait until it is Ready. To remove a member, scale the StatefulSet down: its claim stays and costs
//! little. Claims beyond the replicas may be deleted while all members are Ready.
//!
//! # From Bitnami's image to the official one
//!
//! Keep the claims, and the series of MariaDB that runs (upgrade in a second step). Bitnami's image keeps the data in the
//! folder `data` of the volume at `/bitnami/mariadb`, as user 1001. In one change of the pod template:
//!
//! 1. the official image, and the claim mounted at `/var/lib/mysql` with `subPath: data`;
//! 2. no `command`, and no `runAsUser`, `runAsNonRoot`, `fsGroup` of 1001: the entry point starts as root, and changes the owner
//!    of the files;
//! 3. the option files at `/etc/mysql/conf.d`, with what Bitnami's variables set: cluster name, address, provider, method and
//!    user of state transfers, `port`; without paths below `/opt/bitnami`;
//! 4. the same names of StatefulSet, claim template and Services.
//!
//! Members restart one after the other, from the highest number, and each finds its data. Try it on a copy first.
//!
//! # Exceptions
//!
//! Annotate the claim itself, for an hour at most: `gatera.dev/override: "G07 until=2026-12-01T10:00:00Z reason=…"`. On
//! the StatefulSet the override covers the StatefulSet and all of its claims. The override for a whole cluster (G03) does not
//! cover its data.

mod claims;
mod init;
mod size;

use super::anti_affinity;
use crate::rule::{
    All, Finding, Findings, One, Operation, Origin, Review, Rule, Verb, Verdict, View, WRITTEN,
};
use facts::galera::data::{BITNAMI_DATA, Backing, DataFolder};
use facts::galera::image::Image;
use facts::galera::server::{self, DATA_DIRECTORIES};
use facts::view::{MemberClaim, is_cluster};
use facts::way_out::{CommandLine, WayOut, say};
use objects::{Container, Kind, Volume, Workload};

pub(super) const RULE: Rule = Rule {
    id: "G07",
    name: "member-data",
    judges: &[
        (Kind::Claim, &[Verb::Create, Verb::Update, Verb::Report], All(claims::written)),
        (Kind::Claim, &[Verb::Delete], One(claims::deleted)),
        (Kind::StatefulSet, WRITTEN, All(written)),
    ],
    depends_on_state: true,
    source: include_str!("member_data.rs"),
};

fn written(review: &Review, view: &View<'_>) -> Findings {
    let new = review.change::<Workload>().new.filter(|it| is_cluster(it, view.adoption()));
    let Some(new) = new else { return Findings::new() };
    let mut found = retention(new);
    let place = view.data_folder(&review.namespace, new);
    let volume_fault = data_volume(&review.namespace, new, place.as_ref(), view);
    // A move to a volume that cannot hold data is refused because of the volume; without any volume, because of the move.
    let has_no_volume = place.as_ref().is_none_or(|it| it.volume.is_none());
    let moved = (has_no_volume || volume_fault.as_ref().is_none_or(|it| it.verdict == Verdict::Warn))
        .then(|| moved(review, new, place.as_ref(), view))
        .flatten();
    found.extend(volume_fault.filter(|_| moved.is_none() || !has_no_volume));
    found.extend(moved);
    found.extend(place.as_ref().and_then(|place| ignores_claims(review, new, place, view)));
    found.extend(size::small_volumes(new, place.as_ref()));
    found.extend(init::rewrites(new, place.as_ref()));
    found.extend(claims_left_behind(review, new, view));
    found.extend(restarts_with_old_data(review, new, place.as_ref(), view));
    found
}

fn retention(new: &Workload) -> Findings {
    let policy = &new.spec.persistent_volume_claim_retention_policy;
    let fields = [
        ("whenDeleted", &policy.when_deleted, "deleting"),
        ("whenScaled", &policy.when_scaled, "scaling down"),
    ];
    let deletes = fields.into_iter().filter(|(_, value, _)| *value == "Delete");
    let found = deletes.map(|(field, _, what)| {
        let says = format!("{field}: Delete makes {what} the StatefulSet delete its members' data");
        let instead =
            format!("write {field}: Retain; claims that are not needed any more can be deleted by hand");
        let field = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
        finding(Verdict::Deny, field, says, instead)
    });
    found.collect()
}

/// Returns a finding if the data directory is lost with the pod, or shared.
fn data_volume(ns: &str, new: &Workload, place: Option<&DataFolder>, view: &View<'_>) -> Option<Finding> {
    let server = server::of(&new.spec.template)?;
    match place {
        Some(place) if place.volume.is_some() => on_volume(ns, new, place, view),
        _ => on_no_volume(new, server, place)
            .or_else(|| shared(ns, new, server, view).filter(|_| place.is_none())),
    }
}

/// Returns a finding if the data directory is unknown, and one volume for all members is mounted where images keep the data.
fn shared(ns: &str, new: &Workload, server: &Container, view: &View<'_>) -> Option<Finding> {
    let places = DATA_DIRECTORIES.into_iter().map(|it| DataFolder::at(new, server, it.to_owned()));
    places.filter(|it| !is_lost_with_the_pod(new, it)).find_map(|it| on_volume(ns, new, &it, view))
}

/// Returns a finding if no volume holds the data. A volume at another path may hold it, because of an option that is not visible.
fn on_no_volume(new: &Workload, server: &Container, place: Option<&DataFolder>) -> Option<Finding> {
    let (template, claims) = (&new.spec.template.spec, &new.spec.volume_claim_templates);
    let lasts = |volume: &Volume| {
        volume.persistent_volume_claim.is_some() || volume.host_path.is_some() || volume.nfs.is_some()
    };
    let named = |name: &str| {
        let mut volumes = template.volumes.iter();
        claims.iter().any(|it| it.metadata.name == name) || volumes.any(|it| it.name == name && lasts(it))
    };
    let mounted = server.volume_mounts.iter().find(|mount| named(&mount.name));
    let claimed = !claims.is_empty() || template.volumes.iter().any(lasts);
    let repository = Image::read(&server.image).repository;
    let official = ["mariadb", "library/mariadb", "docker.io/mariadb", "docker.io/library/mariadb"];
    let hidden = template.volumes.iter().any(|it| it.secret.is_some());
    let known = !hidden && (official.contains(&repository) || repository.contains("bitnami"));
    let instead = match (place, mounted) {
        (None, _) if claimed => return None,
        // Another image may set its data directory itself.
        (Some(_), Some(_)) if !known => return None,
        (Some(place), Some(mount)) => {
            format!("mount {} at {}, in place of {}", mount.name, place.directory, mount.mount_path)
        }
        (Some(place), None) if claimed => format!("mount the claim of each member at {}", place.directory),
        _ => ADD_CLAIM_TEMPLATES.to_owned(),
    };
    let mounts = format!("spec.template.spec.containers[{}].volumeMounts", server.name);
    let says = "no volume holds its data: it is lost with each pod".to_owned();
    Some(finding(Verdict::Deny, mounts, says, instead))
}

const TWO_SERVERS: &str = "two servers that write to the same files destroy them";
const ADD_CLAIM_TEMPLATES: &str =
    "add spec.volumeClaimTemplates and mount one at the data directory: each member has its own";

/// Returns a finding if the data on the volume of this place is lost with the pod, or shared.
fn on_volume(ns: &str, new: &Workload, place: &DataFolder, view: &View<'_>) -> Option<Finding> {
    // A claim template replaces a volume of the same name.
    let own = !matches!(place.backing, Backing::Template(_));
    let mut volumes = new.spec.template.spec.volumes.iter();
    let volume = volumes.find(|it| own && Some(&it.name) == place.volume.as_ref())?;
    let (name, replicas) = (&volume.name, new.replicas());
    let shared = replicas > 1 && !place.of_each;
    let on_one_node = volume.host_path.is_some() && shared && anti_affinity::may_share_a_node(ns, new, view);
    let says = match volume {
        Volume { empty_dir: Some(it), .. } if it.medium == "Memory" => {
            format!("is kept in memory (volume {name}): it is lost with the pod, or when the node restarts")
        }
        Volume { empty_dir: Some(_), .. } => {
            format!("is an emptyDir (volume {name}): it is deleted with the pod")
        }
        Volume { ephemeral: Some(_), .. } => {
            format!("is an ephemeral volume ({name}): its claim is deleted with the pod")
        }
        Volume { persistent_volume_claim: Some(claim), .. } if shared => format!(
            "is one claim for all {replicas} members ({}): two of them open the same files",
            claim.claim_name
        ),
        Volume { nfs: Some(_), .. } if shared => {
            format!("is one NFS folder for all {replicas} members ({name}): two of them open the same files")
        }
        Volume { host_path: Some(folder), .. } if on_one_node => format!(
            "is folder {} of the node ({name}), and members may share a node: two on one node open the same files",
            folder.path
        ),
        Volume { host_path: Some(_), .. } => {
            format!("is a folder of the node ({name}): a member that moves to another node starts empty")
        }
        _ => return None,
    };
    let moves = volume.host_path.is_some() && !on_one_node;
    let verdict = if moves { Verdict::Warn } else { Verdict::Deny };
    let field = format!("spec.template.spec.volumes[{name}]");
    let found = finding(verdict, field, format!("{} {says}", place.directory), ADD_CLAIM_TEMPLATES);
    let two_servers = !moves && volume.empty_dir.is_none() && volume.ephemeral.is_none();
    Some(if two_servers { Finding { why: TWO_SERVERS.to_owned(), ..found } } else { found })
}

/// Returns a finding if every member would start with another folder than the one that holds its data.
fn moved(review: &Review, new: &Workload, to: Option<&DataFolder>, view: &View<'_>) -> Option<Finding> {
    let old = review.change::<Workload>().old?;
    // Only a changed template can make the server look for the data elsewhere.
    if old.spec.template == new.spec.template {
        return None;
    }
    let cluster = view.cluster(&review.namespace, &review.name).filter(|it| it.has_data())?;
    let claims = |of: &Workload| {
        of.spec.volume_claim_templates.iter().map(|it| it.metadata.name.clone()).collect::<Vec<_>>()
    };
    // G08 refuses other claim names.
    if claims(old) != claims(new) {
        return None;
    }
    let Some(from) = view.data_folder(&review.namespace, old) else { return perhaps_moved(old, new) };
    if from.volume.is_none() || is_lost_with_the_pod(old, &from) {
        return None;
    }
    // If the new place is unknown, compare what is mounted at the old path.
    let there = || Some(DataFolder::at(new, server::of(&new.spec.template)?, from.directory.clone()));
    if to.map_or_else(there, |to| Some(to.clone())).is_some_and(|to| to.is_same(&from)) {
        return None;
    }
    let (verdict, says) = match to {
        Some(to) => (
            Verdict::Deny,
            format!(
                "its data is on {from}, but its server would look for it on {to} ({})",
                view.count(cluster)
            ),
        ),
        None => (
            Verdict::Warn,
            format!(
                "its data is on {from}, which is no longer mounted there, and it is not known where its server would look for it"
            ),
        ),
    };
    let instead = match to {
        Some(to) if from.directory == BITNAMI_DATA && to.volume.is_none() => {
            let volume = from.volume.as_deref().unwrap_or_default();
            let mount = format!("mount {volume} at {} with subPath: data", to.directory);
            say(format!("{mount}, where Bitnami's image keeps it")).then("all steps: ").page("G07")
        }
        _ => keep_in_place(),
    };
    Some(finding(verdict, POD_SPEC.to_owned(), says, instead))
}

/// Returns a warning if it is not known where the data is, and a volume that may hold it is no longer mounted at its path.
fn perhaps_moved(old: &Workload, new: &Workload) -> Option<Finding> {
    let (before, after) = (server::of(&old.spec.template)?, server::of(&new.spec.template)?);
    let mut mounts =
        before.volume_mounts.iter().map(|mount| DataFolder::at(old, before, mount.mount_path.clone()));
    let place = mounts.find(|from| {
        let lasts = matches!(from.backing, Backing::Template(_) | Backing::Claim(_) | Backing::Node(_));
        lasts && !DataFolder::at(new, after, from.directory.clone()).is_same(from)
    })?;
    let says = format!("its data may be on {place}, which is no longer mounted at {}", place.directory);
    Some(finding(Verdict::Warn, POD_SPEC.to_owned(), says, keep_in_place()))
}

/// Returns whether the volume loses its content with every pod anyway.
fn is_lost_with_the_pod(workload: &Workload, place: &DataFolder) -> bool {
    let mut volumes = workload.spec.template.spec.volumes.iter();
    let volume = volumes.find(|it| Some(&it.name) == place.volume.as_ref());
    matches!(place.backing, Backing::Volume(_))
        && volume.is_some_and(|it| it.empty_dir.is_some() || it.ephemeral.is_some())
}

const POD_SPEC: &str = "spec.template.spec";

fn keep_in_place() -> WayOut {
    say("leave mount, subPath and datadir as they are")
        .or("to move the data, fill a new cluster from a backup")
}

/// Returns a finding if a StatefulSet is created while claims of its name exist, and its server keeps its data elsewhere.
fn ignores_claims(review: &Review, new: &Workload, place: &DataFolder, view: &View<'_>) -> Option<Finding> {
    let begins = review.operation == Operation::Create && !matches!(place.backing, Backing::Template(_));
    // The audit looks at what exists already.
    if !begins || review.origin == Origin::Audit {
        return None;
    }
    let server = server::of(&new.spec.template)?;
    let claims = view.claims_of(&review.namespace, new);
    // Claims of a template that the server mounts elsewhere may hold something else.
    let mounted = |claim: &&MemberClaim| {
        server.volume_mounts.iter().any(|it| claim.name.starts_with(&format!("{}-", it.name)))
    };
    let claim = claims.iter().find(|claim| place.volume.is_none() || !mounted(claim))?;
    // An image may keep its data at a path that is not visible here.
    let verdict = if place.volume.is_none() { Verdict::Warn } else { Verdict::Deny };
    let says = format!(
        "claims of this cluster exist ({} …), but its server would keep its data on {place}",
        claim.name
    );
    let instead = "mount the claim template at the data directory, as it was";
    Some(finding(verdict, "spec.volumeClaimTemplates".to_owned(), says, instead))
}

/// Returns a finding if a StatefulSet is created and would use none of the existing claims of the same cluster: it would start
/// empty.
fn claims_left_behind(review: &Review, new: &Workload, view: &View<'_>) -> Option<Finding> {
    if review.operation != Operation::Create || review.old.is_some() {
        return None;
    }
    let left = view.left_over_claims(&review.namespace, &new.spec.template.metadata.labels);
    let first = left.first()?;
    if !view.claims_of(&review.namespace, new).is_empty() {
        return None;
    }
    let says =
        format!("{} claims of this cluster exist ({first} …), but none of them would be used", left.len());
    let instead = say(format!(
        "use the same names of StatefulSet and claim template as before ({first} is TEMPLATE-STATEFULSET-NUMBER)"
    ))
    .or("for a new cluster, choose another instance label");
    Some(finding(Verdict::Deny, "spec.volumeClaimTemplates".to_owned(), says, instead))
}

/// Returns a warning if a deleted StatefulSet is created again with its claims: no pod runs, and no member starts first by
/// itself.
fn restarts_with_old_data(
    review: &Review,
    new: &Workload,
    place: Option<&DataFolder>,
    view: &View<'_>,
) -> Option<Finding> {
    let (ns, name) = (&review.namespace, &review.name);
    // Files do not show which pods run.
    let is_not_new =
        review.operation != Operation::Create || matches!(review.origin, Origin::Audit | Origin::Check);
    if is_not_new || new.replicas() == 0 {
        return None;
    }
    let Backing::Template(template) = &place?.backing else { return None };
    let prefix = format!("{template}-{name}-");
    let own = view.claims_of(ns, new).into_iter();
    let held = own.filter(|claim| claim.bound && claim.name.starts_with(&prefix)).count();
    if held == 0 {
        return None;
    }
    let says = format!(
        "it has data from before (claims: {held}): its members use it, but none of them starts the cluster by itself"
    );
    let instead =
        say("after you have applied it: ").run(CommandLine::new(format!("gatera start {name} -n {ns}")));
    let why = "all others copy the member that starts first, so it must be the one with the newest data";
    Some(RULE.warn("spec.volumeClaimTemplates", says, why, instead))
}

const WHY: &str = "a member that starts empty copies everything from another; if no other member runs, it creates an \
    empty cluster, and the others discard their data when they join";

fn finding(verdict: Verdict, field: String, says: String, instead: impl Into<WayOut>) -> Finding {
    RULE.finding(verdict, field, says, WHY, instead)
}
