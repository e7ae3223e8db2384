//! files/dashboard.json of charts/gatera and charts/galera, checked without Grafana: every expression is PromQL and asks for
//! existing metrics; every panel has an id, text and a position; and the reader chooses the data source. What the dashboard of
//! charts/galera asks for is compared with a real exporter by `make drills`.

use std::collections::BTreeSet;
use std::fs;

use facts::view::State;
use leader::plan::rollout::RolloutStage;
use serde_json::{Value, json};

use super::promql::{Asked, asked};
use super::reported::Reported;
use super::{check_rules, file, objects, rendered};

/// The number of columns in which Grafana lays out panels.
const COLUMNS: u64 = 24;

/// The charts with a dashboard, how many expressions and data sources each has at least, and its variables.
const BOARDS: [(&str, [usize; 2], &[&str]); 2] = [
    ("gatera", [26, 41], &["datasource", "namespace", "job", "cluster_namespace", "cluster"]),
    ("galera", [17, 33], &["datasource", "namespace", "cluster"]),
];

fn dashboard_of(chart: &str) -> Value {
    let path = format!("{}/charts/{chart}/files/dashboard.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn dashboard() -> Value {
    dashboard_of("gatera")
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

fn text<'a>(value: &'a Value, of: &str) -> &'a str {
    value[of].as_str().filter(|it| !it.is_empty()).unwrap_or_else(|| panic!("no {of} in {value:#}"))
}

/// Lists the expressions, each with the title of its panel and the text of its legend.
fn expressions(dashboard: &Value) -> Vec<(&str, &str, &str)> {
    let targets = panels(dashboard).iter().flat_map(|panel| {
        panel["targets"].as_array().into_iter().flatten().map(move |target| (panel, target))
    });
    targets
        .map(|(panel, target)| {
            (text(panel, "title"), text(target, "expr"), target["legendFormat"].as_str().unwrap())
        })
        .collect()
}

/// Returns the expression with the variables filled in, for a guard in namespace gatera.
fn filled_in(expression: &str) -> String {
    let filled = [
        ("$__rate_interval", "5m"),
        ("$namespace", "gatera"),
        ("$job", ".+"),
        ("$cluster_namespace", ".*"),
        ("$cluster", "HEALTHY"),
    ];
    let filled = filled
        .into_iter()
        .fold(expression.to_owned(), |text, (variable, value)| text.replace(variable, value));
    assert!(!filled.contains('$'), "{filled}");
    filled
}

#[test]
fn prometheus_reads_every_expression() {
    let mut rules = Vec::new();
    for (chart, [least, _], _) in BOARDS {
        let dashboard = dashboard_of(chart);
        let expressions = expressions(&dashboard);
        assert!(expressions.len() >= least, "{chart} has only {} expressions", expressions.len());
        rules.extend(expressions.iter().enumerate().map(|(index, (_, expression, _))| {
            json!({ "record": format!("{chart}:{index}"), "expr": filled_in(expression) })
        }));
    }
    let output = check_rules(&json!({ "groups": [{ "name": "dashboard", "rules": rules }] }));
    assert_eq!(output.status, 0, "{output}");
    assert!(output.stdout.contains(&format!("SUCCESS: {} rules found", rules.len())), "{output}");
}

/// The sum of a counter says nothing about today, and falls when a replica restarts.
#[test]
fn counters_are_shown_as_rates_or_increases() {
    let dashboard = dashboard();
    for (title, expression, _) in expressions(&dashboard) {
        for (at, _) in expression.match_indices("_total{") {
            let start = expression[..at].rfind('(').unwrap();
            let function = &expression[..start];
            assert!(
                function.ends_with("rate") || function.ends_with("increase"),
                "{title} shows a bare counter: {expression}"
            );
        }
    }
}

/// The numbers that a history panel maps to names are those of its expression, with one name for each state.
#[test]
fn histories_name_every_state() {
    let dashboard = dashboard();
    for (id, metric, states) in [
        (28, "gatera_cluster_state", State::ALL.map(State::name).to_vec()),
        (29, "gatera_cluster_rollout", RolloutStage::NAMES.to_vec()),
    ] {
        let panel = panels(&dashboard).iter().find(|it| it["id"] == id).unwrap();
        let names = &panel["fieldConfig"]["defaults"]["mappings"][0]["options"];
        let expression = text(&panel["targets"][0], "expr");
        for (index, state) in states.iter().enumerate() {
            let number = index + 1;
            assert_eq!(names[number.to_string()]["text"], *state, "the name of {number} in panel {id}");
            let selector = format!(r#"cluster=~"$cluster", state="{state}"}} * {number}"#);
            assert!(expression.contains(&selector) && expression.contains(metric), "{state}: {expression}");
        }
    }
}

#[tokio::test]
async fn expressions_use_existing_metrics_of_one_guard() {
    let reported = Reported::by_a_guard().await;
    let dashboard = dashboard();
    for (title, expression, legend) in expressions(&dashboard) {
        let asked = asked(&filled_in(expression));
        assert_eq!(reported.check(&asked), Ok(()), "{title}");
        for selector in &asked.selectors {
            let labels: Vec<_> = selector.matchers.iter().map(|it| &*it.label).collect();
            assert!(
                labels.starts_with(&["namespace", "job"]),
                "{title}: {expression} mixes the metrics of several guards"
            );
        }
        assert_legend_uses_grouped_labels(legend, &asked, title);
    }
}

/// Checks that a legend names only labels that are left after grouping.
fn assert_legend_uses_grouped_labels(legend: &str, asked: &Asked, title: &str) {
    let named = legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap());
    for label in named {
        assert!(
            asked.grouped.contains(label),
            "{title}: its legend names the label {label}, which its expression does not keep"
        );
    }
}

#[test]
fn every_panel_has_an_id_a_description_and_a_place_of_its_own() {
    for (chart, ..) in BOARDS {
        check_panels(&dashboard_of(chart));
    }
}

fn check_panels(dashboard: &Value) {
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(dashboard) {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: another panel has the same id");
        let of = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(
            of("w") > 0 && of("h") > 0 && of("x") + of("w") <= COLUMNS,
            "{title} does not lie in the grid"
        );
        for y in of("y")..of("y") + of("h") {
            for x in of("x")..of("x") + of("w") {
                assert!(taken.insert((x, y)), "{title} lies over another panel at {x}, {y}");
            }
        }
        if panel["type"] == "row" {
            assert_eq!(of("w"), COLUMNS, "the width of row {title}");
            continue;
        }
        assert!(
            ["stat", "state-timeline", "timeseries"].contains(&text(panel, "type")),
            "the type of panel {title}"
        );
        assert!(text(panel, "description").ends_with('.'), "the description of {title} is not a sentence");
        text(&panel["fieldConfig"]["defaults"], "unit");
        let targets = panel["targets"].as_array().unwrap();
        let refs: BTreeSet<_> = targets.iter().map(|target| text(target, "refId")).collect();
        assert!(
            !targets.is_empty() && refs.len() == targets.len(),
            "{title} needs queries with ids of their own: {refs:?}"
        );
    }
}

/// A dashboard does not depend on the uid of a data source, and keeps its address after an upgrade.
#[test]
fn dashboards_can_be_imported_into_any_grafana() {
    for (chart, [_, least], variables) in BOARDS {
        let dashboard = dashboard_of(chart);
        assert_eq!((&dashboard["uid"], dashboard.get("id")), (&json!(chart), None));
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39);
        let mut sources = Vec::new();
        data_sources(&dashboard, &mut sources);
        assert!(sources.len() >= least, "{chart} has only {} data sources", sources.len());
        for source in sources {
            assert_eq!(source, json!({ "type": "prometheus", "uid": "${datasource}" }), "{chart}");
        }
        let list = dashboard["templating"]["list"].as_array().unwrap();
        assert_eq!(list.iter().map(|it| text(it, "name")).collect::<Vec<_>>(), variables, "{chart}");
    }
}

fn data_sources(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("datasource").cloned());
            fields.values().for_each(|it| data_sources(it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| data_sources(it, found)),
        _ => {}
    }
}

#[test]
fn the_chart_provides_the_dashboard_in_a_config_map() {
    let choice = ["--set=dashboard.enabled=true", "--show-only=templates/dashboard.yaml"];
    let [map] = &objects(&rendered(&choice).succeeded())[..] else { panic!("one object") };
    assert_eq!((&map["kind"], &map["metadata"]["namespace"]), (&json!("ConfigMap"), &json!("gatera")));
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let held = map["data"]["gatera.json"].as_str().unwrap();
    assert_eq!(held.trim_end(), file("files/dashboard.json").trim_end());

    let labels = "--set=dashboard.labels.grafana_dashboard=null,dashboard.labels.boards=ours";
    let text = rendered(&[&choice[..], &[labels]].concat()).succeeded();
    assert!(text.contains("boards: ours") && !text.contains("grafana_dashboard"), "{text}");
}
