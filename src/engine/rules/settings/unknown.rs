//! Options that the server of an image does not know.
//!
//! Owns: for which servers an option is looked up, and the warning. Must not know: which options there are.

use std::collections::BTreeSet;

use super::values::OptionPlace;
use crate::verdict::Findings;
use facts::galera::image::{Image, Series, Vendor};
use facts::galera::options::{self, OptionValue, Readers, UnknownOption};
use facts::galera::runs::Runs;
use facts::galera::server;
use objects::{Container, Workload};

/// The largest number of findings about one text.
const MOST_FINDINGS: usize = 25;
/// The largest number of names that are looked up in one text: only a hostile text has more.
const MOST_NAMES: usize = 300;
/// The largest number of texts in one ConfigMap whose names are looked up.
pub(super) const MOST_TEXTS: usize = 20;

/// The series of the servers that read a text, each once; `None`: the image does not show it. Empty: servers of other vendors,
/// whose options are not known.
pub(super) type SeriesOfReaders = BTreeSet<Option<Series>>;

/// Returns the series of the servers of these workloads.
pub(super) fn series_of_readers(readers: &[&Workload]) -> SeriesOfReaders {
    let mut servers = readers.iter().filter_map(|it| server::of(&it.spec.template)).peekable();
    if servers.peek().is_none() {
        return SeriesOfReaders::from([None]);
    }
    servers.filter(|it| may_be_mariadb(it)).map(series_of).collect()
}

/// Returns whether a server is MariaDB, or its image's name shows no vendor.
fn may_be_mariadb(server: &Container) -> bool {
    matches!(Image::read(&server.image).vendor(), None | Some(Vendor::MariaDb))
}

fn series_of(server: &Container) -> Option<Series> {
    Image::read(&server.image).series()
}

/// Returns findings about the options of a file.
pub(super) fn in_file(place: &OptionPlace<'_>, file: &str, text: &str, series: &SeriesOfReaders) -> Findings {
    let plugins = plugins(options::read_with(text, &["plugin"]).map(|it| it.look().to_owned()));
    let of_servers = options::read(text).filter(|it| it.readers == Readers::Server && !it.loose);
    // Only servers of one series read a group such as [mariadb-10.11].
    let names = of_servers.filter(|it| !it.group.contains(|c: char| c.is_ascii_digit()));
    let mut seen = BTreeSet::new();
    let distinct =
        names.filter(|it| !seen.contains(&*it.key) && seen.insert(it.key.to_string())).take(MOST_NAMES);
    let unknown = distinct.filter_map(|it| {
        let (series, why) = unknown(&it.key, series, &plugins)?;
        Some(place.unknown(&it.key, (file, it.line), why, series))
    });
    unknown.take(MOST_FINDINGS).collect()
}

/// Returns findings about the options on the command line of a container that runs the server itself.
pub(super) fn on_command_line(place: &OptionPlace<'_>, server: &Container) -> Findings {
    if !may_be_mariadb(server) || Runs::of(server) != Runs::Server {
        return Findings::new();
    }
    let (series, flags) = (SeriesOfReaders::from([series_of(server)]), options::flags(server));
    let values = flags.iter().filter(|it| it.key.starts_with("plugin"));
    let plugins = plugins(values.map(|it| it.value.as_ref().map_or("", OptionValue::look).to_owned()));
    let unknown = flags.iter().filter(|it| !it.loose).filter_map(|it| {
        let (series, why) = unknown(&it.key, &series, &plugins)?;
        Some(place.unknown(&it.key, (it.field, it.index), why, series))
    });
    unknown.take(MOST_FINDINGS).collect()
}

/// Returns why one of these servers does not know the option.
fn unknown(
    key: &str,
    series: &SeriesOfReaders,
    plugins: &BTreeSet<String>,
) -> Option<(Option<Series>, UnknownOption)> {
    let why = series.iter().find_map(|series| Some((*series, options::unknown(key, *series)?)))?;
    (!plugins.iter().any(|plugin| key.starts_with(&**plugin))).then_some(why)
}

/// Returns the names of the plugins that are loaded here: `plugin_load_add = a=ha_b.so;c`. Their options begin with them.
fn plugins(loaded: impl Iterator<Item = String>) -> BTreeSet<String> {
    let of = |value: String| value.split([';', '=', ':']).map(stem).collect::<Vec<_>>();
    loaded.flat_map(of).filter(|name| !name.is_empty()).collect()
}

fn stem(library: &str) -> String {
    let name = library.trim().to_ascii_lowercase().replace('-', "_");
    let name = name.strip_suffix(".so").unwrap_or(&name);
    name.strip_prefix("ha_").unwrap_or(name).to_owned()
}
