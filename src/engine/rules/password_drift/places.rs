//! Where a pod reads values of Secrets: the variables of its containers, and the files that they mount.
//!
//! Must not know: values, verdicts.

use std::collections::{BTreeMap, BTreeSet};

use objects::{PodSpec, SourceRef, Volume};

/// A place that now reads another key, or a key of another Secret.
pub(super) struct MovedSource<'a> {
    /// The field with the reference.
    pub field: String,
    /// The variable of the server; `None`: a file, or all keys at once.
    pub variable: Option<&'a str>,
    /// The Secret and key before the change.
    pub from: (&'a str, &'a str),
    /// The Secret and key after the change.
    pub to: (&'a str, &'a str),
}

/// Returns the places that both pod specs have, but with another source.
pub(super) fn moved<'a>(was: &'a PodSpec, is: &'a PodSpec, keys: &BTreeSet<&'a str>) -> Vec<MovedSource<'a>> {
    let (was, mut is) = (places(was, keys), places(is, keys));
    let both = was.into_iter().filter_map(|(place, was)| Some((place.2, was, is.remove(&place)?)));
    let moved = both.filter(|(_, (_, from), (_, to))| from != to);
    let moved = moved.map(|(name, (before, from), (field, to))| {
        let is_variable = before == field && field.starts_with("spec.template.spec.containers.env[");
        MovedSource { field, variable: is_variable.then_some(name), from, to }
    });
    moved.collect()
}

/// A map from container, mount path (empty: environment) and file or variable to the field with the reference, and its Secret and
/// key.
type SecretPlaces<'a> = BTreeMap<(&'a str, &'a str, &'a str), (String, (&'a str, &'a str))>;

/// Returns all places of this pod. A Secret that is read as a whole may have each of these keys.
fn places<'a>(spec: &'a PodSpec, keys: &BTreeSet<&'a str>) -> SecretPlaces<'a> {
    let mut all = BTreeMap::new();
    for (list, container) in spec.all_containers() {
        // The server's container may have been renamed.
        let owner = if list == "containers" { "" } else { &*container.name };
        let mut add = |path, name, field: &str, from: &'a SourceRef, key: &'a str| {
            all.insert((owner, path, name), (format!("spec.template.spec.{field}"), (&*from.name, key)));
        };
        // Variables in `env` win over those from `envFrom`.
        for from in container.env_from.iter().filter_map(|it| it.secret_ref.as_ref()) {
            for key in keys {
                add("", *key, &format!("{list}.envFrom"), from, key);
            }
        }
        for var in &container.env {
            if let Some(from) = var.value_from.as_ref().and_then(|it| it.secret_key_ref.as_ref()) {
                add("", &var.name, &format!("{list}.env[{}]", var.name), from, &from.key);
            }
        }
        for mount in &container.volume_mounts {
            let (alone, field) = (&*mount.sub_path, format!("volumes[{}]", mount.name));
            let volumes = spec.volumes.iter().filter(|it| it.name == mount.name);
            for from in volumes.flat_map(Volume::secrets) {
                let whole = keys.iter().filter(|_| from.items.is_empty()).map(|key| (*key, *key));
                let files = whole.chain(from.items.iter().map(|it| (&*it.path, &*it.key)));
                for (file, key) in files.filter(|(file, _)| alone.is_empty() || alone == *file) {
                    add(&mount.mount_path, if alone.is_empty() { file } else { "" }, &field, from, key);
                }
            }
        }
    }
    all
}
