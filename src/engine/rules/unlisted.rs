//! A kind that the API server offers but cannot list. Not a rule: rules use it if they depend on which objects exist.

use crate::exceptions::confirmation;
use crate::rule::{Finding, Review, Rule, Verdict, View};
use facts::way_out::{CommandLine, say};
use objects::Kind;

/// Returns a finding if the objects of this kind cannot be listed.
pub fn unlisted(rule: &Rule, kind: Kind, review: &Review, view: &View<'_>) -> Option<Finding> {
    let called = format!("{}.{}", kind.plural(), kind.group());
    let says = format!("{called} cannot be listed, so it is not known whether there are any");
    let why = "the API server offers this kind but answers with an error: often the conversion webhook of its definition is missing";
    let list = CommandLine::new(format!("kubectl get {called} --all-namespaces"));
    let patch = CommandLine::new(format!("kubectl patch customresourcedefinition {called} --type=merge"))
        .arg(r#"--patch={"spec":{"conversion":{"strategy":"None","webhook":null}}}"#);
    let shown = say("`").run(list).say("` prints the error");
    let without = shown.or("if that webhook no longer exists, `").run(patch).say("` lists them without it");
    let instead = without
        .or("to proceed without knowing: ")
        .and(confirmation(review, rule.id, view))
        .say(", then repeat the command");
    view.is_unlisted(kind).then(|| rule.finding(Verdict::Unknown, "", says, why, instead))
}
