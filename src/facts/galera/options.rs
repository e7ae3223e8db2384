//! Option files as MariaDB reads them (its mysys/my_default.c): groups, quotes, escapes and comments. The last value of
//! an option counts.
//!
//! Owns: what each line of a text means, and the values that a server uses. Must not know: which values are good
//! (`keys` knows it), ConfigMaps, rules. The input is a text; the output is lines that borrow from it, each with its
//! number and the place of its value. `Debug` hides values, because an option file may hold `wsrep_sst_auth` and
//! passwords of clients.

mod command_line;
mod effective;
mod groups;
pub mod keys;
mod known;
mod meaning;
mod provider;
mod value;

use std::borrow::Cow;
use std::ops::Range;
use std::{fmt, iter};

pub use command_line::{Flag, flags};
pub use effective::{Effective, LostOptions, PlacedValue};
pub use groups::{Readers, readers};
pub use known::{UnknownOption, is_dynamic, unknown};
pub use meaning::{Meaning, Unclear};
pub use provider::provider_options;
pub use value::{OptionValue, number, same, switch};

/// The content of one line. Empty lines, comments and `[group]` lines have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionLine<'a> {
    /// `key = value`, or a bare key.
    Setting(UnparsedSetting<'a>),
    Include {
        /// Its line, counted from 1.
        line: usize,
        what: Include<'a>,
    },
    /// The server stops reading here: it skips the rest of an included file, and does not start if this is its main file.
    Broken {
        /// Its line, counted from 1.
        line: usize,
        /// The reason why it stops.
        what: &'static str,
    },
}

/// Other files that a file includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Include<'a> {
    File(&'a str),
    /// The files of this folder that end in `.cnf`.
    Folder(&'a str),
}

impl<'a> Include<'a> {
    /// Reads a directive; `None`: the line is not a directive, and servers skip it.
    fn read(line: &'a str) -> Option<Self> {
        let directive = line.strip_prefix('!')?.trim_start_matches(is_space);
        let named = |word: &str| {
            let rest = directive.strip_prefix(word)?;
            (rest.is_empty() || rest.starts_with(is_space)).then(|| rest.trim_matches(is_space))
        };
        let file = named("include").map(Self::File);
        file.or_else(|| named("includedir").map(|folder| Self::Folder(folder.trim_end_matches('/'))))
    }
}

/// Returns what this file includes. Directives are at the beginning of a line, in any group.
pub fn includes(text: &str) -> impl Iterator<Item = Include<'_>> {
    let lines = text.contains('!').then(|| text.lines()).into_iter().flatten();
    lines.filter_map(|line| Include::read(line.trim_start_matches(is_space)))
}

/// A line with an option that is not parsed yet, because most lines of a large text are not needed.
#[derive(Clone, PartialEq, Eq)]
pub struct UnparsedSetting<'a> {
    /// The `[group]` of the line.
    pub group: &'a str,
    /// The programs that read the group.
    pub readers: Readers,
    /// Its line, counted from 1.
    pub line: usize,
    text: &'a str,
    start: usize,
}

impl fmt::Debug for UnparsedSetting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(line {}, {} hidden bytes)", self.line, self.text.len())
    }
}

/// One `key = value` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// The `[group]` of the line.
    pub group: &'a str,
    /// The programs that read the group.
    pub readers: Readers,
    /// The key in its canonical spelling: lower case, `_`, without `loose_`, `skip_` and the like.
    pub key: Cow<'a, str>,
    /// Whether a server that does not know the option only warns.
    pub loose: bool,
    /// The value without its quotes; `None` for a bare key.
    pub value: Option<OptionValue<'a>>,
    /// Its line, counted from 1.
    pub line: usize,
    /// The value's place in the text, with its quotes; empty for a bare key and for one that `skip_` negates.
    pub at: Range<usize>,
}

impl Setting<'_> {
    pub fn look(&self) -> &str {
        self.value.as_ref().map_or("", OptionValue::look)
    }
}

/// Reads all lines of a text, in order. Every text is accepted here: a rule reports lines that a server cannot read.
pub fn lines(text: &str) -> impl Iterator<Item = OptionLine<'_>> {
    let mut group = None;
    content_lines(text).filter_map(move |(line, start, text)| one_line(text, start, line, &mut group))
}

/// Returns the lines that are not empty, without leading space, each with its number and its place in the text. Many rules go
/// through every line of a large text, so this works on bytes.
fn content_lines(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let (mut at, mut number) = (0, 1);
    iter::from_fn(move || {
        let rest = text.as_bytes().get(at..)?;
        let space = rest.iter().position(|byte| !is_space(char::from(*byte))).unwrap_or(rest.len());
        number += rest[..space].iter().map(|byte| usize::from(*byte == b'\n')).sum::<usize>();
        let start = at + space;
        let line = &rest[space..];
        let line = &line[..line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len())];
        at = start + line.len();
        // A C string ends at its first NUL.
        let length = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
        (!line.is_empty()).then(|| (number, start, &text[start..start + length]))
    })
}

/// Returns all options, in order.
pub fn read(text: &str) -> impl Iterator<Item = Setting<'_>> {
    settings(text).map(UnparsedSetting::read)
}

/// Returns at least the options whose keys contain one of these words, which must be in lower case.
pub fn read_with<'a>(text: &'a str, words: &[&str]) -> impl Iterator<Item = Setting<'a>> {
    settings(text).filter(|it| words.iter().any(|word| it.may_hold(word))).map(UnparsedSetting::read)
}

/// Returns all options before they are parsed.
fn settings(text: &str) -> impl Iterator<Item = UnparsedSetting<'_>> {
    lines(text).filter_map(|line| match line {
        OptionLine::Setting(setting) => Some(setting),
        OptionLine::Include { .. } | OptionLine::Broken { .. } => None,
    })
}

/// Returns all options of a server, in order.
fn of_server(text: &str) -> impl Iterator<Item = UnparsedSetting<'_>> {
    settings(text).filter(|it| it.readers == Readers::Server)
}

/// Returns at least the options of a server whose keys contain this word, which must be in lower case, in order.
fn of_server_with<'a>(text: &'a str, word: &str) -> impl Iterator<Item = Setting<'a>> {
    of_server(text).filter(move |it| it.may_hold(word)).map(UnparsedSetting::read)
}

/// Returns the line that counts for this key: the last one in a group that a server reads.
pub fn last<'a>(text: &'a str, key: &str) -> Option<Setting<'a>> {
    of_server_with(text, last_word(key)).filter(|it| it.key == key).last()
}

/// Returns the value that a server uses for this key. A text that does not contain the key's last word is skipped: MariaDB
/// distinguishes case in the names of options, and the last word of each is in lower case.
pub fn effective<'a>(text: &'a str, key: &str) -> Option<OptionValue<'a>> {
    text.contains(last_word(key)).then(|| last(text, key))??.value
}

fn last_word(key: &str) -> &str {
    key.rsplit('_').next().unwrap_or_default()
}

/// Returns whether a key of a ConfigMap is read as an option file: by its name, or because it begins with a `[group]`
/// and a server reads one of its groups.
pub fn is_file(name: &str, text: &str) -> bool {
    let mut content =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let begins_with_group = content.next().is_some_and(|line| line.starts_with('['));
    name.rsplit('.').next() == Some("cnf") || begins_with_group && of_server(text).next().is_some()
}

/// Returns whether the text sets a Galera option for a server. Switching Galera off does not count.
pub fn configures_galera(text: &str) -> bool {
    let is_galera = |it: Setting<'_>| {
        it.key.starts_with("wsrep_") && !(it.key == "wsrep_on" && switch(it.look()) == Some(false))
    };
    text.contains("wsrep") && of_server_with(text, "wsrep").any(is_galera)
}

/// The name that stands for the line that includes other files, in the field of a finding.
pub const INCLUDES: &str = "!include";
/// The name that stands for the line at which servers stop reading, in the field of a finding.
pub const STOPS: &str = "!stop";

/// Returns the number of the line with the option `name` that a server reads; or else with `key` in the group `name`; or
/// else with the first option in that group.
pub fn line_of(text: &str, name: &str, key: Option<&str>) -> Option<usize> {
    if name.starts_with('!') {
        return lines(text).find_map(|line| match line {
            OptionLine::Include { line, .. } if name == INCLUDES => Some(line),
            OptionLine::Broken { line, .. } if name == STOPS => Some(line),
            _ => None,
        });
    }
    let read_by_server = read(text).filter(|it| it.key == name && it.readers == Readers::Server).last();
    let in_group = || read(text).filter(|it| it.group == name && Some(&*it.key) == key).last();
    let first_in_group = || read(text).find(|it| it.group == name);
    read_by_server.or_else(in_group).or_else(first_in_group).map(|it| it.line)
}

fn one_line<'a>(
    text: &'a str,
    start: usize,
    line: usize,
    group: &mut Option<(&'a str, Readers)>,
) -> Option<OptionLine<'a>> {
    match text.as_bytes().first()? {
        b'#' | b';' => return None,
        b'!' => return Include::read(text).map(|what| OptionLine::Include { line, what }),
        b'[' => {
            let Some((name, _)) = text[1..].split_once(']') else {
                return Some(OptionLine::Broken { line, what: "a group without its ]" });
            };
            let name = name.trim_end_matches(is_space);
            *group = Some((name, readers(name)));
            return None;
        }
        _ => {}
    }
    let Some(group) = *group else {
        let has_mark = text.starts_with('\u{feff}');
        let what = if has_mark { "a byte order mark" } else { "an option before any [group]" };
        return Some(OptionLine::Broken { line, what });
    };
    let (group, readers) = group;
    Some(OptionLine::Setting(UnparsedSetting { group, readers, line, text, start }))
}

impl<'a> UnparsedSetting<'a> {
    /// Returns whether a server that does not know this option only warns.
    fn is_loose(&self) -> bool {
        self.text.get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case("loose"))
    }

    /// Returns whether the key may be one that `known` accepts, without parsing it: a key of several words may be spelled in
    /// several ways.
    fn may_be(&self, known: impl Fn(&str) -> bool) -> bool {
        let key = self.text.split_once('=').map_or(self.text, |(key, _)| key);
        let one_word = || key.split('#').next().unwrap_or_default().trim_end_matches(is_space);
        key.contains('_')
            || key.contains('-')
            || known(one_word())
            || key.bytes().any(|byte| byte.is_ascii_uppercase())
    }

    /// Returns whether the key, in any case, may contain this word, which must be in lower case.
    fn may_hold(&self, word: &str) -> bool {
        if self.text.len() < word.len() {
            return false;
        }
        let key = self.text.split_once('=').map_or(self.text, |(key, _)| key);
        key.contains(word) || key.bytes().any(|byte| byte.is_ascii_uppercase())
    }

    pub fn read(self) -> Setting<'a> {
        let loose = self.is_loose();
        let Self { group, readers, line, text, start } = self;
        let text = without_comment(text).trim_end_matches(is_space);
        let (key, raw) = text.split_once('=').map_or((text, None), |(key, raw)| (key, Some(raw)));
        let (key, negated) = one_spelling_and_switch(key);
        let (value, at) = match raw {
            None => (None, text.len()..text.len()),
            Some(raw) => {
                let bare = raw.trim_start_matches(is_space);
                let from = if bare.is_empty() { text.len() - raw.len() } else { text.len() - bare.len() };
                (Some(value::unquoted(bare)), from..from + bare.len())
            }
        };
        let at = start + at.start..start + at.end;
        match negated {
            // `--skip-option=0` is a double negation.
            Some(on) => {
                let reversed = value.as_ref().is_some_and(|value| value.look() == "0");
                let value = Some(OptionValue::from(if on == reversed { "0" } else { "1" }));
                Setting { group, readers, key, loose, value, line, at: at.start..at.start }
            }
            None => Setting { group, readers, key, loose, value, line, at },
        }
    }
}

/// Removes a comment: a `#` begins one unless it is in quotes; a `;` does not.
fn without_comment(text: &str) -> &str {
    // Most lines have no `#` at all.
    if !text.contains('#') {
        return text;
    }
    let (mut quote, mut escaped) = (None, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' | b'\'' if !escaped => match quote {
                None => quote = Some(byte),
                Some(open) if open == byte => quote = None,
                Some(_) => {}
            },
            b'#' if quote.is_none() => return &text[..at],
            _ => {}
        }
        escaped = quote.is_some() && byte == b'\\' && !escaped;
    }
    text
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// Returns the canonical spelling: `Loose-WSREP-Cluster-Address` and `wsrep_cluster_address` are one key.
pub fn one_spelling(key: &str) -> Cow<'_, str> {
    one_spelling_and_switch(key).0
}

/// Options whose own name begins with `skip_`; for all others it means "off".
const NAMED_SKIP: [&str; 10] = [
    "external_locking",
    "grant_tables",
    "host_cache",
    "log_bin",
    "name_resolve",
    "networking",
    "replica_start",
    "show_database",
    "slave_start",
    "stack_trace",
];

/// Returns the canonical spelling of a key, and whether a prefix already means on or off. `maximum_` stays: it limits
/// what a session may set, and sets nothing itself.
fn one_spelling_and_switch(key: &str) -> (Cow<'_, str>, Option<bool>) {
    let mut key = match key.trim_matches(is_space) {
        plain if !plain.bytes().any(|byte| byte == b'-' || byte.is_ascii_uppercase()) => Cow::Borrowed(plain),
        other => Cow::Owned(other.to_ascii_lowercase().replace('-', "_")),
    };
    let mut switch = None;
    for (prefix, meaning) in
        [("loose_", None), ("skip_", Some(false)), ("disable_", Some(false)), ("enable_", Some(true))]
    {
        match key.strip_prefix(prefix) {
            Some(rest) if !(prefix == "skip_" && NAMED_SKIP.contains(&rest)) => {
                let length = prefix.len();
                key = match key {
                    Cow::Borrowed(text) => Cow::Borrowed(&text[length..]),
                    Cow::Owned(mut text) => Cow::Owned(text.split_off(length)),
                };
                switch = meaning.or(switch);
            }
            _ => {}
        }
    }
    (key, switch)
}

#[cfg(test)]
mod tests;
