//! Which files of a ConfigMap a server reads together, as far as a pod's containers show it.
//!
//! Owns: how that follows from mounts, items, `subPath`, `--defaults-file` and includes. Must not know: rules, or the
//! rest of the files. A server reads the folders that its image names. A script may copy a file that is mounted
//! elsewhere, or name it to the server, differently for each member: such files are in a set of their own.

use std::collections::BTreeSet;
use std::path::Path;

use super::options::{Include, flags};
use objects::{Container, Mount, PodSpec, SourceRef};

/// A file of a ConfigMap.
#[derive(Clone, Copy, Debug)]
pub struct ConfigMapFile<'a> {
    pub map: &'a str,
    pub key: &'a str,
    pub text: &'a str,
}

/// How the keys of one ConfigMap reach one server. Keys that neither it nor an init container mounts are in neither set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading<'s, 'k> {
    /// Keys that it reads together.
    pub together: BTreeSet<&'k str>,
    /// Keys from which it may read one or some.
    pub chosen: BTreeSet<&'k str>,
    /// The mount path of the first of these keys.
    pub chosen_from: Option<&'s str>,
}

/// Returns whether a file at this path is included; in a folder only files that end in `.cnf`.
fn is_included(included: &BTreeSet<Include<'_>>, path: &str) -> bool {
    let in_folder = |(folder, name): (&str, &str)| {
        Path::new(name).extension() == Some("cnf".as_ref()) && included.contains(&Include::Folder(folder))
    };
    included.contains(&Include::File(path)) || path.rsplit_once('/').is_some_and(in_folder)
}

/// Returns the paths at which the server finds these files, except paths that differ for each pod.
pub fn paths(spec: &PodSpec, server: &Container, all: &[ConfigMapFile<'_>]) -> BTreeSet<String> {
    let of_map = |map: &str| all.iter().filter(|it| it.map == map).map(|it| it.key).collect();
    let maps: BTreeSet<_> = all.iter().map(|file| file.map).collect();
    let found = maps.into_iter().flat_map(|map| {
        let keys = of_map(map);
        let mounted = spec.mounted_config_maps(server).filter(|(_, source)| source.name == map);
        mounted.flat_map(|(mount, source)| files(mount, source, &keys)).collect::<Vec<_>>()
    });
    found.filter_map(|(_, path)| path).collect()
}

/// Returns how these keys of this ConfigMap reach the server; `None`: neither the server nor an
/// init container mounts it.
pub fn reading<'s, 'k>(
    spec: &'s PodSpec,
    server: &'s Container,
    map: &str,
    keys: &BTreeSet<&'k str>,
    included: &BTreeSet<Include<'_>>,
) -> Option<Reading<'s, 'k>> {
    let named = flags(server).into_iter().find(|flag| flag.key == "defaults_file");
    let named = named.and_then(|flag| flag.value).map(|value| value.look().to_owned());
    let is_read = |path: &str| {
        named.as_ref().map_or_else(|| is_read_from(path), |named| named == path)
            || is_included(included, path)
    };
    let (mut all, mut mounted) = (Reading::default(), false);
    // An init container may choose among the files that it mounts.
    let prepares = spec.init_containers.iter().map(|container| (container, false));
    for (container, serves) in std::iter::once((server, true)).chain(prepares) {
        for (mount, source) in spec.mounted_config_maps(container).filter(|(_, it)| it.name == map) {
            mounted = true;
            for (key, path) in files(mount, source, keys) {
                if serves && path.is_some_and(|path| is_read(&path)) {
                    all.together.insert(key);
                } else {
                    all.chosen.insert(key);
                    all.chosen_from = all.chosen_from.or(Some(&*mount.mount_path));
                }
            }
        }
    }
    all.chosen.retain(|key| !all.together.contains(key));
    mounted.then_some(all)
}

/// Returns the keys in this mount, each with its path; `None`: the path differs for each pod.
fn files<'k>(mount: &Mount, source: &SourceRef, keys: &BTreeSet<&'k str>) -> Vec<(&'k str, Option<String>)> {
    let is_item = |key: &str| source.items.is_empty() || source.items.iter().any(|item| item.key == key);
    let keys = keys.iter().copied().filter(|key| is_item(key));
    let name = |key: &str| match source.items.iter().find(|item| item.key == key) {
        Some(item) if !item.path.is_empty() => item.path.clone(),
        _ => key.to_owned(),
    };
    let folder = mount.mount_path.trim_end_matches('/');
    match (&*mount.sub_path, &*mount.sub_path_expr) {
        ("", "") => keys.map(|key| (key, Some(format!("{folder}/{}", name(key))))).collect(),
        ("", _) => keys.map(|key| (key, None)).collect(),
        (one, _) => keys.filter(|key| name(key) == one).map(|key| (key, Some(folder.to_owned()))).collect(),
    }
}

/// Returns whether a server reads this file, or its folder, by default in a usual image.
fn is_read_from(path: &str) -> bool {
    let mut parts = path.split('/').rev();
    let (file, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    file == "my.cnf"
        || folder == "conf"
        || folder.ends_with("conf.d")
        || folder.ends_with("cnf.d")
        || path.starts_with("/etc/mysql/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pod: &str) -> Option<String> {
        read_with(pod, &BTreeSet::new())
    }

    fn read_with(pod: &str, included: &BTreeSet<Include<'_>>) -> Option<String> {
        let spec: PodSpec = serde_json::from_str(pod).unwrap();
        let keys = BTreeSet::from(["a.cnf", "b.cnf"]);
        let reading = reading(&spec, &spec.containers[0], "c", &keys, included)?;
        let together = reading.together.into_iter().collect::<Vec<_>>().join(" ");
        Some(match reading.chosen_from {
            Some(place) => format!("{together} and some of {place}"),
            None => together,
        })
    }

    fn pod(volume: &str, mounts: &str, more: &str) -> String {
        format!(
            r#"{{"volumes":[{{"name":"v",{volume}}}],"containers":[{{"name":"s","volumeMounts":[{mounts}]{more}}}]}}"#
        )
    }

    const WHOLE: &str = r#""configMap":{"name":"c"}"#;

    #[test]
    fn mounts_decide_what_is_read_together() {
        let item = r#""configMap":{"name":"c","items":[{"key":"a.cnf","path":"x.cnf"}]}"#;
        let projected = r#""projected":{"sources":[{"configMap":{"name":"c"}},{"secret":{"name":"c"}}]}"#;
        let at = |path: &str| format!(r#"{{"name":"v","mountPath":"{path}"}}"#);
        let one = |key: &str, path: &str| format!(r#"{{"name":"v","mountPath":"{path}","subPath":"{key}"}}"#);
        let both =
            format!("{},{}", one("a.cnf", "/etc/mysql/conf.d/a.cnf"), one("b.cnf", "/etc/my.cnf.d/b.cnf"));
        let each = r#"{"name":"v","mountPath":"/etc/mysql/conf.d/m.cnf","subPathExpr":"$(POD_NAME).cnf"}"#;
        let file = |path: &str| format!(r#","args":["mariadbd","--defaults-file={path}"]"#);
        for (pod, is) in [
            (pod(WHOLE, &at("/etc/mysql/conf.d/"), ""), Some("a.cnf b.cnf")),
            (pod(projected, &at("/etc/my.cnf.d"), ""), Some("a.cnf b.cnf")),
            (pod(item, &at("/etc/mysql/mariadb.conf.d"), ""), Some("a.cnf")),
            (pod(WHOLE, &one("b.cnf", "/opt/bitnami/mariadb/conf/my.cnf"), ""), Some("b.cnf")),
            (pod(WHOLE, &both, ""), Some("a.cnf b.cnf")),
            (pod(WHOLE, &at("/config"), ""), Some(" and some of /config")),
            (pod(WHOLE, &at("/config"), &file("/config/a.cnf")), Some("a.cnf and some of /config")),
            (
                pod(WHOLE, &at("/etc/mysql/conf.d"), &file("/etc/other.cnf")),
                Some(" and some of /etc/mysql/conf.d"),
            ),
            (pod(WHOLE, each, ""), Some(" and some of /etc/mysql/conf.d/m.cnf")),
            (pod(r#""configMap":{"name":"d"}"#, &at("/etc/mysql/conf.d"), ""), None),
        ] {
            assert_eq!(read(&pod).as_deref(), is, "{pod}");
        }
        let aside = pod(WHOLE, &at("/config"), "");
        let with = |include| read_with(&aside, &BTreeSet::from([include]));
        assert_eq!(with(Include::File("/config/b.cnf")).as_deref(), Some("b.cnf and some of /config"));
        assert_eq!(with(Include::Folder("/config")).as_deref(), Some("a.cnf b.cnf"));
        assert_eq!(with(Include::Folder("/conf")).as_deref(), Some(" and some of /config"));
        let prepared = r#"{"volumes":[{"name":"v","configMap":{"name":"c"}}],"containers":[{"name":"s"}],
            "initContainers":[{"name":"i","volumeMounts":[{"name":"v","mountPath":"/templates"}]}]}"#;
        assert_eq!(read(prepared).as_deref(), Some(" and some of /templates"));
    }
}
