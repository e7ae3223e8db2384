//! Findings, and their effects.
//!
//! Owns: [`Finding`], [`Verdict`], and the [`Decision`], which combines them with the [`Mode`]. Must not know: any rule, any wire
//! format. A rule returns findings and does not know its mode; the decision may soften a finding, but never drops one silently.

use std::collections::BTreeMap;

use serde_json::Value;

use facts::marks::overrides::Override;
use facts::mode::Mode;
use facts::way_out::WayOut;

/// The largest number of findings of one rule in one decision. It is limited because API servers limit the length of an answer.
const MOST_FINDINGS: usize = 100;

/// The severity of a finding, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Allowed, with a warning.
    Warn,
    /// Allowed after the guard has changed the object; if it cannot be changed, the rule uses Deny.
    Amend,
    /// Refused for now: the cause ends by itself.
    Wait,
    /// Refused because the guard cannot judge: its view is incomplete or stale.
    Unknown,
    /// Refused.
    Deny,
}

impl Verdict {
    /// Returns the name in metrics, audit annotations and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Amend => "amend",
            Self::Wait => "wait",
            Self::Unknown => "unknown",
            Self::Deny => "deny",
        }
    }
}

/// A finding of a rule. Every output prints its three texts unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's id.
    pub rule: &'static str,
    pub verdict: Verdict,
    /// The field, with names instead of indexes for list items that have names.
    pub field: String,
    /// The headline: what is wrong, with the live fact. It follows "Kind namespace/name: ".
    pub says: String,
    /// The fact about Galera behind it.
    pub why: String,
    pub instead: WayOut,
    /// The exceptions that soften the finding.
    pub yields_to: YieldsTo,
    /// Whether the finding refuses in every mode of its rule.
    pub in_every_mode: bool,
    /// The guard's changes of the object, if the verdict is [`Verdict::Amend`].
    pub edits: Vec<Edit>,
}

impl Finding {
    /// Returns a finding that every exception softens, in the modes of its rule.
    pub fn new(
        rule: &'static str,
        verdict: Verdict,
        field: impl Into<String>,
        says: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<WayOut>,
    ) -> Self {
        Self {
            rule,
            verdict,
            field: field.into(),
            says: says.into(),
            why: why.into(),
            instead: instead.into(),
            yields_to: YieldsTo::default(),
            in_every_mode: false,
            edits: Vec::new(),
        }
    }

    /// Returns the same finding with a value that the guard sets, at a path as in [`Edit`].
    #[must_use]
    pub fn amended_by(self, path: impl Into<String>, value: Value) -> Self {
        Self { edits: vec![Edit { path: path.into(), value }], ..self }
    }

    /// Returns the same finding, softened by fewer exceptions.
    #[must_use]
    pub fn yielding_to(self, yields_to: YieldsTo) -> Self {
        Self { yields_to, ..self }
    }
}

/// The exceptions that soften a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YieldsTo {
    /// An override of its rule, break-glass, and the same finding before the change.
    #[default]
    Exceptions,
    /// Only break-glass: an override would confirm a request that is wrong itself.
    BreakGlass,
    /// No exception: a user who may write the object may write each exception as well.
    Nothing,
}

/// A value that the guard sets in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The keys and list indexes from the root of the object: `spec/replicas`.
    pub path: String,
    pub value: Value,
}

/// The findings of a rule, in order.
pub type Findings = Vec<Finding>;

/// The effect of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Only recorded, in an audit annotation and a metric.
    Recorded,
    /// Returned to the caller as a warning.
    Warned,
    /// The request is refused.
    Refused,
}

impl Effect {
    /// Returns the name in metrics, audit annotations and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Warned => "warned",
            Self::Refused => "refused",
        }
    }
}

/// Why a finding is softened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// The rule or the namespace is not in enforce mode.
    ByMode(Mode),
    /// The object had the same fault before, in the same field.
    AlreadyThere,
    /// An exception applies.
    ByOverride(Override),
}

/// A finding and its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub finding: Finding,
    pub effect: Effect,
    /// Why the effect is milder than the verdict.
    pub softened: Option<Downgrade>,
}

/// The answer to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The findings, worst first.
    pub judged: Vec<Judged>,
    /// Other warnings: a malformed override, a namespace without a label.
    pub remarks: Vec<String>,
}

impl Decision {
    /// Returns whether no finding refuses the request.
    pub fn allowed(&self) -> bool {
        self.judged.iter().all(|judged| judged.effect != Effect::Refused)
    }

    /// Returns the findings with this effect, worst first.
    pub fn with(&self, effect: Effect) -> impl Iterator<Item = &Judged> {
        self.judged.iter().filter(move |judged| judged.effect == effect)
    }

    /// Adds a finding, and softens it by the mode, the earlier state or an exception.
    pub fn add(&mut self, finding: Finding, mode: Mode, existed: bool, exception: Option<&Override>) {
        let (effect, softened) = match finding.verdict {
            _ if mode == Mode::Audit => (Effect::Recorded, Some(Downgrade::ByMode(mode))),
            Verdict::Warn => (Effect::Warned, None),
            _ if existed && finding.verdict != Verdict::Amend => {
                (Effect::Warned, Some(Downgrade::AlreadyThere))
            }
            _ if mode < Mode::Enforce => (Effect::Warned, Some(Downgrade::ByMode(mode))),
            _ => match exception {
                Some(exception) => (Effect::Warned, Some(Downgrade::ByOverride(exception.clone()))),
                None if finding.verdict == Verdict::Amend => (Effect::Warned, None),
                None => (Effect::Refused, None),
            },
        };
        self.judged.push(Judged { finding, effect, softened });
    }

    /// Sorts the findings, worst first; equals keep the order of the rules. Of each rule the worst `MOST_FINDINGS` stay; if there
    /// were more, a remark gives their number.
    pub fn sort(&mut self) {
        self.judged.sort_by_key(|judged| std::cmp::Reverse((judged.effect, judged.finding.verdict)));
        let mut counts = BTreeMap::new();
        self.judged.retain(|judged| {
            let count = counts.entry(judged.finding.rule).or_insert(0);
            *count += 1;
            *count <= MOST_FINDINGS
        });
        let shortened = counts.into_iter().filter(|(_, count)| *count > MOST_FINDINGS);
        self.remarks.extend(shortened.map(|(rule, count)| {
            format!("{rule} has {count} findings here; the worst {MOST_FINDINGS} are listed")
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Effect::{Recorded, Refused, Warned};
    use Verdict::{Amend, Deny, Unknown, Wait, Warn};

    /// The whole table of mode, verdict, earlier state and override: this is the only place where a finding is softened.
    #[test]
    fn mode_verdict_earlier_state_and_override_decide_the_effect() {
        let exception =
            Override { rules: vec!["G01".into()], until: jiff::Timestamp::UNIX_EPOCH, reason: "r".into() };
        for (mode, verdict, existed, has_override, effect) in [
            (Mode::Enforce, Deny, false, false, Refused),
            (Mode::Enforce, Wait, false, false, Refused),
            (Mode::Enforce, Unknown, false, false, Refused),
            (Mode::Enforce, Warn, false, false, Warned),
            (Mode::Enforce, Deny, true, false, Warned),
            (Mode::Enforce, Deny, false, true, Warned),
            (Mode::Enforce, Amend, false, false, Warned),
            (Mode::Warn, Deny, false, false, Warned),
            (Mode::Warn, Deny, false, true, Warned),
            (Mode::Audit, Deny, false, false, Recorded),
            (Mode::Audit, Warn, false, false, Recorded),
            (Mode::Audit, Deny, true, true, Recorded),
        ] {
            let text = String::new;
            let finding = Finding::new("G01", verdict, text(), text(), text(), text());
            let mut decision = Decision::default();
            decision.add(finding, mode, existed, has_override.then_some(&exception));
            assert_eq!(
                decision.judged[0].effect, effect,
                "{mode:?} {verdict:?} existed={existed} override={has_override}"
            );
            assert_eq!(decision.allowed(), effect != Refused);
        }
    }

    /// Findings that refuse come first, so milder ones are left out.
    #[test]
    fn a_decision_lists_a_hundred_findings_of_a_rule_the_worst_first() {
        let mut decision = Decision::default();
        for number in 0..1000 {
            let (field, text) = (number.to_string(), String::new);
            let rule = if number % 2 == 0 { "G01" } else { "G02" };
            let finding = Finding::new(rule, Deny, field, text(), text(), text());
            decision.add(finding, Mode::Enforce, number < 998, None);
        }
        decision.sort();
        assert_eq!(decision.judged.len(), 200);
        assert_eq!(decision.with(Refused).map(|it| &*it.finding.field).collect::<Vec<_>>(), ["998", "999"]);
        assert_eq!(
            decision.remarks,
            ["G01", "G02"].map(|rule| format!("{rule} has 500 findings here; the worst 100 are listed"))
        );
    }
}
