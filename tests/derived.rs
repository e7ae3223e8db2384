//! Files that are derived from the rulebook: pages, tables, the chart's values and rights. `make pages` writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use engine::exemptions::users::EXEMPT;
use engine::rule::Page;
use engine::webhooks::{ENTRIES, Entry, Selects};
use gatera::rulebook;
use objects::Kind;
use serde_json::{Value, json};

use crate::guarded::program;

/// Every file with derived parts is up to date. Set `WRITE_PAGES` to write the files.
#[test]
fn derived_files_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let writes = std::env::var_os("WRITE_PAGES").is_some();
    let mut wanted = pages();
    for (file, derive) in PARTS {
        let text = fs::read_to_string(root.join(file)).unwrap();
        wanted.insert((*file).to_owned(), derive(&text));
    }
    for (file, text) in &wanted {
        let path = root.join(file);
        if writes {
            fs::write(&path, text).unwrap();
        }
        let current = fs::read_to_string(&path).unwrap_or_default();
        assert!(current == *text, "{file} is not current: `make pages` writes it");
    }
    for folder in ["docs/rules", "charts/gatera/files/rules"] {
        let of_it = wanted.keys().filter(|file| file.starts_with(folder)).count();
        assert_eq!(
            fs::read_dir(root.join(folder)).unwrap().count(),
            of_it,
            "{folder} has a file for which there is no rule"
        );
    }
}

/// A file, and the function that writes the derived parts into its text.
type Part = (&'static str, fn(&str) -> String);

const PARTS: &[Part] = &[
    ("docs/packs.md", packs),
    ("docs/architecture.md", |text| with_table(text, "", ENTRY_COLUMNS, ENTRIES.iter().map(entry_row))),
    ("docs/coverage.md", |text| with_table(text, "", "| caller | may delete | because |", exempt_rows())),
    ("charts/gatera/values.schema.json", values),
    ("charts/galera/values.schema.json", |text| described("galera", text)),
    ("charts/wordpress/values.schema.json", |text| described("wordpress", text)),
    ("charts/gatera/templates/rbac.yaml", rights),
];

/// The end of an override in the examples on the pages of rules.
const ANY_TIME: &str = "until=2026-12-01T10:00:00Z";
const ENTRY_COLUMNS: &str = "| entry | asks | of | without an answer |";

/// Returns derived files by their paths: a page for each rule in the documentation and, for readers without the program, in the
/// chart; the lists of rules and of commands; and the schemas.
fn pages() -> BTreeMap<String, String> {
    let mut index = "# The rules\n\nEach page is what `gatera explain` prints for a rule. The pages are generated from the rules' source files.\n\n| id | name | in short |\n|---|---|---|\n".to_owned();
    let mut pages = BTreeMap::new();
    for page in rulebook().pages() {
        index.push_str(&format!("| [{0}]({0}.md) | {1} | {2} |\n", page.id, page.name, page.summary()));
        pages.insert(format!("docs/rules/{}.md", page.id), documentation(&page));
        let for_chart = chart_page(&page);
        assert!(
            !for_chart.contains("gatera explain"),
            "the chart's page {} names `gatera explain`, which its readers do not have",
            page.id
        );
        pages.insert(format!("charts/gatera/files/rules/{}", page.id), for_chart);
    }
    pages.insert("docs/rules/README.md".to_owned(), index);
    pages.insert("docs/commands.md".to_owned(), commands());
    let settings = [("settings", facts::settings::schema())];
    for (name, schema) in crate::schemas::schemas().into_iter().chain(settings) {
        pages.insert(format!("docs/schemas/{name}.json"), format!("{:#}\n", schema.as_value()));
    }
    pages
}

/// Returns the page with the help of every command, as the program prints it.
fn commands() -> String {
    let help = |words: &[&str]| {
        let output = Command::new(program()).args(words).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let named = |text: &str| {
        let rows = text.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
        let names = rows.map(|(name, _)| name.to_owned());
        let is_command = |name: &String| !name.contains([' ', '<', ',']) && name != "help";
        names.filter(is_command).collect::<Vec<_>>()
    };
    let mut page = "# Commands\n\nWhat `gatera COMMAND --help` prints.\n".to_owned();
    for command in named(&help(&[])) {
        let text = help(&[&command]);
        page.push_str(&format!("\n## gatera {command}\n\n```text\n{text}```\n"));
        if text.contains("\nCommands:\n") {
            for below in named(&text) {
                let text = help(&[&command, &below]);
                page.push_str(&format!("\n### gatera {command} {below}\n\n```text\n{text}```\n"));
            }
        }
    }
    page
}

/// Returns a page as it is stored beside the others for readers without the program, who fill in the time themselves.
fn chart_page(page: &Page) -> String {
    let text = page.text().replace(ANY_TIME, "until=TIME");
    let page = rulebook().pages().fold(text, |text, other| {
        let (named, page) = (format!("gatera explain {}", other.id), format!("page {}", other.id));
        text.replace(&format!("`{named}`"), &page).replace(&named, &page)
    });
    format!("{page}\n(Other pages lie beside this one, each under its id: `'jsonpath={{.data.G04}}'`.)\n")
}

/// Returns a page as it is in the documentation, with links to the other pages.
fn documentation(page: &Page) -> String {
    let text = page.text().replace(ANY_TIME, "until=TIME");
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let mut example = false;
    let lines = rest.lines().map(|line| {
        example ^= line.starts_with("```");
        if line.starts_with('#') && !example { format!("#{line}\n") } else { format!("{line}\n") }
    });
    let whole = format!("# {} {}\n\n{}\n{}", page.id, page.name, first, lines.collect::<String>());
    rulebook().pages().fold(whole, |text, other| {
        text.replace(&format!("`gatera explain {}`", other.id), &format!("[{0}]({0}.md)", other.id))
    })
}

fn packs(text: &str) -> String {
    let protects = rulebook().packs().iter().map(|pack| format!("* **{}**: {}.", pack.name, pack.protects));
    let text = with_lines(text, "They protect:\n\n", |line| line.starts_with("* "), protects);
    rulebook().packs().iter().fold(text, |text, pack| {
        let section = format!("\n## {}\n", pack.name);
        let rows =
            pack.rules.iter().map(|it| format!("| [{0}](rules/{0}.md) | {1} |", it.id, it.page().summary()));
        let text = with_table(&text, &section, "| rule | in short |", rows);
        with_table(&text, &section, ENTRY_COLUMNS, pack.entries.iter().map(entry_row))
    })
}

fn entry_row(entry: &Entry) -> String {
    let asks = entry.requests.iter().map(|(_, resource, verbs)| format!("{resource} {}", verbs.join("/")));
    let asks = asks.collect::<Vec<_>>().join(", ");
    let of = match entry.selects {
        Selects::Template => "templates that are adopted",
        Selects::Labels => "adopted labels",
        Selects::LabelsElsewhere => "adopted labels, namespaces without the mode label",
        Selects::LabelledNamespaces => "everything in namespaces with the mode label",
        Selects::OtherNamespaces => "everything in other namespaces",
        Selects::ModeLabel => "namespaces with the mode label",
        Selects::NoModeLabel => "other namespaces",
        Selects::AnyNamespace => "namespaces whose break-glass annotation changes",
        Selects::Anywhere => "every namespace but those that are never guarded",
    };
    let without = if entry.fail_closed { "refused" } else { "allowed" };
    format!("| {} | {asks} | {of} | {without} |", entry.name)
}

fn exempt_rows() -> impl Iterator<Item = String> {
    EXEMPT.iter().map(|row| {
        let more = if row.user.ends_with(':') { "…" } else { "" };
        let kinds = row.deletes.iter().map(|kind| if *kind == Kind::Pod { "pods" } else { "claims" });
        let kinds = kinds.collect::<Vec<_>>().join(" and ");
        let kinds = if kinds.is_empty() { "everything" } else { &kinds };
        format!("| `{}{more}` | {kinds} | {} |", row.user, row.why)
    })
}

/// Writes the names of rules and packs into the schema of the guard's values.
fn values(text: &str) -> String {
    let mut schema: Value = serde_json::from_str(&described("gatera", text)).unwrap();
    let rules: Vec<_> = rulebook().rules().iter().map(|rule| rule.id).collect();
    let packs: Vec<_> = rulebook().packs().iter().map(|pack| pack.name).collect();
    schema["properties"]["modes"]["propertyNames"]["enum"] = json!(rules);
    schema["properties"]["packs"]["propertyNames"]["enum"] = json!(packs);
    format!("{schema:#}\n")
}

/// Writes the description of each value into the schema of a chart, as the table in its README has it.
fn described(chart: &str, schema: &str) -> String {
    let mut schema: Value = serde_json::from_str(schema).unwrap();
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("charts/{chart}/README.md"));
    for (name, _, meaning) in described_values(&fs::read_to_string(readme).unwrap()) {
        let value = schema.pointer_mut(&format!("/properties/{}", name.replace('.', "/properties/")));
        value.unwrap_or_else(|| panic!("{chart} has no value {name}"))["description"] = json!(meaning);
    }
    format!("{schema:#}\n")
}

/// Returns name, default and meaning of each value in the README of a chart.
pub fn described_values(readme: &str) -> Vec<(String, String, String)> {
    let (_, section) = readme.split_once("\n## Values\n").unwrap();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"));
    let values = rows.filter_map(|(name, rest)| {
        let (default, meaning) = rest.split_once("` | ")?;
        Some((name.to_owned(), default.to_owned(), plain(meaning.trim_end_matches(" |"))))
    });
    values.collect()
}

/// Returns a text without Markdown's backticks, and without the brackets and targets of links.
fn plain(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let without = parts.fold(first, |all, part| all + part.split_once(')').map_or(part, |(_, rest)| rest));
    without.replace(['`', '['], "")
}

/// Writes the right to list and watch the kinds that packs look at into the chart's roles.
fn rights(text: &str) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in rulebook().kinds().watched() {
        groups.entry(kind.group()).or_default().push(kind.plural());
    }
    let rules = groups.into_iter().flat_map(|(group, plurals)| {
        [
            format!("- apiGroups: [{group}]"),
            format!("  resources: [{}]", plurals.join(", ")),
            "  verbs: [list, watch]".to_owned(),
        ]
    });
    let begins = "# What packs look at, where it is installed.\n";
    with_lines(text, begins, |line| !line.starts_with('#'), rules)
}

/// Replaces the rows of the first table with this heading that follows the text `after`.
fn with_table(text: &str, after: &str, heading: &str, rows: impl Iterator<Item = String>) -> String {
    let start = text.find(after).unwrap_or_else(|| panic!("no {after:?}"));
    let (before, rest) = text.split_at(start);
    let columns = heading.matches('|').count() - 1;
    let begins = format!("{heading}\n|{}\n", "---|".repeat(columns));
    format!("{before}{}", with_lines(rest, &begins, |line| line.starts_with('|'), rows))
}

/// Replaces the lines directly after `begins` for which `is_old` holds with these lines.
fn with_lines(
    text: &str,
    begins: &str,
    is_old: impl Fn(&str) -> bool,
    lines: impl Iterator<Item = String>,
) -> String {
    let (before, rest) = text.split_once(begins).unwrap_or_else(|| panic!("no {begins:?}"));
    let old: usize = rest.split_inclusive('\n').take_while(|line| is_old(line)).map(str::len).sum();
    let new: String = lines.map(|line| line + "\n").collect();
    format!("{before}{begins}{new}{}", &rest[old..])
}
