//! The doctor's dry run: which answer the settings require, and the row about it.
//!
//! Must not know: what is sent (`command/canary.rs`).

use std::time::Duration;

use crate::rulebook;
use facts::mode::Mode;
use facts::view::NEVER_GUARDED;
use inspect::doctor::{AnswerState, Row};

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
) -> Row {
    if namespace == own || NEVER_GUARDED.contains(&namespace) {
        return Row::remark(
            CANARY,
            format!("namespace {namespace} is never guarded, so nothing was tried there"),
            "gatera doctor --namespace NS",
        );
    }
    let is_settled = |it: &CanaryAnswer| {
        matches!(judged(it, namespace, &mode).state, AnswerState::Well | AnswerState::Remark)
    };
    match canary::ask_until(site, namespace, wait, is_settled).await {
        Ok(answer) => judged(&answer, namespace, &mode),
        Err(error) => Row::not_asked(CANARY, error.to_string()),
    }
}

fn judged(answer: &CanaryAnswer, namespace: &str, mode: impl Fn(&str) -> Mode) -> Row {
    if let Some(words) = as_it_should_be(answer, &mode) {
        return Row::well(CANARY, format!("tried in namespace {namespace}: {words}"));
    }
    if let CanaryAnswer::Admitted(warnings) = answer
        && let Some(open) = warnings.iter().find(|it| it.starts_with("until "))
    {
        return Row::remark(CANARY, format!("tried in namespace {namespace}: {open}"), "");
    }
    if rulebook().rules().iter().all(|rule| mode(rule.id) < Mode::Warn) {
        let says = format!(
            "the mode of namespace {namespace} allows everything silently, so a dry run there shows nothing"
        );
        return Row::remark(CANARY, says, "");
    }
    otherwise(answer, namespace)
}

/// Returns the guard's message in one line if it fits the rule's mode: a rule whose mode is `warn` has to warn.
fn as_it_should_be(answer: &CanaryAnswer, mode_of: impl Fn(&str) -> Mode) -> Option<String> {
    let is = |words: &str, mode| canary::rule(words).is_some_and(|rule| mode_of(rule.id) == mode);
    match answer {
        CanaryAnswer::Refused(words) if is(words, Mode::Enforce) => {
            Some(format!("refused, as expected: {words}"))
        }
        CanaryAnswer::Admitted(warnings) => warnings
            .iter()
            .find(|it| is(it, Mode::Warn))
            .map(|it| format!("warned, as the settings say: {it}")),
        _ => None,
    }
}

/// Returns the row about a wrong answer. If the request never reached a guard, nothing is known about the guard.
fn otherwise(answer: &CanaryAnswer, namespace: &str) -> Row {
    let not_asked = |why: String| Row::not_asked(CANARY, format!("not asked: {why}"));
    let not_refused = |why: String| Row::wrong(CANARY, format!("not refused by the guard: {why}"), "");
    match answer {
        CanaryAnswer::Away(words) => not_asked(words.clone()),
        CanaryAnswer::NotAllowed(words) => not_asked(format!(
            "this takes the right to create StatefulSets in namespace {namespace}: {words}"
        )),
        CanaryAnswer::Other(code, words) => not_asked(format!("the API server answers {code}: {words}")),
        CanaryAnswer::Unanswered(words) => {
            not_refused(format!("the API server asked it and got no answer: {words}"))
        }
        CanaryAnswer::Refused(words) => not_refused(format!(
            "it refuses what it should only warn about, so its settings differ from those used here: {words}"
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
    fn a_warning_counts_where_the_rule_is_to_warn() {
        let warns = rulebook().settings("mode: warn\nmodes: {G07: enforce}").unwrap();
        let words = "[G11] StatefulSet a/b: c; d".to_owned();
        let (warned, refused) =
            (CanaryAnswer::Admitted(vec![words.clone()]), CanaryAnswer::Refused(words.clone()));
        let (enforces, said) = (Settings::default(), |answer, settings: &Settings| {
            as_it_should_be(answer, |rule| settings.mode(rule))
        });
        assert_eq!(said(&warned, &warns), Some(format!("warned, as the settings say: {words}")));
        assert_eq!(said(&refused, &enforces), Some(format!("refused, as expected: {words}")));
        assert_eq!((said(&warned, &enforces), said(&refused, &warns)), (None, None));
        assert_eq!(said(&CanaryAnswer::Admitted(vec!["[G07] x".into()]), &warns), None, "it is to refuse");
    }

    /// "not refused" sends a person to the guard: that is said only where the guard was asked.
    #[test]
    fn nothing_is_said_of_a_guard_that_was_not_asked() {
        let words = || "x".to_owned();
        let enforces = |_: &str| Mode::Enforce;
        for answer in [
            CanaryAnswer::Away(words()),
            CanaryAnswer::NotAllowed(words()),
            CanaryAnswer::Other(403, words()),
        ] {
            let row = judged(&answer, "db", enforces);
            assert!(row.state == AnswerState::NotAsked && row.says.starts_with("not asked: "), "{row:?}");
        }
        for answer in [CanaryAnswer::Unanswered(words()), CanaryAnswer::Admitted(vec![])] {
            let row = judged(&answer, "db", enforces);
            assert!(
                row.state == AnswerState::Wrong && row.says.starts_with("not refused by the guard: "),
                "{row:?}"
            );
        }
        let row = judged(&CanaryAnswer::Refused("[G07] x".into()), "db", |_| Mode::Warn);
        assert!(row.state == AnswerState::Wrong && row.says.contains("settings differ"), "{row:?}");
    }
}
