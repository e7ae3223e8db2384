//! The house: imports go one way, and the fence around the deciding half stands.
//!
//! clippy's `disallowed-types` and `disallowed-methods` know types, this test knows rooms: what a deciding module
//! imports must itself decide. Both are needed, and both are shown to bite.

use std::fs;
use std::path::{Path, PathBuf};

use gatera::marks::{MARKS, Whose};
use gatera::rules;
use gatera::webhooks::{ENTRIES, Entry, Selects};

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

/// The modules that `src/lib.rs` declares as deciding, which is where clippy's fence is put up.
fn deciding() -> Vec<String> {
    let map = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    assert!(
        map.contains("#[deny(clippy::disallowed_types, clippy::disallowed_methods)] pub mod $name;"),
        "the fence is down"
    );
    let (_, list) = map.split_once("deciding! {").unwrap();
    let (list, _) = list.split_once('}').unwrap();
    list.split_whitespace().map(str::to_owned).collect()
}

/// Why this line of a deciding module is on the wrong side of the fence.
fn trespass(line: &str, deciding: &[String]) -> Option<String> {
    let code = line.split("//").next().unwrap_or_default();
    for outside in [
        "tokio",
        "kube::",
        "k8s_openapi",
        "std::fs",
        "std::env",
        "std::net",
        "std::process",
        "std::thread",
        "::now()",
        "println!",
        "tracing",
    ] {
        if code.contains(outside) {
            return Some(format!("it mentions {outside}"));
        }
    }
    let rooms = code
        .split("crate::")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default());
    rooms
        .into_iter()
        .find(|room| !room.is_empty() && !deciding.iter().any(|it| it == room))
        .map(|room| format!("it looks into {room}"))
}

#[test]
fn what_decides_knows_nothing_of_what_does() {
    let deciding = deciding();
    assert!(deciding.len() > 10, "{deciding:?}");
    for path in files(&root().join("src")) {
        let inside = path.strip_prefix(root().join("src")).unwrap();
        let room = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if !deciding.contains(&room) {
            continue;
        }
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if let Some(why) = trespass(line, &deciding) {
                panic!(
                    "{}:{}: a deciding module must not do this: {why}\n  {line}",
                    inside.display(),
                    number + 1
                );
            }
        }
    }
}

#[test]
fn the_fence_bites() {
    let deciding = deciding();
    for line in [
        "use kube::Client;",
        "let now = Timestamp::now();",
        "std::fs::read_to_string(path)",
        "use crate::serve::Guard;",
        "    crate::lease::decide()",
        "tokio::spawn(async {})",
    ] {
        assert!(trespass(line, &deciding).is_some(), "{line}");
    }
    for line in [
        "use crate::view::View;",
        "// kube::Client is for those who do",
        "use crate::{object, verdict};",
        "fn now(view: &View) {}",
    ] {
        assert_eq!(trespass(line, &deciding), None, "{line}");
    }
    let fence = fs::read_to_string(root().join("clippy.toml")).unwrap();
    for path in [
        "kube::Client",
        "kube::Api",
        "std::time::SystemTime",
        "jiff::Timestamp::now",
        "tokio::spawn",
        "std::env::var",
    ] {
        assert!(
            fence.contains(&format!("path = \"{path}\", reason = \"")),
            "{path} is not fenced, or without a reason"
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
    let source = fs::read_to_string(root().join("src/marks.rs")).unwrap();
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
