//! The audit's findings of one namespace as an OpenReports Report, which dashboards for policies show.
//!
//! Owns: the contents of the report. Must not know: who writes it, or when. Its predecessor, PolicyReport of
//! wgpolicyk8s.io/v1alpha2, has nearly the same fields, so one layout serves both; a field that only one of them has is not
//! written.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use engine::verdict::{Effect, Judged};
use inspect::audit::Audited;
use jiff::Timestamp;
use objects::visible;
use serde_json::{Value, json};

/// The most results in one report. An object at the API server may have about a megabyte, and 300 results with these texts have
/// less than half of that.
const MOST_RESULTS: usize = 300;
/// The most characters of a message.
const LONGEST_MESSAGE: usize = 1000;

/// Returns the results for the findings on these objects. Those that refuse come first; if there are too many results, the last
/// one gives the number of the others.
pub fn results(objects: &[Audited], now: Timestamp) -> Vec<Value> {
    let pairs = objects.iter().flat_map(|object| object.decision.judged.iter().map(move |it| (object, it)));
    let mut all: Vec<_> = pairs.collect();
    all.sort_by_key(|(_, judged)| Reverse(judged.effect));
    let left_out = all.len().saturating_sub(MOST_RESULTS);
    let mut results: Vec<_> =
        all.into_iter().take(MOST_RESULTS).map(|(object, judged)| result(object, judged, now)).collect();
    if left_out > 0 {
        let message = format!("findings left out: {left_out}; `gatera audit` lists them");
        results.push(json!({
            "source": "gatera", "policy": "gatera", "result": "skip", "message": message, "timestamp": timestamp(now),
        }));
    }
    results
}

fn result(object: &Audited, judged: &Judged, now: Timestamp) -> Value {
    let Judged { finding, effect, .. } = judged;
    let (result, severity) = match effect {
        Effect::Refused => ("fail", "high"),
        Effect::Warned => ("warn", "medium"),
        // Mode `audit` only records a finding.
        Effect::Recorded => ("skip", "info"),
    };
    let (kind, id) = (object.kind, &object.id);
    let version = match kind.group() {
        "" => kind.version().to_owned(),
        group => format!("{group}/{}", kind.version()),
    };
    let message = format!("{}; why: {}; do instead: {}", finding.says, finding.why, finding.instead);
    json!({
        "source": "gatera",
        "policy": "gatera",
        "rule": finding.rule,
        "category": "MariaDB Galera",
        "severity": severity,
        "result": result,
        "scored": true,
        "message": visible(&message).chars().take(LONGEST_MESSAGE).collect::<String>(),
        "timestamp": timestamp(now),
        "properties": { "field": finding.field },
        "resources": [{
            "apiVersion": version, "kind": kind.name(), "namespace": id.namespace, "name": id.name, "uid": object.uid,
        }],
    })
}

fn timestamp(now: Timestamp) -> Value {
    json!({ "seconds": now.as_second(), "nanos": 0 })
}

/// Returns a number that is the same for the same findings. Times do not count, nor do texts, which contain times; only the
/// text of the result without a rule counts, because it says how many findings are left out.
pub fn fingerprint(results: &[Value]) -> u64 {
    let mut hash = DefaultHasher::new();
    for result in results {
        let object = &result["resources"][0];
        for part in [&result["rule"], &result["result"], &result["properties"]["field"]] {
            part.as_str().hash(&mut hash);
        }
        if result["rule"].is_null() {
            result["message"].as_str().hash(&mut hash);
        }
        for part in ["kind", "name", "uid"] {
            object[part].as_str().filter(|it| !it.is_empty()).hash(&mut hash);
        }
    }
    hash.finish()
}

/// Returns the number of results with each outcome.
pub fn summary(results: &[Value]) -> Value {
    let count = |outcome: &str| results.iter().filter(|it| it["result"] == outcome).count();
    json!({ "pass": 0, "fail": count("fail"), "warn": count("warn"), "error": 0, "skip": count("skip") })
}
