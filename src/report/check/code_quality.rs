//! A GitLab code quality report, which GitLab shows in a merge request.

use serde_json::{Value, json};

use super::{code, fingerprints, full_text_at_host, headline, place_at_host};
use inspect::check::{CheckFindingKind, Checked, Level};

pub(super) fn of(checked: &Checked) -> Value {
    let prints = fingerprints(checked);
    let shown = checked.findings.iter().zip(prints).map(|(finding, print)| {
        let severity = match finding.level() {
            Level::Unread => "blocker",
            Level::Refused => "critical",
            Level::Warning => "minor",
            Level::Waived | Level::Note => "info",
        };
        let instead = match &finding.what {
            CheckFindingKind::Finding { judged, .. } => format!("; {}", judged.finding.instead),
            _ => String::new(),
        };
        let (file, line, _) = place_at_host(finding);
        json!({
            "type": "issue",
            "check_name": code(finding),
            "description": format!("{}{}", headline(finding), super::visible(&instead)),
            "content": { "body": full_text_at_host(finding) },
            "categories": ["Bug Risk"],
            "severity": severity,
            "fingerprint": print,
            "location": { "path": file, "lines": { "begin": line } },
        })
    });
    shown.collect()
}
