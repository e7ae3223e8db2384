//! W02: a changed password of a Wordpress changes no password in its database.
//!
//! Refuses another `sqlrootpassword`; one that moves to a Secret (`secretRef:NAME/KEY`) is a warning.
//!
//! # Why
//!
//! The database takes the root password when its folder is empty, and never again; and the operator makes its Deployments once, and does
//! not look at them again. After the change the resource says one thing, and the database another.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch wordpress blog --type=merge -p '{"spec":{"sqlrootpassword":"…"}}'
//! [W02] Wordpress web/blog: spec.sqlrootpassword is another one, and nobody reads it any more
//! ```
//!
//! # What to do instead
//!
//! Change the password in the database (`ALTER USER 'root'@'%' IDENTIFIED BY …`), then in the Secret, then restart the WordPress
//! Deployment, which reads it at its start.
//!
//! # Exceptions
//!
//! Annotate the Wordpress, for an hour at most: `gatera.dev/override: "W02 until=TIME reason=…"`.

use super::{WORDPRESS, Wordpress, secret_ref};
use engine::rule::{Rule, Verb};
use engine::verdict::{Findings, Verdict};
use facts::review::Review;
use facts::view::View;
use objects::Object;

pub(super) const RULE: Rule = Rule {
    id: "W02",
    name: "wp-password-change",
    touches: &[(WORDPRESS, &[Verb::Update])],
    source: include_str!("password_change.rs"),
    check,
};

fn check(review: &Review, _: &View<'_>) -> Findings {
    let [old, new] = [&review.old, &review.new].map(|it| it.as_ref().and_then(Object::custom::<Wordpress>));
    let (Some(old), Some(new)) = (old, new) else {
        return Findings::new();
    };
    let [was, is] = [old, new].map(|it| &it.spec.sqlrootpassword);
    if was == is {
        return Findings::new();
    }
    let moves = secret_ref(was.look()).is_none() && secret_ref(is.look()).is_some();
    let (verdict, says) = if moves {
        (
            Verdict::Warn,
            "spec.sqlrootpassword names a Secret now; the Deployments that exist keep what they have",
        )
    } else {
        (Verdict::Deny, "spec.sqlrootpassword is another one, and nobody reads it any more")
    };
    let why = "a database takes its root password when it is empty, and the operator never changes a Deployment that exists";
    let instead =
        "change it in the database (ALTER USER), then in the Secret, then restart Deployment wordpress";
    vec![RULE.finding(verdict, "spec.sqlrootpassword", says, why, instead)]
}
