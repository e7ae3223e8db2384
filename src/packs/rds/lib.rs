//! Databases in the Open Telekom Cloud, by the operator of `rdss.otc.mcsps.de`.
//!
//! Owns: what an [`Rds`] says, and what API servers ask about one. The schema of the resource keeps whatever is written, and has no
//! status subresource: all of it is read loosely, and a value of a wrong type is for a rule to say. The operator writes the whole
//! object every ten seconds, and is never judged. Must not know: Galera, the cloud.

mod backups;
mod binding;
mod end;
mod endpoint;
mod engine_version;
mod fixed;
mod flavor;
mod grant;
mod grants;
mod high_availability;
mod name;
mod one_side;
mod password;
mod removal;
mod restore;
mod spec;
mod status;
mod users;
mod volume;

use engine::rulebook::Pack;
use engine::webhooks::{Endpoint, Entry, Only, Selects};
use facts::review::{Operation, Review};
use facts::view::View;
use objects::scalar::{self, Scalar};
use objects::{Custom, CustomKind, Kind, Meta, Object, Row};

pub use binding::ClusterRoleBinding;
pub use spec::Rds;
use spec::Spec;

/// The pack.
pub const PACK: Pack = Pack {
    name: "rds",
    protects: "databases in the Open Telekom Cloud from being deleted or restored by mistake, and their owners from changes that the operator ignores",
    kinds: &[RDS_KIND, binding::KIND],
    rules: &[
        fixed::RULE,
        volume::RULE,
        flavor::RULE,
        high_availability::RULE,
        engine_version::RULE,
        password::RULE,
        restore::RULE,
        backups::RULE,
        users::RULE,
        grants::RULE,
        removal::RULE,
        status::RULE,
        one_side::RULE,
        end::RULE,
        name::RULE,
        endpoint::RULE,
        binding::RULE,
    ],
    entries: ENTRIES,
    keeps: |_| false,
};

const RDS_KIND: &CustomKind = &CustomKind {
    row: Row { group: "otc.mcsps.de", version: "v1alpha1", name: "Rds", plural: "rdss" },
    watched: true,
    cluster_wide: false,
    read: CustomKind::read_into::<Rds>,
};
/// A database in the Open Telekom Cloud, as its operator is asked for it.
const RDS: Kind = Kind::Custom(RDS_KIND);

impl Custom for Rds {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn weight(&self) -> usize {
        scalar::weight(self)
    }
}

/// CEL: an Rds, or the definition of all of them.
const OURS: &str = "request.resource.resource != 'customresourcedefinitions' || oldObject != null && oldObject.metadata.name == 'rdss.otc.mcsps.de'";
/// CEL: an Rds, or a binding to a role of the operator's.
const OURS_BOUND: &str = "request.resource.resource != 'clusterrolebindings' || object != null && object.roleRef.name.contains('rdsoperator')";

const ENTRIES: &[Entry] = &[
    Entry {
        name: "rdss",
        endpoint: Endpoint::Validate,
        asks: &[
            ("otc.mcsps.de", "rdss", &["CREATE", "DELETE"]),
            ("apiextensions.k8s.io", "customresourcedefinitions", &["DELETE"]),
        ],
        selects: Selects::Anywhere,
        only: Only::When("rds", OURS),
        fail_closed: true,
        why: "a new database, the end of one, and the end of all with their definition",
    },
    Entry {
        name: "rdss-written",
        endpoint: Endpoint::Validate,
        asks: &[
            ("otc.mcsps.de", "rdss", &["UPDATE"]),
            ("rbac.authorization.k8s.io", "clusterrolebindings", &["CREATE", "UPDATE"]),
        ],
        selects: Selects::Anywhere,
        only: Only::When("rds-or-its-roles", OURS_BOUND),
        fail_closed: false,
        why: "the operator writes each every ten seconds, and never waits for a guard that is down",
    },
];

/// What somebody else than the operator writes, where it changes the spec or the status.
struct Write<'r> {
    old: Option<&'r Rds>,
    new: &'r Rds,
}

impl<'r> Write<'r> {
    fn of(review: &'r Review, view: &View<'_>) -> Option<Self> {
        let new: &Rds = review.new.as_ref()?.custom()?;
        let old = review.old.as_ref().and_then(Object::custom::<Rds>);
        let same = old.is_some_and(|old| old.spec == new.spec && old.status == new.status);
        (!same && !view.settings.is_rds_operator(&review.user)).then_some(Self { old, new })
    }

    /// One of an object that is there already.
    fn update(review: &'r Review, view: &View<'_>) -> Option<(&'r Rds, &'r Rds)> {
        Self::of(review, view).and_then(|it| Some((it.old?, it.new)))
    }

    /// One that makes an object.
    fn creation(review: &'r Review, view: &View<'_>) -> Option<&'r Rds> {
        Self::of(review, view)
            .filter(|it| it.old.is_none() && review.operation == Operation::Create)
            .map(|it| it.new)
    }

    /// This part of the spec is new.
    fn changes<T: PartialEq>(&self, part: impl Fn(&Spec) -> &T) -> bool {
        self.old.is_none_or(|old| part(&old.spec) != part(&self.new.spec))
    }
}

/// What leads to a status in which the operator works on the instance: a command that ends then, where it comes by itself.
fn until_active(rds: &Rds, review: &Review) -> String {
    let Review { namespace, name, .. } = review;
    if rds.status.stuck() {
        return format!("look in the cloud what instance {namespace}_{name} needs to be ACTIVE");
    }
    format!("kubectl -n {namespace} wait rds/{name} --for=jsonpath='{{.status.status}}'=ACTIVE --timeout=10m")
}

/// A value as messages repeat it: quoted, and not at any length.
fn shown(text: &str) -> String {
    format!("\"{}\"", bare(text))
}

/// The same without quotes, where it stands beside the name of its field.
fn bare(text: &str) -> String {
    const LONGEST: usize = 60;
    let cut: String = text.chars().take(LONGEST).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", cut.escape_debug())
}

/// What stands in a field: a text, or that it is none.
fn contents(value: &Scalar) -> String {
    if value.given() {
        value.odd().map_or_else(|| shown(value.look()), str::to_owned)
    } else {
        "nothing".to_owned()
    }
}

#[cfg(test)]
mod tests;
