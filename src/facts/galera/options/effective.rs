//! The options that a server uses from several files and its command line: for each key the last value in a group that the
//! server reads; of several lines with `wsrep_provider_options`, only the last one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Flag, OptionValue, UnparsedSetting, keys, of_server, provider_options};

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedValue<'a> {
    /// The file, or the field of a container.
    pub file: &'a str,
    /// The number of the line in the file, counted from 1; in a field, the index of the word, counted from 0.
    pub line: usize,
    /// The value; `None` for a bare key.
    pub value: Option<OptionValue<'a>>,
    /// Earlier places with the same key and value: file and line.
    pub also: Vec<(&'a str, usize)>,
    /// Whether it is an option in `wsrep_provider_options`.
    of_provider: bool,
}

/// The largest number of places that a message lists.
const MOST_PLACES: usize = 8;

impl PlacedValue<'_> {
    pub fn look(&self) -> &str {
        self.value.as_ref().map_or("", OptionValue::look)
    }

    /// Returns this value, which replaces the earlier one. If both are equal, it also keeps the earlier places.
    fn after(mut self, earlier: Option<Self>) -> Self {
        if let Some(earlier) = earlier.filter(|it| it.value == self.value) {
            self.also = earlier.also;
            self.also.push((earlier.file, earlier.line));
            self.also.truncate(MOST_PLACES);
        }
        self
    }
}

/// A line of `wsrep_provider_options` that a later line replaces, and its options that the later one does not repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostOptions<'a> {
    /// Its file, or the field of a container.
    pub file: &'a str,
    pub line: usize,
    /// The options that are lost.
    pub options: Vec<String>,
}

/// The keys that are judged, each with the value in effect. Options of the provider are keys of their own:
/// `pc.ignore_sb`.
#[derive(Clone, Debug, Default)]
pub struct Effective<'a> {
    settings: BTreeMap<Cow<'a, str>, PlacedValue<'a>>,
    provider: Vec<PlacedValue<'a>>,
}

impl<'a> Effective<'a> {
    /// Reads files, which must come in the order in which servers read them: by name.
    pub fn of_files(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut all = Self::default();
        for (file, text) in files {
            for setting in of_server(text).filter(|it| it.may_be(keys::is_judged)).map(UnparsedSetting::read)
            {
                all.put(setting.key, file, setting.line, setting.value);
            }
        }
        all
    }

    pub fn of_flags(flags: Vec<Flag<'a>>) -> Self {
        let mut all = Self::default();
        for Flag { field, index, key, value, .. } in flags {
            all.put(key, field, index, value);
        }
        all
    }

    /// Adds later options, which replace earlier ones.
    #[must_use]
    pub fn then(mut self, later: Self) -> Self {
        self.settings.extend(later.settings);
        self
    }

    /// Stores a value; a later one wins. Keys that no rule judges are not kept.
    fn put(&mut self, key: Cow<'a, str>, file: &'a str, line: usize, value: Option<OptionValue<'a>>) {
        let placed = PlacedValue { file, line, value, also: Vec::new(), of_provider: false };
        // Options of the provider may follow the hosts of the address: `gcomm://a,b?pc.weight=2`. The address itself has no row
        // in `keys`.
        if key == "wsrep_cluster_address" {
            let (_, options) = placed.look().split_once('?').unwrap_or_default();
            for (name, value) in options.split('&').filter_map(|it| it.split_once('=')) {
                if name.contains('.') && keys::is_judged(name) {
                    let value = Some(OptionValue::from(value.to_owned()));
                    self.settings
                        .insert(Cow::Owned(name.to_owned()), PlacedValue { value, ..placed.clone() });
                }
            }
            return;
        }
        // Of the plugins, only those that manage the keys of encrypted pages count.
        if key.starts_with("plugin_load") {
            if placed.look().contains("key_management") {
                self.settings.insert(Cow::Borrowed("plugin_load_add"), placed);
            }
            return;
        }
        if key != "wsrep_provider_options" {
            if keys::is_judged(&key) {
                let earlier = self.settings.remove(&key);
                self.settings.insert(key, placed.after(earlier));
            }
            return;
        }
        let mut earlier = BTreeMap::new();
        self.settings.retain(|key, it| {
            if it.of_provider {
                earlier.insert(key.clone(), it.clone());
            }
            !it.of_provider
        });
        for (name, value) in provider_options(placed.look()).filter(|(name, _)| keys::is_judged(name)) {
            let value = Some(OptionValue::from(value.to_owned()));
            let placed = PlacedValue { value, of_provider: true, ..placed.clone() };
            let placed = placed.after(earlier.remove(name));
            self.settings.insert(Cow::Owned(name.to_owned()), placed);
        }
        self.provider.push(placed);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &PlacedValue<'a>)> {
        self.settings.iter().map(|(key, placed)| (&**key, placed))
    }

    /// Returns the value in effect for this key.
    pub fn get(&self, key: &str) -> Option<&PlacedValue<'a>> {
        self.settings.get(key)
    }

    /// Returns the lines of `wsrep_provider_options` with options that are lost, because the server uses only the last line.
    pub fn lost(&self) -> Vec<LostOptions<'a>> {
        let Some((last_line, earlier)) = self.provider.split_last() else { return Vec::new() };
        let kept: BTreeSet<_> = provider_options(last_line.look()).map(|(name, _)| name).collect();
        let lost = |placed: &PlacedValue<'a>| {
            let options = provider_options(placed.look()).map(|(name, _)| name);
            let options = options.filter(|name| !kept.contains(name)).map(str::to_owned).collect();
            LostOptions { file: placed.file, line: placed.line, options }
        };
        earlier.iter().map(lost).filter(|lost| !lost.options.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<'a>(all: &'a Effective<'_>) -> Vec<(&'a str, &'a str, usize, &'a str)> {
        all.iter().map(|(key, it)| (key, it.file, it.line, it.look())).collect()
    }

    #[test]
    fn later_wins_across_groups_and_files() {
        let all = Effective::of_files([
            (
                "a.cnf",
                "[mysqld]\nwsrep_on=ON\nmax_connections=9\n[innodb]\nwsrep_on=OFF\n[galera]\nbinlog-format=MIXED\n",
            ),
            ("b.cnf", "[mariadb]\nbinlog_format=ROW\n"),
        ]);
        assert_eq!(shown(&all), [("binlog_format", "b.cnf", 2, "ROW"), ("wsrep_on", "a.cnf", 2, "ON")]);
    }

    #[test]
    fn a_key_counts_in_every_spelling() {
        let text = "[mysqld]\nPort = 1\nLOOSE-Binlog_Format=MIXED\ndatadir#=/a\n datadir = /b # c\nx\n";
        let all = Effective::of_files([("a.cnf", text)]);
        let found = [
            ("binlog_format", "a.cnf", 3, "MIXED"),
            ("datadir", "a.cnf", 5, "/b"),
            ("port", "a.cnf", 2, "1"),
        ];
        assert_eq!(shown(&all), found);
    }

    #[test]
    fn only_the_last_line_of_provider_options_counts() {
        let all = Effective::of_files([(
            "a.cnf",
            "[galera]\nwsrep_provider_options = 'gcache.size=1G; pc.ignore_sb=true'\nwsrep_provider_options = 'pc.weight=0; gcache.size=2G'\n",
        )]);
        assert_eq!(shown(&all), [("pc.weight", "a.cnf", 3, "0")]);
        assert_eq!(
            all.lost(),
            [LostOptions { file: "a.cnf", line: 2, options: vec!["pc.ignore_sb".into()] }]
        );
        let twice = "[galera]\nwsrep_provider_options=a.b=1\nwsrep_provider_options=a.b=1\n";
        assert!(Effective::of_files([("a", twice)]).lost().is_empty(), "nothing is lost");
    }
}
