//! The doctor's dry run: which answer the settings require, and the row about it.
//!
//! Must not know: what is sent (`command/canary.rs`).

use std::time::Duration;

use crate::rulebook;
use facts::mode::Mode;
use facts::view::NEVER_GUARDED;
use inspect::doctor::{AnswerState, DoctorRow};

use super::super::canary::{self, CanaryAnswer};
use super::super::site::Site;

const CANARY: &str = "canary";

/// Sends the canary, and repeats it for up to `wait` until the answer is as it should be. `own` is the guard's namespace.
pub(super) async fn row(
    site: &Site,
    namespace: &str,
    own: &str,
    wait: Duration,
    mode: impl Fn(&str) -> Mode,
) -> DoctorRow {
    if namespace == own || NEVER_GUARDED.contains(&namespace) {
        return DoctorRow::remark(
            CANARY,
            format!("namespace {namespace} is never guarded, so nothing was tried there"),
            "gatera doctor --namespace NS",
        );
    }
    let is_settled = |it: &CanaryAnswer| {
        matches!(row_about(it, namespace, &mode).state, AnswerState::Well | AnswerState::Remark)
    };
    match canary::send_until(site, namespace, wait, is_settled).await {
        Ok(answer) => row_about(&answer, namespace, &mode),
        Err(error) => DoctorRow::not_asked(CANARY, error.to_string()),
    }
}

fn row_about(answer: &CanaryAnswer, namespace: &str, mode: impl Fn(&str) -> Mode) -> DoctorRow {
    if let Some(message) = expected_answer(answer, &mode) {
        return DoctorRow::well(CANARY, format!("tried in namespace {namespace}: {message}"));
    }
    if let CanaryAnswer::Admitted(warnings) = answer
        && let Some(open) = warnings.iter().find(|it| it.starts_with("until "))
    {
        return DoctorRow::remark(CANARY, format!("tried in namespace {namespace}: {open}"), "");
    }
    if rulebook().rules().iter().all(|rule| mode(rule.id) < Mode::Warn) {
        let says = format!(
            "in its mode the guard allows everything in namespace {namespace} without a warning, so a dry run there shows nothing"
        );
        return DoctorRow::remark(CANARY, says, "");
    }
    wrong_answer(answer, namespace)
}

/// Returns the guard's message in one line if it is what the rule's mode requires: a refusal for `enforce`, a warning for `warn`.
fn expected_answer(answer: &CanaryAnswer, mode_of: impl Fn(&str) -> Mode) -> Option<String> {
    let is = |message: &str, mode| canary::rule_of(message).is_some_and(|rule| mode_of(rule.id) == mode);
    match answer {
        CanaryAnswer::Refused(message) if is(message, Mode::Enforce) => {
            Some(format!("refused, as expected: {message}"))
        }
        CanaryAnswer::Admitted(warnings) => warnings
            .iter()
            .find(|it| is(it, Mode::Warn))
            .map(|it| format!("warned, as the settings say: {it}")),
        _ => None,
    }
}

/// Returns the row about a wrong answer. If the request never reached a guard, nothing is known about the guard.
fn wrong_answer(answer: &CanaryAnswer, namespace: &str) -> DoctorRow {
    let not_asked = |why: String| DoctorRow::not_asked(CANARY, format!("not asked: {why}"));
    let not_refused = |why: String| DoctorRow::wrong(CANARY, format!("not refused by the guard: {why}"), "");
    match answer {
        CanaryAnswer::Away(message) => not_asked(message.clone()),
        CanaryAnswer::NotAllowed(message) => not_asked(format!(
            "this takes the right to create StatefulSets in namespace {namespace}: {message}"
        )),
        CanaryAnswer::Other(code, message) => not_asked(format!("the API server answers {code}: {message}")),
        CanaryAnswer::Unanswered(message) => {
            not_refused(format!("the API server asked it and got no answer: {message}"))
        }
        CanaryAnswer::Refused(message) => not_refused(format!(
            "it refuses what it should only warn about, so its settings differ from those used here: {message}"
        )),
        CanaryAnswer::Admitted(_) => not_refused(format!(
            "the API server admits a StatefulSet with a plain-text password in namespace {namespace}. Until a guard is \
             ready its webhook configurations are empty (`kubectl get validatingwebhookconfiguration gatera`), and its \
             /readyz says what it waits for; a mode in the settings or at the namespace may allow it too"
        )),
    }
}

#[cfg(test)]
mod tests {
    use facts::settings::Settings;

    use super::*;

    #[test]
    fn a_warning_is_expected_only_from_a_rule_in_mode_warn() {
        let warns = rulebook().settings("mode: warn\nmodes: {G07: enforce}").unwrap();
        let message = "[G11] StatefulSet a/b: c; d".to_owned();
        let (warned, refused) =
            (CanaryAnswer::Admitted(vec![message.clone()]), CanaryAnswer::Refused(message.clone()));
        let (enforces, said) = (Settings::default(), |answer, settings: &Settings| {
            expected_answer(answer, |rule| settings.mode(rule))
        });
        assert_eq!(said(&warned, &warns), Some(format!("warned, as the settings say: {message}")));
        assert_eq!(said(&refused, &enforces), Some(format!("refused, as expected: {message}")));
        assert_eq!((said(&warned, &enforces), said(&refused, &warns)), (None, None));
        assert_eq!(said(&CanaryAnswer::Admitted(vec!["[G07] x".into()]), &warns), None, "G07 must refuse");
    }

    /// After "not refused" a person searches for the cause in the guard, so this is printed only if the guard was asked.
    #[test]
    fn the_guard_is_reported_as_wrong_only_if_it_was_asked() {
        let message = || "x".to_owned();
        let enforces = |_: &str| Mode::Enforce;
        for answer in [
            CanaryAnswer::Away(message()),
            CanaryAnswer::NotAllowed(message()),
            CanaryAnswer::Other(403, message()),
        ] {
            let row = row_about(&answer, "db", enforces);
            assert!(row.state == AnswerState::NotAsked && row.says.starts_with("not asked: "), "{row:?}");
        }
        for answer in [CanaryAnswer::Unanswered(message()), CanaryAnswer::Admitted(vec![])] {
            let row = row_about(&answer, "db", enforces);
            assert!(
                row.state == AnswerState::Wrong && row.says.starts_with("not refused by the guard: "),
                "{row:?}"
            );
        }
        let row = row_about(&CanaryAnswer::Refused("[G07] x".into()), "db", |_| Mode::Warn);
        assert!(row.state == AnswerState::Wrong && row.says.contains("settings differ"), "{row:?}");
    }
}
