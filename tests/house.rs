//! The house: what decides cannot reach the world, every file says what it is for, and the README's tables are the program's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use decide::marks::{MARKS, Whose};
use decide::rules;
use decide::webhooks::{ENTRIES, Entry, Selects};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// What decides depends on nothing that reaches the world: no client, no runtime, no server, nothing that logs.
#[test]
fn what_decides_cannot_reach_the_world() {
    let arguments = ["tree", "--package=gatera-decide", "--edges=normal", "--prefix=none", "--format={p}"];
    let output =
        Command::new(env!("CARGO")).args(arguments).arg("--locked").current_dir(root()).output().unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"gatera-decide") && names.contains(&"serde_json"), "{tree}");
    for outside in
        ["gatera", "kube", "kube-client", "k8s-openapi", "tokio", "hyper", "rustls", "tracing", "axum"]
    {
        assert!(!names.contains(&outside), "the crate that decides depends on {outside}:\n{tree}");
    }
}

/// The standard library is there for everybody, and so is jiff's clock: those are refused by clippy, with a reason.
#[test]
fn what_decides_has_no_clock_and_no_files() {
    let fence = fs::read_to_string(root().join("src/decide/clippy.toml")).unwrap();
    for path in [
        "std::fs::read_to_string",
        "std::time::SystemTime",
        "std::time::Instant",
        "std::env::var",
        "jiff::Timestamp::now",
        "jiff::Zoned::now",
    ] {
        assert!(
            fence.contains(&format!("path = \"{path}\", reason = \"")),
            "{path} is not refused, or without a reason"
        );
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for path in files(&root().join("src")).into_iter().chain(files(&root().join("tests"))) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} does not open with what it owns", path.display());
        let (lines, limit) = (text.lines().count(), 400);
        assert!(lines <= limit, "{} has {lines} lines: it wants a second room", path.display());
    }
}

/// A comment that names a file names one that is there.
#[test]
fn files_that_comments_name_exist() {
    let all: Vec<_> = files(&root().join("src")).into_iter().chain(files(&root().join("tests"))).collect();
    for path in &all {
        let text = fs::read_to_string(path).unwrap();
        let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, comment)| comment));
        let words = comments.flat_map(|comment| comment.split('`').skip(1).step_by(2));
        for named in words
            .filter(|word| Path::new(word).extension().is_some_and(|it| it == "rs") && !word.contains(' '))
        {
            assert!(all.iter().any(|it| it.ends_with(named)), "{} names {named}", path.display());
        }
    }
}

/// The README's table of rules is the rulebook's.
#[test]
fn the_readme_lists_the_rules_that_exist() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for rule in rules::RULES {
        let row = format!("| {} | {} | {} |", rule.id, rule.name, rule.summary());
        assert!(readme.contains(&row), "README.md lacks this row:\n{row}");
    }
    let rows = readme.lines().filter(|line| line.starts_with("| G")).count();
    assert_eq!(rows, rules::RULES.len(), "README.md lists a rule that does not exist");
}

/// The README's table of webhook entries is the one that is registered.
#[test]
fn the_readme_lists_the_entries_that_are_registered() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for row in entry_rows() {
        assert!(readme.contains(&row), "README.md lacks this row:\n{row}");
    }
}

fn entry_rows() -> Vec<String> {
    let row = |entry: &Entry| {
        let asks = entry
            .asks
            .iter()
            .map(|(_, resource, verbs)| format!("{resource} {}", verbs.join("/")))
            .collect::<Vec<_>>()
            .join(", ");
        let of = match entry.selects {
            Selects::Template => "templates that are adopted",
            Selects::Labels => "adopted labels",
            Selects::LabelsElsewhere => "adopted labels, namespaces without the mode label",
            Selects::LabelledNamespaces => "everything in namespaces with the mode label",
            Selects::OtherNamespaces => "everything in other namespaces",
            Selects::ModeLabel => "namespaces with the mode label",
            Selects::NoModeLabel => "other namespaces",
        };
        let without = if entry.fail_closed { "refused" } else { "allowed" };
        format!("| {} | {asks} | {of} | {without} |", entry.name)
    };
    ENTRIES.iter().map(row).collect()
}

/// Every mark is in the README's table of those that people may set, or of those that are the guard's, with the same
/// words, and no other is; and every constant that names one has its row.
#[test]
fn the_readme_lists_the_marks_by_whose_they_are() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (whose, header) in [
        (Whose::Peoples, "| annotation | on | value | effect |\n"),
        (Whose::Guards, "| annotation | on | what the guard notes |\n"),
    ] {
        let (_, table) = readme.split_once(header).unwrap();
        let rows: Vec<_> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
        let marks: Vec<_> = MARKS.iter().filter(|mark| mark.whose == whose).collect();
        assert_eq!(rows.len(), marks.len(), "{rows:#?}");
        for (row, mark) in rows.iter().zip(marks) {
            let begins = format!("| `{}` | {} | ", mark.name, mark.stands.name());
            let ends = format!("| {} |", mark.means);
            assert!(row.starts_with(&begins) && row.ends_with(&ends), "{row}\nis to be {begins}… {ends}");
        }
    }
    let source = fs::read_to_string(root().join("src/decide/marks.rs")).unwrap();
    let named = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = \""));
    for (name, value) in named
        .filter(|(name, _)| !matches!(*name, "PREFIX" | "UNPROVEN" | "UNKNOWN" | "FOUNDS" | "FREE" | "NONE"))
    {
        let value = value.trim_end_matches("\";");
        assert!(MARKS.iter().any(|mark| mark.name == value), "{name} has no row in the table");
    }
    let manual = rules::find("G18").unwrap().manual();
    for mark in MARKS {
        assert!(manual.contains(&format!("`{}`", mark.name)), "G18's page does not name {}", mark.name);
    }
}
