//! An audit as text, as JSON and as Events.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::doctor;
use super::json::{self, ClusterHead, ObjectName, VERSION};
use super::paint::{BAD, NOTABLE, Paint};
use super::{WAY_BACK, count, downgrade_reason, refusal};
use engine::verdict::{Effect, Judged};
use facts::pages::Pages;
use facts::view::State;
use facts::way_out::WayOut;
use inspect::audit::{Audit, Audited, NewFindings};
use inspect::doctor::DoctorRow;
use inspect::status::ClusterStatus;
use objects::visible;

/// Returns the audit, and the state of each cluster, as text.
pub fn text(audit: &Audit, clusters: &[ClusterStatus<'_>], colour: bool) -> String {
    let paint = Paint(colour);
    let mut text = findings(audit, paint);
    text.extend(clusters.iter().map(|it| cluster(it, paint)));
    let (clusters, objects) = (count(clusters.len(), "cluster"), count(audit.judged, "object"));
    let (refused, warned) = (audit.refused(), audit.warned());
    text.push_str(&format!(
        "{clusters}, {objects} judged: {refused} would be refused, {warned} allowed with a warning\n"
    ));
    text
}

/// Returns only what needs attention, as text.
pub fn needing_attention(audit: &Audit, clusters: &[ClusterStatus<'_>], colour: bool) -> String {
    let paint = Paint(colour);
    let is_well = |it: &&ClusterStatus<'_>| {
        it.state == State::Healthy && it.cluster.start_reports().next().is_none() && it.diagnoses.is_empty()
    };
    let clusters: String = clusters.iter().filter(|it| !is_well(it)).map(|it| cluster(it, paint)).collect();
    let text = findings(audit, paint) + &clusters;
    if text.is_empty() { text } else { text.trim_end().to_owned() + "\n" }
}

/// Returns a line for each StatefulSet that runs a database server and that no selector adopts.
pub fn unguarded(rows: &[DoctorRow]) -> String {
    rows.iter().map(|row| format!("{}\n", visible(&super::doctor::one_line(row)))).collect()
}

fn findings(audit: &Audit, paint: Paint) -> String {
    let (refused, warning) = (paint.with(BAD, "would be refused"), paint.with(NOTABLE, "warning"));
    let mut text = String::new();
    for object in &audit.objects {
        let Audited { subject, decision, .. } = object;
        if !decision.allowed() {
            text.push_str(&format!("{refused}\n{}\n\n", refusal(subject, decision, &Pages::Program)));
        }
        for judged in decision.with(Effect::Warned) {
            text.push_str(&format!(
                "{warning}\n{}\n",
                super::text(subject, &judged.finding, &Pages::Program)
            ));
            if let Some(softened) = &judged.softened {
                text.push_str(&format!("  only a warning: {}\n", visible(&downgrade_reason(softened))));
            }
            text.push('\n');
        }
        for remark in &decision.remarks {
            text.push_str(&format!("{warning}\n{}\n\n", visible(remark)));
        }
    }
    text
}

fn cluster(it: &ClusterStatus<'_>, paint: Paint) -> String {
    let ClusterStatus { cluster, state, diagnoses, way_back, .. } = it;
    let identity = cluster.identity().map(|it| format!("  {it}")).unwrap_or_default();
    let (state, says) = (paint.state(*state, 0), cluster.describe());
    let mut text = format!("{}  {state}  {}{identity}\n", cluster.id, visible(&says));
    text.extend(way_back.iter().map(|way| visible(&format!("  {WAY_BACK}: {way}")) + "\n"));
    text.extend(cluster.start_reports().map(|(name, report)| visible(&format!("  {name}  {report}")) + "\n"));
    text.extend(diagnoses.iter().map(|diagnosis| visible(&format!("  {diagnosis}")) + "\n"));
    text
}

/// What the rules find in the objects that exist, and the state of each cluster.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    version: u32,
    findings: Vec<FindingItem<'a>>,
    remarks: Vec<Remark<'a>>,
    clusters: Vec<ClusterItem<'a>>,
    /// StatefulSets that run a database server and that no selector adopts.
    unguarded: Vec<doctor::AnswerItem<'a>>,
    summary: Totals,
}

/// A finding about one object: what would be refused, allowed with a warning, or recorded.
#[derive(Serialize, JsonSchema)]
struct FindingItem<'a> {
    object: ObjectName<'a>,
    rule: &'static str,
    /// deny, wait, unknown, amend or warn.
    verdict: &'static str,
    /// refused, warned or recorded.
    effect: &'static str,
    field: &'a str,
    says: &'a str,
    why: &'a str,
    #[schemars(with = "String")]
    instead: &'a WayOut,
    /// Why it is milder than its verdict.
    softened: Option<String>,
}

/// Another warning about an object.
#[derive(Serialize, JsonSchema)]
struct Remark<'a> {
    object: ObjectName<'a>,
    says: &'a str,
}

/// A cluster.
#[derive(Serialize, JsonSchema)]
struct ClusterItem<'a> {
    #[serde(flatten)]
    head: ClusterHead<'a>,
    members: i64,
    ready: usize,
    /// What members that have not joined reported.
    starts: Vec<StartItem<'a>>,
}

/// A start, as the member reported it.
#[derive(Serialize, JsonSchema)]
struct StartItem<'a> {
    name: &'a str,
    says: String,
}

/// How many objects were judged, and how many findings there are.
#[derive(Serialize, JsonSchema)]
struct Totals {
    objects: usize,
    refused: usize,
    warned: usize,
}

/// Returns the audit, and the state of each cluster, as JSON.
pub fn json(audit: &Audit, clusters: &[ClusterStatus<'_>], unguarded: &[DoctorRow]) -> Value {
    let remarks = audit.objects.iter().flat_map(|it| {
        it.decision.remarks.iter().map(|says| Remark { object: ObjectName::of(it.kind, &it.id), says })
    });
    json::value(Document {
        version: VERSION,
        findings: audit
            .objects
            .iter()
            .flat_map(|it| it.decision.judged.iter().map(move |judged| FindingItem::of(it, judged)))
            .collect(),
        remarks: remarks.collect(),
        clusters: clusters.iter().map(ClusterItem::of).collect(),
        unguarded: doctor::AnswerItem::all(unguarded),
        summary: Totals { objects: audit.judged, refused: audit.refused(), warned: audit.warned() },
    })
}

impl<'a> FindingItem<'a> {
    fn of(it: &'a Audited, judged: &'a Judged) -> Self {
        let Judged { finding, effect, softened } = judged;
        Self {
            object: ObjectName::of(it.kind, &it.id),
            rule: finding.rule,
            verdict: finding.verdict.name(),
            effect: effect.name(),
            field: &finding.field,
            says: &finding.says,
            why: &finding.why,
            instead: &finding.instead,
            softened: softened.as_ref().map(downgrade_reason),
        }
    }
}

impl<'a> ClusterItem<'a> {
    fn of(it: &'a ClusterStatus<'a>) -> Self {
        Self {
            head: ClusterHead::of(it),
            members: it.cluster.workload.replicas(),
            ready: it.cluster.ready(),
            starts: it
                .cluster
                .start_reports()
                .map(|(name, report)| StartItem { name, says: report.to_string() })
                .collect(),
        }
    }
}

/// Returns the text of an Event: the worst finding of one rule, and how many more there are.
pub fn event_note(new: &NewFindings<'_>) -> String {
    let Some(first) = new.findings.first() else { return String::new() };
    let more = match new.findings.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{} would refuse this object as it is: {}{more}; {}", new.rule, first.says, first.instead)
}
