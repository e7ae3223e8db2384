//! Services: the names and addresses by which members and clients find each other.

use serde::Deserialize;

use super::meta::{list, or_default};
use super::quantity::Quantity;
use super::{Labels, Meta};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Service {
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// The pods that it leads to, and how.
    #[serde(deserialize_with = "or_default")]
    pub spec: ServiceSpec,
}

/// The pods that a Service leads to, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// Pod labels; empty selects nothing.
    #[serde(deserialize_with = "or_default")]
    pub selector: Labels,
    /// `None` for a headless Service, which only has names.
    #[serde(rename = "clusterIP", deserialize_with = "or_default")]
    pub cluster_ip: String,
    /// Names of pods that are not Ready resolve, too.
    #[serde(deserialize_with = "or_default")]
    pub publish_not_ready_addresses: bool,
    /// The ports that it has.
    #[serde(deserialize_with = "list")]
    pub ports: Vec<ServicePort>,
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`; empty is `ClusterIP`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    #[serde(deserialize_with = "or_default")]
    pub port: i64,
    /// The port of the pods, by number or by a declared name; absent: the same.
    pub target_port: Option<Quantity>,
}

impl Service {
    /// Tells whether it is headless: every member has a name of its own.
    pub fn headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }

    /// Tells whether it leads to pods with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        let selector = &self.spec.selector;
        !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}
