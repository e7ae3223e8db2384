//! The ownership of the guard's objects: the metadata that makes an object part of the chart's release.
//!
//! Owns: the metadata of objects that the guard creates again after they were deleted. Without it the next
//! `helm upgrade` fails: "exists and cannot be imported into the current release". Only metadata that stays the same from
//! version to version is written; with metadata that changes (`helm.sh/chart`), a server-side apply by Helm would conflict.

use kube::api::ObjectMeta;

/// Returns the metadata of a new object that belongs to this Helm release, or to none if `release` is empty.
pub fn metadata(release: &str, namespace: &str, name: &str) -> ObjectMeta {
    let named = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    };
    if release.is_empty() {
        return named;
    }
    let labels = [
        ("app.kubernetes.io/instance", release),
        ("app.kubernetes.io/managed-by", "Helm"),
        ("app.kubernetes.io/name", "gatera"),
    ];
    let annotations = [("meta.helm.sh/release-name", release), ("meta.helm.sh/release-namespace", namespace)];
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    ObjectMeta {
        labels: Some(labels.map(owned).into()),
        annotations: Some(annotations.map(owned).into()),
        ..named
    }
}
