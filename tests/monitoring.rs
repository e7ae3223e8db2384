//! What charts/gatera provides for monitoring: alerts and a dashboard. Their expressions are valid PromQL according to
//! promtool, use metrics that a guard really has, and have the intended result when the metrics show a problem.
//!
//! `reported.rs` collects the metrics of a guard, `promql.rs` reads what an expression uses, `dashboard.rs` tests the dashboard,
//! and this file tests the alerts.

mod dashboard;
mod promql;
mod reported;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::guarded::{CHART, program};
use crate::lab::{self, Output, User};

use promql::asked;
use reported::Reported;

const ALERT_TESTS: &str = include_str!("fixtures/alerts_test.yaml");
const NAMESPACE: &str = "{{ $labels.namespace }}";

fn file(name: &str) -> String {
    fs::read_to_string(format!("{CHART}/{name}")).unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn rendered(arguments: &[&str]) -> Output {
    let template = ["template", "gatera", CHART, "--namespace=gatera"];
    lab::shared().helm(User::Admin, &[&template, arguments].concat())
}

fn objects(text: &str) -> Vec<Value> {
    inspect::manifest::read(text).into_iter().map(|it| it.unwrap().json()).collect()
}

/// Returns the PrometheusRule of a release in this namespace.
fn rule(namespace: &str) -> Value {
    let namespace = format!("--namespace={namespace}");
    let choice = ["--set=prometheusRule.enabled=true", "--show-only=templates/prometheusrule.yaml"];
    let text = rendered(&[&[&*namespace][..], &choice].concat()).succeeded();
    let [rule] = &objects(&text)[..] else { panic!("one object: {text}") };
    assert_eq!(rule["kind"], "PrometheusRule");
    rule.clone()
}

fn check_rules(rules: &Value) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    fs::write(&path, rules.to_string()).unwrap();
    lab::shared().promtool(&["check", "rules", "--lint=all", "--lint-fatal", path.to_str().unwrap()])
}

fn alerts() -> Vec<Value> {
    let rules = yaml(&file("files/alerts.yaml"));
    let [group] = &rules["groups"].as_array().unwrap()[..] else { panic!("one group") };
    group["rules"].as_array().unwrap().clone()
}

fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_else(|| panic!("no {at} in {value:#}"))
}

#[test]
fn prometheus_reads_the_rules_that_helm_renders() {
    let output = check_rules(&rule("gatera")["spec"]);
    assert_eq!(output.status, 0, "{output}");
    assert!(output.stdout.contains(&format!("SUCCESS: {} rules found", alerts().len())), "{output}");
    let broken = json!({ "groups": [{ "name": "x", "rules": [{ "alert": "X", "expr": "sum by (" }] }] });
    assert_ne!(check_rules(&broken).status, 0, "promtool accepts a broken rule");
}

/// In fixtures/alerts_test.yaml each alert fires in one case and is silent in another.
#[test]
fn alerts_fire_when_they_should_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("alerts.yaml"), rule("gatera")["spec"].to_string()).unwrap();
    let tests = folder.path().join("alerts_test.yaml");
    fs::write(&tests, ALERT_TESTS).unwrap();
    let output = lab::shared().promtool(&["test", "rules", tests.to_str().unwrap()]);
    assert_eq!(output.status, 0, "{output}");
    for alert in alerts() {
        let fires = format!(r#"alertname="{}", alertstate="firing""#, text(&alert, "/alert"));
        assert!(ALERT_TESTS.contains(&fires), "no case expects {fires}");
    }
}

/// The alerts, and the series that their test feeds to them, use only metrics and labels that a guard has.
#[tokio::test]
async fn alerts_and_their_test_series_use_existing_metrics() {
    let reported = Reported::by_a_guard().await;
    for alert in alerts() {
        let (name, expression) = (text(&alert, "/alert"), text(&alert, "/expr"));
        let asked = asked(expression);
        assert!(!asked.selectors.is_empty(), "{name} uses no metric");
        assert_eq!(reported.check(&asked), Ok(()), "{name}");
        for selector in &asked.selectors {
            let [first, ..] = &selector.matchers[..] else {
                panic!("{name} mixes the metrics of several guards")
            };
            assert_eq!((&*first.label, &*first.values), ("namespace", &["gatera".to_owned()][..]), "{name}");
        }
    }
    let mut cases = yaml(ALERT_TESTS);
    let tests = cases["tests"].as_array_mut().unwrap();
    for series in tests.iter().flat_map(|test| test["input_series"].as_array().unwrap()) {
        let mut asked = asked(text(series, "/series"));
        // The id of the rule is only an example.
        asked.selectors[0].matchers.retain(|matcher| matcher.label != "rule");
        assert_eq!(reported.check(&asked), Ok(()), "fixtures/alerts_test.yaml");
    }
}

#[test]
fn the_rule_is_the_file_with_the_namespace_of_the_release() {
    let written = file("files/alerts.yaml");
    assert_eq!(rule("gatera")["spec"], yaml(&written));
    let elsewhere = yaml(&written.replace(r#"namespace="gatera""#, r#"namespace="else-where""#));
    let rule = rule("else-where");
    assert_eq!((&rule["spec"], &rule["metadata"]["namespace"]), (&elsewhere, &json!("else-where")));
    assert!(!rule.to_string().contains(r#"namespace=\"gatera\""#), "{rule}");

    let labelled = "--set=prometheusRule.enabled=true,prometheusRule.labels.release=kube-prometheus";
    let text = rendered(&["--show-only=templates/prometheusrule.yaml", labelled]).succeeded();
    assert_eq!(objects(&text)[0]["metadata"]["labels"]["release"], "kube-prometheus");
}

/// The guard does not publish the runbooks itself: the address before the path is a value of the chart.
#[test]
fn every_alert_links_to_its_section_of_the_runbooks() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let names: Vec<_> = alerts().iter().map(|it| text(it, "/alert").to_owned()).collect();
    assert_eq!(
        sections, names,
        "docs/operations.md has one section for each alert, in the order of the alerts"
    );
    for (alert, name) in alerts().iter().zip(&names) {
        let link = format!("docs/operations.md#{}", name.to_lowercase());
        assert_eq!(text(alert, "/annotations/runbook_url"), link, "{name}");
    }
    let choice = "--set=prometheusRule.enabled=true,prometheusRule.runbooks=https://git.example/tree/";
    let rendered = rendered(&["--show-only=templates/prometheusrule.yaml", choice]).succeeded();
    let links = rendered
        .lines()
        .filter(|line| line.contains("runbook_url: https://git.example/tree/docs/operations.md#"));
    assert_eq!(links.count(), names.len(), "{rendered}");
}

/// Every `{{ range query "…" }}` in a description uses metrics that a guard has.
#[tokio::test]
async fn queries_in_descriptions_use_existing_metrics() {
    let reported = Reported::by_a_guard().await;
    let mut queries = 0;
    for alert in alerts() {
        let description = text(&alert, "/annotations/description");
        for rest in description.split("range query \"").skip(1) {
            let query = rest.split('"').next().unwrap().replace('\'', "\"");
            assert_eq!(reported.check(&asked(&query)), Ok(()), "{description}");
            queries += 1;
        }
    }
    assert_eq!(queries, 6, "a query was added or removed: change this number");
}

#[test]
fn monitoring_is_rendered_only_if_it_is_enabled() {
    let objects = objects(&rendered(&[]).succeeded());
    assert!(objects.len() > 10, "only {} objects are rendered", objects.len());
    for object in objects {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        assert!(kind != "PrometheusRule" && kind != "ServiceMonitor" && name != "gatera-dashboard", "{name}");
    }
}

/// Prometheus Operator sets labels of its own, such as `endpoint`, and would rename the guard's labels of the same names.
#[test]
fn the_service_monitor_keeps_the_guards_labels() {
    let choice = ["--set=serviceMonitor.enabled=true", "--show-only=templates/servicemonitor.yaml"];
    let monitor = &objects(&rendered(&choice).succeeded())[0];
    assert_eq!(monitor["spec"]["endpoints"][0]["honorLabels"], true, "{monitor}");
}

/// An alert may wake a person up, so its text must be enough to act on.
#[test]
fn every_alert_explains_the_problem_and_names_a_command() {
    let help = Command::new(program()).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for alert in alerts() {
        let name = text(&alert, "/alert");
        assert!(["critical", "warning"].contains(&text(&alert, "/labels/severity")), "{name}");
        let (summary, description) =
            (text(&alert, "/annotations/summary"), text(&alert, "/annotations/description"));
        assert!(summary.len() <= 120 && !summary.ends_with('.'), "{name}: {summary}");
        assert!(description.ends_with('.'), "{name}: {description}");
        for forbidden in [" is no ", "for ever", "--watch", " -w"] {
            assert!(!description.contains(forbidden), "{name}: the description contains {forbidden:?}");
        }
        let commands = commands(description);
        assert!(!commands.is_empty(), "{name}: the description names no command");
        for command in commands.iter().filter_map(|command| command.strip_prefix("gatera ")) {
            let subcommand = command.split(' ').next().unwrap();
            assert!(help.contains(&format!("\n  {subcommand} ")), "{name}: gatera has no {subcommand}");
        }
        let kept = asked(text(&alert, "/expr")).grouped;
        for words in [summary, description] {
            for label in words.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap()) {
                // absent() keeps the labels that its selector names.
                let known = kept.contains(label) || (name == "GateraDown" && label == "namespace");
                assert!(known, "{name} names the label {label}, which its expression does not keep");
            }
        }
    }
}

/// Lists the commands in backticks.
fn commands(description: &str) -> Vec<&str> {
    let quoted = description.split('`').skip(1).step_by(2);
    quoted.filter(|it| it.starts_with("kubectl ") || it.starts_with("gatera ")).collect()
}

/// The table in docs/operations.md has every alert, in the order of the file, and only commands that the alert has, too.
#[test]
fn docs_list_the_alerts() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    let (_, table) = page.split_once("| alert | fires when | severity, after | look first |\n").unwrap();
    let rows: Vec<_> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    let alerts = alerts();
    assert_eq!(rows.len(), alerts.len(), "the table has one row for each alert");
    for (row, alert) in rows.iter().zip(&alerts) {
        let [name, when, fires, look] = row.trim_matches('|').split(" | ").collect::<Vec<_>>()[..] else {
            panic!("not four columns: {row}")
        };
        assert_eq!(name.trim(), format!("`{}`", text(alert, "/alert")));
        let after = alert["for"].as_str().unwrap_or("at once");
        assert_eq!(fires, format!("{}, {after}", text(alert, "/labels/severity")), "{name}");
        let description = text(alert, "/annotations/description").replace(NAMESPACE, "gatera");
        let description =
            description.replace("{{ $labels.pod }}", "POD").replace("{{ $labels.rule }}", "RULE");
        let reported: BTreeSet<_> = commands(&description).into_iter().collect();
        let listed = commands(look);
        assert!(!when.is_empty() && !listed.is_empty(), "an empty column or no command: {row}");
        for command in listed {
            assert!(reported.contains(command), "{name}: {command} is not in\n{description}");
        }
    }
}
