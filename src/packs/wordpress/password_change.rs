//! W02: changing the password of a Wordpress does not change it in the database.
//!
//! Refuses a change of `sqlrootpassword`; only warns if it moves to a Secret (`secretRef:NAME/KEY`).
//!
//! # Why
//!
//! The database server sets the root password only once, in an empty folder, and the operator never changes Deployments that exist.
//! After such a change the password in the resource is not the one in the database.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch wordpress blog --type=merge -p '{"spec":{"sqlrootpassword":"…"}}'
//! [W02] Wordpress web/blog: changing spec.sqlrootpassword does not change the password in the database
//! ```
//!
//! # What to do instead
//!
//! Change the password in the database (`ALTER USER 'root'@'%' IDENTIFIED BY …`), then in the Secret, then restart the WordPress
//! Deployment, which reads it when it starts.
//!
//! # Exceptions
//!
//! Annotate the Wordpress, for an hour at most: `gatera.dev/override: "W02 until=TIME reason=…"`.

use super::{WORDPRESS, Wordpress, secret_ref};
use engine::rule::{Finding, One, Review, Rule, Verb, Verdict, View};

pub(super) const RULE: Rule = Rule {
    id: "W02",
    name: "wp-password-change",
    judges: &[(WORDPRESS, &[Verb::Update], One(check))],
    depends_on_state: false,
    source: include_str!("password_change.rs"),
};

fn check(review: &Review, _: &View<'_>) -> Option<Finding> {
    let (old, new) = review.both::<Wordpress>()?;
    let [was, is] = [old, new].map(|it| &it.spec.sqlrootpassword);
    if was == is {
        return None;
    }
    let moves_to_secret = secret_ref(was.look()).is_none() && secret_ref(is.look()).is_some();
    let (verdict, says) = if moves_to_secret {
        (
            Verdict::Warn,
            "spec.sqlrootpassword now names a Secret, but the existing Deployments keep the old value",
        )
    } else {
        (Verdict::Deny, "changing spec.sqlrootpassword does not change the password in the database")
    };
    let why = "the database server sets the root password only once, in an empty folder, and the operator never changes an existing Deployment";
    let instead = "change the password in the database (ALTER USER), then in the Secret, then restart Deployment wordpress";
    Some(RULE.finding(verdict, "spec.sqlrootpassword", says, why, instead))
}
