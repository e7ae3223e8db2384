//! W01: the password of a WordPress's database is in a Secret.
//!
//! Refuses a Wordpress with `sqlrootpassword` in plain text. It may name a Secret and a key instead, `secretRef:NAME/KEY`: when the operator
//! creates its Deployments, the guard changes each variable with such a value to a `secretKeyRef`. Warns about a Deployment of a
//! WordPress with a password in plain text; the path of a file (`MYSQL_ROOT_PASSWORD_FILE`) is not a password. No output contains
//! the value.
//!
//! # Why
//!
//! The operator copies the text into two Deployments, and every user who may read one of the three objects, or a backup of them, has the
//! root password of the database. The operator never compares its Deployments, so a variable that reads a Secret stays as it is.
//!
//! # Example
//!
//! ```text
//! spec:
//!   sqlrootpassword: …                                # refused
//!   sqlrootpassword: secretRef:mysql/root-password    # the operator's Deployments read the Secret
//! ```
//!
//! # What to do instead
//!
//! `kubectl create secret generic mysql --from-literal=root-password="$(openssl rand -hex 16)"`, and name that Secret.
//! charts/wordpress creates a Secret itself, and gives WordPress a database user of its own.
//!
//! # Exceptions
//!
//! Annotate the Wordpress, for an hour at most: `gatera.dev/override: "W01 until=TIME reason=…"`.

use serde_json::json;

use super::{WORDPRESS, Wordpress, part, secret_ref};
use engine::rule::{Finding, Findings, OfTemplates, One, Origin, Review, Rule, Verdict, View, WRITTEN};
use engine::rules::is_secret;
use objects::{EnvVar, Kind, Workload};

pub(super) const RULE: Rule = Rule {
    id: "W01",
    name: "wp-password",
    judges: &[
        (WORDPRESS, WRITTEN, One(in_resource)),
        (Kind::Deployment, WRITTEN, OfTemplates(in_deployment)),
    ],
    depends_on_state: false,
    source: include_str!("plain_password.rs"),
};

fn in_resource(review: &Review, _: &View<'_>) -> Option<Finding> {
    let it = review.change::<Wordpress>().new?;
    let password = &it.spec.sqlrootpassword;
    if !password.is_present() || secret_ref(password.look()).is_some() {
        return None;
    }
    let says = if password.look().starts_with("secretRef:") {
        "spec.sqlrootpassword does not name a Secret and a key in the form secretRef:NAME/KEY"
    } else {
        "spec.sqlrootpassword is in plain text"
    };
    let instead = "create a Secret, and write sqlrootpassword: secretRef:NAME/KEY";
    Some(RULE.deny("spec.sqlrootpassword", says, WHY, instead))
}

const WHY: &str = "every user who may read this object, a Deployment made from it, or a backup has the root password of the database";

fn in_deployment(review: &Review, _: &View<'_>) -> Findings {
    let Some(it) = review.change::<Workload>().new.filter(|it| part(&it.metadata).is_some()) else {
        return Findings::new();
    };
    let spec = &it.spec.template.spec;
    let mut found = Findings::new();
    for (list, containers) in [("containers", &spec.containers), ("initContainers", &spec.init_containers)] {
        for (index, container) in containers.iter().enumerate() {
            for (at, variable) in container.env.iter().enumerate() {
                let field =
                    format!("spec.template.spec.{list}[{}].env[{}].value", container.name, variable.name);
                let path = format!("spec/template/spec/{list}/{index}/env/{at}");
                found.extend(in_variable(review.origin, variable, field, path));
            }
        }
    }
    found
}

/// Returns the finding about one variable. `path` leads to the variable in the object.
fn in_variable(origin: Origin, variable: &EnvVar, field: String, path: String) -> Option<Finding> {
    let (name, value) = (&variable.name, variable.value.look());
    let instead = format!("use valueFrom: {{secretKeyRef: …}} for {name}");
    let (verdict, says) = match secret_ref(value) {
        Some((secret, key)) if origin == Origin::Mutating => {
            let says = format!("{name} is read from key {key} of Secret {secret}");
            let from = json!({ "secretKeyRef": { "name": secret, "key": key } });
            let reads = json!({ "name": name, "valueFrom": from });
            return Some(RULE.finding(Verdict::Amend, field, says, WHY, instead).amended_by(path, reads));
        }
        Some(_) => {
            (Verdict::Deny, format!("{name} would contain the name of a Secret instead of a password"))
        }
        None if is_secret(name, value) => (Verdict::Warn, format!("{name} is in plain text")),
        None => return None,
    };
    Some(RULE.finding(verdict, field, says, WHY, instead))
}
