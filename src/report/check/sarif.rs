//! SARIF 2.1.0, for code scanning. A rule's page is its help; a waived finding is suppressed; a file that cannot be
//! read is a notification of a run that did not succeed.

use serde_json::{Value, json};

use super::{OTHER_CODES, code, fingerprints, full_text_at_host, place_at_host};
use engine::rules::UNREADABLE;
use inspect::check::{CheckFinding, CheckFindingKind, Checked, Level};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

pub(super) fn of(checked: &Checked) -> Value {
    let driver = driver(checked);
    let index =
        |id: &str| driver["rules"].as_array().and_then(|all| all.iter().position(|rule| rule["id"] == id));
    let fingerprints = fingerprints(checked);
    let is_unread = |finding: &&CheckFinding| finding.level() == Level::Unread;
    let results = checked.findings.iter().zip(&fingerprints).filter(|(finding, _)| !is_unread(finding));
    let results: Vec<_> =
        results.map(|(finding, fingerprint)| result(finding, fingerprint, index(code(finding)))).collect();
    let problems: Vec<_> = checked.findings.iter().filter(is_unread).map(notification).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": driver },
            "invocations": [{ "executionSuccessful": problems.is_empty(), "toolExecutionNotifications": problems }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn driver(checked: &Checked) -> Value {
    let url = checked.rules_url.as_deref().map(|it| it.trim_end_matches('/'));
    let mut rules = rules(checked);
    for rule in &mut rules {
        if let (Some(url), Some(id)) = (url, rule["id"].as_str().filter(|id| has_page(checked, id))) {
            rule["helpUri"] = json!(format!("{url}/{id}.md"));
        }
    }
    let mut driver =
        json!({ "name": "gatera", "semanticVersion": env!("CARGO_PKG_VERSION"), "rules": rules });
    if let Some(url) = url {
        driver["informationUri"] = json!(url);
    }
    driver
}

fn has_page(checked: &Checked, id: &str) -> bool {
    id == UNREADABLE || checked.rules.iter().any(|page| page.id == id)
}

/// The rules about readable passwords. Code scanning lists their findings as high, which is a severity from 7.0 to 8.9.
const PASSWORD_RULES: [&str; 4] = ["G11", "K04", "R06", "W01"];

fn rules(checked: &Checked) -> Vec<Value> {
    let of_rules = checked.rules.iter().map(|rule| {
        let mut properties =
            json!({ "precision": "very-high", "problem.severity": "error", "tags": ["kubernetes", "mariadb"] });
        if PASSWORD_RULES.contains(&rule.id) {
            properties["security-severity"] = json!("8.0");
            properties["tags"] = json!(["kubernetes", "mariadb", "security"]);
        }
        json!({
            "id": rule.id,
            "name": rule.name,
            "shortDescription": { "text": rule.summary() },
            "help": { "text": rule.text(), "markdown": rule.text() },
            "defaultConfiguration": { "level": "error" },
            "properties": properties,
        })
    });
    let others = OTHER_CODES.iter().map(|(code, name, means)| {
        let level = if *code == UNREADABLE { "error" } else { "warning" };
        json!({
            "id": code,
            "name": name,
            "shortDescription": { "text": means },
            "defaultConfiguration": { "level": level },
            "properties": { "precision": "very-high", "problem.severity": level },
        })
    });
    of_rules.chain(others).collect()
}

fn result(finding: &CheckFinding, fingerprint: &str, index: Option<usize>) -> Value {
    let level = match finding.level() {
        Level::Refused | Level::Unread => "error",
        Level::Warning => "warning",
        Level::Waived | Level::Note => "note",
    };
    let mut result = json!({
        "ruleId": code(finding),
        "ruleIndex": index,
        "level": level,
        "message": { "text": full_text_at_host(finding) },
        "locations": [location(finding)],
        "partialFingerprints": { "gatera/v1": fingerprint },
    });
    if let CheckFindingKind::Finding { waived: Some(reason), .. } = &finding.what {
        result["suppressions"] = json!([{ "kind": "inSource", "justification": reason }]);
    }
    result
}

fn notification(finding: &CheckFinding) -> Value {
    json!({ "level": "error", "message": { "text": full_text_at_host(finding) }, "locations": [location(finding)] })
}

fn location(finding: &CheckFinding) -> Value {
    let (file, line, column) = place_at_host(finding);
    let mut region = json!({ "startLine": line });
    if let Some(column) = column {
        region["startColumn"] = json!(column);
    }
    let mut location =
        json!({ "physicalLocation": { "artifactLocation": { "uri": uri(file) }, "region": region } });
    if let Some(object) = &finding.object {
        location["logicalLocations"] = json!([{ "fullyQualifiedName": object.subject, "kind": "resource" }]);
    }
    location
}

/// Returns a path as a URI: a relative reference, or with `file://` if it is absolute.
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=@".contains(&byte);
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    let bytes = path
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    scheme.to_owned() + &bytes.collect::<String>()
}
