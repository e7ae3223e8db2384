//! README.md, CONTRIBUTING.md and docs/ agree with the program: its options, annotations and metrics, and their links resolve.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use facts::marks::{OF_GUARD, OF_PEOPLE};
use gatera::rulebook;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The table in docs/check.md lists exactly the options of the program.
#[test]
fn docs_list_the_options_of_check() {
    let help = Command::new(env!("CARGO_BIN_EXE_gatera")).args(["check", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help
        .lines()
        .filter_map(|line| line.trim_start().split_once("--").filter(|(before, _)| before.len() < 5));
    let options: BTreeSet<_> = options.filter_map(|(_, rest)| rest.split([' ', '`']).next()).collect();
    let page = fs::read_to_string(root().join("docs/check.md")).unwrap();
    let cells =
        page.lines().filter(|line| line.starts_with("| `--")).filter_map(|line| line.split(" | ").next());
    let rows =
        cells.flat_map(|cell| cell.split("`--").skip(1)).filter_map(|rest| rest.split([' ', '`']).next());
    let listed: BTreeSet<_> = rows.chain(["color", "help"]).collect();
    assert_eq!(options, listed, "left: options of `gatera check --help`, right: docs/check.md");
}

/// The two tables in docs/members.md list exactly the annotations that people may set and those that only the guard writes.
/// Every constant that names an annotation is in one of the program's two lists.
#[test]
fn docs_list_the_annotations_of_people_and_of_the_guard() {
    let page = fs::read_to_string(root().join("docs/members.md")).unwrap();
    for (marks, header) in [
        (&OF_PEOPLE[..], "| annotation | on | value | effect |\n|---|---|---|---|\n"),
        (&OF_GUARD, "| annotation | on | what the guard notes |\n|---|---|---|\n"),
    ] {
        let (_, table) = page.split_once(header).unwrap();
        let names = table.lines().map_while(|row| row.strip_prefix("| `")?.split('`').next());
        assert_eq!(names.collect::<Vec<_>>(), marks, "left: docs/members.md, right: src/facts/marks.rs");
    }
    let marks = [&OF_PEOPLE[..], &OF_GUARD].concat();
    let source = fs::read_to_string(root().join("src/facts/marks.rs")).unwrap();
    let named = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = \""));
    for (name, value) in named
        .filter(|(name, _)| !matches!(*name, "PREFIX" | "UNPROVEN" | "UNKNOWN" | "FOUNDS" | "FREE" | "NONE"))
    {
        assert!(
            marks.contains(&value.trim_end_matches("\";")),
            "{name} is neither in OF_PEOPLE nor in OF_GUARD"
        );
    }
    let manual = rulebook().rule("G18").unwrap().page().text();
    for mark in marks {
        assert!(manual.contains(&format!("`{mark}`")), "G18's page does not name {mark}");
    }
}

/// Every metric has a row, and every row has a metric. The metrics are read from the source that registers them, because a
/// metric that was never counted appears nowhere else.
#[test]
fn docs_list_every_metric() {
    let of = ["telemetry.rs", "telemetry/clusters.rs"];
    let source = of.map(|name| fs::read_to_string(root().join("src/act").join(name)).unwrap()).concat();
    let source: String = source.split_whitespace().collect();
    let calls = ["registered(r,\"", "r.register(\""].into_iter().flat_map(|call| source.split(call).skip(1));
    let calls = calls.chain(source.split("(\"").filter(|rest| rest.starts_with("cluster_")));
    let registered: BTreeSet<_> = calls.filter_map(|rest| Some(rest.split('"').next()?.to_owned())).collect();
    assert!(registered.len() > 15, "{registered:?}");
    let page = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `gatera_")?.split(['`', '{']).next());
    let listed: BTreeSet<_> = rows.map(|name| name.trim_end_matches("_total").to_owned()).collect();
    assert_eq!(listed, registered, "left: docs/operations.md, right: the metrics that are registered");
}

/// A release takes its notes from the section that has the version's name.
#[test]
fn the_changelog_begins_with_this_version() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let first = changelog.lines().find_map(|line| line.strip_prefix("## "));
    assert_eq!(first, Some(env!("CARGO_PKG_VERSION")), "the first section of CHANGELOG.md");
}

/// Lists the pages that people read.
fn pages() -> Vec<PathBuf> {
    let within = |folder: &str| fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let docs =
        within("docs").chain(within("docs/rules")).filter(|it| it.extension().is_some_and(|it| it == "md"));
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "certs/README.md",
        "charts/gatera/README.md",
        "charts/galera/README.md",
        "charts/wordpress/README.md",
    ];
    docs.chain(others.map(|name| root().join(name))).collect()
}

/// Returns the anchor that GitHub derives from a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

/// The target of every link inside the project exists.
#[test]
fn every_link_has_a_target() {
    let mut seen = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (at, _) in text.match_indices("](") {
            let link = text[at + 2..].split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            assert!(target.exists(), "{} links to {link}, which does not exist", page.display());
            if !place.is_empty() {
                let target = fs::read_to_string(&target).unwrap();
                let headings = target.lines().filter(|line| line.starts_with('#'));
                let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
                assert!(anchors.any(|it| it == place), "{} links to {link}: no such heading", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} links");
}
