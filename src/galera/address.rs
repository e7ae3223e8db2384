//! `wsrep_cluster_address`: whom a server asks for the cluster when it starts.

/// What an address makes a server do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `gcomm://` without a host: start a new, empty cluster.
    NewCluster,
    /// Join whoever answers first.
    Peers(Vec<String>),
}

impl Address {
    /// Reads `gcomm://host[:port],host?options`. `None`: it is no gcomm address, so Galera is off (empty, `dummy://`).
    pub fn read(text: &str) -> Option<Self> {
        let rest = text.trim().strip_prefix("gcomm://")?;
        let hosts = rest.split(['?', '/']).next().unwrap_or_default();
        let peers: Vec<_> =
            hosts.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect();
        Some(if peers.is_empty() { Self::NewCluster } else { Self::Peers(peers) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_hosts_founds_a_cluster() {
        for text in ["gcomm://", " gcomm:// ", "gcomm://?pc.wait_prim=no", "gcomm://,", "gcomm:// , "] {
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
}
