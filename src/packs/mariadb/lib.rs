//! The pack for mariadb-operator: its resource MariaDB, with which people change and delete an adopted cluster.
//!
//! Owns: `MariaDb`, and which cluster it drives. Galera's rules judge what people do to the objects that the operator creates. What the
//! operator does to them follows from the resource, so a mistake in the resource is judged here. Must not know: what the operator does
//! with the other fields.

mod end;
mod image;
mod replicas;
mod settings;

use serde::Deserialize;

use engine::rulebook::Pack;
use engine::webhooks::{Entry, Only};
use facts::galera::driver;
use facts::review::Review;
use facts::view::{Cluster, View};
use objects::scalar::{self, Scalar};
use objects::{CustomKind, CustomResource, Kind, KindNames};

pub const PACK: Pack = Pack {
    name: "mariadb",
    protects: "an adopted cluster of mariadb-operator from changes of its MariaDB that would delete it, take it apart or bootstrap it again",
    kinds: &[MARIADB_KIND],
    rules: &[end::RULE, settings::RULE, replicas::RULE, image::RULE],
    entries: ENTRIES,
    keeps: |_| false,
};

const MARIADB_KIND: &CustomKind = &CustomKind {
    names: KindNames { group: driver::GROUP, version: "v1alpha1", name: "MariaDB", plural: "mariadbs" },
    watched: false,
    cluster_wide: false,
    read: CustomKind::read_into::<MariaDb>,
};
/// The kind of a database that mariadb-operator drives.
const MARIADB: Kind = Kind::Custom(MARIADB_KIND);

/// The CEL condition that the spec or the owners change; the operator often writes the status.
const ANOTHER_SPEC: &str = "request.subResource == 'scale' || oldObject == null || !has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec || has(object.metadata.ownerReferences) && (!has(oldObject.metadata.ownerReferences) || object.metadata.ownerReferences != oldObject.metadata.ownerReferences)";
/// The CEL condition for a MariaDB, or the definition of MariaDB.
const OURS: &str = "request.resource.resource != 'customresourcedefinitions' || oldObject != null && oldObject.metadata.name == 'mariadbs.k8s.mariadb.com'";

const ENTRIES: &[Entry] = &[
    // The operator writes defaults into it, and must not wait for a guard that is down.
    Entry {
        name: "mariadbs",
        requests: &[(driver::GROUP, "mariadbs", &["UPDATE"]), (driver::GROUP, "mariadbs/scale", &["UPDATE"])],
        only: Only::When("another-spec", ANOTHER_SPEC),
        fail_closed: false,
        ..Entry::VALIDATING
    },
    // A cluster is deleted with its MariaDB, and every MariaDB with the definition.
    Entry {
        name: "mariadb-ends",
        requests: &[
            (driver::GROUP, "mariadbs", &["DELETE"]),
            ("apiextensions.k8s.io", "customresourcedefinitions", &["DELETE"]),
        ],
        only: Only::When("mariadb", OURS),
        ..Entry::VALIDATING
    },
];

/// A database that mariadb-operator drives.
type MariaDb = CustomResource<MariaDbSpec>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct MariaDbSpec {
    image: Scalar,
    replicas: Scalar,
    suspend: Scalar,
    #[serde(deserialize_with = "scalar::map")]
    galera: Galera,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct Galera {
    enabled: Scalar,
    #[serde(deserialize_with = "scalar::map")]
    recovery: GaleraRecovery,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GaleraRecovery {
    force_cluster_bootstrap_in_pod: Scalar,
    min_cluster_size: Scalar,
}

/// Returns the adopted cluster that the MariaDB of this request drives.
fn driven<'a>(review: &Review, view: &View<'a>) -> Option<&'a Cluster> {
    let owner = |it: &&Cluster| driver::of(&it.workload).is_some_and(|owner| owner.name == review.name);
    view.clusters_in(&review.namespace).find(owner)
}
