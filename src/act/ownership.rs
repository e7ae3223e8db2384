//! The ownership of the guard's objects: the metadata that makes an object part of the chart's release.
//!
//! Owns: the metadata of objects that the guard creates again after they were deleted. Without it the next
//! `helm upgrade` fails: "exists and cannot be imported into the current release". Only metadata that stays the same from
//! version to version is written; with metadata that changes (`helm.sh/chart`), a server-side apply by Helm would conflict.

use kube::api::ObjectMeta;
use serde_json::{Value, json};

/// Returns the `metadata` for a server-side apply that creates `name` as an object of this Helm release (if empty, of none).
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

/// Returns the same metadata as a typed value.
pub fn object_meta(release: &str, namespace: &str, name: &str) -> ObjectMeta {
    let named = || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    serde_json::from_value(metadata(release, namespace, name)).unwrap_or_else(|_| named())
}
