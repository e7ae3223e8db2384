//! What a server ends up with from several files: of each key the last value in a group it reads, and of
//! `wsrep_provider_options` the last line alone.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Readers, Value, keys, provider_options, read, readers};

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    /// The file, or the field of a container.
    pub file: &'a str,
    /// The line in the file, counted from 1; the word in a field.
    pub line: usize,
    /// The value; `None` for a bare key.
    pub value: Option<Value<'a>>,
}

impl Placed<'_> {
    /// The value, or nothing.
    pub fn look(&self) -> &str {
        self.value.as_ref().map_or("", Value::look)
    }
}

/// A line of `wsrep_provider_options` that a later one replaces, and with it options that nobody repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its file.
    pub file: String,
    /// Its line.
    pub line: usize,
    /// The options that are lost.
    pub options: Vec<String>,
}

/// The keys that are judged, with the value that counts. Options of the provider are keys of their own: `pc.ignore_sb`.
#[derive(Clone, Debug, Default)]
pub struct Effective<'a> {
    settings: BTreeMap<Cow<'a, str>, Placed<'a>>,
    provider: Vec<Placed<'a>>,
}

const PROVIDER_OPTIONS: &str = "wsrep_provider_options";

impl<'a> Effective<'a> {
    /// Files in the order in which they are read: by name.
    pub fn of(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut all = Self::default();
        for (file, text) in files {
            for setting in read(text) {
                if readers(setting.group) == Readers::Server {
                    all.put(setting.key, Placed { file, line: setting.line, value: setting.value });
                }
            }
        }
        all
    }

    /// A later one wins. Keys that nobody judges are not kept.
    pub fn put(&mut self, key: Cow<'a, str>, placed: Placed<'a>) {
        if key == PROVIDER_OPTIONS {
            self.provider.push(placed);
        } else if keys::is_judged(&key) {
            self.settings.insert(key, placed);
        }
    }

    /// The value that counts; an option of the provider by its own name.
    pub fn get(&self, key: &str) -> Option<(&Placed<'a>, &str)> {
        if let Some(placed) = self.settings.get(key) {
            return Some((placed, placed.look()));
        }
        let last = self.provider.last()?;
        let options = provider_options(last.look());
        options.filter(|(name, _)| *name == key).last().map(|(_, value)| (last, value))
    }

    /// Lines of `wsrep_provider_options` whose options are lost, because the server only sees the last line.
    pub fn lost(&self) -> Vec<Lost> {
        let Some((kept, earlier)) = self.provider.split_last() else { return Vec::new() };
        let mut found = Vec::new();
        for placed in earlier {
            let repeated = |name: &str| provider_options(kept.look()).any(|(other, _)| other == name);
            let lost = provider_options(placed.look()).filter(|(name, _)| !repeated(name));
            let options: Vec<_> = lost.map(|(name, _)| name.to_owned()).collect();
            if !options.is_empty() {
                found.push(Lost { file: placed.file.to_owned(), line: placed.line, options });
            }
        }
        found
    }
}
