//! What a rule found, and what becomes of it.
//!
//! Owns: [`Finding`], [`Verdict`], [`Mode`] and their fold, the [`Decision`]. Must not know: any rule, any wire format.
//! A rule returns findings and never learns its mode; the fold softens, and never drops anything silently.

use std::collections::BTreeMap;

use serde_json::Value;

use facts::marks::overrides::Override;
use facts::mode::Mode;

/// Findings of one rule in one decision. Nobody reads more at once, and an API server takes no answer of any length.
const MOST_FINDINGS: usize = 100;

/// How bad a finding is, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Allowed, with a word about it.
    Warn,
    /// Allowed after the guard has changed it; where it cannot be changed the rule says Deny instead.
    Amend,
    /// Refused for now: the condition passes by itself.
    Wait,
    /// Refused because the guard cannot know: its view is incomplete or stale.
    Unknown,
    /// Refused.
    Deny,
}

impl Verdict {
    /// As metrics, audit annotations and JSON call it.
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

/// One thing a rule found. The three sentences are final: every output prints these words and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Id of the rule.
    pub rule: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// The field, with names instead of indexes where there are names.
    pub field: String,
    /// What is wrong, with the live fact. Follows "Kind namespace/name: ".
    pub says: String,
    /// The fact about Galera behind it.
    pub why: String,
    /// What to do instead.
    pub instead: String,
    /// The exceptions that make it milder.
    pub yields_to: YieldsTo,
    /// It refuses whatever the mode of its rule is.
    pub in_every_mode: bool,
    /// What the guard changes in the object, if the verdict is [`Verdict::Amend`].
    pub edits: Vec<Edit>,
}

impl Finding {
    /// A finding that every exception releases, in the modes of its rule.
    pub fn new(
        rule: &'static str,
        verdict: Verdict,
        field: impl Into<String>,
        says: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<String>,
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

    /// The same finding, where the guard makes this change.
    #[must_use]
    pub fn amended_by(self, edit: Edit) -> Self {
        Self { edits: vec![edit], ..self }
    }

    /// The same finding, released by fewer exceptions.
    #[must_use]
    pub fn yielding_to(self, yields_to: YieldsTo) -> Self {
        Self { yields_to, ..self }
    }
}

/// The exceptions that make a finding milder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YieldsTo {
    /// An override of its rule, break-glass, and the same finding before the change.
    #[default]
    Exceptions,
    /// Not an override of its rule: the operation that would be confirmed is asked for wrongly.
    BreakGlass,
    /// Nothing: the person who may write the object may write each of these as well.
    Nothing,
}

/// A value that the guard sets in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Keys from the root of the object, and indexes in lists.
    pub path: Vec<String>,
    /// The value that is set there.
    pub value: Value,
}

impl Edit {
    /// Sets this value at this path.
    pub fn set<const N: usize>(path: [&str; N], value: Value) -> Self {
        Self { path: path.map(str::to_owned).to_vec(), value }
    }
}

/// What a rule found, in the order it looked.
pub type Findings = Vec<Finding>;

/// What becomes of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Audit annotation and metric only.
    Recorded,
    /// A warning to the person who asked.
    Warned,
    /// The request is refused.
    Refused,
}

impl Effect {
    /// As metrics, audit annotations and JSON call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Warned => "warned",
            Self::Refused => "refused",
        }
    }
}

/// Why a finding that would refuse does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// The rule or the namespace is not in enforce mode.
    ByMode(Mode),
    /// The object broke the rule before, in the same place: the change made nothing worse.
    AlreadyThere,
    /// Somebody took the responsibility, for a limited time.
    ByOverride(Override),
}

/// A finding and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The finding.
    pub finding: Finding,
    /// What becomes of it.
    pub effect: Effect,
    /// Why it is milder than its verdict.
    pub softened: Option<Downgrade>,
}

/// The answer to one review.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Everything found, worst first.
    pub judged: Vec<Judged>,
    /// What should be said besides: a malformed override, a namespace without a label.
    pub remarks: Vec<String>,
}

impl Decision {
    /// Nothing refuses.
    pub fn allowed(&self) -> bool {
        self.judged.iter().all(|judged| judged.effect != Effect::Refused)
    }

    /// The findings with this effect, worst first.
    pub fn with(&self, effect: Effect) -> impl Iterator<Item = &Judged> {
        self.judged.iter().filter(move |judged| judged.effect == effect)
    }

    /// Adds a finding as the circumstances soften it.
    pub fn add(&mut self, finding: Finding, mode: Mode, existed: bool, released: Option<&Override>) {
        let (effect, softened) = match finding.verdict {
            _ if mode == Mode::Audit => (Effect::Recorded, Some(Downgrade::ByMode(mode))),
            Verdict::Warn => (Effect::Warned, None),
            _ if existed && finding.verdict != Verdict::Amend => {
                (Effect::Warned, Some(Downgrade::AlreadyThere))
            }
            _ if mode < Mode::Enforce => (Effect::Warned, Some(Downgrade::ByMode(mode))),
            _ => match released {
                Some(released) => (Effect::Warned, Some(Downgrade::ByOverride(released.clone()))),
                None if finding.verdict == Verdict::Amend => (Effect::Warned, None),
                None => (Effect::Refused, None),
            },
        };
        self.judged.push(Judged { finding, effect, softened });
    }

    /// Worst first; equals keep the order of the rules. Of each rule the worst stay, with a word on how many more there
    /// are.
    pub fn sort(&mut self) {
        self.judged.sort_by_key(|judged| std::cmp::Reverse((judged.effect, judged.finding.verdict)));
        let mut found = BTreeMap::new();
        self.judged.retain(|judged| {
            let count = found.entry(judged.finding.rule).or_insert(0);
            *count += 1;
            *count <= MOST_FINDINGS
        });
        let more = found.into_iter().filter(|(_, count)| *count > MOST_FINDINGS);
        self.remarks.extend(more.map(|(rule, count)| {
            format!("{rule} finds this {count} times here; the worst {MOST_FINDINGS} are listed")
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Effect::{Recorded, Refused, Warned};
    use Verdict::{Amend, Deny, Unknown, Wait, Warn};

    /// Mode x verdict x "was there before" x override, whole: this is the only place where anything is softened.
    #[test]
    fn the_fold() {
        let released =
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
            decision.add(finding, mode, existed, has_override.then_some(&released));
            assert_eq!(
                decision.judged[0].effect, effect,
                "{mode:?} {verdict:?} existed={existed} override={has_override}"
            );
            assert_eq!(decision.allowed(), effect != Refused);
        }
    }

    /// What refuses is never among those that are left out.
    #[test]
    fn a_decision_lists_a_hundred_findings_of_a_rule_the_worst_first() {
        let mut decision = Decision::default();
        for turn in 0..1000 {
            let (field, text) = (turn.to_string(), String::new);
            let rule = if turn % 2 == 0 { "G01" } else { "G02" };
            let finding = Finding::new(rule, Deny, field, text(), text(), text());
            decision.add(finding, Mode::Enforce, turn < 998, None);
        }
        decision.sort();
        assert_eq!(decision.judged.len(), 200);
        assert_eq!(decision.with(Refused).map(|it| &*it.finding.field).collect::<Vec<_>>(), ["998", "999"]);
        assert_eq!(
            decision.remarks,
            ["G01", "G02"].map(|rule| format!("{rule} finds this 500 times here; the worst 100 are listed"))
        );
    }
}
