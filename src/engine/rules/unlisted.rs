//! A kind that the API server offers and does not list: not a rule, but what rules say where it matters how many objects there are.

use crate::exceptions::confirmation;
use crate::rule::Rule;
use crate::verdict::{Finding, Verdict};
use facts::review::Review;
use facts::view::View;
use objects::Kind;

/// It is not known what there is of this kind.
pub fn unlisted(rule: &Rule, kind: Kind, review: &Review, view: &View<'_>) -> Option<Finding> {
    let called = format!("{}.{}", kind.plural(), kind.group());
    let says = format!("{called} cannot be listed, so it is not known whether there are any");
    let why = "the API server offers them and answers with an error: often the conversion webhook of their definition is gone";
    let instead = format!(
        "`kubectl get {called} --all-namespaces` prints the error; if that webhook is gone for good, \
         `kubectl patch customresourcedefinition {called} --type=merge --patch='{{\"spec\":{{\"conversion\":{{\"strategy\":\"None\",\"webhook\":null}}}}}}'` \
         lists them without it; to proceed without knowing: {}",
        format_args!("{}, then repeat the command", confirmation(review, rule.id, view))
    );
    view.is_unheard(kind).then(|| rule.finding(Verdict::Unknown, "", says, why, instead))
}
