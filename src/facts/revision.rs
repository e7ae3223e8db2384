//! Revisions: what the servers of a cluster read from ConfigMaps, as a value that is compared, recorded and found
//! again.
//!
//! Owns: which keys a server container reads ([`sources`]), their digest ([`Contents`], [`Revision`]), and the name of
//! the snapshot that keeps a revision ([`Digest::snapshot_name`]). Must not know: clusters, running pods, or what is done
//! with a revision. Only ConfigMaps with an option file among these keys count; scripts and other files reach pods as they
//! do without the guard. Two texts with the same meaning are one revision (`galera/options/meaning.rs`).

mod contents;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

use ring::digest::Context;

use crate::galera::options::{self, Meaning};
use crate::galera::{address, bitnami};
use objects::{ByName, ConfigMap, Container, LONGEST_NAME, Literal, PodSpec, SourceRef, Volume};

pub use contents::{Contents, UnknownRevision};

/// The part of a ConfigMap that a server reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The names of the keys; `None`: all.
    names: Option<BTreeSet<String>>,
    /// Whether pods start without the ConfigMap.
    optional: bool,
    /// Whether a cluster address in a file has no effect, because Bitnami's image passes another one to the server.
    address_is_given: bool,
}

impl Keys {
    /// All keys, for a ConfigMap whose readers are not known. A cluster address in it counts as one without effect.
    pub const ALL: Self = Self { names: None, optional: false, address_is_given: true };

    pub fn contains(&self, key: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(key))
    }

    fn join(&mut self, other: Self) {
        match (&mut self.names, other.names) {
            (Some(names), Some(more)) => names.extend(more),
            (names, _) => *names = None,
        }
        self.optional &= other.optional;
        self.address_is_given &= other.address_is_given;
    }
}

/// Returns the ConfigMaps that this container reads as files, and the keys of each.
pub fn sources(spec: &PodSpec, server: &Container) -> BTreeMap<String, Keys> {
    let address_is_given = bitnami::is_its_image(server) && address::of_container(server, &[]).is_some();
    joined(spec.mounted_config_maps(server).map(|(mount, source)| {
        (source.name.clone(), Keys { address_is_given, ..keys(source, &mount.sub_path) })
    }))
}

/// Returns the ConfigMaps that containers of this pod read as files, and the keys of each. If no container mounts a
/// volume, everything in it counts, because it is meant to be read.
pub fn reaching(spec: &PodSpec) -> BTreeMap<String, Keys> {
    let is_mounted = |volume: &Volume| {
        spec.all_containers().any(|(_, it)| it.volume_mounts.iter().any(|mount| mount.name == volume.name))
    };
    let unmounted = spec.volumes.iter().filter(|volume| !is_mounted(volume)).flat_map(Volume::config_maps);
    let unmounted = unmounted.map(|source| (source.name.clone(), Keys { names: None, ..keys(source, "") }));
    let mounted = spec.all_containers().flat_map(|(_, container)| sources(spec, container));
    joined(mounted.chain(unmounted))
}

fn joined(reads: impl Iterator<Item = (String, Keys)>) -> BTreeMap<String, Keys> {
    let mut all = BTreeMap::<String, Keys>::new();
    for (map, keys) in reads {
        all.entry(map).and_modify(|known| known.join(keys.clone())).or_insert(keys);
    }
    all
}

fn keys(source: &SourceRef, sub_path: &str) -> Keys {
    let listed = source.items.iter().map(|item| item.key.clone());
    let names = match (source.items.is_empty(), sub_path) {
        (false, _) => Some(listed.collect()),
        (true, "") => None,
        (true, file) => Some(BTreeSet::from([file.to_owned()])),
    };
    Keys { names, optional: source.optional, address_is_given: false }
}

/// The number of hexadecimal digits for the meaning: enough that collisions cannot be found by search.
const MEANING_DIGITS: usize = 24;
/// The number of hexadecimal digits in total. The others are for the spelling: texts with the same meaning may differ,
/// for example in the cluster's address, and each has its own snapshot.
const DIGITS: usize = MEANING_DIGITS + 8;

fn hex(sum: Context, digits: usize) -> String {
    sum.finish().as_ref().iter().take(digits / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The text between the name of the ConfigMap and the digest in the name of a snapshot.
const SNAPSHOT_INFIX: &str = "-gatera-";

/// The digest of the keys of one ConfigMap that servers read. Two digests are equal if the contents have the same meaning,
/// even if they are written differently.
#[derive(Clone, Debug)]
pub struct Digest(String);

impl Digest {
    fn of(meaning: Context, spelling: Context) -> Self {
        Self(hex(meaning, MEANING_DIGITS) + &hex(spelling, DIGITS - MEANING_DIGITS))
    }

    fn meaning(&self) -> &str {
        self.0.get(..MEANING_DIGITS).unwrap_or_default()
    }

    /// Returns whether both contents are also written in the same way.
    pub fn is_spelled_like(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the name of the snapshot with this content of a ConfigMap.
    pub fn snapshot_name(&self, source: &str) -> String {
        let room = LONGEST_NAME - SNAPSHOT_INFIX.len() - DIGITS;
        let begin: String = source.chars().take(room).collect();
        format!("{begin}{SNAPSHOT_INFIX}{}", self.0)
    }

    /// Returns the content that a snapshot of this name keeps.
    pub fn of_snapshot(name: &str) -> Option<Self> {
        Self::read(name.rsplit_once(SNAPSHOT_INFIX)?.1)
    }

    fn read(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == DIGITS && text.bytes().all(is_hex)).then(|| Self(text.to_owned()))
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.meaning() == other.meaning()
    }
}

impl Eq for Digest {}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.meaning().hash(hasher);
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the options in which these keys of two ConfigMaps differ; of a key whose texts are not readable option files, the key
/// itself.
pub fn differences(one: &ConfigMap, other: &ConfigMap, keys: &Keys) -> Vec<String> {
    let mut all = BTreeSet::new();
    let read = one.data.keys().chain(other.data.keys()).filter(|key| keys.contains(key));
    for key in read {
        let [was, is] = [one, other].map(|map| map.data.get(key).map_or("", Literal::look));
        if was == is {
            continue;
        }
        let is_file = |text: &str| text.is_empty() || options::is_file(key, text);
        let meaning = |text| is_file(text).then(|| Meaning::of(text).ok()).flatten();
        match (meaning(was), meaning(is)) {
            (Some(was), Some(is)) => all.extend(was.differences(&is)),
            _ => drop(all.insert(key.clone())),
        }
    }
    all.into_iter().collect()
}

/// The content of each ConfigMap that servers read. A revision is written as `nodeconfig=3fa9…`, with a space between
/// several ConfigMaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Revision(ByName<Digest>);

impl Revision {
    /// Returns the revision of these sources, as their ConfigMaps are now.
    pub fn of<'c>(
        sources: &BTreeMap<String, Keys>,
        mut contents: impl FnMut(&str) -> Option<&'c Contents>,
    ) -> Result<Self, UnknownRevision> {
        let mut all = Vec::new();
        for (name, keys) in sources {
            let known = match contents(name) {
                Some(known) => known,
                None if keys.optional => continue,
                None => return Err(UnknownRevision::NotThere(name.clone())),
            };
            if let Some(digest) = known.digest(name, keys)? {
                all.push((name.clone(), digest));
            }
        }
        Ok(Self(all.into_iter().collect()))
    }

    /// Reads a recorded revision; `None`: the text is not a revision.
    pub fn read(text: &str) -> Option<Self> {
        let one = |word: &str| {
            let (name, digest) = word.split_once('=')?;
            (!name.is_empty()).then_some((name.to_owned(), Digest::read(digest)?))
        };
        let all: ByName<_> = text.split_whitespace().map(one).collect::<Option<_>>()?;
        (!all.is_empty()).then_some(Self(all))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Digest)> {
        self.0.iter().map(|(name, digest)| (&**name, digest))
    }

    /// Returns the names of the ConfigMaps as text, for a message.
    pub fn config_maps(&self) -> String {
        self.iter().map(|(source, _)| format!("ConfigMap {source}")).collect::<Vec<_>>().join(", ")
    }

    /// Returns the part for which `selects` returns true.
    #[must_use]
    pub fn only(&self, mut selects: impl FnMut(&str, &Digest) -> bool) -> Self {
        let selected = self.iter().filter(|(source, digest)| selects(source, digest));
        Self(selected.map(|(source, digest)| (source.to_owned(), digest.clone())).collect())
    }

    /// Returns the revision with another content of one ConfigMap.
    #[must_use]
    pub fn with(&self, source: &str, digest: Digest) -> Self {
        let all = self.iter().map(|(name, digest)| (name.to_owned(), digest.clone()));
        Self(all.chain([(source.to_owned(), digest)]).collect())
    }

    /// Returns the content of this ConfigMap.
    pub fn get(&self, source: &str) -> Option<&Digest> {
        self.0.get(source)
    }

    /// Returns whether both are revisions of the same ConfigMaps.
    pub fn has_sources_of(&self, other: &Self) -> bool {
        self.0.keys().eq(other.0.keys())
    }

    /// Returns the names of the snapshots that keep this revision, one for each ConfigMap.
    pub fn snapshots(&self) -> impl Iterator<Item = String> {
        self.iter().map(|(source, digest)| digest.snapshot_name(source))
    }

    /// Returns whether no ConfigMap is read as an option file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(|(name, digest)| format!("{name}={digest}")).collect();
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use objects::{Kind, Object};

    fn map(data: &str) -> ConfigMap {
        let json = format!(r#"{{"metadata":{{"name":"c"}},{data}}}"#);
        let Ok(Object::ConfigMap(map)) = Object::read(Kind::ConfigMap, &json) else { panic!("{json}") };
        map
    }

    fn of(sources: &BTreeMap<String, Keys>, data: &str) -> Result<Revision, UnknownRevision> {
        let contents = Contents::of(&map(data));
        Revision::of(sources, |name| (name == "c").then_some(&contents))
    }

    fn read_by(volume: &str, mount: &str) -> BTreeMap<String, Keys> {
        let json = format!(
            r#"{{"volumes":[{{"name":"v",{volume}}},{{"name":"other","configMap":{{"name":"d"}}}}],
                "containers":[{{"name":"s","volumeMounts":[{{"name":"v","mountPath":"/etc/x"{mount}}}]}}]}}"#
        );
        let spec: PodSpec = serde_json::from_str(&json).unwrap();
        sources(&spec, &spec.containers[0])
    }

    const WHOLE: &str = r#""configMap":{"name":"c"}"#;

    #[test]
    fn only_what_is_read_counts() {
        let data = |a: &str, b: &str| {
            format!(
                r#""data":{{"a.cnf":"[mysqld]\nport={a}\n","b.cnf":"[mysqld]\nport={b}\n","x.sh":"echo"}}"#
            )
        };
        let item = r#""configMap":{"name":"c","items":[{"key":"a.cnf","path":"my.cnf"}]}"#;
        let projected = r#""projected":{"sources":[{"configMap":{"name":"c","items":[{"key":"a.cnf"}]}}]}"#;
        for (sources, counts) in [
            (read_by(WHOLE, ""), true),
            (read_by(item, ""), false),
            (read_by(projected, ""), false),
            (read_by(WHOLE, r#","subPath":"a.cnf""#), false),
            (read_by(WHOLE, r#","subPath":"b.cnf""#), true),
        ] {
            let revision = |b| of(&sources, &data("1", b)).unwrap();
            assert_eq!(revision("1") != revision("2"), counts, "{sources:?}");
            assert!(!revision("1").is_empty());
        }
        let scripts = of(&read_by(WHOLE, r#","subPath":"x.sh""#), &data("1", "1"));
        assert!(scripts.unwrap().is_empty(), "no option file is read");
    }

    #[test]
    fn a_revision_is_read_as_it_is_written_and_its_snapshot_is_found() {
        let revision = of(&read_by(WHOLE, ""), r#""data":{"a.cnf":"[mysqld]\nport=1\n"}"#).unwrap();
        assert_eq!(Revision::read(&revision.to_string()), Some(revision.clone()));
        let (name, digest) = revision.iter().next().unwrap();
        assert_eq!(Digest::of_snapshot(&digest.snapshot_name(name)), Some(digest.clone()));
        assert_eq!(digest.snapshot_name(&"n".repeat(253)).len(), 253);
        let data = r#""data":{"a.cnf":"[mariadb]\nport = 1\nwsrep_cluster_address=gcomm://a\n"}"#;
        let kept = Contents::of(&map(data));
        assert!(!kept.matches(digest) && !Contents::default().matches(digest));
        let other = of(&read_by(WHOLE, ""), data).unwrap();
        assert_eq!(other, revision, "it means the same");
        let (_, other_digest) = other.iter().next().unwrap();
        assert!(kept.matches(other_digest) && !other_digest.is_spelled_like(digest));
        let hex = "3fa9c1d2".repeat(4);
        assert!(Revision::read(&format!("c={hex}")).is_some());
        let upper = hex.to_uppercase();
        for invalid in
            ["", "c", "c=", &format!("={hex}"), &format!("c={upper}"), &format!("c={hex} d"), "c=3fa9"]
        {
            assert_eq!(Revision::read(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_revision_that_is_unknown_has_a_reason() {
        let sources = read_by(WHOLE, "");
        for (data, reason) in [
            (r#""data":{"a.cnf":"[broken\n"}"#, "ConfigMap c: a.cnf cannot be read beyond line 1"),
            (
                r#""data":{"a.cnf":"[galera]\nwsrep_cluster_address=gcomm://\n"}"#,
                "ConfigMap c makes every server that starts create a new cluster",
            ),
            (
                r#""data":{"a.cnf":""},"binaryData":{"b":"AA=="}"#,
                "ConfigMap c holds binaryData, which gatera does not keep",
            ),
        ] {
            assert_eq!(of(&sources, data).unwrap_err().to_string(), reason);
        }
        // The file of Bitnami's chart has such an address, but its image takes the address from a variable.
        let given = |(name, keys): (String, Keys)| (name, Keys { address_is_given: true, ..keys });
        let given: BTreeMap<_, _> = sources.clone().into_iter().map(given).collect();
        let founds = |text| of(&given, &format!(r#""data":{{"a.cnf":"[galera]\n{text}\n"}}"#));
        assert!(!founds("wsrep_cluster_address=gcomm://").unwrap().is_empty());
        assert!(matches!(founds("wsrep_new_cluster=ON"), Err(UnknownRevision::Founds(_))));
        let gone = Revision::of(&sources, |_| None).unwrap_err();
        assert_eq!(gone.to_string(), "ConfigMap c does not exist");
    }
}
