//! Readers of ConfigMaps: pods, and the objects that create pods, as far as they refer to ConfigMaps.
//!
//! They are read from the API server only when the guard is about to delete a ConfigMap; the view does not hold most of them.

use serde::Deserialize;

use super::unreadable::read_as;
use super::{ApiObject, Meta, Pod, PodSpec, Unreadable, Workload};

#[derive(Clone, Debug)]
pub struct ConfigMapReader {
    pub kind: &'static str,
    pub metadata: Meta,
    config_maps: Vec<String>,
}

type CronJob = ApiObject<CronJobSpec>;

/// The spec of a `CronJob`, whose job template is a workload without a name.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CronJobSpec {
    job_template: Workload,
}

impl ConfigMapReader {
    /// Every kind of reader, with its API and plural.
    pub const KINDS: [(&str, &str, &str); 8] = [
        ("Pod", "api/v1", "pods"),
        ("ReplicationController", "api/v1", "replicationcontrollers"),
        ("StatefulSet", "apis/apps/v1", "statefulsets"),
        ("Deployment", "apis/apps/v1", "deployments"),
        ("DaemonSet", "apis/apps/v1", "daemonsets"),
        ("ReplicaSet", "apis/apps/v1", "replicasets"),
        ("Job", "apis/batch/v1", "jobs"),
        ("CronJob", "apis/batch/v1", "cronjobs"),
    ];

    /// Reads the JSON text of one object of this kind.
    pub fn read(kind: &'static str, json: &str) -> Result<Self, Unreadable> {
        let read = |spec: &PodSpec| spec.config_maps().map(str::to_owned).collect();
        let (metadata, config_maps) = match kind {
            "Pod" => read_as(kind, json).map(|it: Pod| (it.metadata, read(&it.spec)))?,
            "CronJob" => read_as(kind, json)
                .map(|it: CronJob| (it.metadata, read(&it.spec.job_template.spec.template.spec)))?,
            _ => read_as(kind, json).map(|it: Workload| (it.metadata, read(&it.spec.template.spec)))?,
        };
        Ok(Self { kind, metadata, config_maps })
    }

    /// Returns whether it refers to this ConfigMap.
    pub fn reads(&self, config_map: &str) -> bool {
        self.config_maps.iter().any(|name| name == config_map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_read_a_config_map_is_seen() {
        let ways = [
            r#"{"volumes":[{"name":"v","configMap":{"name":"c"}}]}"#,
            r#"{"volumes":[{"name":"v","projected":{"sources":[{"configMap":{"name":"c"}}]}}]}"#,
            r#"{"containers":[{"envFrom":[{"configMapRef":{"name":"c"}}]}]}"#,
            r#"{"initContainers":[{"env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"c","key":"k"}}}]}]}"#,
            r#"{"ephemeralContainers":[{"envFrom":[{"configMapRef":{"name":"c"}}]}]}"#,
        ];
        for (kind, ..) in ConfigMapReader::KINDS {
            for spec in ways {
                let template = format!(r#"{{"template":{{"spec":{spec}}}}}"#);
                let whole = match kind {
                    "Pod" => spec.to_owned(),
                    "CronJob" => format!(r#"{{"jobTemplate":{{"spec":{template}}}}}"#),
                    _ => template,
                };
                let json = format!(r#"{{"metadata":{{"name":"a"}},"spec":{whole}}}"#);
                let reader = ConfigMapReader::read(kind, &json).unwrap();
                assert!(reader.reads("c") && !reader.reads("d"), "{kind} {spec}");
            }
        }
        assert!(!ConfigMapReader::read("Pod", "{}").unwrap().reads("c"));
        let invalid = r#"{"spec":{"template":{"spec":{"volumes":"hunter2"}}}}"#;
        let problem = ConfigMapReader::read("Job", invalid).unwrap_err().to_string();
        assert!(
            problem.starts_with("cannot be read as a Job: ") && !problem.contains("hunter2"),
            "{problem}"
        );
    }
}
