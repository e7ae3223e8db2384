//! A GitLab code quality report, which GitLab shows in a merge request.

use serde_json::{Value, json};

use super::{code, fingerprints, headline, shown, whole_at_host};
use inspect::check::{Checked, Level, What};

pub(super) fn of(checked: &Checked) -> Value {
    let prints = fingerprints(checked);
    let shown = checked.hits.iter().zip(prints).map(|(hit, print)| {
        let severity = match hit.level() {
            Level::Unread => "blocker",
            Level::Refused => "critical",
            Level::Warning => "minor",
            Level::Waived | Level::Note => "info",
        };
        let instead = match &hit.what {
            What::Finding { judged, .. } => format!("; {}", judged.finding.instead),
            _ => String::new(),
        };
        let (file, line) = shown(hit);
        json!({
            "type": "issue",
            "check_name": code(hit),
            "description": format!("{}{}", headline(hit), super::visible(&instead)),
            "content": { "body": whole_at_host(hit) },
            "categories": ["Bug Risk"],
            "severity": severity,
            "fingerprint": print,
            "location": { "path": file.strip_prefix("./").unwrap_or(file), "lines": { "begin": line } },
        })
    });
    shown.collect()
}
