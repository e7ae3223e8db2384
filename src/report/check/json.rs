//! JSON output. It is a contract, described by docs/schemas/check.json; fields are added, never renamed.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::downgrade_reason;
use crate::json::{ObjectName, VERSION, value};
use facts::way_out::WayOut;
use inspect::check::{CheckFinding, CheckFindingKind, Checked, Level, Location, Outcome};

/// What was found in manifests.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    version: u32,
    /// In the order of the files; what was removed comes last.
    findings: Vec<FindingItem<'a>>,
    objects: Vec<ObjectItem<'a>>,
    summary: Summary<'a>,
}

/// How much was found.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    findings: LevelCounts,
    objects: OutcomeCounts,
    /// Galera clusters among the objects.
    clusters: usize,
    /// Documents that are not manifests.
    left_out: usize,
    /// The file that the settings come from; null: the default settings.
    settings: Option<&'a str>,
}

/// How many findings there are of each level; they add up to all findings.
#[derive(Serialize, JsonSchema)]
struct LevelCounts {
    unread: usize,
    refused: usize,
    warning: usize,
    waived: usize,
    note: usize,
}

/// The results for the objects; `all` is the sum of the others.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OutcomeCounts {
    pub(super) all: usize,
    pub(super) refused: usize,
    pub(super) warning: usize,
    pub(super) waived: usize,
    pub(super) not_judged: usize,
    pub(super) unchanged: usize,
    pub(super) fine: usize,
}

/// The place of a finding or an object.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PlaceItem<'a> {
    /// As it was named on the command line; `-` is standard input.
    file: &'a str,
    #[schemars(range(min = 1))]
    line: Option<u64>,
    #[schemars(range(min = 1))]
    column: Option<u64>,
    /// The template of a chart, from a comment `# Source:`.
    template: Option<&'a str>,
    /// The file and the line are those of the base: what stands there was removed.
    in_base: bool,
}

/// One thing that was found.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FindingItem<'a> {
    /// `unread`: it could not be read or judged; `refused`: the webhook would refuse it; `warning`: the webhook would
    /// allow it with a warning; `waived`: a comment in the file waives it, with a reason; `note`: a finding that the mode
    /// only records, something that was not judged, or a comment that is invalid or waives nothing.
    #[schemars(extend("enum" = ["unread", "refused", "warning", "waived", "note"]))]
    level: &'static str,
    /// The id of a rule, or `remark`, `unjudged`, `waiver`, `unread`.
    #[schemars(regex(pattern = "^([A-Z][0-9]{2}|remark|unjudged|waiver|unread)$"))]
    rule: &'static str,
    /// The name of the rule.
    name: &'static str,
    #[serde(flatten)]
    place: PlaceItem<'a>,
    /// Where code hosts show a removal: a file that is there, and a line of it; null: nothing was removed, or no file is
    /// left.
    shown_at: Option<ShownAt<'a>>,
    object: Option<ObjectName<'a>>,
    /// Stays the same when lines are added or removed elsewhere in the file.
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    fingerprint: String,
    says: &'a str,
    #[serde(flatten)]
    judged: Option<JudgedItem<'a>>,
}

/// A line of a file.
#[derive(Serialize, JsonSchema)]
struct ShownAt<'a> {
    file: &'a str,
    #[schemars(range(min = 1))]
    line: u64,
}

/// What a rule says about it.
#[derive(Serialize, JsonSchema)]
struct JudgedItem<'a> {
    #[schemars(extend("enum" = ["deny", "wait", "unknown", "amend", "warn"]))]
    verdict: &'static str,
    /// List items are identified by name: `containers[mariadb]`.
    field: &'a str,
    why: &'a str,
    /// What to do instead.
    #[schemars(with = "String")]
    instead: &'a WayOut,
    /// Why the finding has a milder effect than its verdict; null: it does not.
    softened: Option<String>,
    /// The reason of the comment that waives it.
    waived: Option<&'a str>,
}

/// An object and its result.
#[derive(Serialize, JsonSchema)]
struct ObjectItem<'a> {
    #[serde(flatten)]
    name: ObjectName<'a>,
    #[serde(flatten)]
    place: PlaceItem<'a>,
    #[schemars(extend("enum" = ["refused", "warning", "waived", "notJudged", "unchanged", "fine"]))]
    became: &'static str,
}

pub(super) fn of(checked: &Checked) -> Value {
    let fingerprints = super::fingerprints(checked);
    value(Document {
        version: VERSION,
        findings: checked
            .findings
            .iter()
            .zip(fingerprints)
            .map(|(finding, fingerprint)| finding_item(checked, finding, fingerprint))
            .collect(),
        objects: checked.objects.iter().map(object_item).collect(),
        summary: summary(checked),
    })
}

impl OutcomeCounts {
    /// Counts the objects of a check.
    pub(super) fn of(checked: &Checked) -> Self {
        Self {
            all: checked.objects.len(),
            refused: checked.objects_of(Level::Refused),
            warning: checked.objects_of(Level::Warning),
            waived: checked.objects_of(Level::Waived),
            not_judged: checked.unjudged_objects(),
            unchanged: checked.objects.iter().filter(|it| it.unchanged).count(),
            fine: checked.objects.iter().filter(|it| it.is_fine()).count(),
        }
    }
}

fn summary(checked: &Checked) -> Summary<'_> {
    Summary {
        findings: LevelCounts {
            unread: checked.count(Level::Unread),
            refused: checked.count(Level::Refused),
            warning: checked.count(Level::Warning),
            waived: checked.count(Level::Waived),
            note: checked.count(Level::Note),
        },
        objects: OutcomeCounts::of(checked),
        clusters: checked.clusters,
        left_out: checked.skipped_documents,
        settings: checked.settings.as_deref(),
    }
}

fn place_item(location: &Location) -> PlaceItem<'_> {
    PlaceItem {
        file: &location.file,
        line: location.place.map(|it| it.line),
        column: location.place.map(|it| it.column),
        template: location.template.as_deref(),
        in_base: location.in_base,
    }
}

fn finding_item<'a>(checked: &Checked, finding: &'a CheckFinding, fingerprint: String) -> FindingItem<'a> {
    let judged = match &finding.what {
        CheckFindingKind::Finding { judged, waived } => Some(JudgedItem {
            verdict: judged.finding.verdict.name(),
            field: &judged.finding.field,
            why: &judged.finding.why,
            instead: &judged.finding.instead,
            softened: judged.softened.as_ref().map(downgrade_reason),
            waived: waived.as_deref(),
        }),
        _ => None,
    };
    let code = super::code(finding);
    FindingItem {
        level: finding.level().name(),
        rule: code,
        name: super::rule_name(checked, code),
        place: place_item(&finding.location),
        shown_at: finding.shown_at.as_ref().map(|(file, line)| ShownAt { file, line: *line }),
        object: finding.object.as_ref().map(|it| ObjectName::of(it.kind, &it.id)),
        fingerprint,
        says: super::message(finding),
        judged,
    }
}

fn object_item(outcome: &Outcome) -> ObjectItem<'_> {
    let became = match outcome.worst {
        _ if outcome.unchanged => "unchanged",
        _ if outcome.has_no_rule() => "notJudged",
        Some(Level::Note | Level::Unread) => "notJudged",
        worst => worst.map_or("fine", Level::name),
    };
    let name = ObjectName::of(outcome.object.kind, &outcome.object.id);
    ObjectItem { name, place: place_item(&outcome.location), became }
}
