//! `gatera selftest`: a canary that must be refused, tried until it is.
//!
//! Owns: what the answer has to be by the settings, and the words about it. Must not know: what is asked (`canary.rs`).

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::rulebook;
use clap::Args;
use facts::mode::Mode;
use objects::visible;

use super::Exit;
use super::canary::{self, Answer};
use super::look::{self, Access};
use super::site::Site;

/// Options of `gatera selftest`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    access: Access,
    /// Namespace to try it in; nothing is left there. The guard's own namespace is never guarded
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// Seconds to try again: a guard that was installed just now takes a few to register
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// The guard's settings file: which labels to try with, and whether the guard refuses or warns [default: the guard's]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks until the answer is right, or patience ends.
pub fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<Exit> {
    look::block_on(async {
        let site = Site::that_judges(options.access.client().await?, options.config.as_deref()).await?;
        site.tell_source();
        tried(options, &site, out).await
    })
}

async fn tried(options: &Options, site: &Site, out: &mut impl Write) -> anyhow::Result<Exit> {
    let mode = |rule: &str| site.settings.mode(rule);
    if rulebook().rules().iter().all(|rule| mode(rule.id) < Mode::Warn) {
        writeln!(
            out,
            "by its settings the guard neither refuses nor warns, so there is nothing to see from here"
        )?;
        return Ok(Exit::Refused);
    }
    let deadline = Instant::now() + Duration::from_secs(options.patience);
    let answer = loop {
        let answer = canary::ask(&site.client, &options.namespace, &site.settings.adoption).await?;
        let over = as_it_should_be(&answer, mode).is_some()
            || matches!(answer, Answer::NotAllowed(_))
            || Instant::now() >= deadline;
        if over {
            break answer;
        }
        tokio::time::sleep(PAUSE).await;
    };
    if let Some(words) = as_it_should_be(&answer, mode) {
        writeln!(out, "{}", visible(&words))?;
        return Ok(Exit::Clean);
    }
    let (exit, words) = otherwise(&answer, &options.namespace);
    writeln!(out, "{}", visible(&words))?;
    Ok(exit)
}

/// What the guard said, in one line, if it is what it should say by the mode of the rule: one whose mode is `warn` has to warn.
pub fn as_it_should_be(answer: &Answer, mode_of: impl Fn(&str) -> Mode) -> Option<String> {
    let is = |words: &str, mode| canary::rule(words).is_some_and(|rule| mode_of(rule.id) == mode);
    match answer {
        Answer::Refused(words) if is(words, Mode::Enforce) => {
            Some(format!("refused, as it must be: {words}"))
        }
        Answer::Admitted(warnings) => warnings
            .iter()
            .find(|it| is(it, Mode::Warn))
            .map(|it| format!("warned, as the settings have it: {it}")),
        _ => None,
    }
}

/// What happened instead. Where the question never reached a guard, nothing is known of the guard.
pub fn otherwise(answer: &Answer, namespace: &str) -> (Exit, String) {
    let not_refused = |words: String| (Exit::Refused, format!("not refused by the guard: {words}"));
    match answer {
        Answer::Away(words) => (Exit::Undecided, format!("not asked: {words}")),
        Answer::NotAllowed(words) => (
            Exit::Undecided,
            format!(
                "not asked: this takes the right to create StatefulSets in namespace {namespace}: {words}"
            ),
        ),
        Answer::Unanswered(words) => {
            not_refused(format!("the API server asked it and got no answer: {words}"))
        }
        Answer::Refused(words) => {
            not_refused(format!("it refuses what it should only warn of, so it has other settings: {words}"))
        }
        Answer::Other(code, words) => not_refused(format!("the API server answers {code}: {words}")),
        Answer::Admitted(_) => not_refused(format!(
            "the API server admits a StatefulSet with a plain-text password in namespace {namespace}. Until a guard is \
             ready its webhook configurations are empty (`kubectl get validatingwebhookconfiguration gatera`), and its \
             /readyz says what it waits for; a mode in the settings or at the namespace may allow it too"
        )),
    }
}

#[cfg(test)]
mod tests {
    use facts::config::Settings;

    use super::*;

    #[test]
    fn a_warning_counts_where_the_rule_is_to_warn() {
        let warns = rulebook().settings("mode: warn\nmodes: {G07: enforce}").unwrap();
        let words = "[G11] StatefulSet a/b: c; d".to_owned();
        let (warned, refused) = (Answer::Admitted(vec![words.clone()]), Answer::Refused(words.clone()));
        let (enforces, said) = (Settings::default(), |answer, settings: &Settings| {
            as_it_should_be(answer, |rule| settings.mode(rule))
        });
        assert_eq!(said(&warned, &warns), Some(format!("warned, as the settings have it: {words}")));
        assert_eq!(said(&refused, &enforces), Some(format!("refused, as it must be: {words}")));
        assert_eq!((said(&warned, &enforces), said(&refused, &warns)), (None, None));
        assert_eq!(said(&Answer::Admitted(vec!["[G07] x".into()]), &warns), None, "it is to refuse");
    }

    /// Whoever reads "not refused" runs to the guard: that is said only where the guard was asked.
    #[test]
    fn nothing_is_said_of_a_guard_that_was_not_asked() {
        let words = || "x".to_owned();
        for answer in [Answer::Away(words()), Answer::NotAllowed(words())] {
            let (exit, says) = otherwise(&answer, "db");
            assert!(exit == Exit::Undecided && says.starts_with("not asked: "), "{says}");
        }
        for answer in [
            Answer::Unanswered(words()),
            Answer::Refused(words()),
            Answer::Other(403, words()),
            Answer::Admitted(vec![]),
        ] {
            let (exit, says) = otherwise(&answer, "db");
            assert!(exit == Exit::Refused && says.starts_with("not refused by the guard: "), "{says}");
        }
    }
}
