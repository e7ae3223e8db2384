//! Words that are banned from messages, comments and pages, each with what to write instead.

use std::fs;
use std::path::{Path, PathBuf};

/// Pronouns for machines and words for which there is a plainer one, each with what to write instead.
const BANNED: [(&str, &str); 8] = [
    ("whoever", "the noun: a caller, a member, a client, you"),
    ("whomever", "the noun"),
    ("somebody", "the noun: another caller, another program"),
    ("nobody", "\"no member\", \"no request\", \"nothing\""),
    ("everybody", "\"all members\", \"every caller\""),
    ("anybody", "\"any caller\""),
    ("good-bye", "what happens to the connection"),
    ("for ever", "\"never ends\", \"until …\""),
];

/// The files and folders that are checked: everything that users or engineers read.
const PLACES: &[&str] = &["src", "docs", "README.md", "SECURITY.md", "CONTRIBUTING.md", "certs", "charts"];

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut found: Vec<_> = fs::read_dir(path).unwrap().flat_map(|it| files(&it.unwrap().path())).collect();
    found.sort();
    found
}

#[test]
fn banned_words_are_not_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for path in PLACES.iter().flat_map(|place| files(&root.join(place))) {
        let of_tests = ["tests.rs", "search.rs"].iter().any(|it| path.ends_with(it));
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let lines = text.lines().take_while(|line| !line.trim_start().starts_with("#[cfg(test)]"));
        for (number, line) in lines.enumerate().filter(|_| !of_tests) {
            let lower = line.to_lowercase();
            let is_word = |at: usize, word: &str| {
                let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !letter(lower[..at].chars().next_back()) && !letter(lower[at + word.len()..].chars().next())
            };
            for (word, instead) in BANNED {
                if lower.match_indices(word).any(|(at, _)| is_word(at, word)) {
                    let place = path.strip_prefix(root).unwrap().display();
                    found.push(format!("{place}:{}: not {word:?}, but {instead}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}
