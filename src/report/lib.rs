//! Decisions, findings, states and steps, laid out for their readers: a person at a terminal, the API server, a pipeline.
//!
//! Owns: layout, and the sentences about steps; those of findings come from the rules. Must not know: clients, files.
//! Everything that leaves the process about a decision is written here, so this crate keeps to the limits of the API server.

pub mod audit;
pub mod bundle;
pub mod check;
pub mod doctor;
pub mod json;
pub mod manual;
pub mod pages;
mod paint;
pub mod password;
pub mod policy_report;
pub mod recovery;
pub mod rollout;
pub mod rules;
pub mod status;
pub mod stop;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use engine::verdict::{Decision, Downgrade, Effect, Finding, Judged};
use facts::mode::Mode;
use facts::pages::Pages;
use facts::review::{API_VERSION, Review};
use facts::way_out::{Step, WayOut};
use objects::visible;

/// The most characters of a warning; the first line of a denial should not have many more.
const LONGEST_WARNING: usize = 256;
/// The most characters of a way out in one line; a longer one is printed as a list.
const LONGEST_LINE: usize = 160;

/// Returns the full text of one finding: what was found, why it matters, what to do instead, and the page to read.
pub fn text(subject: &str, finding: &Finding, pages: &Pages) -> String {
    rule_findings(subject, &[finding], pages)
}

/// Returns the full text of a refusal: all findings that refuse, worst first. Findings of one rule share their reason,
/// so that six passwords do not print the same advice six times.
pub fn refusal(subject: &str, decision: &Decision, pages: &Pages) -> String {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for Judged { finding, .. } in decision.with(Effect::Refused) {
        match groups.iter_mut().find(|group| (group[0].rule, &group[0].why) == (finding.rule, &finding.why)) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups.iter().map(|findings| rule_findings(subject, findings, pages)).collect::<Vec<_>>().join("\n")
}

/// The words before the command that recovers a cluster.
const WAY_BACK: &str = "The way back";

/// Returns the findings of one rule. Headlines with the same reason and way out stand together, above them.
fn rule_findings(subject: &str, findings: &[&Finding], pages: &Pages) -> String {
    let Some(Finding { rule, .. }) = findings.first() else { return String::new() };
    let mut shared: Vec<(&Finding, Vec<&str>)> = Vec::new();
    for finding in findings {
        let same = |(first, _): &&mut (&Finding, Vec<&str>)| {
            (&first.why, &first.instead) == (&finding.why, &finding.instead)
        };
        match shared.iter_mut().find(same) {
            Some((_, says)) => says.push(&finding.says),
            None => shared.push((finding, vec![&finding.says])),
        }
    }
    let block = |(Finding { why, instead, .. }, says): &(&Finding, Vec<&str>)| {
        let head = |says: &&str| visible(&format!("[{rule}] {subject}: {says}")) + "\n";
        let heads: String = says.iter().map(head).collect();
        format!("{heads}  why: {}\n  do instead:{}\n", visible(why), way_out(instead, pages))
    };
    let named = findings.iter().flat_map(|finding| finding.instead.pages());
    shared.iter().map(block).collect::<String>() + &pages::more(pages, rule, named.collect())
}

/// Lays out a way out: a short one on the same line; a long one as a list of alternatives, or as numbered steps.
fn way_out(instead: &WayOut, pages: &Pages) -> String {
    let line = visible(&instead.line(pages));
    let listed = |sign: &dyn Fn(usize) -> String, steps: Vec<String>| -> String {
        let lines = steps.iter().enumerate();
        lines.map(|(at, step)| format!("\n    {} {}", sign(at), visible(step))).collect()
    };
    let steps = |way: &[Step]| way.iter().map(|step| step.line(pages)).collect::<Vec<_>>();
    match instead.ways() {
        [way] if way.len() > 1 && line.chars().count() > LONGEST_LINE => {
            listed(&|at| format!("{}.", at + 1), steps(way))
        }
        ways if ways.len() > 1 && line.chars().count() > LONGEST_LINE => {
            listed(&|_| "-".to_owned(), ways.iter().map(|way| steps(way).join("; ")).collect())
        }
        _ => format!(" {line}"),
    }
}

/// Returns the warnings of a decision, one line each. The API server silently drops a line with a control character,
/// and cuts a long one.
pub fn warnings(subject: &str, decision: &Decision) -> Vec<String> {
    let warned: Vec<_> = decision.with(Effect::Warned).collect();
    let was_there = |judged: &Judged| judged.softened == Some(Downgrade::AlreadyThere);
    let findings = warned.iter().enumerate().filter_map(|(index, judged)| {
        let Finding { rule, says, instead, .. } = &judged.finding;
        let head = format!("[{rule}] {subject}: {says}");
        let Some(softened) = &judged.softened else {
            return Some(one_line(&format!("{head}; {instead}"), ""));
        };
        // Findings that existed before share one line per rule, because they come again with every change, such as a label.
        let same = |other: &&&Judged| was_there(judged) && was_there(other) && other.finding.rule == *rule;
        if warned[..index].iter().any(|other| same(&other)) {
            return None;
        }
        let more = match warned[index + 1..].iter().filter(same).count() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Some(one_line(&head, &format!("{more} ({})", downgrade_reason(softened))))
    });
    findings.chain(decision.remarks.iter().map(|remark| one_line(remark, ""))).collect()
}

/// Returns why a finding is only a warning.
pub fn downgrade_reason(softened: &Downgrade) -> String {
    match softened {
        Downgrade::ByMode(mode) => format!("not enforced here: mode {}", mode.name()),
        Downgrade::AlreadyThere => "it was there before; this change does not make it worse".to_owned(),
        Downgrade::ByOverride(it) => format!("overridden until {}: {}", it.until, it.reason),
    }
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Joins a text and its end to at most 256 characters without line breaks or other control characters. The text is cut
/// first, because the end says why it is only a warning.
fn one_line(text: &str, end: &str) -> String {
    let (text, end) = (visible(text), visible(end));
    let end: String = end.chars().take(LONGEST_WARNING / 2).collect();
    let room = LONGEST_WARNING - end.chars().count();
    if text.chars().count() <= room {
        return text + &end;
    }
    text.chars().take(room - 1).chain(['…']).chain(end.chars()).collect()
}

/// An AdmissionReview that answers a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionAnswer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    audit_annotations: serde_json::Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// Base64 in quotes, in which nothing has to be escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Box<RawValue>>,
}

impl<'a> AdmissionAnswer<'a> {
    fn new(uid: &'a str, allowed: bool, status: Option<Value>) -> Self {
        let response = Response { uid, allowed, status, ..Response::default() };
        Self { api_version: API_VERSION, kind: "AdmissionReview", response }
    }

    /// Returns the text that is sent.
    pub fn text(&self) -> serde_json::Result<Vec<u8>> {
        /// Room for all but the patch; a longer text makes the buffer grow.
        const REST_BYTES: usize = 1024;
        let patch = self.response.patch.as_ref().map_or(0, |patch| patch.get().len());
        let mut text = Vec::with_capacity(patch + REST_BYTES);
        serde_json::to_writer(&mut text, self).map(|()| text)
    }
}

/// Room for a patch that injects the scripts into a pod, so that its text is copied less.
const PATCH_BYTES: usize = 48 * 1024;

/// Returns the answer to a request. `age` says how current the view is; `patch` is only for the mutating endpoint.
pub fn admission<'a>(
    uid: &'a str,
    review: &Review,
    decision: &Decision,
    age: &str,
    patch: Option<&json_patch::Patch>,
    pages: &Pages,
) -> AdmissionAnswer<'a> {
    let subject = review.subject();
    let status = || status(review, decision, &subject, pages);
    let mut answer = AdmissionAnswer::new(uid, decision.allowed(), (!decision.allowed()).then(status));
    answer.response.warnings = warnings(&subject, decision);
    answer.response.audit_annotations = audit_annotations(decision, age);
    if let Some(patch) = patch.filter(|patch| decision.allowed() && !patch.is_empty()) {
        let mut json = Vec::with_capacity(PATCH_BYTES);
        let mut quoted = String::with_capacity(PATCH_BYTES / 3 * 4);
        // A patch consists of JSON values, so it cannot fail to serialize.
        let _ = serde_json::to_writer(&mut json, patch);
        quoted.push('"');
        BASE64.encode_string(json, &mut quoted);
        quoted.push('"');
        answer.response.patch = RawValue::from_string(quoted).ok();
        answer.response.patch_type = answer.response.patch.is_some().then_some("JSONPatch");
    }
    answer
}

/// Returns the answer to a request whose proper answer would be too long to send.
pub fn unanswerable(uid: &str) -> AdmissionAnswer<'_> {
    let message =
        "gatera refuses this: its answer would be too long to send; shorten names, or change less at once";
    let status = json!({ "code": 403, "reason": "Forbidden", "message": message });
    AdmissionAnswer::new(uid, false, Some(status))
}

/// Returns status 403, or 429 for an eviction: `kubectl drain` waits on 429 and gives up on everything else. Never 422
/// or 409, on which `kubectl apply --force` and Flux delete the object and create it again.
fn status(review: &Review, decision: &Decision, subject: &str, pages: &Pages) -> Value {
    let (code, reason) =
        if review.subresource == "eviction" { (429, "TooManyRequests") } else { (403, "Forbidden") };
    let cause = |judged: &Judged| {
        let Finding { rule, field, says, .. } = &judged.finding;
        json!({ "reason": rule, "field": field, "message": says })
    };
    json!({
        "code": code,
        "reason": reason,
        "message": refusal(subject, decision, pages),
        "details": {
            "name": review.name,
            "kind": review.kind.name(),
            "causes": decision.with(Effect::Refused).map(cause).collect::<Vec<_>>(),
        },
    })
}

/// Returns what the audit log keeps: for each rule the verdict of its first finding, what became of it and why, and the age of
/// the view.
fn audit_annotations(decision: &Decision, age: &str) -> serde_json::Map<String, Value> {
    let mut annotations = serde_json::Map::new();
    for Judged { finding, effect, softened } in &decision.judged {
        let softened = match softened {
            None => String::new(),
            Some(Downgrade::ByMode(mode)) => format!(" mode={}", mode.name()),
            Some(Downgrade::AlreadyThere) => " before".to_owned(),
            Some(Downgrade::ByOverride(it)) => {
                one_line(&format!(" override until={} {}", it.until, it.reason), "")
            }
        };
        let effect = match effect {
            Effect::Recorded => Mode::Audit.name(),
            Effect::Warned => "warned",
            Effect::Refused => "refused",
        };
        let value = format!("{} {effect}{softened} {}", finding.verdict.name(), finding.field);
        annotations.entry(finding.rule).or_insert_with(|| json!(value.trim_end()));
    }
    if !annotations.is_empty() {
        annotations.insert("view".to_owned(), json!(age));
    }
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;
    use facts::way_out::{CommandLine, say};

    #[test]
    fn warnings_survive_the_api_server() {
        let decision =
            Decision { remarks: vec![format!("a\nb\u{7}{}", "é".repeat(400))], ..Decision::default() };
        let warnings = warnings("Pod a/b", &decision);
        assert_eq!(warnings[0].chars().count(), 256);
        assert!(warnings[0].starts_with("a\\nb\\u{7}é") && warnings[0].ends_with('…'));
        let line = one_line(&"é".repeat(400), " (not enforced here: mode warn)");
        assert_eq!(line.chars().count(), 256);
        assert!(line.ends_with("é… (not enforced here: mode warn)"), "{line}");
        assert_eq!(one_line("a", &"b".repeat(400)).chars().count(), 129);
    }

    #[test]
    fn a_long_way_out_is_a_list() {
        let pages = Pages::Program;
        let long = || {
            say("find out why (")
                .run(CommandLine::new("kubectl describe pod x"))
                .say("z".repeat(200))
                .say(")")
        };
        assert_eq!(way_out(&say("one; two").then("three"), &pages), " one; two; three");
        let numbered = way_out(&long().then(say("see ").page("G04")), &pages);
        let first = format!("find out why (kubectl describe pod x{})", "z".repeat(200));
        assert_eq!(numbered, format!("\n    1. {first}\n    2. see gatera explain G04"));
        let choice = way_out(&long().then("repeat the command").or("ask"), &pages);
        assert_eq!(choice, format!("\n    - {first}; repeat the command\n    - ask"));
    }

    #[test]
    fn texts_of_users_cannot_control_the_terminal() {
        let finding = Finding::new(
            "G11",
            engine::verdict::Verdict::Deny,
            "",
            "key \u{1b}[2Jx\n[G11] all is well",
            "w",
            "take \u{202e}x\r away",
        );
        let message = text("Secret a/\u{9b}b", &finding, &Pages::Program);
        assert_eq!(
            message,
            "[G11] Secret a/\\u{9b}b: key \\u{1b}[2Jx\\n[G11] all is well\n  why: w\n  do instead: take \\u{202e}x\\r away\n  \
             more: gatera explain G11"
        );
    }
}
