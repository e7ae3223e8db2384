//! Faults of an option file as a whole: where the server stops reading, groups that no server reads, options that are replaced.

use std::collections::BTreeMap;

use super::together::FileSets;
use super::{MOST_FINDINGS, RULE};
use crate::verdict::{Finding, Findings, Verdict};
use facts::galera::options::{self, Effective, OptionLine, Readers, keys};

/// Returns findings about everything except values.
pub(super) fn judge(file: &str, text: &str, sets: &FileSets<'_>) -> Findings {
    let (mut found, mut unread) = (Findings::new(), BTreeMap::<&str, (usize, String, usize)>::new());
    for line in options::lines(text) {
        match line {
            OptionLine::Broken { line, what } if found.iter().all(|it| it.verdict == Verdict::Warn) => {
                found.push(broken(file, line, what));
            }
            OptionLine::Include { line, what }
                if !found.iter().any(|it| it.verdict == Verdict::Warn) && !sets.hold(what) =>
            {
                found.push(include(file, line));
            }
            OptionLine::Setting(it) if it.readers == Readers::NoProgram => {
                let it = it.read();
                let full = unread.len() == MOST_FINDINGS && !unread.contains_key(it.group);
                if full || !keys::is_server_option(&it.key) {
                    continue;
                }
                unread.entry(it.group).or_insert_with(|| (it.line, it.key.into_owned(), 0)).2 += 1;
            }
            _ => {}
        }
    }
    found.extend(
        unread.into_iter().map(|(group, (line, key, count))| unread_group(file, group, line, &key, count)),
    );
    found
}

fn broken(file: &str, line: usize, what: &str) -> Finding {
    RULE.deny(
        format!("data[{file}].{}", options::STOPS),
        format!("{file} line {line}: the server stops reading at {what}"),
        "a server skips the rest of such a file, or does not start at all; in both cases the \
         options have no effect",
        "begin the file with a group, such as [mysqld], without a byte order mark, and end \
         every [group] with ]",
    )
}

fn include(file: &str, line: usize) -> Finding {
    RULE.warn(
        format!("data[{file}].{}", options::INCLUDES),
        format!("{file} line {line} includes other files, which gatera cannot see"),
        "gatera cannot judge options that it cannot see",
        "put the options into this ConfigMap",
    )
}

fn unread_group(file: &str, group: &str, line: usize, key: &str, count: usize) -> Finding {
    let group: String = group.chars().filter(|c| !c.is_control()).take(40).collect();
    let more = match count {
        1 => "has no effect".to_owned(),
        more => format!("and {} more have no effect", more - 1),
    };
    RULE.deny(
        format!("data[{file}][{group}]"),
        format!("[{group}] in {file} is a group that no server reads: {key} on line {line} {more}"),
        "mariadbd reads [server], [mysqld], [mariadb], [mariadbd], [client-server] and \
         [galera]; it skips all others silently",
        format!("write [mysqld] instead of [{group}]"),
    )
}

/// Returns findings about provider options that a later line replaces.
pub(super) fn lost(settings: &Effective<'_>) -> Findings {
    let lost = settings.lost().into_iter().map(|lost| {
        let (file, line) = (lost.file, lost.line);
        let options = match lost.options.as_slice() {
            [first, second, _, ..] => format!("{first}, {second} and {} more are", lost.options.len() - 2),
            [one] => format!("{one} is"),
            some => format!("{} are", some.join(" and ")),
        };
        RULE.deny(
            format!("data[{file}].wsrep_provider_options"),
            format!("a later wsrep_provider_options replaces that of {file} line {line}: {options} ignored"),
            "all provider options are one value, and the server uses only the last line",
            "write all of them into one line: wsrep_provider_options = \"a=1; b=2\"",
        )
    });
    lost.collect()
}
