//! The options that servers know, by series, because a server does not start with an option that it does not know; and which
//! options can be set in a running server.
//!
//! Owns: the table in `known.txt`, and which option a misspelt one was meant to be. Must not know: files, rules. Options of
//! plugins are in no table, because a server knows them only while their plugin is loaded.

use std::sync::LazyLock;

use crate::alike;
use crate::galera::image::Series;

/// The reason why a server does not know an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownOption {
    /// No server knows the option. If a known option has a similar name, that was probably meant.
    Nowhere(Option<&'static str>),
    /// This series is the first that knows the option.
    Since(Series),
    /// This series was the last that knew the option.
    Until(Series),
}

/// The series whose servers were asked for their options to make the table.
const TABLED: [Series; 4] = [Series(10, 5), Series(10, 11), Series(11, 4), Series(11, 8)];

/// The prefixes of the options of plugins that come with MariaDB, or with its images.
const OF_PLUGINS: [&str; 30] = [
    "archive",
    "auth_",
    "aws_key_management",
    "blackhole",
    "columnstore",
    "connect_",
    "cracklib_",
    "disks",
    "example_",
    "federated",
    "file_key_management",
    "gssapi_",
    "handlersocket",
    "hashicorp_",
    "locales",
    "metadata_lock_info",
    "mroonga",
    "named_pipe",
    "oqgraph",
    "pam_",
    "parsec",
    "password_reuse_check",
    "provider_",
    "query_",
    "rocksdb",
    "s3",
    "server_audit",
    "simple_password_check",
    "spider",
    "sql_err",
];

/// An option, and the first and the last series that know it.
struct KnownOption {
    name: &'static str,
    /// Whether it can be set in a running server.
    is_dynamic: bool,
    /// The first series that knows it; `None`: every early series does.
    since: Option<Series>,
    /// The last series that knows it; `None`: every later series does.
    until: Option<Series>,
}

static TABLE: LazyLock<Vec<KnownOption>> = LazyLock::new(|| {
    let lines = include_str!("known.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(KnownOption::read).collect()
});

impl KnownOption {
    /// Reads `name`, `name 10.11-`, `name -10.5`, each with ` *` or without.
    fn read(line: &'static str) -> Self {
        let (line, is_dynamic) = line.strip_suffix(" *").map_or((line, false), |line| (line, true));
        let (name, range) = line.split_once(' ').unwrap_or((line, "-"));
        let (since, until) = range.split_once('-').unwrap_or_default();
        Self { name, is_dynamic, since: series(since), until: series(until) }
    }

    /// Returns why a server of this series does not know the option. A server of a series between two of the table is assumed to
    /// know an option that a server of either of the two knows.
    fn unknown_to(&self, series: Series) -> Option<UnknownOption> {
        let above = TABLED.into_iter().find(|it| *it >= series).unwrap_or(series);
        let below = TABLED.into_iter().rfind(|it| *it <= series).unwrap_or(series);
        let early = self.since.filter(|since| *since > above).map(UnknownOption::Since);
        early.or_else(|| self.until.filter(|until| *until < below).map(UnknownOption::Until))
    }
}

fn series(text: &str) -> Option<Series> {
    let (major, minor) = text.split_once('.')?;
    Some(Series(major.parse().ok()?, minor.parse().ok()?))
}

/// Returns why a server does not know an option, in its canonical spelling. An option that is not in the table is unknown to a
/// server whose series is in the range of the table; to another server only if it looks like a misspelt option.
pub fn unknown(key: &str, image: Option<Series>) -> Option<UnknownOption> {
    let key = key.strip_prefix("maximum_").unwrap_or(key);
    let is_name = |key: &str| key.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
    let known = image.filter(|it| TABLED[0] <= *it && *it <= TABLED[TABLED.len() - 1]);
    let at = TABLE.partition_point(|row| row.name < key);
    match TABLE.get(at) {
        Some(row) if row.name == key => known.and_then(|series| row.unknown_to(series)),
        // Servers accept the beginning of a name in place of the whole name, and warn about it themselves.
        Some(row) if row.name.starts_with(key) => None,
        _ if !is_name(key) || OF_PLUGINS.iter().any(|prefix| key.starts_with(prefix)) => None,
        _ => {
            let meant = alike::closest(key, TABLE.iter().map(|row| row.name));
            (known.is_some() || meant.is_some()).then_some(UnknownOption::Nowhere(meant))
        }
    }
}

/// Returns whether an option, in its canonical spelling, can be set in a running server.
pub fn is_dynamic(key: &str) -> bool {
    TABLE.binary_search_by(|row| row.name.cmp(key)).is_ok_and(|at| TABLE[at].is_dynamic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::galera::options::{keys, one_spelling};

    #[test]
    fn the_table_is_sorted_and_has_one_spelling() {
        assert!(TABLE.is_sorted_by(|one, other| one.name < other.name));
        assert!(TABLE.iter().all(|row| one_spelling(row.name) == row.name || row.name.starts_with("skip_")));
        assert!(OF_PLUGINS.is_sorted());
    }

    #[test]
    fn an_option_is_dynamic_if_the_table_marks_it() {
        assert!(is_dynamic("max_connections") && is_dynamic("wsrep_mode"));
        assert!(
            !is_dynamic("wsrep_on") && !is_dynamic("innodb_log_group_home_dir") && !is_dynamic("no_option")
        );
    }

    #[test]
    fn every_judged_option_is_known_to_some_server() {
        let of_server = keys::KEYS.iter().filter(|row| !row.name.contains('.'));
        for row in of_server {
            // These two are options of the provider.
            let known = ["base_host", "base_port"].contains(&row.name) || unknown(row.name, None).is_none();
            assert!(known, "{}", row.name);
        }
    }

    #[test]
    fn an_option_is_unknown_to_some_series_or_to_all() {
        let [old, lts, new, later] = [Series(10, 5), Series(10, 11), Series(11, 8), Series(12, 3)].map(Some);
        for (key, image, why) in [
            ("max_connections", lts, None),
            ("max_conections", lts, Some(UnknownOption::Nowhere(Some("max_connections")))),
            ("max_conections", None, Some(UnknownOption::Nowhere(Some("max_connections")))),
            ("wsrep_sst_methd", later, Some(UnknownOption::Nowhere(Some("wsrep_sst_method")))),
            ("frobnicate_widgets", lts, Some(UnknownOption::Nowhere(None))),
            ("frobnicate_widgets", None, None),
            ("frobnicate_widgets", later, None),
            ("wsrep_replicate_myisam", old, None),
            ("wsrep_replicate_myisam", Some(Series(10, 6)), None),
            ("wsrep_replicate_myisam", lts, Some(UnknownOption::Until(Series(10, 5)))),
            ("wsrep_replicate_myisam", None, None),
            ("mhnsw_default_m", lts, Some(UnknownOption::Since(Series(11, 8)))),
            ("mhnsw_default_m", Some(Series(11, 5)), None),
            ("mhnsw_default_m", new, None),
            ("innodb_file_format", new, None),
            ("maximum_sort_buffer_size", lts, None),
            ("max_conn", lts, None),
            ("server_audit_loging", lts, None),
            ("a.key_buffer_size", lts, None),
            ("{{ .Values.option }}", lts, None),
        ] {
            assert_eq!(unknown(key, image), why, "{key} {image:?}");
        }
    }
}
