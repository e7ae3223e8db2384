//! G20: a cluster that is down is started from its newest data, and from nowhere else.
//!
//! Refuses a recovery that is not true. `gatera recover` asks for one by an annotation of the StatefulSet,
//! `gatera.dev/recover`: from which member, and where that member's data ends. It is compared with what every member told at its
//! start; only if it holds the guard writes it down in a mark of its own, and only with that mark a new pod of that member may
//! start first. Refused are: a cluster that serves, a position that is not the member's, data of another cluster than the recorded
//! one, a member that told nothing and may have newer data, and a second recovery beside one that is under way.
//!
//! # Why
//!
//! When every member has stopped, somebody has to start first, and the others throw away what that one lacks. Sequence
//! numbers alone do not tell who: two clusters that were founded apart count from the same beginning, and an empty directory
//! is called safe to start from. One report lost 500 GB that way.
//!
//! # Example
//!
//! ```text
//! $ kubectl annotate statefulset galera gatera.dev/recover="galera-0 at 66373a7e-e610-11f1-91b9-7e68ccac15f1:351 until=2026-12-01T10:00:00Z"
//! [G20] StatefulSet db/galera: galera-2 has newer data; starting here loses: 12 transactions
//! ```
//!
//! # What to do instead
//!
//! `gatera recover galera -n db` shows where each member's data ends, asks, and does the rest: it makes the pods that are missing,
//! so that their servers tell their positions; asks for the newest; makes that pod anew, which starts the cluster once, if its
//! data still ends where it was seen; and restarts the others one after the other. It can be run again after any interruption.
//! The fields of the StatefulSet stay as they are, so Helm and GitOps notice nothing.
//!
//! Where it says that something may be lost, bring back who has it: a node that does not answer, a claim that is missing. If
//! that cannot be: `gatera recover galera -n db --from galera-0 --accept-loss "12 transactions"`, or `--accept-loss unknown`
//! where nobody can tell how much it is.
//!
//! # Without the step
//!
//! Where servers do not start by gatera's step (Bitnami's image, a command of your own, `gatera.dev/start: keep`), `gatera recover` makes no
//! pod. Members that crashed and come back together without their positions restore their last view and go on without comparing what
//! they have: rows are on some of them only, and the cluster has no identity any more (`gatera explain G04`). So by hand, here for Bitnami's
//! image and chart, with three members of StatefulSet `galera` in namespace `db`:
//!
//! 1. Stop the remaining pods before they find each other: nothing can write then, and every volume is free. `gatera recover` prints the
//!    commands, with the override (G01, G02, G04) that they need; annotate again if it has ended. It prints none where members would
//!    lose their data: `persistentVolumeClaimRetentionPolicy.whenScaled` has to be `Retain`, and each member has to have a claim that is
//!    not being deleted.
//! 2. Ask each volume where its data ends. The highest number behind the same id is the newest: N. `sst_in_progress` means half a copy:
//!    never N. If the ids differ, two clusters were founded: touch nothing, and compare their tables first. Where my.cnf gives InnoDB's
//!    files other places or sizes, or encrypts them, add those options.
//! 3. Remove the last view from each volume, so that none is restored. On N only, set safe_to_bootstrap to 1.
//! 4. Let N be the only member. The image finds no other one by name, and starts the cluster from N's data.
//! 5. If its tables are there, let the others come: they copy everything. At the end take the override off.
//!
//! ```text
//! ns=db set=galera data=/bitnami/mariadb/data
//! image=$(kubectl -n $ns get statefulset $set -o 'jsonpath={.spec.template.spec.containers[0].image}')
//! look() {   # NUMBER COMMAND: in a pod that has the volume of that member, and nothing else
//!     kubectl -n $ns create -f - <<EOF
//! apiVersion: v1
//! kind: Pod
//! metadata: {name: $set-look-$1}
//! spec:
//!   restartPolicy: Never
//!   securityContext: {runAsUser: 1001, runAsNonRoot: true, fsGroup: 1001, seccompProfile: {type: RuntimeDefault}}
//!   volumes: [{name: data, persistentVolumeClaim: {claimName: data-$set-$1}}]
//!   containers:
//!   - name: look
//!     image: $image
//!     securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
//!     command: [bash, -c, "cd $data && { $2; } 2>&1; true"]
//!     volumeMounts: [{name: data, mountPath: /bitnami/mariadb}]
//! EOF
//!     kubectl -n $ns wait pod/$set-look-$1 '--for=jsonpath={.status.phase}=Succeeded' --timeout=10m
//!     kubectl -n $ns logs $set-look-$1
//!     kubectl -n $ns delete pod $set-look-$1
//! }
//! # 2.
//! asks="mariadbd --no-defaults --datadir=$data --wsrep-on=ON --wsrep-provider=/opt/bitnami/mariadb/lib/libgalera_smm.so"
//! asks="$asks --wsrep-cluster-address=gcomm:// --binlog-format=ROW --innodb-autoinc-lock-mode=2 --wsrep-recover"
//! for n in 0 1 2; do look $n "ls -d sst_in_progress; cat grastate.dat; $asks 2>&1 | grep 'Recovered position'"; done
//! # 3.
//! N=1
//! for n in 0 1 2; do look $n "rm -f gvwstate.dat"; done
//! look $N "sed -i 's/^safe_to_bootstrap: 0/safe_to_bootstrap: 1/' grastate.dat"
//! # 4.
//! kubectl -n $ns patch statefulset $set --patch "{\"spec\":{\"replicas\":1,\"ordinals\":{\"start\":$N}}}"
//! kubectl -n $ns wait statefulset/$set '--for=jsonpath={.status.readyReplicas}=1' --timeout=10m
//! # 5.
//! kubectl -n $ns patch statefulset $set --patch '{"spec":{"replicas":3,"ordinals":{"start":0}}}'
//! kubectl -n $ns wait statefulset/$set '--for=jsonpath={.status.readyReplicas}=3' --timeout=60m
//! kubectl -n $ns annotate statefulset $set gatera.dev/override-
//! ```
//!
//! Where the template of Bitnami's chart names another node in `galera.bootstrap.bootstrapFromNode`, take that out before 4. An image or a
//! command of another kind does not start alone by itself: set `wsrep_cluster_address = gcomm://` in the members' ConfigMap before 4 (G04
//! of the override, on the ConfigMap), and back before 5; its data is in another folder, and its server has another user.
//!
//! # How to waive it
//!
//! It cannot be waived: without the guard's mark nobody starts first. `accept-loss=TEXT` at the end of the annotation says that
//! something may be lost.

use crate::grant::verify;
use crate::rule::{Rule, WRITTEN};
use crate::verdict::{Finding, Findings, Verdict, YieldsTo};
use facts::marks;
use facts::marks::recovery::Recovery;
use facts::review::{Origin, Review};
use facts::view::{Member, View, is_cluster};
use objects::{Kind, Meta, Object};

pub(super) const RULE: Rule = Rule {
    id: "G20",
    name: "recovery",
    touches: &[(Kind::StatefulSet, WRITTEN)],
    depends_on_state: true,
    source: include_str!("recovery.rs"),
    check,
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    match asked(review) {
        Some(text) => refused(text, review, view).into_iter().collect(),
        None => Findings::new(),
    }
}

/// What is asked for by this change. What was asked for before was looked at then.
fn asked(review: &Review) -> Option<&str> {
    let now = of_set(review.new.as_ref())?.mark(marks::RECOVER)?;
    let before = of_set(review.old.as_ref()).and_then(|old| old.mark(marks::RECOVER));
    (before != Some(now) && review.origin != Origin::Audit).then_some(now)
}

fn of_set(object: Option<&Object>) -> Option<&Meta> {
    object.filter(|it| matches!(it, Object::StatefulSet(_))).map(Object::meta)
}

/// The guard's mark, if what this change asks for is true; what it was, if it asks for nothing new; none, if it asks for nothing.
pub(super) fn granted(review: &Review, view: &View<'_>) -> Option<String> {
    of_set(review.new.as_ref())?.mark(marks::RECOVER)?;
    match asked(review).filter(|text| refused(text, review, view).is_none()) {
        Some(text) => Some(text.to_owned()),
        None => match &review.old {
            // A stranger's mark is not the guard's.
            Some(Object::StatefulSet(old)) if is_cluster(old, view.adoption()) => {
                old.metadata.mark(marks::RECOVERY).map(str::to_owned)
            }
            _ => None,
        },
    }
}

/// A change that grants a recovery, or ends one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This member may start the cluster now.
    Granted(Recovery),
    /// The member started the cluster, and serves.
    Done(Recovery),
    /// It was taken back before the member served.
    TakenBack(Recovery),
}

/// What everybody should see of it.
pub fn turn(review: &Review, view: &View<'_>) -> Option<Turn> {
    let mark = |object| of_set(object)?.mark(marks::RECOVERY);
    match (mark(review.old.as_ref()), mark(review.new.as_ref())) {
        (before, now) if before == now => None,
        (_, Some(now)) => Recovery::of(now).ok().map(Turn::Granted),
        (before, None) => {
            let recovery = Recovery::of(before.filter(|_| review.new.is_some())?).ok()?;
            let cluster = view.cluster(&review.namespace, &review.name);
            let serves = cluster.and_then(|it| it.member(&recovery.member)).is_some_and(Member::ready);
            Some(if serves { Turn::Done(recovery) } else { Turn::TakenBack(recovery) })
        }
    }
}

fn refused(text: &str, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (ns, name) = (&review.namespace, &review.name);
    let run = format!(
        "gatera recover {name} -n {ns}, which shows where each member's data ends and asks for the newest"
    );
    // The guard's mark follows from what is asked for here, so nothing makes it milder.
    let finding = |verdict, says, instead| {
        Some(RULE.finding(verdict, FIELD, says, WHY, instead).yielding_to(YieldsTo::Nothing))
    };
    let recovery = match Recovery::read(text, view.now) {
        Ok(recovery) => recovery,
        Err(invalid) => {
            return finding(Verdict::Deny, format!("the recovery cannot be understood: {invalid}"), run);
        }
    };
    let Some(cluster) = view.cluster(ns, name).filter(|_| review.is_there()) else {
        let says = "it has no members yet, and a recovery is asked of a cluster that is down".to_owned();
        return finding(Verdict::Deny, says, "leave it out; apply the StatefulSet without it".to_owned());
    };
    // The view may be late: the API server shows what was granted a moment ago.
    let before =
        of_set(review.old.as_ref()).and_then(|old| Recovery::read(old.mark(marks::RECOVERY)?, view.now).ok());
    let other = before.filter(|before| before.member != recovery.member);
    let under_way = other.map(|it| format!("a recovery from {} is under way, until {}", it.member, it.until));
    finding(Verdict::Deny, under_way.or_else(|| verify(&recovery, cluster, view))?, run)
}

const FIELD: &str = "metadata.annotations[gatera.dev/recover]";
const WHY: &str = "whoever starts first is copied by all others, and what it lacks is gone";
