//! The meaning of an option file: the options and values of every group that a program reads, as a text that is the
//! same for all files with the same meaning.
//!
//! Owns: whether two files mean the same. Must not know: ConfigMaps, or which options are good. Comments, the order of different
//! options, spaces and unread groups have no meaning; but in a file that includes others, and in one of more than 64 KiB,
//! everything counts. The cluster's address is left out everywhere, because it follows the number of members and no member
//! restarts for it.

use std::collections::{BTreeMap, BTreeSet};

use super::value::number;
use super::{OptionLine, Readers, Setting, UnparsedSetting, lines};

/// Options by their group and name, each with all its values: some options add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meaning(BTreeMap<(String, String), Vec<String>>);

/// A line that cannot be interpreted, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unclear(pub usize);

impl Meaning {
    /// Reads a text. An error is the line at which a server stops reading: it ignores the rest, or does not start.
    pub fn of(text: &str) -> Result<Self, Unclear> {
        let (mut all, mut includes) = (Self::default(), false);
        let is_short = text.len() <= LONGEST_TEXT;
        for line in lines(text) {
            match line {
                OptionLine::Broken { line, .. } => return Err(Unclear(line)),
                OptionLine::Include { .. } => includes = true,
                OptionLine::Setting(it) if is_short && it.readers != Readers::NoProgram => all.add(it),
                OptionLine::Setting(_) => {}
            }
        }
        // The options of another file may come before or after those of this one.
        if includes {
            all.add_whole("!include", text);
        }
        if !is_short {
            all.add_whole(TOO_LONG, text);
        }
        Ok(all)
    }

    fn add_whole(&mut self, what: &str, text: &str) {
        self.0.insert((SERVER.to_owned(), what.to_owned()), vec![text.to_owned()]);
    }

    fn add(&mut self, setting: UnparsedSetting<'_>) {
        // A server that does not know such an option continues without it.
        let loose = if setting.is_loose() { "loose " } else { "" };
        let it = setting.read();
        if it.key == "wsrep_cluster_address" {
            return;
        }
        let group = if is_every_servers(it.group) { SERVER } else { it.group };
        let value = if group == SERVER { plain(&it) } else { verbatim(&it) };
        let values = self.0.entry((group.to_owned(), it.key.into_owned())).or_default();
        values.push(format!("{loose}{value}"));
    }

    /// Returns a text that is the same for all files with the same meaning, and differs for all others.
    pub fn canonical(&self) -> String {
        let quoted = |text: &String| format!("{}:{text}", text.len());
        let one = |((group, key), values): (&(String, String), &Vec<String>)| {
            let values = values.iter().map(quoted).collect::<Vec<_>>().join(",");
            format!("{} {} {values}\n", quoted(group), quoted(key))
        };
        self.0.iter().map(one).collect()
    }

    /// Returns the options in which two files differ, by name; those of other programs with their group.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let all = self.0.keys().chain(other.0.keys().filter(|key| !self.0.contains_key(*key)));
        let differ = all.filter(|key| self.0.get(*key) != other.0.get(*key));
        let named = differ.map(|(group, key)| match (is_word(key), group == SERVER) {
            _ if key == TOO_LONG => "a file of more than 64 KiB".to_owned(),
            (false, _) => "a line that is not an option".to_owned(),
            (true, false) if is_word(group) => format!("[{group}] {key}"),
            (true, _) => key.clone(),
        });
        named.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The longest text, in bytes, that is interpreted; a longer one counts literally. Real option files are shorter, and a
/// large one must not delay requests about other objects.
const LONGEST_TEXT: usize = 64 * 1024;
/// The name under which a longer text is kept as a whole.
const TOO_LONG: &str = "!text";

/// The group that stands for all groups that servers of every version read and no other program reads.
const SERVER: &str = "mysqld";

fn is_every_servers(group: &str) -> bool {
    ["mysqld", "server", "mariadb", "mariadbd", "galera"].contains(&group)
}

/// Returns whether a text could be an option and may be printed: a user may have pasted a password.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '!');
    text.len() <= 64 && text.chars().all(plain)
}

/// Returns a value literally, after a `=`; the result is empty for a bare key.
fn verbatim(setting: &Setting<'_>) -> String {
    setting.value.as_ref().map_or_else(String::new, |value| format!("={}", value.look()))
}

/// Returns a server's value in its canonical spelling.
fn plain(setting: &Setting<'_>) -> String {
    let text = setting.look();
    let on = |words: [&str; 3]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match number(text) {
        Some(number) => format!("={number}"),
        None if on(["on", "true", "1"]) => "=1".to_owned(),
        None if on(["off", "false", "0"]) => "=0".to_owned(),
        None => verbatim(setting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(one: &str, other: &str) -> Vec<String> {
        let [one, other] = [one, other].map(|text| Meaning::of(text).unwrap());
        assert_eq!(one.canonical() == other.canonical(), one == other);
        one.differences(&other)
    }

    #[test]
    fn spelling_order_and_comments_have_no_meaning() {
        let text = "[mysqld]\nmax_connections = 100\ninnodb-buffer-pool-size=1G # mine\nskip-name-resolve\n[client]\nport=1\n";
        for same in [
            "# new\n[server]\ninnodb_buffer_pool_size=1073741824\nMAX-CONNECTIONS='100'\n\n[mariadb]\nskip_name_resolve\n[client]\nport = 1\n",
            &format!("{text}[galera]\nwsrep_cluster_address=gcomm://a,b\n"),
            &format!("{text}[innodb]\nunread=1\n"),
        ] {
            assert_eq!(differ(text, same), Vec::<String>::new(), "{same}");
        }
    }

    #[test]
    fn options_that_differ_are_named() {
        let text = "[mysqld]\na=1\nplugin_load_add=x\nplugin_load_add=y\n[sst]\nstreamfmt=xbstream\n!include /etc/a\n";
        for (other, named) in [
            (text.replace("a=1", "a=2"), "a"),
            (text.replace("a=1", "a"), "a"),
            (text.replace("a=1", "loose_a=1"), "a"),
            (text.replace("a=1", "a=1\nmy password: hunter2"), "a line that is not an option"),
            (text.replace("a=1", ""), "a"),
            (text.replace("plugin_load_add=x\n", ""), "plugin_load_add"),
            (text.replace("xbstream", "mbstream"), "[sst] streamfmt"),
            (text.replace("/etc/a", "/etc/b"), "!include"),
            (text.replace("[sst]", "#\n[sst]"), "!include"),
        ] {
            let differ: Vec<_> = differ(text, &other)
                .into_iter()
                .filter(|it| named == "!include" || it != "!include")
                .collect();
            assert_eq!(differ, [named], "{other}");
        }
    }

    #[test]
    fn a_long_text_counts_literally() {
        let long = format!("[mysqld]\na=1\n{}", "# as it was\n".repeat(LONGEST_TEXT / 12));
        assert_eq!(differ(&long, &long.clone()), Vec::<String>::new());
        assert_eq!(differ(&long, &format!("{long}#\n")), ["a file of more than 64 KiB"]);
        assert_eq!(Meaning::of(&format!("{long}[broken\n")), Err(Unclear(LONGEST_TEXT / 12 + 3)));
        let short = &long[..LONGEST_TEXT];
        assert_eq!(differ(short, "[mysqld]\na=1\n"), Vec::<String>::new(), "64 KiB are interpreted");
    }

    #[test]
    fn a_text_in_which_a_server_stops_reading_is_an_error() {
        assert_eq!(Meaning::of("[mysqld]\na=1\n[broken\n"), Err(Unclear(3)));
        assert_eq!(Meaning::of("a=1\n"), Err(Unclear(1)));
        assert_eq!(Meaning::of("").unwrap(), Meaning::default());
    }
}
