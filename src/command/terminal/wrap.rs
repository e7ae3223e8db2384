//! Breaks long lines at spaces, so that people can read them at the width of their terminal.
//!
//! Owns: where a line may be broken, and how far the rest of it is indented. Commands that people paste into a shell stay in one
//! piece: a terminal wraps them by itself, and copies them whole. Must not know: which command wrote the line, or what a
//! terminal is.

use std::borrow::Cow;
use std::sync::LazyLock;

use anstream::adapter::strip_str;
use clap::CommandFactory as _;
use unicode_width::UnicodeWidthStr as _;

use crate::command::Cli;

/// The smallest width of indented text; narrower text is hard to read, so the indentation is reduced.
const MIN_TEXT_WIDTH: usize = 20;
/// The indentation of continuation lines, if the line itself does not determine it.
const INDENT: usize = 2;

/// Folds one line, without its line break, to this many columns.
pub fn fold(line: &str, columns: usize) -> Cow<'_, str> {
    let shown = plain(line);
    if shown.width() <= columns || is_excerpt(&shown) {
        return Cow::Borrowed(line);
    }
    let (stem, pieces) = (stem(&shown), pieces(line));
    let indent = indent(stem, &pieces, columns);
    let hang = indent.width();
    let (mut text, mut column) = (String::with_capacity(line.len() + 64), 0);
    for (number, Unbroken { gap, text: piece }) in pieces.iter().enumerate() {
        let width = plain(piece).width();
        let too_long = column + gap + width > columns;
        // A piece stays in its line if it would not begin further to the left in a new line.
        if number > 0 && too_long && hang < column + gap {
            text.push('\n');
            text.push_str(&indent);
            column = hang;
        } else {
            text.extend(std::iter::repeat_n(' ', *gap));
            column += gap;
        }
        text.push_str(piece);
        column += width;
    }
    Cow::Owned(text)
}

/// A piece of text that is not broken, and the number of spaces before it.
#[derive(Debug, PartialEq, Eq)]
struct Unbroken<'a> {
    gap: usize,
    text: &'a str,
}

/// Splits a line into words; a command to paste is one piece.
fn pieces(line: &str) -> Vec<Unbroken<'_>> {
    let words = words(line);
    let (mut pieces, mut kind, mut begin) = (Vec::<Unbroken<'_>>::new(), RunKind::Prose, 0);
    for (number, (at, word)) in words.iter().enumerate() {
        let (end, shown) = (at + word.len(), plain(word));
        match pieces.last_mut() {
            Some(last) if kind.takes(&shown) => last.text = &line[begin..end],
            last => {
                let last_end = last.map_or(0, |last| begin + last.text.len());
                pieces.push(Unbroken { gap: at - last_end, text: word });
                begin = *at;
                let next = words.get(number + 1).map(|(_, next)| plain(next));
                kind = RunKind::at(&shown, next.as_deref());
            }
        }
        kind.read(&shown);
    }
    pieces
}

/// Returns each word of a line, and where it begins.
fn words(line: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let parts = line.split(' ').map(|word| {
        let begin = at;
        at += word.len() + 1;
        (begin, word)
    });
    parts.filter(|(_, word)| !word.is_empty()).collect()
}

/// The kind of text to which the next words belong.
enum RunKind {
    /// Ordinary text, which may be broken.
    Prose,
    /// Text between backticks.
    Backticks,
    /// A command, with the quote that is open and the number of its own parentheses that are open.
    Command { quote: Option<char>, depth: usize },
}

impl RunKind {
    /// Returns the kind of text that begins with this word.
    fn at(word: &str, next: Option<&str>) -> Self {
        match (word.trim_start_matches(['(', '[']), next) {
            ("kubectl" | "helm", Some(_)) => Self::Command { quote: None, depth: 0 },
            ("gatera", Some(next)) if is_subcommand(next) => Self::Command { quote: None, depth: 0 },
            _ => Self::Prose,
        }
    }

    /// Returns whether this word still belongs to the piece. Words in parentheses after a command do not: they explain it.
    fn takes(&self, word: &str) -> bool {
        match self {
            Self::Prose => false,
            Self::Backticks | Self::Command { quote: Some(_), .. } => true,
            Self::Command { depth, .. } => *depth > 0 || !word.starts_with('('),
        }
    }

    /// Reads a word, and ends the piece if this is its last one. A quote that is never closed keeps the rest of the line whole,
    /// which does no harm.
    fn read(&mut self, word: &str) {
        let toggles = word.matches('`').count() % 2 == 1;
        let ends = match self {
            Self::Prose if toggles => {
                *self = Self::Backticks;
                false
            }
            Self::Prose => false,
            Self::Backticks => toggles,
            Self::Command { quote, depth } => {
                let word = word.trim_start_matches(['(', '[']);
                closes(word, quote, depth) || quote.is_none() && *depth == 0 && word.ends_with([';', ','])
            }
        };
        if ends {
            *self = Self::Prose;
        }
    }
}

/// Reads a word of a command, and updates the quote and the parentheses that are open. Returns whether the word closes a
/// parenthesis that the command did not open.
fn closes(word: &str, quote: &mut Option<char>, depth: &mut usize) -> bool {
    let mut before = ' ';
    for c in word.chars() {
        if let Some(open) = *quote {
            *quote = Some(open).filter(|open| *open != c);
        } else {
            match c {
                // After a letter the character is an apostrophe.
                '\'' | '"' if !before.is_alphanumeric() => *quote = Some(c),
                '(' => *depth += 1,
                ')' if *depth == 0 => return true,
                ')' => *depth -= 1,
                _ => {}
            }
        }
        before = c;
    }
    false
}

/// Returns whether the word after `gatera` is a subcommand: `gatera status` is a command, "gatera knows" is not.
fn is_subcommand(word: &str) -> bool {
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| Cli::command().get_subcommands().map(|it| it.get_name().to_owned()).collect());
    let word = word.trim_end_matches(|c: char| !c.is_alphanumeric());
    NAMES.iter().any(|name| name == word)
}

/// Returns whether the line is a numbered line of a file, or marks a place in the line above it: its columns have a meaning.
fn is_excerpt(shown: &str) -> bool {
    let after_number =
        shown.strip_prefix("  ").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    after_number.is_some_and(|rest| rest.trim_start().starts_with("| "))
}

/// Returns the part of a line before its first word: spaces, and the branches of a tree.
fn stem(shown: &str) -> &str {
    let end = shown.find(|c| !matches!(c, ' ' | '│' | '├' | '└' | '─'));
    &shown[..end.unwrap_or_default()]
}

/// Returns the indentation of continuation lines: below the last column that has room for them, otherwise below the beginning
/// of the line. The branches of a tree continue in it.
fn indent(stem: &str, pieces: &[Unbroken<'_>], columns: usize) -> String {
    let fits = |at: &usize| at + MIN_TEXT_WIDTH <= columns;
    let mut column = 0;
    let mut begins = Vec::new();
    for Unbroken { gap, text } in pieces {
        column += gap;
        if *gap > 1 && column > stem.width() {
            begins.push(column);
        }
        column += plain(text).width();
    }
    let start = stem.width();
    let width =
        begins.into_iter().rev().chain([start + INDENT, start]).find(fits).unwrap_or(INDENT).max(INDENT);
    let branches = stem.chars().map(|c| match c {
        '│' | '├' => '│',
        _ => ' ',
    });
    branches.chain(std::iter::repeat(' ')).take(width).collect()
}

/// Returns the text without escape sequences for colours and the cursor, which take no columns.
fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(strip_str(text).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Commands of messages, which people paste.
    const COMMANDS: [&str; 8] = [
        "kubectl -n db wait statefulset/galera '--for=jsonpath={.status.readyReplicas}=3' --timeout=10m",
        "kubectl -n db patch statefulset galera --patch '{\"spec\": {\"replicas\": 3}, \"a\": \"b; c, (d)\"}'",
        "kubectl annotate statefulset galera \"gatera.dev/override=G01 until=$(date -u -d '+30 minutes' +%FT%TZ) reason=moving house\"",
        "kubectl -n gatera get configmap gatera-rules -o 'jsonpath={.data.G01}{.data.G04}'",
        "helm template shop charts/galera | gatera check -",
        "gatera recover galera -n db --from galera-0 --accept-loss '3 transactions; more than that'",
        "gatera explain G04",
        "kubectl -n db exec galera-0 -- sh -c 'mariadb -e \"SHOW STATUS\" | sort' > $(mktemp -t x)",
    ];

    #[test]
    fn a_line_that_fits_stays_and_the_rest_of_a_long_one_is_indented() {
        let line = "  why: a member that leaves may be the one";
        assert_eq!(fold(line, 42), line);
        assert_eq!(fold(line, 41), "  why: a member that leaves may be the\n    one");
        assert_eq!(fold("", 40), "");
        assert_eq!(fold("a-word-that-is-longer-than-any-line", 20), "a-word-that-is-longer-than-any-line");
    }

    #[test]
    fn a_row_continues_below_its_last_column_that_has_room() {
        let row = "WRONG  leader      no replica leads, so entries are not renewed";
        assert_eq!(
            fold(row, 40),
            "WRONG  leader      no replica leads, so\n                   entries are not\n                   renewed"
        );
        assert_eq!(fold(row, 38), "WRONG  leader      no replica leads,\n       so entries are not renewed");
        assert_eq!(
            fold(row, 26),
            "WRONG  leader      no\n  replica leads, so\n  entries are not renewed",
            "no column has room"
        );
    }

    #[test]
    fn deep_indentation_is_reduced() {
        let line = "                   do: look at its pods, and at what they say";
        assert_eq!(
            fold(line, 41),
            "                   do: look at its pods,\n                     and at what they say"
        );
        assert_eq!(fold(line, 40).lines().nth(1), Some("                   and at what they say"));
        assert_eq!(fold(line, 38), "                   do: look at its\n  pods, and at what they say");
    }

    #[test]
    fn branches_of_a_tree_continue_on_folded_lines() {
        assert_eq!(
            fold("│   ├── galera-0  waits for the members of its last view", 40),
            "│   ├── galera-0  waits for the members\n│   │             of its last view"
        );
        assert_eq!(
            fold("│   └── WAITS galera-0, galera-1: they form it again", 40),
            "│   └── WAITS galera-0, galera-1: they\n│         form it again"
        );
        assert_eq!(
            fold("└── Steps of the guard: under way, and there is more to say", 40),
            "└── Steps of the guard: under way, and\n      there is more to say"
        );
    }

    #[test]
    fn lines_of_files_are_not_folded() {
        for line in [
            "  91 | replicas: 1 # and a comment that is longer than a line",
            "     |                                              ^",
            "  \u{1b}[2m91\u{1b}[0m \u{1b}[2m|\u{1b}[0m replicas: 1 # and a comment that is longer than a line",
        ] {
            assert_eq!(fold(line, 30), line);
        }
        assert!(fold("these are templates: helm template a | gatera check - shows it", 40).contains('\n'));
    }

    #[test]
    fn colours_take_no_columns() {
        let line = "\u{1b}[1mseed.yaml:11:1\u{1b}[0m: \u{1b}[1;31mrefused\u{1b}[0m";
        assert_eq!(fold(line, 23), line);
        assert_eq!(fold(line, 22), "\u{1b}[1mseed.yaml:11:1\u{1b}[0m:\n  \u{1b}[1;31mrefused\u{1b}[0m");
        let home = "\u{1b}[H\u{1b}[Jevery 5 s, since 2026-12-01T10:00:00Z; Ctrl-C ends it";
        assert_eq!(
            fold(home, 40),
            "\u{1b}[H\u{1b}[Jevery 5 s, since 2026-12-01T10:00:00Z;\n  Ctrl-C ends it"
        );
    }

    /// Characters of other scripts take two columns.
    #[test]
    fn columns_are_counted_and_not_letters() {
        assert_eq!(fold("資料庫資料庫資 料庫資料庫", 20), "資料庫資料庫資\n  料庫資料庫");
    }

    #[test]
    fn a_command_to_paste_ends_where_the_sentence_continues() {
        let texts = |line| pieces(line).into_iter().map(|it| it.text).collect::<Vec<_>>();
        for (line, whole) in [
            ("do: kubectl -n gatera get pods; a ready replica", "kubectl -n gatera get pods;"),
            ("do: kubectl describe pod x (why is it so?), then", "kubectl describe pod x"),
            ("it (kubectl -n db describe pod x), and then", "(kubectl -n db describe pod x),"),
            ("is (gatera explain G04), take", "(gatera explain G04),"),
            ("`gatera explain G04` shows it", "`gatera explain G04`"),
            ("by `date -u -v+30M` on macOS", "`date -u -v+30M`"),
            ("see helm template x | gatera check -", "helm template x | gatera check -"),
            ("do: gatera status -n db, then go on", "gatera status -n db,"),
        ] {
            assert!(texts(line).contains(&whole), "{line}: {:?}", texts(line));
        }
        assert_eq!(texts("gatera has not seen it"), ["gatera", "has", "not", "seen", "it"]);
        assert_eq!(texts("of the pod's of kubectl"), ["of", "the", "pod's", "of", "kubectl"]);
    }

    fn words() -> impl Strategy<Value = Vec<String>> {
        let word = prop_oneof![
            6 => "[a-z]{1,12}[,;:.]?",
            1 => "[(\\[]?[a-z]{1,9}[)\\]]?",
            1 => "\u{1b}\\[1;31m[a-z]{1,9}\u{1b}\\[0m",
            1 => "[äß資料…]{1,6}",
            1 => "gcomm://[a-z,]{30,60}",
        ];
        proptest::collection::vec(word, 1..40)
    }

    fn line() -> impl Strategy<Value = (String, Option<&'static str>)> {
        let stem = prop_oneof!["", "  ", "    ", "│   ├── ", "    └── ", " {19}"];
        let command = proptest::option::of(proptest::sample::select(&COMMANDS[..]));
        let ends = proptest::sample::select(vec!["; ", ", ", " (so) ", ") "]);
        (stem, words(), proptest::collection::vec(1..4_usize, 40), command, ends, words()).prop_map(
            |(stem, before, gaps, command, ends, after)| {
                let mut line = stem;
                for (word, gap) in before.iter().zip(gaps) {
                    line.push_str(word);
                    // Most gaps are one space.
                    line.push_str(if gap > 2 { "  " } else { " " });
                }
                line.push_str(command.unwrap_or_default());
                line.push_str(ends);
                line.push_str(&after.join(" "));
                (line.trim_end().to_owned(), command)
            },
        )
    }

    proptest! {
        #[test]
        fn folding_loses_no_word_and_breaks_no_command(
            (line, command) in line(),
            columns in prop_oneof![Just(40_usize), Just(80), Just(200), 20..120_usize],
        ) {
            let text = fold(&line, columns);
            let branch = |word: &&str| !word.chars().all(|c| "│├└─".contains(c));
            let all = |text: &str| text.split_whitespace().filter(branch).map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(all(&text), all(&line));
            if plain(&line).width() <= columns {
                prop_assert_eq!(&*text, &*line);
            }
            if let Some(command) = command {
                prop_assert!(text.lines().any(|it| it.contains(command)), "{}", text);
            }
            let hang = indent(stem(&plain(&line)), &pieces(&line), columns).width();
            for (number, shown) in text.lines().enumerate() {
                let begins = if number == 0 { hang.max(stem(&plain(shown)).width()) } else { hang };
                prop_assert_eq!(shown.trim_end(), shown, "no spaces at the end of a line");
                // A line is too wide only if its last piece fits in no line.
                let last = pieces(shown).last().map_or(0, |it| plain(it.text).width());
                prop_assert!(plain(shown).width() <= columns || begins + last > columns, "{}", text);
            }
        }
    }
}
