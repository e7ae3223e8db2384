//! The exporter of charts/galera: it is added to a running cluster as charts/galera/README.md says, and a real Prometheus that
//! collects what the chart's ServiceMonitor lists has a result for each panel of the dashboard. Part of `make drills`.

use std::env;
use std::path::PathBuf;

use serde_json::Value;

use crate::galera::{Galera, patiently};
use crate::guard::{chart, guarded};
use crate::install::{formed, helm};
use crate::page::{galera_readme_blocks, run_block};
use crate::rolling::uids;

const DASHBOARD: &str = include_str!("../../charts/galera/files/dashboard.json");

/// Returns the exporter's page about one member, requested from the pod of another.
fn exporter_page(galera: &Galera<'_>, ordinal: usize) -> String {
    let target = format!("{}.{}-hs:3306", galera.member(ordinal), galera.name);
    let ask = format!(
        "exec 3<>/dev/tcp/{}-exporter/9104 && printf 'GET /probe?target={target} HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3",
        galera.name
    );
    let inside = ["exec", &galera.member(2 - ordinal), "--container=mariadb", "--", "bash", "-c", &ask];
    galera.kubectl(&inside).stdout
}

/// Returns the value of a metric without labels.
fn value(page: &str, metric: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse().ok())
}

/// Returns the expressions of the dashboard, with the values that Grafana would put in.
fn dashboard_expressions(galera: &Galera<'_>) -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|it| it["targets"].as_array().into_iter().flatten());
    let filled = |it: &Value| {
        let expression = it["expr"].as_str().unwrap().replace("$namespace", &galera.namespace);
        let expression = expression.replace("$cluster", &format!("{}-galera", galera.name));
        expression.replace("$__rate_interval", "1m")
    };
    targets.map(filled).collect()
}

/// Returns the ServiceMonitor as the chart renders it. The lab has no Prometheus operator, to which this kind belongs.
fn service_monitor(galera: &Galera<'_>) -> Value {
    let account = format!("--set=metrics.existingSecret={}-exporter", galera.name);
    let rendered = helm(
        galera,
        "template",
        &[
            "--set=metrics.enabled=true,metrics.serviceMonitor.enabled=true",
            &account,
            "--show-only=templates/metrics.yaml",
        ],
    );
    let mut objects = inspect::manifest::read(&rendered).into_iter().map(|it| it.unwrap().json());
    let monitor = objects.find(|it: &Value| it["kind"] == "ServiceMonitor");
    let mut monitor = monitor.expect("the chart renders a ServiceMonitor");
    // Helm would create the object in this namespace.
    monitor["metadata"]["namespace"] = galera.namespace.clone().into();
    monitor
}

#[test]
fn a_running_cluster_gets_an_exporter() {
    let lab = guarded();
    let image = env::var_os("GATERA_EXPORTER_IMAGE").map(PathBuf::from);
    lab.import_image(&image.expect("GATERA_EXPORTER_IMAGE names its image: use `make drills`"));
    let galera = formed(lab, "metrics");
    let before = uids(&galera);

    let blocks = galera_readme_blocks("Metrics");
    let [example, commands] = &blocks[..] else {
        panic!("the page has other steps than this test: {blocks:#?}")
    };
    assert_eq!(example, "ns=db I=shop");
    let head = format!("set -e\nns={} I={}", galera.namespace, galera.name);
    let commands = commands.replace(" charts/galera ", &format!(" {} ", chart("galera")));
    let output = run_block(&galera, &head, &commands);
    assert!(output.status == 0 && !output.stderr.contains("[G"), "{output}");

    let pages = patiently("the exporter reaches each member", || {
        let pages = [0, 1, 2].map(|it| exporter_page(&galera, it));
        if pages.iter().all(|it| value(it, "mysql_up") == Some(1.0)) {
            Ok(pages)
        } else {
            Err(pages[0].clone())
        }
    });
    for page in &pages {
        assert_eq!(value(page, "mysql_global_status_wsrep_local_state"), Some(4.0), "the member is Synced");
        assert_eq!(value(page, "mysql_global_status_wsrep_cluster_size"), Some(3.0), "the cluster's size");
    }
    assert_eq!(uids(&galera), before, "no member was restarted");

    let selector = "--selector=app=galera-exporter";
    let address =
        galera.kubectl(&["get", "pod", selector, "--output=jsonpath={.items[0].status.podIP}"]).succeeded();
    let prometheus = lab.start_prometheus(&service_monitor(&galera), &format!("{address}:9104"));
    for expression in dashboard_expressions(&galera) {
        let results = patiently(&format!("Prometheus has a complete result of {expression}"), || {
            let results = prometheus.ask(&expression)?;
            let members = results.iter().filter(|it| it.contains("instance=")).count();
            let is_complete = members == 3 || members == 0 && results.len() == 1;
            if is_complete { Ok(results) } else { Err(results.join("\n")) }
        });
        println!("{expression}\n  {}", results.join("\n  "));
    }

    // The page about a member that is gone has the value 0, not an error.
    galera.kubectl(&["delete", "pod", &galera.member(1), "--wait=false"]).succeeded();
    patiently("the exporter reports that the member is gone", || {
        let page = exporter_page(&galera, 1);
        if value(&page, "mysql_up") == Some(0.0) { Ok(()) } else { Err(page) }
    });
    galera.until_ready(3);
    patiently("the exporter reports that the member is back", || {
        let page = exporter_page(&galera, 1);
        if value(&page, "mysql_global_status_wsrep_local_state") == Some(4.0) { Ok(()) } else { Err(page) }
    });
}
