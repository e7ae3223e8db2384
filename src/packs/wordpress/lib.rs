//! The pack for WordPress with its own database, installed by charts/wordpress or by the well-known example of an operator.
//!
//! Owns: `Wordpress`, which objects are part of one, and their webhook entries. The operator creates six objects with fixed names, each
//! owned by its Wordpress, and never changes them; those of the chart have the label `gatera.dev/wordpress`. If the database is a Galera
//! cluster, Galera's rules guard it. Must not know: Galera.

mod claims;
mod collision;
mod data;
mod database;
mod database_service;
mod name;
mod one_per_namespace;
mod password_change;
mod plain_password;

use serde::Deserialize;

use engine::rulebook::Pack;
use engine::webhooks::{Endpoint, Entry, Only, Selects};
use objects::scalar::Scalar;
use objects::{CustomKind, CustomResource, Kind, KindNames, Meta};

pub const PACK: Pack = Pack {
    name: "wordpress",
    protects: "the two volumes of a WordPress, and its database from a second server and from a version that cannot read it",
    kinds: &[WORDPRESS_KIND],
    rules: &[
        plain_password::RULE,
        password_change::RULE,
        one_per_namespace::RULE,
        data::RULE,
        database::RULE,
        claims::RULE,
        database_service::RULE,
        name::RULE,
        collision::RULE,
    ],
    entries: ENTRIES,
    keeps: |meta| part(meta).is_some(),
};

/// The label of the chart's objects.
const LABEL: &str = "gatera.dev/wordpress";
/// The API group of the example's operator.
const GROUP: &str = "example.com";

/// The CEL condition for a Wordpress, or the definition of Wordpress.
const OURS: &str = "request.resource.resource != 'customresourcedefinitions' || oldObject != null && oldObject.metadata.name == 'wordpresses.example.com'";
/// The CEL condition that the object is a part of a WordPress, before or after the change.
const PART: &str = "[object, oldObject].exists(it, it != null && has(it.metadata) && (\
has(it.metadata.labels) && 'gatera.dev/wordpress' in it.metadata.labels || \
has(it.metadata.ownerReferences) && it.metadata.ownerReferences.exists(owner, owner.kind == 'Wordpress' && owner.apiVersion.startsWith('example.com/'))))";
/// The CEL condition that a Deployment has the name of the site, but is not a part of a WordPress.
const NAMESAKE: &str = "has(object.metadata.name) && object.metadata.name == 'wordpress' && \
!(has(object.metadata.labels) && 'gatera.dev/wordpress' in object.metadata.labels) && \
!(has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(owner, owner.kind == 'Wordpress' && owner.apiVersion.startsWith('example.com/')))";

const ENTRIES: &[Entry] = &[
    // Makes Deployments read a password from its Secret, keeps a second server from the volume of a database, and explains which
    // fields of a claim are fixed.
    Entry {
        name: "wordpress-amend",
        endpoint: Endpoint::Mutate,
        requests: &[
            ("apps", "deployments", &["CREATE", "UPDATE"]),
            ("", "persistentvolumeclaims", &["UPDATE"]),
        ],
        selects: Selects::Anywhere,
        only: Only::When("part-of-wordpress", PART),
        fail_closed: false,
    },
    // Every write of a Wordpress, its deletion, with which its volumes are deleted, and the deletion of the definition, with
    // which every Wordpress is deleted.
    Entry {
        name: "wordpresses",
        requests: &[
            (GROUP, "wordpresses", &["CREATE", "UPDATE", "DELETE"]),
            ("apiextensions.k8s.io", "customresourcedefinitions", &["DELETE"]),
        ],
        only: Only::When("wordpress", OURS),
        ..Entry::VALIDATING
    },
    // The parts of a WordPress, in every namespace.
    Entry {
        name: "wordpress-parts",
        requests: &[
            ("apps", "deployments", &["CREATE", "UPDATE"]),
            ("", "persistentvolumeclaims", &["UPDATE"]),
        ],
        only: Only::When("part-of-wordpress", PART),
        ..Entry::VALIDATING
    },
    // Deployments that the operator would use as its own; never blocked by a guard that is down.
    Entry {
        name: "wordpress-namesakes",
        requests: &[("apps", "deployments", &["CREATE"])],
        only: Only::When("called-wordpress", NAMESAKE),
        fail_closed: false,
        ..Entry::VALIDATING
    },
    // Claims and Services of a WordPress in namespaces that are not fully guarded, where no other entry sends them.
    Entry {
        name: "wordpress-elsewhere",
        requests: &[("", "persistentvolumeclaims", &["DELETE"]), ("", "services", &["CREATE", "UPDATE"])],
        selects: Selects::OtherNamespaces,
        only: Only::When("part-of-wordpress", PART),
        ..Entry::VALIDATING
    },
];

const WORDPRESS_KIND: &CustomKind = &CustomKind {
    names: KindNames { group: GROUP, version: "v1", name: "Wordpress", plural: "wordpresses" },
    watched: true,
    cluster_wide: false,
    read: CustomKind::read_into::<Wordpress>,
};
/// The kind of the example operator's resource.
const WORDPRESS: Kind = Kind::Custom(WORDPRESS_KIND);

/// The resource of the example's operator.
type Wordpress = CustomResource<WordpressSpec>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct WordpressSpec {
    sqlrootpassword: Scalar,
}

/// The purpose of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    Database,
    Site,
    Backup,
}

/// Returns the purpose of a part of a WordPress, by its label `tier` or its name; `None`: neither an owner nor a label shows that
/// the object is a part.
fn part(meta: &Meta) -> Option<Tier> {
    let owned = meta.owner_references.iter().any(|it| it.is_of(GROUP, "Wordpress"));
    if !owned && !meta.labels.contains_key(LABEL) {
        return None;
    }
    let tier = meta.labels.get("tier").map(String::as_str);
    Some(match tier {
        Some("mysql") => Tier::Database,
        None if meta.name.contains("mysql") => Tier::Database,
        Some("backup") => Tier::Backup,
        _ => Tier::Site,
    })
}

/// Reads a reference to a password: `secretRef:<secret>/<key>`.
fn secret_ref(text: &str) -> Option<(&str, &str)> {
    let is_name = |name: &str, also: &str| {
        !name.is_empty()
            && name.len() <= 253
            && name.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
    };
    let (secret, key) = text.strip_prefix("secretRef:")?.split_once('/')?;
    (is_name(secret, "-.") && is_name(key, "-._")).then_some((secret, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_one_name_and_one_key() {
        assert_eq!(secret_ref("secretRef:mysql/root-password"), Some(("mysql", "root-password")));
        for text in [
            "",
            "abc",
            "secretRef:",
            "secretRef:a",
            "secretRef:/b",
            "secretRef:a/",
            "secretRef:a/b/c",
            "secretref:a/b",
            "secretRef:a b/c",
        ] {
            assert_eq!(secret_ref(text), None, "{text}");
        }
    }

    #[test]
    fn any_content_is_read() {
        for spec in ["null", "[]", "7", r#"{"sqlrootpassword":7}"#, r#"{"sqlrootpassword":{"a":1}}"#, "{}"] {
            let json = format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#);
            assert!(serde_json::from_str::<Wordpress>(&json).is_ok(), "{spec}");
        }
        let it: Wordpress = serde_json::from_str(r#"{"spec":{"sqlrootpassword":"hunter2"}}"#).unwrap();
        assert!(!format!("{it:?}").contains("hunter2"));
    }
}
