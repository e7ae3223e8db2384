//! K04: a password is not a parameter.
//!
//! Refuses a parameter that is named like a password and has a value; warns about a new Instance that leaves such a parameter to
//! the default of its operator. No output contains the value.
//!
//! # Why
//!
//! Parameters are plain text: in the Instance, in KUDO's annotations on everything it creates, in the messages of its webhook, and in the
//! ConfigMaps and environments that it fills in. The default (`admin` in the well-known operator) is published with the operator.
//!
//! # Example
//!
//! ```text
//! $ kubectl kudo install . -p MYSQL_ROOT_PASSWORD=…
//! [K04] Instance db/galera: parameter MYSQL_ROOT_PASSWORD is a password in plain text
//! ```
//!
//! # What to do instead
//!
//! Make the operator's templates read a Secret (`valueFrom.secretKeyRef`), and use the parameter for the name of that Secret.
//!
//! # Exceptions
//!
//! Annotate the Instance, for an hour at most: `gatera.dev/override: "K04 until=TIME reason=…"`. While you migrate:
//! `modes: {K04: warn}`.

use super::{INSTANCE, shown, written};
use engine::rule::{All, Findings, Review, Rule, Verdict, View, WRITTEN};
use objects::scalar::Scalar;

pub(super) const RULE: Rule = Rule {
    id: "K04",
    name: "kudo-password",
    judges: &[(INSTANCE, WRITTEN, All(check))],
    depends_on_state: false,
    source: include_str!("plain_password.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((old, new)) = written(review, view) else { return Findings::new() };
    let is_new = |name: &str, value: &Scalar| old.and_then(|it| it.spec.parameters.get(name)) != Some(value);
    let finding = |verdict, name: &str, says: String| {
        let why = "parameters are copied into annotations, ConfigMaps and messages, and every user who may read one of them can log in";
        let instead =
            "make the operator's templates read a Secret, and use the parameter for the name of that Secret";
        RULE.finding(verdict, format!("spec.parameters[{name}]"), says, why, instead)
    };
    let given =
        new.spec.parameters.iter().filter(|(name, value)| is_password(name) && !value.look().is_empty());
    let mut found: Findings = given
        .filter(|(name, value)| is_new(name, value))
        .map(|(name, _)| {
            finding(Verdict::Deny, name, format!("parameter {} is a password in plain text", shown(name)))
        })
        .collect();
    let version = new.spec.version(&review.namespace, view).filter(|_| old.is_none());
    let left = version.into_iter().flat_map(|it| it.parameters.all()).filter(|it| {
        let name = it.name.look();
        is_password(name) && !it.default.look().is_empty() && !new.spec.parameters.contains_key(name)
    });
    found.extend(left.map(|it| {
        let name = it.name.look();
        finding(
            Verdict::Warn,
            name,
            format!(
                "parameter {} is not set, so the operator's default applies, which is public",
                shown(name)
            ),
        )
    }));
    found
}

fn is_password(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let has_word =
        ["PASSWORD", "PASSWD", "TOKEN"].iter().any(|word| name.contains(word)) || name.ends_with("_AUTH");
    // A parameter for the name of a Secret is not a password.
    has_word && !name.contains("SECRET")
}
