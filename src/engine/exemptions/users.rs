//! Exempt users: components of the control plane that complete changes which were judged before.
//!
//! Owns: the table [`EXEMPT`]. The request that *causes* a controller's delete (a new template, a scale, the deletion of a
//! namespace) is judged; refusing the controller afterwards would only leave the change incomplete. Scaling and the bootstrap
//! pod's CREATE are never exempt. Must not know: clusters. `rulebook.rs` applies it, `webhooks.rs` turns it into conditions, so
//! that these requests succeed while the guard is down.

use facts::review::Operation;
use objects::Kind;

/// A row of the table: a user, the kinds, and the reason.
#[derive(Clone, Copy, Debug)]
pub struct ExemptUser {
    /// The user name; one that ends with `:` is a prefix.
    pub user: &'static str,
    /// The kinds of objects that the user may delete; empty: all.
    pub deletes: &'static [Kind],
    pub why: &'static str,
}

pub const EXEMPT: &[ExemptUser] = &[
    ExemptUser {
        user: "system:serviceaccount:kube-system:statefulset-controller",
        deletes: &[Kind::Pod, Kind::Claim],
        why: "it follows the StatefulSet, and every change of that was judged",
    },
    ExemptUser {
        user: "system:serviceaccount:kube-system:replicaset-controller",
        deletes: &[Kind::Pod],
        why: "it follows the Deployment, and every change of that was judged",
    },
    ExemptUser {
        user: "system:serviceaccount:kube-system:generic-garbage-collector",
        deletes: &[],
        why: "the owner is already deleted",
    },
    ExemptUser {
        user: "system:serviceaccount:kube-system:namespace-controller",
        deletes: &[],
        why: "the namespace is already being deleted",
    },
    ExemptUser {
        user: "system:serviceaccount:kube-system:pod-garbage-collector",
        deletes: &[Kind::Pod],
        why: "the pod's node is gone, or out of service",
    },
    ExemptUser {
        user: "system:serviceaccount:kube-system:node-controller",
        deletes: &[Kind::Pod],
        why: "taint eviction: the pod's node does not answer",
    },
    ExemptUser {
        user: "system:kube-scheduler",
        deletes: &[Kind::Pod],
        why: "preemption, which PodDisruptionBudgets and priorities govern",
    },
    ExemptUser {
        user: "system:kube-controller-manager",
        deletes: &[],
        why: "all controllers share this identity if they have none of their own",
    },
    ExemptUser {
        user: "system:node:",
        deletes: &[Kind::Pod],
        why: "the kubelet removes pods that have ended",
    },
];

impl ExemptUser {
    /// Returns whether the row is about this user.
    fn is_about(&self, user: &str) -> bool {
        if self.user.ends_with(':') { user.starts_with(self.user) } else { user == self.user }
    }
}

/// Returns whether this user is exempt for this operation.
pub fn is_exempt(user: &str, operation: Operation, kind: Kind) -> bool {
    let may = |row: &&ExemptUser| row.deletes.is_empty() || row.deletes.contains(&kind);
    operation == Operation::Delete && EXEMPT.iter().filter(may).any(|row| row.is_about(user))
}

/// The controller that removes the finalizer from a claim when no pod uses it any more.
const PROTECTION_CONTROLLER: &str = "system:serviceaccount:kube-system:pvc-protection-controller";

/// Returns whether this user may remove the finalizer of a claim.
pub fn may_remove_finalizer(user: &str) -> bool {
    user == PROTECTION_CONTROLLER || is_exempt(user, Operation::Delete, Kind::Claim)
}

/// Returns the CEL condition that an exempt user deletes a pod.
pub fn pod_delete_condition() -> String {
    format!("request.operation == 'DELETE' && ({})", username_condition(&[]))
}

/// The controller that creates the claims of generic ephemeral volumes, owned by their pods.
const EPHEMERAL_CONTROLLER: &str = "system:serviceaccount:kube-system:ephemeral-volume-controller";

/// Returns whether this user may set the owners of an object of this kind, because it sets only owners that exist.
pub fn may_add_owners(user: &str, kind: Kind) -> bool {
    user == EPHEMERAL_CONTROLLER || is_exempt(user, Operation::Delete, kind)
}

/// Returns the CEL condition that the caller is an exempt user, or a controller that creates claims with owners or removes their
/// finalizers.
pub fn controller_condition() -> String {
    username_condition(&[PROTECTION_CONTROLLER, EPHEMERAL_CONTROLLER])
}

/// Returns the CEL condition that the caller is an exempt user who may delete pods, or one of these users.
fn username_condition(more: &[&'static str]) -> String {
    let rows = EXEMPT.iter().filter(|row| row.deletes.is_empty() || row.deletes.contains(&Kind::Pod));
    let (prefixes, mut names): (Vec<&str>, Vec<&str>) =
        rows.map(|row| row.user).partition(|user| user.ends_with(':'));
    names.extend(more);
    let one_of = format!("request.userInfo.username in ['{}']", names.join("', '"));
    let begins = prefixes.iter().map(|prefix| format!("request.userInfo.username.startsWith('{prefix}')"));
    std::iter::once(one_of).chain(begins).collect::<Vec<_>>().join(" || ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_exempt_only_when_they_delete() {
        let gc = "system:serviceaccount:kube-system:generic-garbage-collector";
        assert!(is_exempt(gc, Operation::Delete, Kind::Service));
        assert!(!is_exempt(gc, Operation::Update, Kind::Service));
        assert!(is_exempt("system:node:n1", Operation::Delete, Kind::Pod));
        assert!(!is_exempt("system:node:n1", Operation::Delete, Kind::Claim));
        assert!(!is_exempt("system:nodes", Operation::Delete, Kind::Pod));
        assert!(!is_exempt("system:serviceaccount:db:statefulset-controller", Operation::Delete, Kind::Pod));
        assert!(!is_exempt("editor", Operation::Delete, Kind::Pod));
    }
}
