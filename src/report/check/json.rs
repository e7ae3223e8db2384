//! JSON output. It is a contract, described by docs/check.schema.json; fields are added, never renamed.

use serde_json::{Value, json};

use crate::because;
use inspect::check::{CheckFinding, Checked, Level, Outcome, What};

pub(super) fn of(checked: &Checked) -> Value {
    let prints = super::fingerprints(checked);
    let levels = [Level::Refused, Level::Warning, Level::Waived];
    let [refused, warned, waived] = levels.map(|level| checked.objects_of(level));
    let odd = checked.not_judged();
    let unchanged = checked.objects.iter().filter(|it| it.unchanged).count();
    let counts = [Level::Unread, Level::Refused, Level::Warning, Level::Waived, Level::Note];
    let counts: serde_json::Map<_, _> =
        counts.into_iter().map(|level| (level.name().to_owned(), checked.count(level).into())).collect();
    json!({
        "findings": checked.hits.iter().zip(prints).map(|(hit, print)| finding(checked, hit, &print)).collect::<Vec<_>>(),
        "objects": checked.objects.iter().map(object).collect::<Vec<_>>(),
        "summary": {
            "findings": counts,
            "objects": {
                "all": checked.objects.len(),
                "refused": refused,
                "warning": warned,
                "waived": waived,
                "notJudged": odd,
                "unchanged": unchanged,
                "fine": checked.objects.len() - refused - warned - waived - odd - unchanged,
            },
            "clusters": checked.clusters,
            "leftOut": checked.strangers,
            "settings": checked.settings,
        },
    })
}

fn finding(checked: &Checked, hit: &CheckFinding, print: &str) -> Value {
    let spot = &hit.spot;
    let object = hit
        .object
        .as_ref()
        .map(|it| json!({ "kind": it.kind.name(), "namespace": it.id.namespace, "name": it.id.name }));
    let mut json = json!({
        "level": hit.level().name(),
        "rule": super::code(hit),
        "name": super::name(checked, super::code(hit)),
        "file": &*spot.file,
        "line": spot.place.map(|it| it.line),
        "column": spot.place.map(|it| it.column),
        "template": spot.template,
        "inBase": spot.in_base,
        "shownAt": hit.shown_at.as_ref().map(|(file, line)| json!({ "file": &**file, "line": line })),
        "object": object,
        "fingerprint": print,
    });
    match &hit.what {
        What::Finding { judged, waived } => {
            let finding = &judged.finding;
            json["verdict"] = json!(finding.verdict.name());
            json["field"] = json!(finding.field);
            json["says"] = json!(finding.says);
            json["why"] = json!(finding.why);
            json["instead"] = json!(finding.instead);
            json["softened"] = json!(judged.softened.as_ref().map(because));
            json["waived"] = json!(waived);
        }
        What::Remark(words) | What::Unjudged(words) | What::Comment(words) | What::Unread(words) => {
            json["says"] = json!(words);
        }
    }
    json
}

fn object(it: &Outcome) -> Value {
    let became = match it.worst {
        _ if it.unchanged => "unchanged",
        _ if it.is_of_no_rule() => "notJudged",
        Some(Level::Note | Level::Unread) => "notJudged",
        worst => worst.map_or("fine", Level::name),
    };
    json!({
        "kind": it.object.kind.name(), "namespace": it.object.id.namespace, "name": it.object.id.name,
        "file": &*it.spot.file, "line": it.spot.place.map(|it| it.line), "inBase": it.spot.in_base, "became": became,
    })
}
