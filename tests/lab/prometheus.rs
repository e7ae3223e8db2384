//! A real Prometheus beside the control plane. It collects what a ServiceMonitor lists, as the Prometheus operator would
//! configure it, and answers PromQL.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::control_plane::{ControlPlane, free_port};
use super::error::{Doing, Error};
use super::supervise::Component;
use super::tools::Tools;

/// A Prometheus that runs until dropped.
pub(crate) struct Prometheus<'a> {
    lab: &'a ControlPlane,
    url: String,
    _component: Component,
}

impl ControlPlane {
    /// Starts a Prometheus for the endpoints of this ServiceMonitor. `target` is the address of the one pod of its Service.
    pub(crate) fn start_prometheus(&self, monitor: &Value, target: &str) -> Prometheus<'_> {
        self.run_prometheus(&configuration(monitor, target)).unwrap_or_else(|error| panic!("{error}"))
    }

    fn run_prometheus(&self, configuration: &Value) -> Result<Prometheus<'_>, Error> {
        let folder: PathBuf = self.folder().join("prometheus");
        fs::create_dir_all(&folder).doing(|| format!("making {}", folder.display()))?;
        let file = folder.join("prometheus.yml");
        fs::write(&file, configuration.to_string()).doing(|| format!("writing {}", file.display()))?;
        let address = format!("{}:{}", Ipv4Addr::LOCALHOST, free_port()?);
        let flags = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let component = Component::start(self.folder(), "prometheus", &Tools::also("prometheus")?, &flags)?;
        Ok(Prometheus { lab: self, url: format!("http://{address}"), _component: component })
    }
}

impl Prometheus<'_> {
    /// Returns the results of an expression, one per line: the labels, the value and the time.
    pub(crate) fn ask(&self, expression: &str) -> Result<Vec<String>, String> {
        let output = self.lab.promtool(&["query", "instant", &self.url, expression]);
        if output.status == 0 {
            Ok(output.stdout.lines().filter(|it| !it.is_empty()).map(str::to_owned).collect())
        } else {
            Err(output.to_string())
        }
    }
}

/// Returns the configuration with a job for each endpoint. JSON is YAML.
fn configuration(monitor: &Value, target: &str) -> Value {
    let endpoints = monitor["spec"]["endpoints"].as_array().expect("a ServiceMonitor has endpoints");
    let job = |(number, endpoint): (usize, &Value)| {
        let relabelings = endpoint["relabelings"].as_array().into_iter().flatten();
        let relabelings: Vec<_> = relabelings
            .map(|it| json!({ "target_label": it["targetLabel"], "replacement": it["replacement"] }))
            .collect();
        json!({
            "job_name": format!("endpoint-{number}"),
            "metrics_path": endpoint["path"],
            "params": endpoint["params"],
            "scrape_interval": "2s",
            "scrape_timeout": "2s",
            "static_configs": [{
                "targets": [target],
                "labels": { "namespace": monitor["metadata"]["namespace"] },
            }],
            "relabel_configs": relabelings,
        })
    };
    json!({ "scrape_configs": endpoints.iter().enumerate().map(job).collect::<Vec<_>>() })
}
