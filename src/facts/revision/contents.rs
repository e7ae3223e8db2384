//! Digests of a ConfigMap's keys, computed once for each content that is read.

use ring::digest::{self, Context, SHA256};

use super::{Digest, Keys};
use crate::galera::address::Address;
use crate::galera::options::{self, Meaning, Unclear};
use crate::galera::server;
use objects::{ByName, ConfigMap, Literal};

/// The digest of each key of a ConfigMap, as far as a revision needs it.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    keys: ByName<KeyDigest>,
    binary: bool,
}

#[derive(Clone, Debug)]
enum KeyDigest {
    File {
        /// The digests of its meaning and of its spelling, or the line at which a server stops reading.
        digests: Result<[Vec<u8>; 2], usize>,
        /// Whether the switch `wsrep_new_cluster` in it makes a server found a cluster.
        founds_by_switch: bool,
        /// Whether its cluster address makes a server found a cluster.
        founds_by_address: bool,
    },
    /// The digest of a text that is not an option file.
    Text(Vec<u8>),
}

/// The reason why it is unknown what servers would read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownRevision {
    /// The ConfigMap does not exist, or was not read yet.
    #[error("ConfigMap {0} does not exist")]
    NotThere(String),
    /// The ConfigMap exists, and the guard has no room for its text.
    #[error("ConfigMap {0} {1}")]
    NoRoom(String, String),
    /// A server would stop reading in the middle of the ConfigMap.
    #[error("ConfigMap {0}: {1} cannot be read beyond line {2}")]
    Unclear(String, String, usize),
    /// A server with this file founds a cluster, so members are not kept on it.
    #[error("ConfigMap {0} makes every server that starts create a new cluster")]
    Founds(String),
    /// The ConfigMap has binary data, which the guard does not keep.
    #[error("ConfigMap {0} holds binaryData, which gatera does not keep")]
    Binary(String),
}

impl Contents {
    /// Computes the digests of all keys of a ConfigMap.
    pub fn of(map: &ConfigMap) -> Self {
        let digested = |(key, text): (&String, &Literal)| {
            let is_file = options::is_file(key, text.look());
            (key.clone(), if is_file { of_file(text) } else { KeyDigest::Text(sum(text.look())) })
        };
        Self { keys: map.data.iter().map(digested).collect(), binary: map.has_binary_data() }
    }

    /// Returns the digest of these keys; `None`: there is no option file among them. `name` is for the error.
    pub fn digest(&self, name: &str, keys: &Keys) -> Result<Option<Digest>, UnknownRevision> {
        let read: Vec<_> = self.keys.iter().filter(|(key, _)| keys.contains(key)).collect();
        if !read.iter().any(|(_, sum)| matches!(sum, KeyDigest::File { .. })) {
            return Ok(None);
        }
        if self.binary {
            return Err(UnknownRevision::Binary(name.to_owned()));
        }
        let [mut all_meanings, mut all_texts] = [Context::new(&SHA256), Context::new(&SHA256)];
        for (key, sum) in read {
            let [meaning, text] = match sum {
                KeyDigest::Text(sum) => [sum, sum],
                KeyDigest::File { founds_by_switch, founds_by_address, .. }
                    if *founds_by_switch || *founds_by_address && !keys.address_is_given =>
                {
                    return Err(UnknownRevision::Founds(name.to_owned()));
                }
                KeyDigest::File { digests: Ok([meaning, text]), .. } => [meaning, text],
                KeyDigest::File { digests: Err(line), .. } => {
                    return Err(UnknownRevision::Unclear(name.to_owned(), key.clone(), *line));
                }
            };
            for (all, sum) in [(&mut all_meanings, meaning), (&mut all_texts, text)] {
                all.update(&key.len().to_be_bytes());
                all.update(key.as_bytes());
                all.update(sum);
            }
        }
        Ok(Some(Digest::of(all_meanings, all_texts)))
    }

    /// Returns whether this is exactly the content with this digest: then a snapshot with the digest in its name is unchanged.
    pub fn matches(&self, digest: &Digest) -> bool {
        self.digest("", &Keys::ALL).ok().flatten().is_some_and(|it| it.0 == digest.0)
    }
}

fn of_file(text: &Literal) -> KeyDigest {
    let address = options::effective(text.look(), "wsrep_cluster_address");
    let meaning = Meaning::of(text.look()).map_err(|Unclear(line)| line);
    KeyDigest::File {
        digests: meaning.map(|it| [sum(&it.canonical()), sum(text.look())]),
        founds_by_switch: server::founds_by_file(text.look()),
        founds_by_address: address.is_some_and(|it| Address::read(it.look()) == Some(Address::NewCluster)),
    }
}

fn sum(text: &str) -> Vec<u8> {
    digest::digest(&SHA256, text.as_bytes()).as_ref().to_vec()
}
