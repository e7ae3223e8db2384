//! Each format as its consumer reads it: checked against its schema where there is one, and otherwise against the rules that its
//! consumer publishes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use inspect::check::{Checked, Input, MissingText};
use report::check::{Format, lay_out};
use serde_json::Value;

use super::{CLUSTER, input, judged};
use crate::schemas;

/// Returns one result of each kind, with names that have a meaning in some format.
fn one_of_everything() -> Checked {
    let open = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: shop}\nspec:\n  serviceName: shop\n  replicas: 2  # gatera: waive G01 reason=a lab | <b>two</b> are enough\n  template:\n    metadata: {labels: {gatera.dev/cluster: shop}}\n    spec:\n      containers:\n      - name: mariadb\n        image: mariadb:latest\n        env: [{name: MARIADB_ROOT_PASSWORD, value: hunter2hunter2}]\n";
    let odd = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"a<b>&\\\"'|`@x`::error,%0A\\u001b[2J\", labels: {gatera.dev/cluster: x}}\ndata: {c.cnf: \"[client]\\npassword=hunter2hunter2\"}\n---\nkind: statefulset\napiVersion: apps/v1\n";
    let rendered = "---\n# Source: shop/templates/a b.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: rendered}\ndata: {c.cnf: \"[galera]\\nwsrep_sst_auth=root:hunter2hunter2\"}\n";
    let unread = Input {
        name: "no%file.yaml".into(),
        below: std::path::Path::new("").into(),
        text: Err(MissingText::Unread("cannot be read: there is no such file".into())),
    };
    judged(
        &[
            input("./set.yaml", open),
            input("odd,file:1.yaml", odd),
            input("-", rendered),
            input("broken.yaml", "a: [\n"),
            unread,
            input("fine.yaml", CLUSTER),
        ],
        None,
    )
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "../fixtures" }, {
        insta::assert_snapshot!(name, text);
    });
}

/// Names of objects can be any text: a summary contains no mention and no link, and fits into a comment.
#[test]
fn a_summary_has_no_links_and_no_mentions() {
    let names = (0..60).map(|number| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: \"@team https://evil.example www.evil.example {number}{}\", labels: {{gatera.dev/cluster: x}}}}\ndata: {{c.cnf: \"[client]\\npassword=x\"}}\n", "x".repeat(150)));
    let text = names.collect::<Vec<_>>().join("---\n");
    let summary = lay_out(&judged(&[input("a.yaml", &text)], None), Format::Markdown, false);
    assert!(summary.len() < 65_536, "{}", summary.len());
    // Within code fences nothing is a link.
    let outside: String = summary.split("```").step_by(2).collect();
    for word in ["@team", "https://evil", "www.evil"] {
        assert!(!outside.contains(word), "{word}: {outside}");
    }
}

#[test]
fn every_format_is_as_in_its_snapshot() {
    let checked = one_of_everything();
    for (format, name, _) in Format::ALL {
        let text = lay_out(&checked, format, false);
        assert!(!text.contains("hunter2") && !text.contains('\u{1b}'), "{name}: {text}");
        // SARIF contains the pages of all rules, which are left out here.
        let shown = if format == Format::Sarif { without_rules(&text) } else { text };
        snapshot(&format!("check-format-{name}"), &shown);
    }
    let coloured = lay_out(&checked, Format::Text, true);
    assert!(coloured.contains("\u{1b}[1;31mrefused\u{1b}[0m"), "{coloured}");
    let plain = coloured.replace("\u{1b}[0m", "");
    let plain = ["1", "2", "1;31", "1;33", "36"]
        .iter()
        .fold(plain, |text, code| text.replace(&format!("\u{1b}[{code}m"), ""));
    assert_eq!(plain, lay_out(&checked, Format::Text, false), "more than the colours differs");
}

fn without_rules(text: &str) -> String {
    let mut json: Value = serde_json::from_str(text).unwrap();
    let rules = json["runs"][0]["tool"]["driver"]["rules"].take();
    json["runs"][0]["tool"]["driver"]["rules"] = format!("{} rules", rules.as_array().unwrap().len()).into();
    format!("{json:#}\n")
}

fn assert_valid(schema: &Value, format: Format, checked: &Checked) {
    let json: Value = serde_json::from_str(&lay_out(checked, format, false)).unwrap();
    let validator = jsonschema::validator_for(schema).unwrap();
    let problems: Vec<_> =
        validator.iter_errors(&json).map(|it| format!("{}: {it}", it.instance_path())).collect();
    assert!(problems.is_empty(), "{format:?}: {problems:#?}");
}

/// Returns a result with findings of each kind, one without any object, and one of a removal.
fn results() -> [Checked; 3] {
    [
        one_of_everything(),
        judged(&[], None),
        judged(&[input("a.yaml", "")], Some(&[input("b.yaml", CLUSTER)])),
    ]
}

/// The published schema is taken from the source of a crate that is generated from it.
#[test]
fn sarif_conforms_to_its_schema() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let package =
        metadata["packages"].as_array().unwrap().iter().find(|it| it["name"] == "serde-sarif").unwrap();
    let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
    // The published pattern has a `]` too many and is not a regular expression; the program writes no language.
    let text = std::fs::read_to_string(folder.join("src/schema.json"))
        .unwrap()
        .replace("[a-zA-Z]{2}]?$", "[a-zA-Z]{2}$");
    let schema: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(schema["properties"]["version"]["enum"][0], "2.1.0");
    for mut checked in results() {
        assert_valid(&schema, Format::Sarif, &checked);
        checked.rules_url = Some("https://host.example/docs/rules/".to_owned());
        assert_valid(&schema, Format::Sarif, &checked);
    }
}

/// Code scanning shows the name of a rule, the severity of its findings, and a link to its page.
#[test]
fn sarif_says_what_code_hosts_show_of_a_rule() {
    let mut checked = one_of_everything();
    checked.rules_url = Some("https://host.example/docs/rules/".to_owned());
    let json: Value = serde_json::from_str(&lay_out(&checked, Format::Sarif, false)).unwrap();
    let driver = &json["runs"][0]["tool"]["driver"];
    assert_eq!(driver["informationUri"], "https://host.example/docs/rules");
    for rule in driver["rules"].as_array().unwrap() {
        let (id, name) = (rule["id"].as_str().unwrap(), rule["name"].as_str().unwrap());
        assert_ne!(id, name);
        assert!(
            ["error", "warning"].contains(&rule["properties"]["problem.severity"].as_str().unwrap()),
            "{rule}"
        );
        let is_rule = id.len() == 3;
        let url = is_rule.then(|| format!("https://host.example/docs/rules/{id}.md"));
        assert_eq!(rule["helpUri"].as_str(), url.as_deref(), "{rule}");
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/rules/{id}.md"));
        assert!(!is_rule || page.is_file(), "{id}");
    }
    let of = |id: &str| driver["rules"].as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
    assert_eq!(of("G11")["properties"]["security-severity"], "8.0");
}

#[test]
fn json_conforms_to_its_schema() {
    for checked in results() {
        let json = serde_json::from_str(&lay_out(&checked, Format::Json, false)).unwrap();
        schemas::valid(&schemas::schema("check"), &json);
    }
}

/// GitLab's requirements for a report: these fields, these severities, a unique fingerprint for each issue, a path in the
/// repository.
#[test]
fn a_code_quality_report_meets_gitlabs_requirements() {
    let json: Value = serde_json::from_str(&lay_out(&one_of_everything(), Format::Gitlab, false)).unwrap();
    let issues = json.as_array().unwrap();
    let mut prints = BTreeSet::new();
    for issue in issues {
        assert!(
            issue["description"].as_str().is_some_and(|it| !it.is_empty() && !it.contains('\n')),
            "{issue}"
        );
        assert!(
            ["info", "minor", "major", "critical", "blocker"].contains(&issue["severity"].as_str().unwrap())
        );
        assert!(
            prints.insert(issue["fingerprint"].as_str().unwrap()),
            "another issue has the same fingerprint: {issue}"
        );
        let path = issue["location"]["path"].as_str().unwrap();
        assert!(!path.starts_with("./") && !path.starts_with('/') && !path.is_empty(), "{issue}");
        assert!(issue["location"]["lines"]["begin"].as_u64().is_some_and(|it| it > 0), "{issue}");
    }
    assert!(issues.len() > 5, "{json}");
}

type JunitElement = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// The elements of Jenkins' schema for JUnit (junit-10.xsd): the allowed attributes, the required ones, and the child elements.
const JUNIT: [JunitElement; 7] = [
    ("testsuites", &["name", "time", "tests", "failures", "disabled", "errors"], &[], &["testsuite"]),
    (
        "testsuite",
        &[
            "name",
            "tests",
            "failures",
            "errors",
            "group",
            "time",
            "disabled",
            "skipped",
            "timestamp",
            "hostname",
            "id",
            "package",
            "file",
            "log",
            "url",
            "version",
        ],
        &["name", "tests", "failures", "errors"],
        &["testsuite", "properties", "testcase", "system-out", "system-err"],
    ),
    (
        "testcase",
        &[
            "name",
            "assertions",
            "time",
            "timestamp",
            "classname",
            "status",
            "class",
            "file",
            "line",
            "log",
            "group",
            "url",
        ],
        &["name"],
        &[
            "skipped",
            "error",
            "failure",
            "system-out",
            "system-err",
            "rerunFailure",
            "rerunError",
            "flakyFailure",
            "flakyError",
        ],
    ),
    ("failure", &["type", "message"], &[], &[]),
    ("error", &["type", "message"], &[], &[]),
    ("skipped", &["type", "message"], &[], &[]),
    ("system-out", &[], &[], &[]),
];

/// Checked against [`JUNIT`], which is written down from the published schema.
#[test]
fn junit_conforms_to_its_schema() {
    for checked in results() {
        let text = lay_out(&checked, Format::Junit, false);
        let document = roxmltree::Document::parse(&text).unwrap();
        assert_eq!(document.root_element().tag_name().name(), "testsuites");
        for node in document.descendants().filter(roxmltree::Node::is_element) {
            let name = node.tag_name().name();
            let (_, may, must, children) =
                JUNIT.iter().find(|row| row.0 == name).unwrap_or_else(|| panic!("{name}: {text}"));
            assert!(node.attributes().all(|it| may.contains(&it.name())), "{node:?}");
            assert!(must.iter().all(|it| node.has_attribute(*it)), "{node:?}");
            let inside = node.children().filter(roxmltree::Node::is_element);
            assert!(inside.clone().all(|it| children.contains(&it.tag_name().name())), "{node:?}");
            let words = node.children().filter(|it| it.is_text() && !children.is_empty());
            assert!(words.clone().all(|it| it.text().unwrap_or_default().trim().is_empty()), "{node:?}");
        }
    }
}

/// As Jenkins and GitLab read it: each count is that of the tests below it.
#[test]
fn the_counts_of_junit_are_those_of_its_tests() {
    for checked in results() {
        let text = lay_out(&checked, Format::Junit, false);
        let document = roxmltree::Document::parse(&text).unwrap();
        let root = document.root_element();
        let number = |node: roxmltree::Node<'_, '_>, name: &str| {
            node.attribute(name).unwrap().parse::<usize>().unwrap()
        };
        let below = |node: roxmltree::Node<'_, '_>, name: &str| {
            node.descendants().filter(|it| it.has_tag_name(name)).count()
        };
        for suite in root.children().filter(roxmltree::Node::is_element) {
            for (attribute, tag) in
                [("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")]
            {
                assert_eq!(number(suite, attribute), below(suite, tag), "{attribute}: {text}");
            }
        }
        for (attribute, tag) in [("tests", "testcase"), ("failures", "failure"), ("errors", "error")] {
            assert_eq!(number(root, attribute), below(root, tag), "{attribute}: {text}");
        }
        assert_eq!(
            below(root, "testcase"),
            checked.objects.len() + checked.count(inspect::check::Level::Unread)
        );
    }
}

/// The runner's syntax of commands: one per line, with properties free of the characters that end them.
#[test]
fn annotations_are_valid_commands_of_a_runner() {
    let checked = one_of_everything();
    let text = lay_out(&checked, Format::Github, false);
    let commands: Vec<_> = text.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(commands.len(), checked.findings.len());
    for line in commands {
        let (head, _) = line[2..].split_once("::").unwrap();
        let (kind, properties) = head.split_once(' ').unwrap();
        assert!(["error", "warning", "notice"].contains(&kind), "{line}");
        for property in properties.split(',') {
            let (name, value) = property.split_once('=').unwrap();
            assert!(["file", "line", "col", "title"].contains(&name) && !value.is_empty(), "{line}");
        }
    }
}
