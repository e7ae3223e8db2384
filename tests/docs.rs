//! What README.md, CONTRIBUTING.md and docs/ say is what the program has: rules, webhook entries, annotations, metrics, links.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use engine::exemptions::users::EXEMPT;
use engine::rules;
use engine::webhooks::{ENTRIES, Entry, Selects};
use facts::galera::runs::EXAMPLES;
use facts::marks::{MARKS, Whose};
use gatera::command::explain;
use gatera::rulebook;
use objects::Kind;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The README's table of rules is the rulebook's.
#[test]
fn the_readme_lists_the_rules_that_exist() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for rule in rules::GALERA {
        let row = format!("| {} | {} | {} |", rule.id, rule.name, rule.summary());
        assert!(readme.contains(&row), "README.md lacks this row:\n{row}");
    }
    let rows = readme.lines().filter(|line| line.starts_with("| G")).count();
    assert_eq!(rows, rules::GALERA.len(), "README.md lists a rule that does not exist");
}

/// Who is never held up at deleting what, and why.
#[test]
fn docs_list_who_is_never_held_up() {
    let page = fs::read_to_string(root().join("docs/coverage.md")).unwrap();
    let rows = EXEMPT.iter().map(|row| {
        let more = if row.user.ends_with(':') { "…" } else { "" };
        let kinds = row.deletes.iter().map(|kind| if *kind == Kind::Pod { "pods" } else { "claims" });
        let kinds = kinds.collect::<Vec<_>>().join(" and ");
        let kinds = if kinds.is_empty() { "everything" } else { &kinds };
        format!("| `{}{more}` | {kinds} | {} |", row.user, row.why)
    });
    for row in rows {
        assert!(page.contains(&row), "docs/coverage.md lacks this row:\n{row}");
    }
}

/// What each pack protects stands in the README, and its rules and entries on the page of the packs.
#[test]
fn docs_list_the_packs_that_there_are() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let (readme, page) = (read("README.md"), read("docs/packs.md"));
    for pack in rulebook().packs() {
        let line = format!("* **{}**: {}.", pack.name, pack.protects);
        assert!(readme.contains(&line), "README.md lacks this line:\n{line}");
        let of_rules =
            pack.rules.iter().map(|it| format!("| [{0}](rules/{0}.md) | {1} |", it.id, it.summary()));
        for row in of_rules.chain(pack.entries.iter().map(entry_row)) {
            assert!(page.contains(&row), "docs/packs.md lacks this row:\n{row}");
        }
    }
}

/// Set `WRITE_PAGES` to write them.
#[test]
fn the_pages_of_the_rules_are_those_of_the_program() {
    let folder = root().join("docs/rules");
    let mut index = "# The rules\n\nWhat `gatera explain` prints, a page each. They are made of the rules' files.\n\n| id | name | in short |\n|---|---|---|\n".to_owned();
    let mut pages = Vec::new();
    for page in rulebook().pages() {
        index.push_str(&format!("| [{0}]({0}.md) | {1} | {2} |\n", page.id, page.name, page.summary()));
        pages.push((format!("{}.md", page.id), explain::documentation(&page)));
    }
    pages.push(("README.md".to_owned(), index));
    for (name, page) in &pages {
        if std::env::var_os("WRITE_PAGES").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), page).unwrap();
        }
        let current = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            current == *page,
            "docs/rules/{name} is not current: WRITE_PAGES=1 cargo test --test gatera -- the_pages_of"
        );
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), pages.len());
}

/// The table of options in docs/check.md is the program's.
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
    assert_eq!(options, listed);
}

/// The examples of what containers run are those that are tested.
#[test]
fn docs_list_the_examples_of_what_runs() {
    let page = fs::read_to_string(root().join("docs/members.md")).unwrap();
    let (_, table) = page.split_once("| image | command line | what it runs |\n|---|---|---|\n").unwrap();
    let rows: Vec<_> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let examples = EXAMPLES.map(|(image, line, runs)| {
        let line = if line.is_empty() { String::new() } else { format!("`{}`", line.replace('|', "\\|")) };
        format!("| `{image}` | {line} | {} |", runs.name())
    });
    assert_eq!(rows, examples);
}

/// The table of webhook entries is the one that is registered.
#[test]
fn docs_list_the_entries_that_are_registered() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    for row in entry_rows() {
        assert!(page.contains(&row), "docs/architecture.md lacks this row:\n{row}");
    }
}

fn entry_rows() -> Vec<String> {
    ENTRIES.iter().map(entry_row).collect()
}

fn entry_row(entry: &Entry) -> String {
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
        Selects::AnyNamespace => "namespaces that are opened",
        Selects::Anywhere => "every namespace that is ever guarded",
    };
    let without = if entry.fail_closed { "refused" } else { "allowed" };
    format!("| {} | {asks} | {of} | {without} |", entry.name)
}

/// Every mark is in the table of those that people may set, or of those that are the guard's, with the same
/// words, and no other is; and every constant that names one has its row.
#[test]
fn docs_list_the_marks_by_whose_they_are() {
    let page = fs::read_to_string(root().join("docs/members.md")).unwrap();
    for (whose, header) in [
        (Whose::Peoples, "| annotation | on | value | effect |\n"),
        (Whose::Guards, "| annotation | on | what the guard notes |\n"),
    ] {
        let (_, table) = page.split_once(header).unwrap();
        let rows: Vec<_> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
        let marks: Vec<_> = MARKS.iter().filter(|mark| mark.whose == whose).collect();
        assert_eq!(rows.len(), marks.len(), "{rows:#?}");
        for (row, mark) in rows.iter().zip(marks) {
            let begins = format!("| `{}` | {} | ", mark.name, mark.stands.name());
            let ends = format!("| {} |", mark.means);
            assert!(row.starts_with(&begins) && row.ends_with(&ends), "{row}\nis to be {begins}… {ends}");
        }
    }
    let source = fs::read_to_string(root().join("src/facts/marks.rs")).unwrap();
    let named = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = \""));
    for (name, value) in named
        .filter(|(name, _)| !matches!(*name, "PREFIX" | "UNPROVEN" | "UNKNOWN" | "FOUNDS" | "FREE" | "NONE"))
    {
        let value = value.trim_end_matches("\";");
        assert!(MARKS.iter().any(|mark| mark.name == value), "{name} has no row in the table");
    }
    let manual = rulebook().find("G18").unwrap().manual();
    for mark in MARKS {
        assert!(manual.contains(&format!("`{}`", mark.name)), "G18's page does not name {}", mark.name);
    }
}

/// Every metric has its row, and every row its metric. Which there are stands in their registration: what was never counted
/// shows nowhere else.
#[test]
fn docs_list_the_metrics_that_there_are() {
    let source = fs::read_to_string(root().join("src/act/telemetry.rs")).unwrap();
    let source: String = source.split_whitespace().collect();
    let calls = ["new(r,\"", "r.register(\""].into_iter().flat_map(|call| source.split(call).skip(1));
    let there: BTreeSet<_> = calls.filter_map(|rest| Some(rest.split('"').next()?.to_owned())).collect();
    assert!(there.len() > 15, "{there:?}");
    let page = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `gatera_")?.split(['`', '{']).next());
    let listed: BTreeSet<_> = rows.map(|name| name.trim_end_matches("_total").to_owned()).collect();
    assert_eq!(listed, there);
}

/// The pages that people read.
fn pages() -> Vec<PathBuf> {
    let within = |folder: &str| fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let docs =
        within("docs").chain(within("docs/rules")).filter(|it| it.extension().is_some_and(|it| it == "md"));
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "certs/README.md",
        "charts/gatera/README.md",
        "charts/galera/README.md",
    ];
    docs.chain(others.map(|name| root().join(name))).collect()
}

/// As GitHub makes an anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

/// Every link inside the project leads somewhere.
#[test]
fn links_lead_somewhere() {
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
            assert!(target.exists(), "{} leads to {link}", page.display());
            if !place.is_empty() {
                let target = fs::read_to_string(&target).unwrap();
                let headings = target.lines().filter(|line| line.starts_with('#'));
                let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
                assert!(anchors.any(|it| it == place), "{} leads to {link}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} links");
}
