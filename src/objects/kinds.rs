//! The kinds that the guard reads: a table with the names of each kind, and the type that its objects are read into.
//!
//! Packs add kinds of their own ([`Kinds`]). Must not know: what any field means.

use std::any::Any;

use super::unreadable::read_as;
use super::{
    Autoscaler, Budget, Claim, ConfigMap, Eviction, MetadataOnly, Node, Pod, Scale, Secret, Service, Workload,
};
use super::{CustomKind, CustomObject, Meta, Unreadable};

/// The names that API servers, manifests and roles use for a kind.
#[derive(Clone, Copy, Debug)]
pub struct KindNames {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The version in which it is read; API servers convert other versions.
    pub version: &'static str,
    /// The `kind:` of a manifest.
    pub name: &'static str,
    /// The plural, as in URLs and roles.
    pub plural: &'static str,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($of:ty): $group:literal $version:literal $name:literal $plural:literal;)*) => {
        /// A kind that the guard reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
            /// A kind that a pack adds.
            Custom(&'static CustomKind),
            /// Any other kind.
            Other,
        }

        /// Every kind that is read without a pack.
        pub const KINDS: &[Kind] = &[$(Kind::$kind,)*];

        /// One object. Large variants are boxed; a request has only two objects, so this costs little.
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "each variant is the kind of its name")]
        pub enum Object {
            $($kind($of),)*
            Custom(CustomObject),
            Other(MetadataOnly),
        }

        impl Kind {
            /// Returns the names of the kind; [`Kind::Other`] has none.
            pub const fn names(self) -> Option<&'static KindNames> {
                Some(match self {
                    $(Self::$kind => {
                        &KindNames { group: $group, version: $version, name: $name, plural: $plural }
                    })*
                    Self::Custom(custom) => &custom.names,
                    Self::Other => return None,
                })
            }
        }

        impl Object {
            /// Reads the JSON text of one object.
            pub fn read(kind: Kind, json: &str) -> Result<Object, Unreadable> {
                Ok(match kind {
                    $(Kind::$kind => Self::$kind(read_as(kind.name(), json)?),)*
                    Kind::Custom(kind) => {
                        Self::Custom(CustomObject { kind, value: (kind.read)(kind.names.name, json)? })
                    }
                    Kind::Other => Self::Other(read_as(kind.name(), json)?),
                })
            }

            /// Returns the kind that the object was read as.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)*
                    Self::Custom(it) => Kind::Custom(it.kind),
                    Self::Other(_) => Kind::Other,
                }
            }

            /// Returns the metadata that every object has.
            pub fn meta(&self) -> &Meta {
                match self {
                    $(Self::$kind(it) => &it.metadata,)*
                    Self::Custom(it) => it.value.meta(),
                    Self::Other(it) => &it.metadata,
                }
            }

            /// Returns the object as this type, if it was read into this type.
            pub fn get<T: Any>(&self) -> Option<&T> {
                let any: &dyn Any = match self {
                    $(Self::$kind(it) => it,)*
                    Self::Custom(it) => &*it.value,
                    Self::Other(it) => it,
                };
                any.downcast_ref().or_else(|| any.downcast_ref::<Box<T>>().map(AsRef::as_ref))
            }
        }
    };
}

kinds! {
    /// A StatefulSet (apps).
    StatefulSet(Box<Workload>): "apps" "v1" "StatefulSet" "statefulsets";
    /// A Deployment (apps).
    Deployment(Box<Workload>): "apps" "v1" "Deployment" "deployments";
    /// A Pod (core).
    Pod(Box<Pod>): "" "v1" "Pod" "pods";
    /// A PersistentVolumeClaim (core).
    Claim(Claim): "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims";
    /// A Service (core).
    Service(Service): "" "v1" "Service" "services";
    /// A ConfigMap (core).
    ConfigMap(ConfigMap): "" "v1" "ConfigMap" "configmaps";
    /// A Secret (core), whose values are hashed while they are read.
    Secret(Secret): "" "v1" "Secret" "secrets";
    /// A ServiceAccount (core).
    ServiceAccount(MetadataOnly): "" "v1" "ServiceAccount" "serviceaccounts";
    /// A PodDisruptionBudget (policy).
    Budget(Budget): "policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets";
    /// A HorizontalPodAutoscaler (autoscaling).
    Autoscaler(Autoscaler): "autoscaling" "v2" "HorizontalPodAutoscaler" "horizontalpodautoscalers";
    /// A Node (core).
    Node(Node): "" "v1" "Node" "nodes";
    /// A Namespace (core).
    Namespace(MetadataOnly): "" "v1" "Namespace" "namespaces";
    /// A Scale (autoscaling): the body of a `/scale` request.
    Scale(Scale): "autoscaling" "v1" "Scale" "scales";
    /// An Eviction (policy): the body of a `pods/eviction` request.
    Eviction(Eviction): "policy" "v1" "Eviction" "evictions";
    /// A CustomResourceDefinition (apiextensions).
    Definition(MetadataOnly): "apiextensions.k8s.io" "v1" "CustomResourceDefinition" "customresourcedefinitions";
}

/// The kinds that the guard distinguishes: those that are read without a pack, and those that packs add.
#[derive(Clone, Debug, Default)]
pub struct Kinds(Vec<&'static CustomKind>);

impl Kinds {
    /// Returns the kinds that are read without a pack, and these kinds of packs.
    pub fn with(custom: impl IntoIterator<Item = &'static CustomKind>) -> Self {
        Self(custom.into_iter().collect())
    }

    /// Returns every kind that has a name.
    pub fn all(&self) -> impl Iterator<Item = Kind> {
        KINDS.iter().copied().chain(self.0.iter().map(|custom| Kind::Custom(custom)))
    }

    /// Returns the kinds of packs whose objects are watched.
    pub fn watched(&self) -> impl Iterator<Item = Kind> {
        self.0.iter().filter(|custom| custom.watched).map(|custom| Kind::Custom(custom))
    }

    /// Returns the kind of this group and name; a known name in another group is [`Kind::Other`].
    pub fn named(&self, group: &str, name: &str) -> Kind {
        self.find(|names| names.group == group && names.name == name)
    }

    /// Returns the kind of this group with this plural.
    pub fn of_plural(&self, group: &str, plural: &str) -> Kind {
        self.find(|names| names.group == group && names.plural == plural)
    }

    fn find(&self, matches: impl Fn(&KindNames) -> bool) -> Kind {
        self.all().find(|kind| kind.names().is_some_and(&matches)).unwrap_or(Kind::Other)
    }
}

impl Kind {
    /// Returns the plural that URLs and roles use, as in `statefulsets`; empty for [`Kind::Other`].
    pub fn plural(self) -> &'static str {
        self.names().map_or("", |names| names.plural)
    }

    /// Returns the API group; empty for the core.
    pub fn group(self) -> &'static str {
        self.names().map_or("", |names| names.group)
    }

    /// Returns whether its objects are in no namespace.
    pub fn is_cluster_wide(self) -> bool {
        match self {
            Self::Custom(custom) => custom.cluster_wide,
            kind => matches!(kind, Self::Namespace | Self::Node | Self::Definition),
        }
    }

    /// Returns whether the kind's objects are watched only while the API server offers the kind.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::Custom(custom) if custom.watched)
    }

    /// Returns the version in which the kind is read.
    pub fn version(self) -> &'static str {
        self.names().map_or("v1", |names| names.version)
    }

    /// Returns the `kind:` of a manifest; empty for [`Kind::Other`].
    pub fn name(self) -> &'static str {
        self.names().map_or("", |names| names.name)
    }
}
