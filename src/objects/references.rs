//! The ConfigMaps and Secrets that a pod refers to by name, whole or by key, as files or as variables.

use std::iter;

use serde::Deserialize;

use super::meta::{list, name};
use super::{Container, Mount, PodSpec, Volume};

/// A reference to an object by its name, and the part of the object that is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct SourceRef {
    /// The name of the object, in the pod's namespace. Volumes from Secrets use another field name.
    #[serde(alias = "secretName", deserialize_with = "name")]
    pub name: String,
    pub key: String,
    /// In a volume: the keys that become files; empty: all of them.
    #[serde(deserialize_with = "list")]
    pub items: Vec<KeyToPath>,
    /// Whether the pod starts without the object or the key.
    pub optional: bool,
}

/// A key that becomes a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct KeyToPath {
    pub key: String,
    /// The file that it becomes, below the mount.
    pub path: String,
}

/// The parts of one object that a pod uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Uses<'a> {
    pub whole: bool,
    /// The keys that are read one by one.
    pub named: Vec<&'a str>,
    /// The keys without which the pod does not start, or starts with an empty folder in place of a file.
    pub needed: Vec<&'a str>,
}

impl Uses<'_> {
    /// Returns whether the value of this key is read.
    pub fn reads(&self, key: &str) -> bool {
        self.whole || self.named.contains(&key)
    }
}

impl Volume {
    /// Returns the `ConfigMaps` in the volume, or in a part of it.
    pub fn config_maps(&self) -> impl Iterator<Item = &SourceRef> {
        self.sources(ReferenceKind::ConfigMap)
    }

    /// Returns the Secrets in the volume, or in a part of it.
    pub fn secrets(&self) -> impl Iterator<Item = &SourceRef> {
        self.sources(ReferenceKind::Secret)
    }

    fn sources(&self, kind: ReferenceKind) -> impl Iterator<Item = &SourceRef> {
        let parts = self.projected.iter().flat_map(|it| &it.sources);
        let parts = parts.map(|it| [&it.config_map, &it.secret]);
        let all = iter::once([&self.config_map, &self.secret]).chain(parts);
        all.filter_map(move |it| it[kind as usize].as_deref())
    }
}

impl PodSpec {
    /// Returns the `ConfigMaps` whose text reaches a container of this pod.
    pub fn config_maps(&self) -> impl Iterator<Item = &str> {
        let mounted = self.volumes.iter().flat_map(Volume::config_maps);
        mounted.chain(self.variables(ReferenceKind::ConfigMap)).map(|reference| &*reference.name)
    }

    /// Returns the Secrets whose values reach a container of this pod.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let mounted = self.volumes.iter().flat_map(Volume::secrets);
        mounted.chain(self.variables(ReferenceKind::Secret)).map(|reference| &*reference.name)
    }

    /// Returns the ConfigMaps that this container sees as files, each with its mount.
    pub fn mounted_config_maps<'s>(
        &'s self,
        container: &'s Container,
    ) -> impl Iterator<Item = (&'s Mount, &'s SourceRef)> {
        container.volume_mounts.iter().flat_map(|mount| {
            let volume = self.volumes.iter().find(|volume| volume.name == mount.name);
            volume.into_iter().flat_map(Volume::config_maps).map(move |source| (mount, source))
        })
    }

    /// Returns the parts of this ConfigMap that the pod uses.
    pub fn uses_of_config_map(&self, name: &str) -> Uses<'_> {
        self.uses(ReferenceKind::ConfigMap, name)
    }

    /// Returns the parts of this Secret that the pod uses.
    pub fn uses_of_secret(&self, name: &str) -> Uses<'_> {
        self.uses(ReferenceKind::Secret, name)
    }

    fn uses(&self, kind: ReferenceKind, name: &str) -> Uses<'_> {
        let mut uses = Uses::default();
        for volume in &self.volumes {
            let own = [&volume.config_map, &volume.secret][kind as usize];
            for source in volume.sources(kind).filter(|source| source.name == name) {
                uses.whole |= source.items.is_empty();
                let keys = source.items.iter().map(|item| &*item.key);
                uses.named.extend(keys.clone());
                if !source.optional {
                    uses.needed.extend(keys);
                }
                if source.items.is_empty() && own.is_some() {
                    uses.needed.extend(self.single_files(&volume.name));
                }
            }
        }
        for variable in self.variables(kind).filter(|variable| variable.name == name) {
            if variable.key.is_empty() {
                uses.whole = true;
                continue;
            }
            uses.named.push(&variable.key);
            if !variable.optional {
                uses.needed.push(&variable.key);
            }
        }
        uses
    }

    /// Returns the files of a volume that are mounted one by one. Kubernetes mounts an empty folder in place of a missing file.
    fn single_files(&self, volume: &str) -> impl Iterator<Item = &str> {
        let mounts = self.all_containers().flat_map(|(_, container)| &container.volume_mounts);
        mounts
            .filter(move |mount| mount.name == volume && !mount.sub_path.is_empty())
            .map(|mount| &*mount.sub_path)
    }

    /// Returns the sources of environment variables: the value of one key, or, without a key, all keys of the object.
    fn variables(&self, kind: ReferenceKind) -> impl Iterator<Item = &SourceRef> {
        let containers = self.all_containers().map(|(_, container)| container);
        containers.chain(&self.ephemeral_containers).flat_map(move |container| {
            let whole = container.env_from.iter().map(|from| [&from.config_map_ref, &from.secret_ref]);
            let keys = container.env.iter().filter_map(|var| var.value_from.as_ref());
            let keys = keys.map(|from| [&from.config_map_key_ref, &from.secret_key_ref]);
            whole.chain(keys).filter_map(move |it| it[kind as usize].as_ref())
        })
    }
}

#[derive(Clone, Copy)]
enum ReferenceKind {
    ConfigMap,
    Secret,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_name_each_key_that_a_pod_needs() {
        let spec: PodSpec = serde_json::from_str(
            r#"{"volumes":[{"name":"v","configMap":{"name":"c","items":[{"key":"a"}]}},
                {"name":"w","configMap":{"name":"scripts"}},
                {"name":"s","projected":{"sources":[{"secret":{"name":"t","items":[{"key":"p"}]}}]}},
                {"name":"o","secret":{"secretName":"u","optional":true,"items":[{"key":"x"}]}}],
              "containers":[{"volumeMounts":[{"name":"w","mountPath":"/x","subPath":"wait.sh"}],
                "env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"t","key":"q"}}}],"envFrom":[{"configMapRef":{"name":"e"}}]}]}"#,
        )
        .unwrap();
        assert_eq!(spec.uses_of_config_map("c"), Uses { whole: false, named: vec!["a"], needed: vec!["a"] });
        assert_eq!(
            spec.uses_of_config_map("scripts"),
            Uses { whole: true, named: vec![], needed: vec!["wait.sh"] }
        );
        assert_eq!(spec.uses_of_config_map("e"), Uses { whole: true, ..Uses::default() });
        assert_eq!(
            spec.uses_of_secret("t"),
            Uses { whole: false, named: vec!["p", "q"], needed: vec!["p", "q"] }
        );
        assert_eq!(spec.uses_of_secret("u"), Uses { named: vec!["x"], ..Uses::default() });
        assert!(spec.uses_of_secret("u").reads("x"), "an optional key is read if it exists");
        assert_eq!(spec.config_maps().collect::<Vec<_>>(), ["c", "scripts", "e"]);
        assert_eq!(spec.secrets().collect::<Vec<_>>(), ["t", "u", "t"]);
    }
}
