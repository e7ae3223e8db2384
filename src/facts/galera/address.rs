//! `wsrep_cluster_address`: the peers that a server contacts when it starts.
//!
//! Owns: reading an address and its hosts, and where a container takes its address from. Must not know: which hosts
//! exist.

use core::net::IpAddr;
use std::ops::Range;

use super::options::{effective, flags};
use super::reading::ConfigMapFile;
use objects::{Container, Literal};

/// The meaning of an address for a server that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `gcomm://` without a host: start a new cluster.
    NewCluster,
    /// Join the first host that answers.
    Peers(Vec<String>),
}

impl Address {
    /// Reads `gcomm://host[:port],host?options`. `None`: it is not a gcomm address, so Galera is off (empty,
    /// `dummy://`).
    pub fn read(text: &str) -> Option<Self> {
        let rest = text.trim().strip_prefix("gcomm://")?;
        let hosts = rest.split(['?', '/']).next().unwrap_or_default();
        // The first host decides. (For Galera 0.0.0.0 means no host, too; another check refuses it, because it means the
        // pod itself.)
        if hosts.split(',').next().is_none_or(|first| first.trim().is_empty()) {
            return Some(Self::NewCluster);
        }
        let peers = hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
        Some(Self::Peers(peers.map(str::to_owned).collect()))
    }
}

/// The largest number of members that advice lists, because `replicas` can be any number.
const MOST_LISTED: usize = 9;

/// Returns the address that lists these members by name, for advice to users.
pub fn of_members(name: &str, service: &str, mut ordinals: Range<i64>) -> String {
    let shown = ordinals.by_ref().take(MOST_LISTED).map(|ordinal| format!("{name}-{ordinal}.{service}"));
    let shown = shown.collect::<Vec<_>>().join(",");
    format!("gcomm://{shown}{}", if ordinals.is_empty() { "" } else { ",…" })
}

/// One host of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    Ip(IpAddr),
    Localhost,
    /// A name, and its labels after the first: `POD.SERVICE.NAMESPACE` or `SERVICE.NAMESPACE`.
    Name(&'a str, &'a str),
}

impl<'a> Host<'a> {
    pub fn read(text: &'a str) -> Self {
        if let Ok(ip) = text.parse() {
            return Self::Ip(ip);
        }
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split(']').next());
        let host = bracketed.unwrap_or_else(|| text.split(':').next().unwrap_or_default());
        match (host.parse(), host.split_once('.')) {
            (Ok(ip), _) => Self::Ip(ip),
            _ if host == "localhost" => Self::Localhost,
            (_, Some((first, rest))) => Self::Name(first, rest.trim_end_matches('.')),
            (_, None) => Self::Name(host, ""),
        }
    }
}

/// An address and the place it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedAddress<'a> {
    pub source: AddressSource<'a>,
    pub text: String,
}

/// A place where an address can be written. Each place overrides those that are listed before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource<'a> {
    /// A key of a ConfigMap.
    File { map: &'a str, key: &'a str },
    /// A variable of the container.
    Variable(&'a str),
    /// A word of the command line: the field of the container, and the index in it.
    Word(&'static str, usize),
}

/// The variables from which images take the address.
const VARIABLES: [&str; 2] = ["MARIADB_GALERA_CLUSTER_ADDRESS", "WSREP_CLUSTER_ADDRESS"];

/// Returns the address that a server uses: the command line wins over the environment, the environment over the files,
/// a later file over an earlier one. `None`: there is none, or another program fills it in.
pub fn of_container<'a>(container: &'a Container, files: &[ConfigMapFile<'a>]) -> Option<PlacedAddress<'a>> {
    let last_flag = flags(container).into_iter().rfind(|flag| flag.key == "wsrep_cluster_address");
    if let Some(flag) = last_flag {
        let text = flag.value.map_or(String::new(), |value| value.look().to_owned());
        return if_complete(AddressSource::Word(flag.field, flag.index), text);
    }
    // A start script may set a variable differently for each member.
    let assigns = |text: &str, name: &str| text.split(name).skip(1).any(|rest| rest.starts_with('='));
    let mut words = container.command.iter().chain(&container.args).map(Literal::look);
    if words.any(|word| VARIABLES.iter().any(|name| assigns(word, name))) {
        return None;
    }
    for var in container.env.iter().filter(|var| VARIABLES.contains(&&*var.name)) {
        match var.value.look() {
            "" if var.value_from.is_some() => return None,
            "" => {}
            text => return if_complete(AddressSource::Variable(&var.name), text.to_owned()),
        }
    }
    let by_file = |file: &ConfigMapFile<'a>| Some((*file, effective(file.text, "wsrep_cluster_address")?));
    let (ConfigMapFile { map, key, .. }, value) = files.iter().rev().find_map(by_file)?;
    if_complete(AddressSource::File { map, key }, value.look().to_owned())
}

/// Returns the address with its source; `None`: the text has placeholders, so it is not an address yet.
fn if_complete(source: AddressSource<'_>, text: String) -> Option<PlacedAddress<'_>> {
    (!text.contains(['$', '{', '%'])).then_some(PlacedAddress { source, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_hosts_founds_a_cluster() {
        for text in
            ["gcomm://", " gcomm:// ", "gcomm://?pc.wait_prim=no", "gcomm://,", "gcomm:// , ", "gcomm://,a"]
        {
            assert_eq!(Address::read(text), Some(Address::NewCluster), "{text}");
        }
        assert_eq!(
            Address::read("gcomm://a.hs:4567, b?x=y"),
            Some(Address::Peers(vec!["a.hs:4567".into(), "b".into()]))
        );
        for text in ["", "dummy://", "gcomm:/", "a,b"] {
            assert_eq!(Address::read(text), None, "{text}");
        }
    }

    #[test]
    fn hosts_are_read_in_every_form() {
        for (text, host) in [
            ("a-0.hs", Host::Name("a-0", "hs")),
            ("a-0.hs:4567", Host::Name("a-0", "hs")),
            ("a-0.hs.db.svc.cluster.local.", Host::Name("a-0", "hs.db.svc.cluster.local")),
            ("a", Host::Name("a", "")),
            ("", Host::Name("", "")),
            ("localhost:4567", Host::Localhost),
            ("10.0.0.1:4567", Host::Ip(IpAddr::from([10, 0, 0, 1]))),
            ("0.0.0.0", Host::Ip(IpAddr::from([0, 0, 0, 0]))),
            ("::1", Host::Ip("::1".parse().unwrap())),
            ("[fd00::1]:4567", Host::Ip("fd00::1".parse().unwrap())),
        ] {
            assert_eq!(Host::read(text), host, "{text}");
        }
        let _ = (Host::read("["), Host::read(":"), Host::read("."));
    }

    #[test]
    fn an_address_that_is_filled_in_later_is_not_guessed() {
        let words = |word: &str| Container { args: vec![Literal::from(word)], ..Container::default() };
        let found = |container: &Container| of_container(container, &[]).map(|it| it.text);
        assert_eq!(found(&words("--wsrep-cluster-address=gcomm://a")), Some("gcomm://a".to_owned()));
        assert_eq!(found(&words("--wsrep-cluster-address=gcomm://$(PEERS)")), None);
    }
}
