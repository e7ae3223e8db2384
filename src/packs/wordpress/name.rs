//! W08: the name of a Wordpress is valid as the name of a port.
//!
//! Refuses a name with a dot, or of more than 63 characters.
//!
//! # Why
//!
//! The operator names the port of the database's Service after the Wordpress, and uses the name in a label of every part. The
//! name of an object may have dots and up to 253 characters; the value of a label has at most 63 characters, and the name of a
//! port at most 63 and no dots. With a name that does not fit, the operator creates the database and then stops: there is no
//! Service and no site, and only its log says so.
//!
//! # Example
//!
//! ```text
//! $ kubectl apply -f blog.yaml
//! [W08] Wordpress web/blog.example.com: the name has a dot, but it becomes the name of a port, which must not have one
//! ```
//!
//! # What to do instead
//!
//! Use a shorter name without dots: blog.
//!
//! # Exceptions
//!
//! Annotate the Wordpress, for an hour at most: `gatera.dev/override: "W08 until=TIME reason=…"`.

use super::{WORDPRESS, Wordpress};
use engine::rule::{Finding, One, Review, Rule, Verb, View};

pub(super) const RULE: Rule = Rule {
    id: "W08",
    name: "wp-name",
    judges: &[(WORDPRESS, &[Verb::Create], One(check))],
    depends_on_state: false,
    source: include_str!("name.rs"),
};

/// The maximum length, in characters, of the name of a port and of the value of a label.
const MAX_PORT_NAME_CHARS: usize = 63;

fn check(review: &Review, _: &View<'_>) -> Option<Finding> {
    let it = review.change::<Wordpress>().new?;
    let name = &it.metadata.name;
    let wrong = if name.is_empty() {
        return None;
    } else if name.len() > MAX_PORT_NAME_CHARS {
        format!(
            "the name has {} characters, but it becomes the name of a port, which may have at most {MAX_PORT_NAME_CHARS}",
            name.len()
        )
    } else if name.contains('.') {
        "the name has a dot, but it becomes the name of a port, which must not have one".to_owned()
    } else {
        return None;
    };
    let why = "the operator creates the database, but not its Service or the site, and only its log says why";
    Some(RULE.deny("metadata.name", wrong, why, "use a name of at most 63 letters and digits, such as blog"))
}
