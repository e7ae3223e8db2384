//! The objects that exist once a manifest has been applied and works: the members of a cluster, Ready, and their
//! claims.
//!
//! A base in files shows the wanted state, not the current one. A change to it is judged as if all were well: what is
//! refused then is refused in every state. Must not know: rules.

use std::collections::BTreeMap;

use serde_json::json;

use super::item::ManifestItem;
use facts::galera::adopt::Adoption;
use facts::marks;
use facts::view::{Facts, Id, is_cluster};
use objects::{Kind, Object, Workload};

/// The most members that are built for a cluster: a larger number in a file is a mistake, and must not fill the memory.
const MOST_MEMBERS: i64 = 64;

/// Members and claims of an object, if it is a cluster.
pub(super) struct Deployed(Vec<(Kind, Id, Object)>);

impl Deployed {
    pub(super) fn of(item: &ManifestItem, adoption: &Adoption) -> Self {
        match item.object() {
            Some(Object::StatefulSet(set)) if is_cluster(set, adoption) => {
                Self(members(set, &item.id.namespace))
            }
            _ => Self(Vec::new()),
        }
    }

    /// Adds them to the facts.
    pub(super) fn put_into(&self, facts: &mut Facts) {
        for (.., object) in &self.0 {
            facts.put(object.clone());
        }
    }

    /// Removes them from the facts.
    pub(super) fn take_out_of(&self, facts: &mut Facts) {
        for (kind, id, _) in &self.0 {
            facts.remove(*kind, id);
        }
    }
}

fn members(set: &Workload, namespace: &str) -> Vec<(Kind, Id, Object)> {
    let name = &set.metadata.name;
    let first = set.spec.ordinals.start;
    let ordinals = first..first.saturating_add(set.replicas().clamp(0, MOST_MEMBERS));
    let labels: BTreeMap<_, _> = set.spec.template.metadata.labels.iter().collect();
    let mut all = Vec::new();
    let mut put = |kind: Kind, name: String, object: serde_json::Value| {
        // The objects are built here, from parts that were read before, so reading them does not fail.
        if let Ok(object) = Object::read(kind, &object.to_string()) {
            all.push((kind, Id { namespace: namespace.to_owned(), name }, object));
        }
    };
    for ordinal in ordinals {
        let member = format!("{name}-{ordinal}");
        let owner =
            json!([{ "kind": "StatefulSet", "name": name, "uid": set.metadata.uid, "controller": true }]);
        let injected = format!("{}{}", marks::PREFIX, marks::INJECTED);
        let metadata = json!({ "namespace": namespace, "name": member, "uid": member, "labels": labels, "annotations": { injected: env!("CARGO_PKG_VERSION") }, "ownerReferences": owner });
        let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        put(Kind::Pod, member.clone(), json!({ "metadata": metadata, "spec": {}, "status": status }));
        for template in &set.spec.volume_claim_templates {
            let claim = format!("{}-{member}", template.metadata.name);
            let metadata = json!({ "namespace": namespace, "name": claim, "labels": labels });
            put(Kind::Claim, claim, json!({ "metadata": metadata, "status": { "phase": "Bound" } }));
        }
    }
    all
}
