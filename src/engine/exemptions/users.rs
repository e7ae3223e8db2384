//! Who is never held up at what: the control plane finishing what somebody else decided.
//!
//! Owns: the table [`EXEMPT`]. The change that *causes* a controller's delete (a new template, a scale, a namespace's
//! end) is judged where it is made; holding up the controller afterwards would only leave things half done. Scaling and
//! the bootstrap pod's CREATE are never exempt. Must not know: clusters. `rules.rs` asks it, `webhooks.rs` turns it into
//! conditions, so that these requests do not even wait for a guard that is down.

use facts::review::Operation;
use objects::Kind;

/// One row: who, at what, and why.
#[derive(Clone, Copy, Debug)]
pub struct Exempt {
    /// A user name; one that ends with `:` stands for everybody whose name begins so.
    pub user: &'static str,
    /// Of which kinds it may delete objects; empty: of all.
    pub deletes: &'static [Kind],
    /// Why it is so.
    pub why: &'static str,
}

/// Every row.
pub const EXEMPT: &[Exempt] = &[
    Exempt {
        user: "system:serviceaccount:kube-system:statefulset-controller",
        deletes: &[Kind::Pod, Kind::Claim],
        why: "it follows the StatefulSet, and every change of that was judged",
    },
    Exempt {
        user: "system:serviceaccount:kube-system:replicaset-controller",
        deletes: &[Kind::Pod],
        why: "it follows the Deployment, and every change of that was judged",
    },
    Exempt {
        user: "system:serviceaccount:kube-system:generic-garbage-collector",
        deletes: &[],
        why: "the owner is gone already",
    },
    Exempt {
        user: "system:serviceaccount:kube-system:namespace-controller",
        deletes: &[],
        why: "the namespace is going already",
    },
    Exempt {
        user: "system:serviceaccount:kube-system:pod-garbage-collector",
        deletes: &[Kind::Pod],
        why: "the pod's node is gone, or out of service",
    },
    Exempt {
        user: "system:serviceaccount:kube-system:node-controller",
        deletes: &[Kind::Pod],
        why: "taint eviction: the pod's node does not answer",
    },
    Exempt {
        user: "system:kube-scheduler",
        deletes: &[Kind::Pod],
        why: "preemption, which PodDisruptionBudgets and priorities govern",
    },
    Exempt {
        user: "system:kube-controller-manager",
        deletes: &[],
        why: "all controllers share this identity where they have none of their own",
    },
    Exempt { user: "system:node:", deletes: &[Kind::Pod], why: "the kubelet removes what has ended" },
];

impl Exempt {
    /// This user is meant.
    fn is(&self, user: &str) -> bool {
        if self.user.ends_with(':') { user.starts_with(self.user) } else { user == self.user }
    }
}

/// This user is never held up at this.
pub fn passes(user: &str, operation: Operation, kind: Kind) -> bool {
    let may = |row: &&Exempt| row.deletes.is_empty() || row.deletes.contains(&kind);
    operation == Operation::Delete && EXEMPT.iter().filter(may).any(|row| row.is(user))
}

/// It takes the finalizer off a claim when no pod uses it any more.
const PROTECTION_CONTROLLER: &str = "system:serviceaccount:kube-system:pvc-protection-controller";

/// This user knows when nothing uses a claim any more.
pub fn may_unprotect(user: &str) -> bool {
    user == PROTECTION_CONTROLLER || passes(user, Operation::Delete, Kind::Claim)
}

/// CEL: this request is a DELETE of a pod by somebody who is exempt.
pub fn pod_delete_condition() -> String {
    format!("request.operation == 'DELETE' && ({})", controllers(""))
}

/// It makes the claims of generic ephemeral volumes, owned by their pods.
const EPHEMERAL_CONTROLLER: &str = "system:serviceaccount:kube-system:ephemeral-volume-controller";

/// This user gives what it makes an owner that exists.
pub fn may_own(user: &str, kind: Kind) -> bool {
    user == EPHEMERAL_CONTROLLER || passes(user, Operation::Delete, kind)
}

/// CEL: somebody who is exempt asks, or makes claims with owners or takes finalizers off them.
pub fn controller_condition() -> String {
    controllers(&format!("', '{PROTECTION_CONTROLLER}', '{EPHEMERAL_CONTROLLER}"))
}

fn controllers(more: &str) -> String {
    let rows = EXEMPT.iter().filter(|row| row.deletes.is_empty() || row.deletes.contains(&Kind::Pod));
    let (prefixes, names): (Vec<_>, Vec<_>) = rows.map(|row| row.user).partition(|user| user.ends_with(':'));
    let one_of = format!("request.userInfo.username in ['{}{more}']", names.join("', '"));
    let begins = prefixes.iter().map(|prefix| format!("request.userInfo.username.startsWith('{prefix}')"));
    std::iter::once(one_of).chain(begins).collect::<Vec<_>>().join(" || ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_delete_and_do_nothing_else_unasked() {
        let gc = "system:serviceaccount:kube-system:generic-garbage-collector";
        assert!(passes(gc, Operation::Delete, Kind::Service));
        assert!(!passes(gc, Operation::Update, Kind::Service));
        assert!(passes("system:node:n1", Operation::Delete, Kind::Pod));
        assert!(!passes("system:node:n1", Operation::Delete, Kind::Claim));
        assert!(!passes("system:nodes", Operation::Delete, Kind::Pod));
        assert!(!passes("system:serviceaccount:db:statefulset-controller", Operation::Delete, Kind::Pod));
        assert!(!passes("editor", Operation::Delete, Kind::Pod));
    }
}
