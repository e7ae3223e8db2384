//! Kubernetes objects, as far as the guard reads them.
//!
//! Owns: the shape of an object once its JSON has been read, and the one function that reads it ([`Object::read`]).
//! Must not know: rules, clusters, HTTP. The input is JSON text, the output a value or [`Unreadable`]; the text is not
//! kept. The webhook, the watches and `gatera check` all use this function, so they cannot disagree.
//!
//! Only the fields that are judged have a place here; everything else is skipped while reading.

mod affinity;
mod by_name;
mod container;
mod custom;
mod fingerprint;
mod hidden;
mod kinds;
mod meta;
mod node;
mod pod;
mod pod_status;
mod policy;
mod quantity;
mod reader;
mod references;
pub mod scalar;
mod secret;
mod selector;
mod service;
mod shared;
mod unreadable;
mod visible;
mod workload;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

pub use affinity::{Affinity, AffinityTerm, AntiAffinity, SpreadConstraint};
pub use by_name::ByName;
pub use container::{Container, EnvVar, Handler, Literal, Mount};
pub use custom::{Custom, CustomKind, CustomObject, CustomResource, ReadCustom};
pub use fingerprint::Fingerprint;
pub use hidden::Hidden;
pub use kinds::{KINDS, Kind, KindNames, Kinds, Object};
pub use meta::{LONGEST_NAME, Labels, Meta, Owner, PREFIX, PROTECTION, or_default};
pub use node::Node;
pub use pod::{Pod, PodSpec, Template, Volume};
pub use pod_status::ContainerStatus;
pub use policy::{Autoscaler, Budget};
pub use quantity::Quantity;
pub use reader::ConfigMapReader;
pub use references::{SourceRef, Uses};
pub use secret::{Form, HiddenValue, Secret};
pub use selector::Selector;
pub use service::{Service, ServicePort};
pub use shared::Shared;
pub use unreadable::Unreadable;
pub use visible::visible;
pub use workload::{ClaimTemplate, Retention, Scale, Workload, WorkloadSpec, ordinal};

use meta::by_name;

/// A field that is present; its value is not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Present;

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(input).map(|_| Self)
    }
}

/// An object: its metadata, its spec, and its status, if that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ApiObject<Spec, Status = Present> {
    pub metadata: Meta,
    pub spec: Spec,
    pub status: Status,
}

/// An object of which only the metadata is read.
pub type MetadataOnly = ApiObject<Present>;
pub type Claim = ApiObject<workload::ClaimSpec, ClaimStatus>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    phase: String,
    capacity: ByName<Quantity>,
}

impl Claim {
    /// Returns whether the claim has a volume; whether that holds a database is recorded in the cluster's data mark.
    pub fn bound(&self) -> bool {
        self.status.phase == "Bound"
    }

    /// Returns the size of the claim's volume, if it has one.
    pub fn capacity(&self) -> Option<&Quantity> {
        self.status.capacity.get("storage")
    }
}

/// The body of a `pods/eviction` request: the pod's name, and how to delete it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Eviction {
    pub metadata: Meta,
    /// Options of the deletion.
    pub delete_options: DeleteOptions,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeleteOptions {
    /// The grace period in seconds; absent: the object's own.
    pub grace_period_seconds: Option<i64>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: String,
    orphan_dependents: bool,
    #[serde(deserialize_with = "or_default")]
    dry_run: Vec<String>,
}

impl DeleteOptions {
    /// Returns whether the deletion is a dry run. In the request for an eviction, only these options say so.
    pub fn dry_run(&self) -> bool {
        self.dry_run.iter().any(|it| it == "All")
    }

    /// Returns whether dependent objects are kept.
    pub fn orphans(&self) -> bool {
        self.propagation_policy == "Orphan" || self.orphan_dependents
    }
}

/// A ConfigMap. Its values may hold secrets, so they are never printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    pub metadata: Meta,
    /// The texts, by file name or key.
    #[serde(deserialize_with = "by_name")]
    pub data: ByName<Literal>,
    #[serde(rename = "binaryData", deserialize_with = "by_name")]
    binary_data: ByName<Fingerprint>,
}

/// The number of bytes that one entry of a map takes besides its text.
const ENTRY_OVERHEAD: usize = 128;

impl ConfigMap {
    /// Returns whether the ConfigMap has this key, for a text or for binary data.
    pub fn has(&self, key: &str) -> bool {
        self.data.contains_key(key) || self.binary_data.contains_key(key)
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.binary_data.is_empty()
    }

    /// Returns the approximate size of the ConfigMap in memory, in bytes, with the digests of its entries.
    pub fn weight(&self) -> usize {
        let Meta { labels, marks, .. } = &self.metadata;
        let data = self.data.iter().map(|(key, text)| key.len() + text.look().len());
        let bytes = self.binary_data.keys().map(String::len);
        let named = labels.iter().chain(marks.iter()).map(|(key, value)| key.len() + value.len());
        data.chain(bytes).chain(named).map(|length| ENTRY_OVERHEAD + length).sum()
    }

    /// Returns whether the ConfigMap has `binaryData`, which is not text.
    pub fn has_binary_data(&self) -> bool {
        !self.binary_data.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_api_server_stores_are_not_read() {
        for (kind, before, after, most) in [
            (Kind::StatefulSet, r#"{"metadata":{"name":""#, r#""}}"#, 253),
            (Kind::Pod, r#"{"metadata":{"generateName":""#, r#""}}"#, 253),
            (Kind::Pod, r#"{"spec":{"containers":[{"name":""#, r#""}]}}"#, 253),
            (Kind::Pod, r#"{"spec":{"containers":[{"env":[{"name":""#, r#""}]}]}}"#, 1024),
            (Kind::Pod, r#"{"spec":{"containers":[{"volumeMounts":[{"name":""#, r#""}]}]}}"#, 253),
            (Kind::Pod, r#"{"spec":{"volumes":[{"name":""#, r#""}]}}"#, 253),
            (Kind::Pod, r#"{"spec":{"volumes":[{"secret":{"secretName":""#, r#""}}]}}"#, 253),
            (Kind::StatefulSet, r#"{"spec":{"serviceName":""#, r#""}}"#, 253),
            (Kind::ConfigMap, r#"{"data":{""#, r#"":""}}"#, 253),
        ] {
            let with = |length: usize| Object::read(kind, &format!("{before}{}{after}", "n".repeat(length)));
            assert!(with(most).is_ok(), "{before}");
            let words = with(100_000).unwrap_err().to_string();
            let expected = format!("a name has 100000 bytes; the limit is {most}");
            assert!(words.contains(&expected) && words.len() < 200, "{words}");
        }
    }

    #[test]
    fn nulls_that_api_servers_send_are_read() {
        const META: &str =
            r#""metadata":{"creationTimestamp":null,"labels":null,"finalizers":null,"ownerReferences":null}"#;
        for (kind, rest) in [
            (
                Kind::Pod,
                r#""spec":{"containers":null,"volumes":[{"name":"v","projected":{"sources":null}}]}"#,
            ),
            (
                Kind::Pod,
                r#""status":{"conditions":[{"type":"Ready","lastTransitionTime":null}],
                    "containerStatuses":[{"name":"a","state":{"running":{"startedAt":null}}}]}"#,
            ),
            (
                Kind::StatefulSet,
                r#""spec":{"selector":null,"template":{"metadata":{"creationTimestamp":null},"spec":{"containers":null}}}"#,
            ),
        ] {
            let json = format!("{{{META},{rest}}}");
            assert!(Object::read(kind, &json).is_ok(), "{json} {:?}", Object::read(kind, &json));
        }
        assert!(serde_json::from_str::<Eviction>(r#"{"deleteOptions":{"dryRun":null}}"#).is_ok());
    }
}
