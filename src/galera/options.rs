//! Option files as MariaDB reads them: groups, `-` and `_` alike, `loose_`, quotes, comments, later wins.
//!
//! Every line keeps its number, so that a message can point at it. Values are [`Literal`]s: an option file is where
//! `wsrep_sst_auth` and client passwords live.

use crate::object::Literal;

/// One `key = value` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// The `[group]` it stands in; empty before the first.
    pub group: &'a str,
    /// The key in its one spelling: lower case, `_`, without `loose_`.
    pub key: String,
    /// The value without its quotes; `None` for a bare key.
    pub value: Option<Literal>,
    /// Its line, counted from 1.
    pub line: usize,
}

/// Groups that mariadbd reads. `[innodb]` is not among them: what stands there is read by nobody.
const SERVER_GROUPS: [&str; 7] =
    ["mysqld", "server", "mariadb", "mariadbd", "client-server", "galera", "mariadb-server"];

/// The server reads this group; `mariadb-10.11` and `mysqld-5.5` are the groups of one series.
pub fn is_server_group(group: &str) -> bool {
    let series = |prefix: &str| {
        group.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    SERVER_GROUPS.contains(&group) || series("mariadb-") || series("mysqld-") || series("mariadbd-")
}

/// All settings of a file, in order. Nothing is an error: MariaDB skips what it does not understand, or refuses to
/// start, and both are for a rule to say.
pub fn read(text: &str) -> impl Iterator<Item = Setting<'_>> {
    let mut group = "";
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            group = name.split(']').next().unwrap_or_default().trim();
            return None;
        }
        if line.is_empty() || line.starts_with(['#', ';', '!']) {
            return None;
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key, Some(unquoted(value))),
            None => (line.split('#').next().unwrap_or_default(), None),
        };
        Some(Setting { group, key: one_spelling(key), value, line: index + 1 })
    })
}

/// The value the server ends up with: the last one in a group it reads.
pub fn effective(text: &str, key: &str) -> Option<Literal> {
    read(text).filter(|setting| is_server_group(setting.group) && setting.key == key).last()?.value
}

/// `Loose-WSREP-Cluster-Address` and `wsrep_cluster_address` are one key.
pub fn one_spelling(key: &str) -> String {
    let key = key.trim().to_ascii_lowercase().replace('-', "_");
    key.strip_prefix("loose_").map(str::to_owned).unwrap_or(key)
}

/// A value ends at an unquoted ` #`; one pair of quotes around it is not part of it.
fn unquoted(value: &str) -> Literal {
    let value = value.trim();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    if let Some(end) = quote.and_then(|quote| value[1..].find(quote)) {
        return Literal::from(&value[1..=end]);
    }
    Literal::from(value.split(" #").next().unwrap_or_default().trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_mariadb_does() {
        let text = "key-before=1\n[galera]\n# a comment\nloose-WSREP-on = ON\nwsrep_sst_auth = \"root:a#b\"\n\
                    wsrep_cluster_address=gcomm:// # new\n[innodb]\nwsrep_on=OFF\n[mysqld]\nskip-name-resolve\n!include /x\n";
        let settings: Vec<_> = read(text).map(|s| (s.group, s.key, s.value, s.line)).collect();
        let value = |text: &str| Some(Literal::from(text));
        assert_eq!(
            settings,
            [
                ("", "key_before".into(), value("1"), 1),
                ("galera", "wsrep_on".into(), value("ON"), 4),
                ("galera", "wsrep_sst_auth".into(), value("root:a#b"), 5),
                ("galera", "wsrep_cluster_address".into(), value("gcomm://"), 6),
                ("innodb", "wsrep_on".into(), value("OFF"), 8),
                ("mysqld", "skip_name_resolve".into(), None, 10),
            ]
        );
        assert_eq!(effective(text, "wsrep_on"), value("ON"), "[innodb] is a group no server reads");
        assert_eq!(effective("[mysqld]\na=1\n[mariadb-10.11]\na=2\n", "a"), value("2"), "later wins");
    }

    #[test]
    fn odd_quotes_are_no_panic() {
        for text in ["[g]\na=\"", "[g]\na='x", "[", "]", "=", "[g\n=é\"", "a=\"é"] {
            let _ = read(text).count();
        }
    }
}
