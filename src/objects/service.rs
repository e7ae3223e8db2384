//! Services: the names and addresses by which members and clients find each other.

use serde::Deserialize;

use super::meta::list;
use super::quantity::Quantity;
use super::{ApiObject, Labels};

pub type Service = ApiObject<ServiceSpec>;

/// The pods that a Service leads to, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// The labels of the pods that the Service leads to; an empty selector selects nothing.
    pub selector: Labels,
    /// The text `None` for a headless Service, which has only DNS names.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// Whether the names of pods that are not Ready resolve, too.
    pub publish_not_ready_addresses: bool,
    #[serde(deserialize_with = "list")]
    pub ports: Vec<ServicePort>,
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`; empty is `ClusterIP`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    pub port: i64,
    /// The port of the pods, by number or by a declared name; absent: the same as `port`.
    pub target_port: Option<Quantity>,
}

impl Service {
    /// Returns whether the Service is headless, so that every member has a DNS name of its own.
    pub fn headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }

    /// Returns whether the Service leads to pods with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        let selector = &self.spec.selector;
        !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}
