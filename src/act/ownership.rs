//! Whose our objects are: what makes an object of the guard one of the chart's release.
//!
//! Owns: the metadata of objects that the guard makes again after they were deleted. Without it the next
//! `helm upgrade` fails: "exists and cannot be imported into the current release". Only what stays the same from version
//! to version is written; with what changes (`helm.sh/chart`) a server-side apply by Helm would conflict.

use kube::api::ObjectMeta;
use serde_json::{Value, json};

/// `metadata` for a server-side apply that creates `name`, as object of this Helm release (empty: of none).
pub fn metadata(release: &str, namespace: &str, name: &str) -> Value {
    if release.is_empty() {
        return json!({ "name": name, "namespace": namespace });
    }
    json!({
        "name": name,
        "namespace": namespace,
        "labels": {
            "app.kubernetes.io/instance": release,
            "app.kubernetes.io/managed-by": "Helm",
            "app.kubernetes.io/name": "gatera",
        },
        "annotations": {
            "meta.helm.sh/release-name": release,
            "meta.helm.sh/release-namespace": namespace,
        },
    })
}

/// The same as a value.
pub fn object_meta(release: &str, namespace: &str, name: &str) -> ObjectMeta {
    let named = || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    serde_json::from_value(metadata(release, namespace, name)).unwrap_or_else(|_| named())
}
