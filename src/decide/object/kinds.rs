//! The kinds that something in the guard reads: one table, a row each, and what it is read into.
//!
//! A pack's kinds are rows like all others. Must not know: what any field means.

use super::{
    Autoscaler, Budget, Claim, ConfigMap, Eviction, Node, Plain, Pod, Scale, Secret, Service, Workload,
};
use super::{Meta, Unreadable, read};
use crate::packs::kudo::{Instance, OperatorVersion};
use crate::packs::rds::{ClusterRoleBinding, Rds};
use crate::packs::wordpress::Wordpress;

/// What API servers, manifests and roles call a kind.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The version in which it is read; API servers convert what is written in others.
    pub version: &'static str,
    /// The `kind:` of a manifest.
    pub name: &'static str,
    /// As URLs and roles write it.
    pub plural: &'static str,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($of:ty): $group:literal $version:literal $name:literal $plural:literal;)*) => {
        /// The kinds that something in the guard reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
            /// anything else
            Other,
        }

        /// Every kind that has a name.
        pub const KINDS: &[Row] =
            &[$(Row { kind: Kind::$kind, group: $group, version: $version, name: $name, plural: $plural },)*];

        /// One object. Boxed variants are large; a review holds two of these at most.
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "each variant is the kind of its name")]
        pub enum Object {
            $($kind($of),)*
            Other(Plain),
        }

        impl Object {
            /// Reads the JSON text of one object.
            pub fn read(kind: Kind, json: &str) -> Result<Object, Unreadable> {
                Ok(match kind {
                    $(Kind::$kind => Self::$kind(read(kind, json)?),)*
                    Kind::Other => Self::Other(read(kind, json)?),
                })
            }

            /// What it was read as.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)*
                    Self::Other(_) => Kind::Other,
                }
            }

            /// The metadata that every object has.
            pub fn meta(&self) -> &Meta {
                match self {
                    $(Self::$kind(it) => &it.metadata,)*
                    Self::Other(it) => &it.metadata,
                }
            }
        }
    };
}

kinds! {
    /// apps StatefulSet
    StatefulSet(Box<Workload>): "apps" "v1" "StatefulSet" "statefulsets";
    /// apps Deployment
    Deployment(Box<Workload>): "apps" "v1" "Deployment" "deployments";
    /// core Pod
    Pod(Box<Pod>): "" "v1" "Pod" "pods";
    /// core PersistentVolumeClaim
    Claim(Claim): "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims";
    /// core Service
    Service(Service): "" "v1" "Service" "services";
    /// core ConfigMap
    ConfigMap(ConfigMap): "" "v1" "ConfigMap" "configmaps";
    /// core Secret, whose values are hashed while they are read
    Secret(Secret): "" "v1" "Secret" "secrets";
    /// core ServiceAccount
    ServiceAccount(Plain): "" "v1" "ServiceAccount" "serviceaccounts";
    /// policy PodDisruptionBudget
    Budget(Budget): "policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets";
    /// autoscaling HorizontalPodAutoscaler
    Autoscaler(Autoscaler): "autoscaling" "v2" "HorizontalPodAutoscaler" "horizontalpodautoscalers";
    /// core Node
    Node(Node): "" "v1" "Node" "nodes";
    /// core Namespace
    Namespace(Plain): "" "v1" "Namespace" "namespaces";
    /// autoscaling Scale: the body of a `/scale` request
    Scale(Scale): "autoscaling" "v1" "Scale" "scales";
    /// policy Eviction: the body of a `pods/eviction` request
    Eviction(Eviction): "policy" "v1" "Eviction" "evictions";
    /// An operator that KUDO runs, with its parameters
    Instance(Box<Instance>): "kudo.dev" "v1beta1" "Instance" "instances";
    /// What such an operator can do
    OperatorVersion(Box<OperatorVersion>): "kudo.dev" "v1beta1" "OperatorVersion" "operatorversions";
    /// WordPress, as the operator of the example asks for it
    Wordpress(Wordpress): "example.com" "v1" "Wordpress" "wordpresses";
    /// a database in the Open Telekom Cloud, as its operator is asked for it
    Rds(Box<Rds>): "otc.mcsps.de" "v1alpha1" "Rds" "rdss";
    /// apiextensions CustomResourceDefinition
    Definition(Plain): "apiextensions.k8s.io" "v1" "CustomResourceDefinition" "customresourcedefinitions";
    /// rbac ClusterRoleBinding
    ClusterRoleBinding(ClusterRoleBinding): "rbac.authorization.k8s.io" "v1" "ClusterRoleBinding" "clusterrolebindings";
}

impl Kind {
    /// The kind of this group and name; a stranger with a known name in another group stays a stranger.
    pub fn of(group: &str, name: &str) -> Kind {
        KINDS.iter().find(|row| row.group == group && row.name == name).map_or(Kind::Other, |row| row.kind)
    }

    /// The kind of this group that URLs write so.
    pub fn of_plural(group: &str, plural: &str) -> Kind {
        KINDS
            .iter()
            .find(|row| row.group == group && row.plural == plural)
            .map_or(Kind::Other, |row| row.kind)
    }

    /// Its row; [`Kind::Other`] has none.
    pub fn row(self) -> Option<&'static Row> {
        // In the order of the kinds.
        KINDS.get(self as usize)
    }

    /// As URLs and roles write it: `statefulsets`. Empty for [`Kind::Other`].
    pub fn plural(self) -> &'static str {
        self.row().map_or("", |row| row.plural)
    }

    /// The API group; empty for the core.
    pub fn group(self) -> &'static str {
        self.row().map_or("", |row| row.group)
    }

    /// Its objects are in no namespace.
    pub fn is_cluster_wide(self) -> bool {
        matches!(self, Self::Namespace | Self::Node | Self::Definition | Self::ClusterRoleBinding)
    }

    /// The version in which it is read.
    pub fn version(self) -> &'static str {
        self.row().map_or("v1", |row| row.version)
    }

    /// The `kind:` of a manifest; empty for [`Kind::Other`].
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| row.name)
    }
}
