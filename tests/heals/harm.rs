//! The damage that can be done to the guard's own objects.

use std::collections::BTreeMap;

use gatera::act::certs::{Lifetimes, Material};
use jiff::Timestamp;
use serde_json::{Value, json};

/// An object of the guard that can be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnObject {
    Secret,
    Lease,
    Mutating,
    Validating,
}

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Deleted,
    Emptied,
    Garbage,
    /// Garbage in a Secret that is marked immutable.
    Frozen,
    /// Certificates of another CA.
    OtherCa,
    /// Every `caBundle` is removed.
    BundleRemoved,
    /// The only entry is one of another version of the guard.
    OtherVersion,
    /// `matchConditions` on every entry, set by another field manager with server-side apply.
    ForeignConditions,
}

impl Harm {
    pub const SECRET: [Self; 5] = [Self::Deleted, Self::Emptied, Self::Garbage, Self::Frozen, Self::OtherCa];
    pub const LEASE: [Self; 3] = [Self::Emptied, Self::Garbage, Self::Deleted];
    pub const ENTRIES: [Self; 4] =
        [Self::Emptied, Self::BundleRemoved, Self::OtherVersion, Self::ForeignConditions];

    /// Returns the merge patch that does this damage to the object; for foreign conditions, the configuration that the other
    /// field manager applies.
    pub fn patch(self, object: OwnObject, now: &Value) -> Value {
        match (object, self) {
            (OwnObject::Secret, Self::Emptied) => json!({ "data": null }),
            (OwnObject::Secret, Self::Garbage) => {
                let keys = now["data"].as_object().unwrap().keys();
                let garbage: BTreeMap<_, _> = keys.map(|key| (key, "Z2FyYmFnZQ==")).collect();
                json!({ "data": garbage })
            }
            (OwnObject::Secret, Self::Frozen) => {
                let mut patch = Self::Garbage.patch(object, now);
                patch["immutable"] = json!(true);
                patch
            }
            (OwnObject::Secret, Self::OtherCa) => {
                let other = Material::new(&["127.0.0.1".to_owned()], Lifetimes::default(), Timestamp::now());
                json!({ "data": other.unwrap().data() })
            }
            (OwnObject::Lease, Self::Emptied) => json!({ "spec": null }),
            (OwnObject::Lease, Self::Garbage) => json!({ "spec": {
                "holderIdentity": "stranger", "leaseDurationSeconds": 1_000_000, "leaseTransitions": 7_000_000,
                "acquireTime": "2999-01-01T00:00:00.000000Z", "renewTime": "2999-01-01T00:00:00.000000Z",
            } }),
            (_, Self::Emptied) => json!({ "webhooks": [] }),
            (_, Self::BundleRemoved) => {
                let mut entries = now["webhooks"].clone();
                for entry in entries.as_array_mut().unwrap() {
                    entry["clientConfig"].as_object_mut().unwrap().remove("caBundle");
                }
                json!({ "webhooks": entries })
            }
            (_, Self::OtherVersion) => {
                let mut old = now["webhooks"][0].clone();
                old["name"] = json!("old.gatera.dev");
                json!({ "webhooks": [old] })
            }
            (_, Self::ForeignConditions) => {
                let conditions = json!([{ "name": "never", "expression": "false" }]);
                let entries = now["webhooks"].as_array().unwrap().iter();
                let entries = entries.map(|it| json!({ "name": it["name"], "matchConditions": conditions }));
                json!({ "webhooks": entries.collect::<Vec<_>>() })
            }
            (object, harm) => unreachable!("{harm:?} cannot be done to {object:?}"),
        }
    }
}
