//! The pack for databases in the Open Telekom Cloud, managed by the operator of `rdss.otc.mcsps.de`.
//!
//! Owns: `Rds` and its webhook entries. The schema of the resource accepts any value, and there is no status subresource: fields are
//! read loosely, and rules report values of a wrong type. The operator writes the whole object every ten seconds, and is never judged.
//! Must not know: Galera, the cloud.

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
use engine::webhooks::{Entry, Only};
use facts::review::{Change, Review};
use facts::view::View;
use facts::way_out::{CommandLine, WayOut, edit, run, say};
use objects::scalar::Scalar;
use objects::{Custom, CustomKind, Kind, KindNames, Meta};

use spec::{Rds, RdsSpec};

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
    names: KindNames { group: "otc.mcsps.de", version: "v1alpha1", name: "Rds", plural: "rdss" },
    watched: true,
    cluster_wide: false,
    read: CustomKind::read_into::<Rds>,
};
/// The kind of a database in the Open Telekom Cloud.
const RDS: Kind = Kind::Custom(RDS_KIND);

impl Custom for Rds {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The CEL condition for an Rds, or the definition of Rds.
const OURS: &str = "request.resource.resource != 'customresourcedefinitions' || oldObject != null && oldObject.metadata.name == 'rdss.otc.mcsps.de'";
/// The CEL condition for an Rds, or a binding to a role of the operator.
const OURS_OR_BINDING: &str = "request.resource.resource != 'clusterrolebindings' || object != null && object.roleRef.name.contains('rdsoperator')";

const ENTRIES: &[Entry] = &[
    // The creation and deletion of a database, and the deletion of the definition, with which every Rds is deleted.
    Entry {
        name: "rdss",
        requests: &[
            ("otc.mcsps.de", "rdss", &["CREATE", "DELETE"]),
            ("apiextensions.k8s.io", "customresourcedefinitions", &["DELETE"]),
        ],
        only: Only::When("rds", OURS),
        ..Entry::VALIDATING
    },
    // The operator writes each Rds every ten seconds, and must not wait for a guard that is down.
    Entry {
        name: "rdss-written",
        requests: &[
            ("otc.mcsps.de", "rdss", &["UPDATE"]),
            ("rbac.authorization.k8s.io", "clusterrolebindings", &["CREATE", "UPDATE"]),
        ],
        only: Only::When("rds-or-its-roles", OURS_OR_BINDING),
        fail_closed: false,
        ..Entry::VALIDATING
    },
];

/// A write of the spec or the status by a user other than the operator.
struct RdsWrite<'r> {
    old: Option<&'r Rds>,
    new: &'r Rds,
}

impl<'r> RdsWrite<'r> {
    fn of(review: &'r Review, view: &View<'_>) -> Option<Self> {
        let Change { old, new: Some(new) } = review.change::<Rds>() else { return None };
        let same = old.is_some_and(|old| old.spec == new.spec && old.status == new.status);
        (!same && !view.settings.is_rds_operator(&review.user)).then_some(Self { old, new })
    }

    /// Returns a write that changes this part of the spec.
    fn of_part<T: PartialEq>(
        review: &'r Review,
        view: &View<'_>,
        part: impl Fn(&RdsSpec) -> &T,
    ) -> Option<Self> {
        Self::of(review, view).filter(|it| it.changes(part))
    }

    /// Returns whether this part of the spec changes.
    fn changes<T: PartialEq>(&self, part: impl Fn(&RdsSpec) -> &T) -> bool {
        self.old.is_none_or(|old| part(&old.spec) != part(&self.new.spec))
    }
}

/// Returns the command that waits until the status is ACTIVE; if the status does not become ACTIVE by itself, the advice to check
/// the instance in the cloud.
fn until_active(rds: &Rds, review: &Review) -> WayOut {
    let Review { namespace, name, .. } = review;
    if rds.status.is_stuck() {
        return say(format!("check in the cloud what instance {namespace}_{name} needs to become ACTIVE"));
    }
    let wait = CommandLine::new(format!("kubectl -n {namespace} wait rds/{name}"));
    run(wait.arg("--for=jsonpath={.status.status}=ACTIVE").arg("--timeout=10m"))
}

/// Returns the advice to change the Rds of the request: by a command, or in its manifest.
fn patch(Review { namespace, name, .. }: &Review, to: &str) -> WayOut {
    let live = CommandLine::new(format!("kubectl -n {namespace} patch rds {name} --type=merge -p")).arg(to);
    edit(live, format!("write {to} into its manifest"))
}

/// Returns a value for messages, quoted and shortened.
fn shown(text: &str) -> String {
    format!("\"{}\"", bare(text))
}

/// Returns a value for messages, shortened and without quotes.
fn bare(text: &str) -> String {
    const LONGEST_VALUE: usize = 60;
    let cut: String = text.chars().take(LONGEST_VALUE).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", cut.escape_debug())
}

/// Returns the content of a field for messages.
fn contents(value: &Scalar) -> String {
    if value.is_present() {
        value.composite().map_or_else(|| shown(value.look()), str::to_owned)
    } else {
        "nothing".to_owned()
    }
}

#[cfg(test)]
mod tests;
