//! An audit as text, as JSON and as Events.
//!
//! The JSON is a contract; fields are added, never renamed:
//!
//! ```text
//! { "findings": [{ "object": { "kind", "namespace", "name" },
//!                  "rule", "verdict": "deny|wait|unknown|amend|warn", "effect": "refused|warned|recorded",
//!                  "field", "says", "why", "instead", "softened": why it is milder than its verdict, or null }],
//!   "remarks":  [{ "object": …, "says" }],
//!   "clusters": [{ "namespace", "name", "state", "members", "ready", "says", "id": of the cluster, or null,
//!                  "wayBack": the command that brings it back where no member is Ready, and what that does, or null,
//!                  "starts": [{ "name", "says" }] of members that have not joined, as each reported,
//!                  "matters": [{ "condition", "members": [name], "instead" }] }],
//!   "summary":  { "objects", "refused", "warned" } }
//! ```

use serde_json::{Value, json};

use super::{WAY_BACK, because, refusal};
use engine::verdict::{Effect, Judged};
use facts::galera::identity::Identity;
use facts::pages::Pages;
use facts::view::State;
use inspect::audit::{Audit, Audited, News, Summary};
use objects::visible;

/// Returns the audit as text.
pub fn text(audit: &Audit) -> String {
    let mut text = findings(audit);
    text.extend(audit.clusters.iter().map(cluster));
    let (clusters, objects) = (count(audit.clusters.len(), "cluster"), count(audit.judged, "object"));
    let (refused, warned) = (audit.refused(), audit.warned());
    text.push_str(&format!(
        "{clusters}, {objects} judged: {refused} would be refused, {warned} allowed with a warning\n"
    ));
    text
}

/// Returns only what needs attention, as text.
pub fn not_well(audit: &Audit) -> String {
    let well = |it: &&Summary| it.state == State::Healthy && it.starts.is_empty() && it.matters.is_empty();
    let clusters: String = audit.clusters.iter().filter(|it| !well(it)).map(cluster).collect();
    let text = findings(audit) + &clusters;
    if text.is_empty() { text } else { text.trim_end().to_owned() + "\n" }
}

fn findings(audit: &Audit) -> String {
    let mut text = String::new();
    for object in &audit.objects {
        let Audited { subject, decision, .. } = object;
        if !decision.allowed() {
            text.push_str(&format!("would be refused\n{}\n\n", refusal(subject, decision, &Pages::Program)));
        }
        for judged in decision.with(Effect::Warned) {
            text.push_str(&format!("warning\n{}\n", super::text(subject, &judged.finding, &Pages::Program)));
            if let Some(softened) = &judged.softened {
                text.push_str(&format!("  only a warning: {}\n", visible(&because(softened))));
            }
            text.push('\n');
        }
        for remark in &decision.remarks {
            text.push_str(&format!("warning\n{}\n\n", visible(remark)));
        }
    }
    text
}

fn cluster(it: &Summary) -> String {
    let Summary { id, state, says, identity, starts, matters, way_back, .. } = it;
    let known = identity.as_ref().map(|it| format!("  {it}")).unwrap_or_default();
    let mut text = format!("{id}  {}  {}{known}\n", state.name(), visible(says));
    text.extend(way_back.iter().map(|way| visible(&format!("  {WAY_BACK}: {way}")) + "\n"));
    text.extend(starts.iter().map(|(name, note)| visible(&format!("  {name}  {note}")) + "\n"));
    text.extend(matters.iter().map(|matter| visible(&format!("  {matter}")) + "\n"));
    text
}

pub(super) fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Returns the audit as JSON.
pub fn json(audit: &Audit) -> Value {
    let findings =
        audit.objects.iter().flat_map(|it| it.decision.judged.iter().map(|judged| finding(it, judged)));
    let remarks = audit.objects.iter().flat_map(|it| {
        it.decision.remarks.iter().map(|remark| json!({ "object": object(it), "says": remark }))
    });
    let cluster = |it: &Summary| {
        json!({
            "namespace": it.id.namespace,
            "name": it.id.name,
            "state": it.state.name(),
            "members": it.members,
            "ready": it.ready,
            "says": it.says,
            "id": it.identity.as_ref().map(Identity::as_str),
            "starts": it.starts.iter().map(|(name, note)| json!({ "name": name, "says": note.to_string() })).collect::<Vec<_>>(),
            "wayBack": it.way_back,
            "matters": super::matters(&it.matters),
        })
    };
    json!({
        "findings": findings.collect::<Vec<_>>(),
        "remarks": remarks.collect::<Vec<_>>(),
        "clusters": audit.clusters.iter().map(cluster).collect::<Vec<_>>(),
        "summary": { "objects": audit.judged, "refused": audit.refused(), "warned": audit.warned() },
    })
}

fn finding(audited: &Audited, judged: &Judged) -> Value {
    let Judged { finding, effect, softened } = judged;
    json!({
        "object": object(audited),
        "rule": finding.rule,
        "verdict": finding.verdict.name(),
        "effect": effect.name(),
        "field": finding.field,
        "says": finding.says,
        "why": finding.why,
        "instead": finding.instead,
        "softened": softened.as_ref().map(because),
    })
}

fn object(it: &Audited) -> Value {
    json!({ "kind": it.kind.name(), "namespace": it.id.namespace, "name": it.id.name })
}

/// Returns the text of an Event: the worst finding of one rule, and how many more there are.
pub fn note(news: &News<'_>) -> String {
    let Some(first) = news.findings.first() else { return String::new() };
    let more = match news.findings.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{} would refuse this object as it is: {}{more}; {}", news.rule, first.says, first.instead)
}
