//! W04: the data of a WordPress survives a careless command.
//!
//! Refuses to delete a Wordpress that owns claims, a claim of a WordPress (its database, files or backups), the namespace of such
//! a claim, or the definition `wordpresses.example.com`, because every Wordpress is deleted with it. A Wordpress that owns no
//! claims, because they existed before it, may be deleted. Warns about claims that stay without a label, because they are not
//! guarded.
//!
//! # Why
//!
//! The Wordpress owns both claims, so Kubernetes deletes them with it: the posts, the users and the uploaded files are lost without a
//! question. Afterwards it is too late: the guard cannot stop the garbage collector.
//!
//! # Example
//!
//! ```text
//! $ kubectl delete wordpress blog
//! [W04] Wordpress web/blog: deleting it deletes its volumes: the database (mysql-pv-claim) and the files (wp-pv-claim) (seen now)
//! ```
//!
//! # What to do instead
//!
//! Take a backup first (`mariadb-dump` or `mysqldump` of the database, and a copy of `/var/www/html`). To keep the volumes, label the
//! claims first (`kubectl label pvc mysql-pv-claim wp-pv-claim gatera.dev/wordpress=blog`), then delete the Wordpress with
//! `--cascade=orphan`: everything stays, and the guard still recognises the claims. Kubernetes deletes a claim whose owner does not
//! exist, for example one that is restored from a backup: remove `ownerReferences` before you create it.
//!
//! # Exceptions
//!
//! Annotate the object, for an hour at most: `gatera.dev/override: "W04 until=TIME reason=…"`. This is the confirmation.

use super::{GROUP, LABEL, Tier, WORDPRESS, part};
use engine::exceptions::confirmation;
use engine::rule::{Finding, One, Review, Rule, Verb, Verdict, View};
use engine::rules::unlisted::unlisted;
use facts::view::Freshness;
use facts::way_out::{CommandLine, WayOut, say};
use objects::{Kind, Meta, Object, Owner};

pub(super) const RULE: Rule = Rule {
    id: "W04",
    name: "wp-data",
    judges: &[
        (WORDPRESS, &[Verb::Delete], One(check)),
        (Kind::Claim, &[Verb::Delete], One(check)),
        (Kind::Namespace, &[Verb::Delete], One(check)),
        (Kind::Definition, &[Verb::Delete], One(check)),
    ],
    depends_on_state: true,
    source: include_str!("data.rs"),
};

/// The name of the definition of every Wordpress.
const DEFINITION: &str = "wordpresses.example.com";

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    let says = match review.old.as_ref()? {
        old if old.kind() == WORDPRESS => return deletion_with_claims(review, view),
        Object::Claim(claim) => claim_headline(part(&claim.metadata)?).to_owned(),
        Object::Namespace(_) => namespace_headline(review, view)?,
        Object::Definition(it) if it.metadata.name == DEFINITION && !view.has_none(WORDPRESS) => {
            if let Some(unknown) = unlisted(&RULE, WORDPRESS, review, view) {
                return Some(unknown);
            }
            format!(
                "deleting it deletes every Wordpress in every namespace ({}, {}), and the volumes that they own",
                view.resource_count(WORDPRESS),
                view.seen()
            )
        }
        _ => return None,
    };
    Some(refused(says, backup_first(review, view)))
}

fn refused(says: String, instead: WayOut) -> Finding {
    RULE.deny(
        "",
        says,
        "the data is deleted without another confirmation, and only a backup can bring it back",
        instead,
    )
}

fn backup_first(review: &Review, view: &View<'_>) -> WayOut {
    let confirmed = say("then ").and(confirmation(review, RULE.id, view));
    say("take a backup").then(confirmed.say(", and repeat the command"))
}

/// Returns a finding about the claims that Kubernetes deletes with a Wordpress. Claims without an owner stay.
fn deletion_with_claims(review: &Review, view: &View<'_>) -> Option<Finding> {
    let Review { namespace, name, .. } = review;
    let uid = review.old.as_ref().map_or("", |old| &old.meta().uid);
    let is_owner = |owner: &Owner| {
        owner.is_of(GROUP, "Wordpress")
            && owner.name == *name
            && (owner.uid == uid || owner.uid.is_empty() || uid.is_empty())
    };
    let owned =
        view.claims_in(namespace).filter(|claim| claim.metadata.owner_references.iter().any(is_owner));
    let owned: Vec<_> = owned.map(|claim| &claim.metadata).collect();
    if owned.is_empty() {
        let says = format!("it is not known whether volumes would be deleted with it ({})", view.seen());
        let may_miss_claims = view.freshness != Freshness::Current && !review.options.orphans();
        return may_miss_claims
            .then(|| Finding { verdict: Verdict::Unknown, ..refused(says, backup_first(review, view)) });
    }
    let names: Vec<_> = owned.iter().map(|claim| &*claim.name).collect();
    let label =
        CommandLine::new(format!("kubectl -n {namespace} label pvc {} {LABEL}={name}", names.join(" ")));
    if review.options.orphans() {
        let lacks_label = owned.iter().any(|claim| !claim.labels.contains_key(LABEL));
        let says = format!("its claims stay, but are no longer guarded: {}", names.join(", "));
        let why = "without their owner only this label shows that they belong to a WordPress";
        return lacks_label.then(|| RULE.warn("metadata.labels", says, why, label));
    }
    let orphan = CommandLine::new(format!("kubectl -n {namespace} delete wordpress {name} --cascade=orphan"));
    let keep = say("to keep them: ").run(label).say(", then ").run(orphan);
    let instead = keep.or(say("to delete them: ").and(backup_first(review, view)));
    let says = format!("deleting it deletes its volumes: {} ({})", in_words(&owned), view.seen());
    Some(refused(says, instead))
}

/// Returns the claims in words: "the database (mysql-pv-claim) and the files (wp-pv-claim)".
fn in_words(claims: &[&Meta]) -> String {
    let part_and_name = |claim: &&Meta| match part(claim) {
        Some(Tier::Database) => format!("the database ({})", claim.name),
        _ => format!("the files ({})", claim.name),
    };
    claims.iter().map(part_and_name).collect::<Vec<_>>().join(" and ")
}

fn claim_headline(tier: Tier) -> &'static str {
    match tier {
        Tier::Database => "it holds the database of a WordPress",
        Tier::Backup => "it holds the backups of a WordPress",
        Tier::Site => "it holds the files of a WordPress: its plugins and uploads",
    }
}

/// Returns the headline for a namespace with a claim of a WordPress, which the chart or the operator created.
fn namespace_headline(review: &Review, view: &View<'_>) -> Option<String> {
    let claim = view.claims_in(&review.name).find(|claim| part(&claim.metadata).is_some())?;
    let name = &claim.metadata.name;
    Some(format!(
        "it holds claim {name} of a WordPress ({}), and deleting the namespace deletes its data",
        view.seen()
    ))
}
