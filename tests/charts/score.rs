//! What kube-score finds in the charts, and why it stays.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::{CHARTS, folder, helm};
use crate::lab;

/// The grade of a check without a finding.
const PASSED: u64 = 10;

/// Each check that finds something, the charts in which it does, and why the finding stays.
const EXCEPTIONS: [(&str, &[&str], &str); 11] = [
    (
        "container-ephemeral-storage-request-and-limit",
        &CHARTS,
        "logs count, so a talkative server would be evicted, without regard to budgets",
    ),
    ("container-image-pull-policy", &CHARTS, "a pod that restarts must not need a registry"),
    (
        "container-resources",
        &CHARTS,
        "a limit of CPU slows down what others wait for; memory is for users to set",
    ),
    (
        "pod-networkpolicy",
        &CHARTS,
        "rules for egress would need the addresses of DNS and API servers; test pods take no requests",
    ),
    ("container-security-context-user-group-id", &["galera", "wordpress"], "the images choose their users"),
    (
        "container-security-context-readonlyrootfilesystem",
        &["galera", "wordpress"],
        "the images write beside their volumes",
    ),
    ("deployment-has-host-podantiaffinity", &["gatera"], "replicas are spread by topologySpreadConstraints"),
    (
        "deployment-replicas",
        &["galera", "wordpress"],
        "a bootstrap node is one, and so is a database without Galera",
    ),
    (
        "deployment-strategy",
        &["galera", "wordpress"],
        "two at once would be two databases, or two users of a volume",
    ),
    ("pod-probes-identical", &["wordpress"], "a database alone has no other to which requests could go"),
    ("service-type", &["wordpress"], "the value service.type; visitors come from outside"),
];

#[test]
fn kube_score_finds_only_what_has_a_reason() {
    let mut found = BTreeSet::new();
    for chart in CHARTS {
        let policy: &[&str] = if chart == "wordpress" { &[] } else { &["--set=networkPolicy.enabled=true"] };
        let text =
            helm(&[&["template", "shop", &folder(chart), "--namespace=db"], policy].concat()).succeeded();
        let file = lab::shared().folder().join(format!("score-{chart}.yaml"));
        fs::write(&file, text).unwrap();
        let scored =
            lab::shared().kube_score(&["score", "--output-format=json", &file.display().to_string()]);
        let objects: Vec<Value> =
            serde_json::from_str(&scored.stdout).unwrap_or_else(|error| panic!("{error}: {scored}"));
        for object in objects {
            for check in object["checks"].as_array().unwrap() {
                if check["skipped"] == false && check["grade"].as_u64().unwrap() < PASSED {
                    found.insert((check["check"]["id"].as_str().unwrap().to_owned(), chart));
                }
            }
        }
    }
    let excepted = EXCEPTIONS
        .iter()
        .flat_map(|(check, charts, _)| charts.iter().map(|chart| ((*check).to_owned(), *chart)));
    assert_eq!(found, excepted.collect(), "left: findings of kube-score, right: EXCEPTIONS");
}
