//! Equivalent changes: a change that is refused or warned about in place is judged the same when it is made as a creation around
//! running members, or under a new name.

use std::collections::BTreeSet;

use engine::verdict::Effect;
use objects::Kind;
use serde_json::Value;

use super::asked::{Action, Asked};
use super::way_out::judged;
use super::{Case, all};
use crate::scene::Scene;

/// The rules that find something, and whether each refuses.
type Found = BTreeSet<(&'static str, bool)>;

fn found(given: &Scene, asked: &Asked, user: &str) -> Found {
    let decision = judged(given, asked, user);
    let shown = decision.judged.iter().filter(|it| matches!(it.effect, Effect::Refused | Effect::Warned));
    shown.map(|it| (it.finding.rule, it.effect == Effect::Refused)).collect()
}

/// Returns the change as a creation after `kubectl delete statefulset --cascade=orphan`; `None` if it cannot be made in this way.
fn orphaned(case: &Case) -> Option<(Scene, Asked)> {
    let given = Scene { exists: false, ..case.given.clone() };
    let runs = |word: &String| word != "absent" && word != "going";
    if !case.given.exists || !case.given.members.iter().any(runs) || case.given.view != "current" {
        return None;
    }
    let mut asked = case.asked();
    match &case.action {
        Action::Change(_) => {
            asked.operation = "CREATE";
            asked.old = Value::Null;
            let meta = asked.new["metadata"].as_object_mut()?;
            if meta.remove("deletionTimestamp").is_some() {
                return None;
            }
            meta.remove("uid");
            let marks = meta.get_mut("annotations").and_then(Value::as_object_mut);
            // These annotations were deleted with the previous StatefulSet.
            if let Some(marks) = marks {
                marks
                    .retain(|key, value| case.given.stateful_set()["metadata"]["annotations"][key] != *value);
            }
        }
        Action::ChangeConfig(_) | Action::ChangeObject { .. } | Action::Delete(_) => {
            if asked.of == Kind::StatefulSet {
                return None;
            }
        }
        _ => return None,
    }
    Some((given, asked))
}

/// Returns the change as an update of the template, which then names a second ConfigMap with the changed content.
fn renamed(case: &Case) -> Option<(Scene, Asked)> {
    let Action::ChangeConfig(_) = &case.action else { return None };
    if !case.given.exists || case.given.view != "current" {
        return None;
    }
    let asked = case.asked();
    let rename = |it: &Value| {
        let text =
            it.to_string().replace("\"galera-instance-nodeconfig\"", "\"galera-instance-nodeconfig-2\"");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let mut given = case.given.clone();
    given.also.push(rename(&asked.new));
    let set = given.stateful_set();
    Some((
        given,
        Asked {
            old: set.clone(),
            new: rename(&set),
            kind: Kind::StatefulSet,
            of: Kind::StatefulSet,
            ..asked
        },
    ))
}

/// Returns the change as the creation of that second ConfigMap, which the template already names.
fn late(case: &Case) -> Option<(Scene, Asked)> {
    let (mut given, asked) = renamed(case)?;
    let map = given.also.pop()?;
    let in_place = case.asked();
    let file = in_place.old["data"]["galera.cnf"].as_str()?.to_owned();
    given.started_with.get_or_insert(file);
    given.also.push(asked.new);
    Some((given, Asked { operation: "CREATE", old: Value::Null, new: map, ..in_place }))
}

/// The forms of a change that are judged differently from the change in place, each with the reason and with the rules, or single
/// cases, to which the reason applies.
const DIFFERENCES: &[(&str, &str, &[&str])] = &[
    (
        "orphaned",
        "nothing replaces a member whose StatefulSet is gone, so none may be removed, and an override on the StatefulSet is gone, too",
        &[
            "G02",
            "odd/two-clusters-of-one",
            "odd/pods-that-are-only-called",
            "G05/an-override-on",
            "G10/one-override-on",
        ],
    ),
    (
        "orphaned",
        "nothing brings a missing member back while its StatefulSet is away, so only one that starts is waited for; annotations of others \
         are not kept for a pod",
        &[
            "G14/a-change-of-",
            "G14/a-change-on-delete",
            "G14/a-change-while-one-keeps",
            "G14/a-parallel-change-while",
            "G14/a-restart-",
            "G14/an-override-lets-a-rollout",
            "G14/letting-a-held-rollout",
            "G14/other-ordinals-let",
            "G13/removing-anti-affinity-while",
            "G04/a-single-member-that-founds",
            "G17/an-older-series-of-a-cluster-that-is-down",
            "G01/ordinals-that-move",
        ],
    ),
    ("orphaned", "deleting the StatefulSet alone is the way to change this", &["G08"]),
    (
        "orphaned",
        "injection sets probes and preStop: what they were before is not shown",
        &["G11/a-password-in-a", "G11/several-passwords", "G15"],
    ),
    (
        "orphaned",
        "pods do not show the update strategy, and one that stops several members at once is not assumed",
        &["G14/several-at-once-that-were"],
    ),
    ("orphaned", "a recovery is requested on a StatefulSet that exists", &["G20"]),
    ("orphaned", "an Instance owned the StatefulSet that is gone, and owns no member", &["K05"]),
    (
        "orphaned",
        "a MariaDB owned the StatefulSet that is gone, and owns no member",
        &["M01", "M02", "M03", "M04"],
    ),
    (
        "orphaned",
        "the owner is gone with the StatefulSet, and a program may create it again with an owner of its own",
        &[
            "G03/an-operator-that-takes-over",
            "G03/an-owner-that-a-program-gives",
            "G03/an-owner-that-was-there-before",
            "G10/the-stateful-set-may-own",
        ],
    ),
    (
        "orphaned",
        "the annotations are gone with the StatefulSet: claims that are bound count as data",
        &["G07/a-claim-of-an-install", "G07/a-claim-beyond"],
    ),
    (
        "orphaned",
        "in this scene pods run what no member ran",
        &[
            "G17/a-second-series-step",
            "G17/going-back-from",
            "G16/a-client-service-asked-for",
            "G16/a-governing-service-asked-for",
        ],
    ),
    ("orphaned", "the mutating call removes the mark before", &["G18/a-mark-of-injection"]),
    (
        "renamed",
        "the template changes, which restarts members",
        &[
            "G06/over-data",
            "G06/names-of-another",
            "G06/the-service-of-clients",
            "G09/another-cluster-name",
            "G09/another-transfer-method",
            "G09/the-page-size-of-a-cluster-that-is-down",
        ],
    ),
    (
        "renamed",
        "a warning about the template is added",
        &["G04/an-empty-address-in", "G06/the-command-line-wins", "G06/what-was-there-before"],
    ),
    (
        "renamed",
        "it is reported when the ConfigMap is created",
        &[
            "G18",
            "G09/a-faster-commit",
            "G09/a-member-that-listens",
            "G09/a-misspelt-option-is-reported",
            "G09/an-option-that-the-images-series",
            "G09/a-server-that-asks",
            "G09/a-start-position",
            "G09/a-transfer-method",
            "G09/a-file-that-a-script-may",
            "G09/an-include",
            "G09/files-of-which",
            "G09/what-three-files",
        ],
    ),
    ("renamed", "an override on the ConfigMap applies to the ConfigMap only", &["G09/an-override-lets"]),
    ("late", "no pod shows which options the members ran with", &["G09/another-page-size-while"]),
    ("renamed", "all files together said the same before", &["G09/galera-that-is-switched-off"]),
];

#[test]
fn equivalent_changes_are_judged_the_same() {
    let mut differ = BTreeSet::new();
    for (name, case) in all() {
        let in_place = found(&case.given, &case.asked(), &case.user);
        let forms = [("orphaned", orphaned(case)), ("renamed", renamed(case)), ("late", late(case))];
        for (form, change) in forms {
            let there = change.map(|(given, asked)| found(&given, &asked, &case.user));
            if there.is_some_and(|there| there != in_place) {
                differ.insert((form, name.clone()));
            }
        }
    }
    let mut unused = Vec::new();
    for (form, why, names) in DIFFERENCES {
        for begins in *names {
            let before = differ.len();
            differ.retain(|(by, name)| by != form || !name.starts_with(begins));
            if differ.len() == before {
                unused.push((form, begins, why));
            }
        }
    }
    assert!(
        differ.is_empty() && unused.is_empty(),
        "judged differently, but not in DIFFERENCES: {differ:#?}\nin DIFFERENCES, but judged the same: {unused:#?}"
    );
}

/// Adoption is not creation: a label on a running StatefulSet is never refused for what the StatefulSet already contains.
#[test]
fn a_label_that_adopts_what_runs_is_never_refused() {
    let mut refused = Vec::new();
    for (name, case) in all() {
        let asked = case.asked();
        if asked.of != Kind::StatefulSet || asked.kind != Kind::StatefulSet || asked.new.is_null() {
            continue;
        }
        let mut old = asked.new.clone();
        old["metadata"]["uid"] = "1".into();
        old["metadata"]["annotations"] = Value::Null;
        for path in ["/spec/template/metadata/labels/app", "/spec/selector/matchLabels/app"] {
            if let Some(label) = old.pointer_mut(path) {
                *label = "database".into();
            }
        }
        let mut new = old.clone();
        new["spec"]["template"]["metadata"]["labels"]["gatera.dev/cluster"] = "database".into();
        let given = Scene { exists: false, members: Vec::new(), also: vec![old.clone()], ..Scene::default() };
        let found = found(&given, &Asked { operation: "UPDATE", old, new, ..asked }, "editor");
        // Annotations of the guard in a template are not refused but removed by the mutating call.
        if found.iter().any(|(rule, refused)| *refused && *rule != "G18") {
            refused.push((name, found));
        }
    }
    assert!(refused.is_empty(), "the label was refused: {refused:#?}");
}
