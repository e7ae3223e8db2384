//! Updates of workloads that are not judged, or only in part, because nothing that a rule reads has changed.

use std::collections::BTreeSet;

use engine::exemptions::{changes_nothing, keeps_templates};
use engine::rule::{Check, Verb};
use engine::rules::UNREADABLE;
use engine::verdict::{Decision, Finding, YieldsTo};
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use serde_json::{Value, json};

use super::all;
use crate::scene;
use crate::sim::asked::workload_changed;

/// An update that changes nothing is not judged. If it were, it would be allowed: here it adds a label of the guard, to which no
/// rule objects, to every object in every state that the cases know.
#[test]
fn an_update_that_changes_nothing_would_be_allowed() {
    let settings = Settings::default();
    let mut judged = 0;
    for (name, case) in all() {
        let Some(mut body) = case.unchanged_workload() else { continue };
        let world = case.given.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let decide = |body: &Value| {
            let bytes = serde_json::to_vec(body).unwrap();
            let incoming = review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap();
            (changes_nothing(&incoming.review), rulebook().evaluate(&incoming.review, &view))
        };
        let unread = decide(&body).1.judged.iter().any(|it| it.finding.rule == UNREADABLE);
        // The annotation about a recovery is compared with what the guard knows in every update, even if it stays the same.
        let has_recovery =
            body["request"]["object"]["metadata"]["annotations"]["gatera.dev/recovery"].is_string();
        body["request"]["object"]["metadata"]["resourceVersion"] = json!("4711");
        for map in ["annotations", "labels"] {
            body["request"]["object"]["metadata"][map]["example.com/note"] = json!("x");
        }
        let (same, decision) = decide(&body);
        assert!(
            unread || same != has_recovery && (has_recovery || decision == Decision::default()),
            "{name}: {decision:#?}"
        );
        let (old, new) = (&body["request"]["oldObject"], &body["request"]["object"]);
        assert!(
            unread || workload_changed(Some(old), Some(new)) == has_recovery,
            "{name}: whether it is sent to /validate"
        );
        body["request"]["object"]["metadata"]["labels"]["gatera.dev/note"] = json!("x");
        let (same, decision) = decide(&body);
        assert!(unread || !same && (has_recovery || decision.allowed()), "{name}: {decision:#?}");
        judged += usize::from(!unread);
    }
    assert!(judged > 100, "only {judged} workloads");
}

/// A warning about an old fault in a template comes with a change of the template, and with no other.
#[test]
fn an_old_fault_in_a_template_is_not_repeated_when_something_else_changes() {
    let settings = Settings::default();
    let password = "G11/a-password-that-was-there-before-is-only-a-warning";
    let (_, case) = all().iter().find(|(name, _)| name == password).unwrap();
    let world = case.given.world(&settings);
    let found = |place: &str, value: Value| {
        let mut body = case.unchanged_workload().unwrap();
        body["request"]["object"] = body["request"]["oldObject"].clone();
        *body["request"]["object"].pointer_mut(place).unwrap() = value;
        let bytes = serde_json::to_vec(&body).unwrap();
        let review = review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review;
        let decision = rulebook().evaluate(&review, &View::new(&world, scene::now(), &settings));
        assert!(decision.allowed(), "{decision:#?}");
        decision.judged.iter().map(|it| it.finding.rule).collect::<BTreeSet<_>>()
    };
    let mut template = case.unchanged_workload().unwrap()["request"]["object"]["spec"]["template"].clone();
    template["spec"]["terminationGracePeriodSeconds"] = json!(1234);
    assert_eq!(found("/spec/template", template), BTreeSet::from(["G11"]));
    assert_eq!(found("/spec/replicas", json!(5)), BTreeSet::new());
}

/// A check of templates finds the same after every other change of the workload, and its findings can be excused. So it need not
/// judge an update that keeps the templates.
#[test]
fn findings_in_templates_do_not_depend_on_other_fields_of_a_workload() {
    let settings = Settings::default();
    let other_changes = [
        ("replicas", json!(5)),
        ("replicas", json!(0)),
        ("minReadySeconds", json!(77)),
        ("podManagementPolicy", json!("OrderedReady")),
        ("serviceName", json!("other")),
        ("updateStrategy", json!({ "rollingUpdate": { "partition": 2, "maxUnavailable": 3 } })),
        ("selector", json!({ "matchLabels": { "x": "y" } })),
        ("persistentVolumeClaimRetentionPolicy", json!({ "whenDeleted": "Delete" })),
        ("strategy", json!({ "type": "Recreate" })),
        ("ordinals", json!({ "start": 1 })),
    ];
    let (mut found, mut checked) = (BTreeSet::new(), BTreeSet::new());
    for (name, case) in all() {
        let Some(mut body) = case.unchanged_workload() else { continue };
        let world = case.given.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        for (field, value) in &other_changes {
            body["request"]["object"] = body["request"]["oldObject"].clone();
            body["request"]["object"]["spec"][field] = value.clone();
            let bytes = serde_json::to_vec(&body).unwrap();
            let review = review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review;
            let Some(before) = review.before(view.adoption()) else { continue };
            assert!(keeps_templates(&review), "{name}: {field}");
            for rule in rulebook().rules() {
                let Some(check @ Check::OfTemplates(_)) = rule.check(review.kind, Verb::Update) else {
                    continue;
                };
                checked.insert(rule.id);
                let (new, before) = (check.judge(&review, &view), check.judge(&before, &view));
                let excused = |it: &Finding| before.contains(it) && it.yields_to != YieldsTo::Nothing;
                assert!(new.iter().all(excused), "{name}: {} {field}: {new:#?}", rule.id);
                found.extend(new.iter().map(|it| it.rule));
            }
        }
    }
    // G12 compares the template before with the one after, and here both are the same.
    checked.remove("G12");
    assert_eq!(
        found, checked,
        "each rule with a check of templates needs a case of a fault that was there before"
    );
}
