//! Common objects that no server reads. They are not judged, and the API server does not send requests about them, so that
//! a `helm upgrade` or a new ServiceAccount succeeds while the guard is down.
//!
//! Owns: the table [`UNREAD`]. Must not know: clusters. `rulebook.rs` applies it, `webhooks.rs` turns it into a condition. A name
//! alone is enough only for objects that the platform itself writes; a Secret also needs its type, which cannot change.

use facts::review::Review;
use objects::{Kind, Object};

/// A row of the table: an object that no server reads.
#[derive(Clone, Copy, Debug)]
pub struct UnreadObject {
    pub kind: Kind,
    /// The type of a Secret; empty for other kinds.
    pub of_type: &'static str,
    /// The name; one that ends with `.` or is empty is a prefix.
    pub name: &'static str,
}

pub const UNREAD: &[UnreadObject] = &[
    // Helm's record of a release.
    UnreadObject { kind: Kind::Secret, of_type: "helm.sh/release.v1", name: "sh.helm.release.v1." },
    UnreadObject { kind: Kind::Secret, of_type: "kubernetes.io/service-account-token", name: "" },
    // Kubernetes puts it into every namespace.
    UnreadObject { kind: Kind::ConfigMap, of_type: "", name: "kube-root-ca.crt" },
    // OpenShift puts it into every namespace.
    UnreadObject { kind: Kind::ConfigMap, of_type: "", name: "openshift-service-ca.crt" },
    // Istio puts it into every namespace.
    UnreadObject { kind: Kind::ConfigMap, of_type: "", name: "istio-ca-root-cert" },
];

impl UnreadObject {
    fn is_prefix(&self) -> bool {
        self.name.is_empty() || self.name.ends_with('.')
    }

    fn matches(&self, object: &Object) -> bool {
        let of_type = match (object, self.kind) {
            (Object::Secret(secret), Kind::Secret) => secret.of_type == self.of_type,
            (Object::ConfigMap(_), Kind::ConfigMap) => true,
            _ => false,
        };
        let name = &object.meta().name;
        of_type && if self.is_prefix() { name.starts_with(self.name) } else { name == self.name }
    }

    /// Returns the CEL condition that the object is in this row.
    fn condition(&self, object: &str) -> String {
        let mut all = vec![format!("request.resource.resource == '{}'", self.kind.plural())];
        if !self.of_type.is_empty() {
            all.push(format!("has({object}.type) && {object}.type == '{}'", self.of_type));
        }
        let name = format!("{object}.metadata.name");
        match (self.name, self.is_prefix()) {
            ("", _) => {}
            (prefix, true) => all.push(format!("has({name}) && {name}.startsWith('{prefix}')")),
            (whole, false) => all.push(format!("has({name}) && {name} == '{whole}'")),
        }
        all.join(" && ")
    }
}

/// Returns whether no server reads the object of this request, neither before nor after it.
pub fn is_unread(review: &Review) -> bool {
    let matches = |object: &Object| UNREAD.iter().any(|row| row.matches(object));
    review.subresource.is_empty() && review.objects().next().is_some() && review.objects().all(matches)
}

/// Returns the CEL condition that a server may read the object of this request, before or after.
pub fn condition() -> String {
    let any = |object: &str| {
        let rows = UNREAD.iter().map(|row| format!("({})", row.condition(object))).collect::<Vec<_>>();
        format!("({object} == null || {})", rows.join(" || "))
    };
    format!("!({} && {})", any("object"), any("oldObject"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_listed(kind: Kind, json: &str) -> bool {
        let object = Object::read(kind, json).unwrap();
        UNREAD.iter().any(|row| row.matches(&object))
    }

    #[test]
    fn type_and_name_both_count() {
        let secret = |of_type: &str, name: &str| {
            is_listed(Kind::Secret, &format!(r#"{{"metadata":{{"name":"{name}"}},"type":"{of_type}"}}"#))
        };
        assert!(secret("helm.sh/release.v1", "sh.helm.release.v1.galera.v3"));
        assert!(!secret("helm.sh/release.v1", "galera-password"));
        assert!(!secret("Opaque", "sh.helm.release.v1.galera.v3"));
        assert!(secret("kubernetes.io/service-account-token", "default-token-x"));
        assert!(!secret("", "default-token-x"));
        let map = |name: &str| is_listed(Kind::ConfigMap, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
        assert!(map("kube-root-ca.crt") && !map("kube-root-ca.crt.cnf"));
    }
}
