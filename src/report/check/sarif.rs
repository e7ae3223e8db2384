//! SARIF 2.1.0, for code scanning. A rule's page is its help; a waived finding is suppressed; a file that cannot be
//! read is a notification of a run that did not succeed.

use serde_json::{Value, json};

use super::{OTHER_CODES, code, fingerprints, place, whole};
use inspect::check::{CheckFinding, Checked, Level, What};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

pub(super) fn of(checked: &Checked) -> Value {
    let rules = rules(checked);
    let index = |id: &str| rules.iter().position(|rule| rule["id"] == id);
    let prints = fingerprints(checked);
    let unread = |hit: &&CheckFinding| hit.level() == Level::Unread;
    let results = checked.hits.iter().zip(&prints).filter(|(hit, _)| !unread(hit));
    let results: Vec<_> = results.map(|(hit, print)| result(hit, print, index(code(hit)))).collect();
    let problems: Vec<_> = checked.hits.iter().filter(unread).map(notification).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "gatera", "semanticVersion": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "invocations": [{ "executionSuccessful": problems.is_empty(), "toolExecutionNotifications": problems }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rules(checked: &Checked) -> Vec<Value> {
    let of_rules = checked.rules.iter().map(|rule| {
        json!({
            "id": rule.id,
            "name": rule.name,
            "shortDescription": { "text": rule.summary() },
            "help": { "text": rule.text(), "markdown": rule.text() },
            "defaultConfiguration": { "level": "error" },
        })
    });
    let others = OTHER_CODES.iter().filter(|(code, _)| *code != "unread").map(|(code, means)| {
        json!({ "id": code, "name": code, "shortDescription": { "text": means }, "defaultConfiguration": { "level": "warning" } })
    });
    of_rules.chain(others).collect()
}

fn result(hit: &CheckFinding, print: &str, index: Option<usize>) -> Value {
    let level = match hit.level() {
        Level::Refused | Level::Unread => "error",
        Level::Warning => "warning",
        Level::Waived | Level::Note => "note",
    };
    let mut result = json!({
        "ruleId": code(hit),
        "ruleIndex": index,
        "level": level,
        "message": { "text": whole(hit) },
        "locations": [location(hit)],
        "partialFingerprints": { "gatera/v1": print },
    });
    if let What::Finding { waived: Some(reason), .. } = &hit.what {
        result["suppressions"] = json!([{ "kind": "inSource", "justification": reason }]);
    }
    result
}

fn notification(hit: &CheckFinding) -> Value {
    json!({ "level": "error", "message": { "text": whole(hit) }, "locations": [location(hit)] })
}

fn location(hit: &CheckFinding) -> Value {
    let (file, line) = place(hit);
    let mut region = json!({ "startLine": line });
    if let Some(place) = hit.spot.place.filter(|it| it.line == line && it.column > 0) {
        region["startColumn"] = json!(place.column);
    }
    let mut location =
        json!({ "physicalLocation": { "artifactLocation": { "uri": uri(file) }, "region": region } });
    if let Some(object) = &hit.object {
        location["logicalLocations"] = json!([{ "fullyQualifiedName": object.subject, "kind": "resource" }]);
    }
    location
}

/// Returns a path as a relative reference.
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=@".contains(&byte);
    let path = path.strip_prefix("./").unwrap_or(path);
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    let bytes = path
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    scheme.to_owned() + &bytes.collect::<String>()
}
