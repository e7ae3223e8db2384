//! G20: a cluster that is down is started only from its newest data.
//!
//! Refuses a recovery from the wrong data. `gatera recover` requests a recovery with the annotation `gatera.dev/recover` on
//! the StatefulSet: it names the member that starts first, and where that member's data ends. The guard compares this with
//! the positions that the members reported when they started. Only if the position is right and no member has newer data
//! (or you accept its loss) does the guard write a mark of its own, and only with that mark may a new pod of the named
//! member start first. It refuses a recovery of a cluster that serves, a position that is not the member's, data of a
//! cluster other than the recorded one, a recovery while a member that reported nothing may have newer data, and a second
//! recovery while one is under way.
//!
//! # Why
//!
//! When every member has stopped, one has to start first, and the others discard the data that it lacks. Sequence
//! numbers alone do not decide which: two clusters that were created separately count from the same start, and an empty directory
//! is marked as safe to bootstrap.
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
//! `gatera recover galera -n db` shows where each member's data ends, asks for confirmation, and does the rest: it creates the
//! missing pods, so that their servers report their positions; requests a recovery from the newest; recreates that pod, which
//! starts the cluster once, if its data still ends at the same position; and restarts the others one after the other. You can
//! run it again after any interruption. The fields of the StatefulSet do not change, so Helm and GitOps see no difference.
//!
//! If the command says that data may be lost, bring back what holds that data: a node that does not answer, a claim that is
//! missing. If that is not possible, accept the loss in the words of the command:
//! `gatera recover galera -n db --from galera-0 --accept-loss "12 transactions"`, or `--accept-loss unknown`.
//!
//! # Without the step
//!
//! If servers start without gatera's step script (a command of your own, `gatera.dev/start: keep`, pods that are older than
//! the guard), `gatera recover` creates no pod: members that crashed and start together without their positions restore
//! their last view and continue without comparing their data. Then some rows exist on some members only, and the cluster
//! has no identity any more (`gatera explain G04`). Recover such a cluster by hand. The steps here are for pods of
//! Bitnami's chart that were created without the guard: three members of StatefulSet `galera` in namespace `db`.
//!
//! 1. Stop the remaining pods before they find each other: then nothing can write, and every volume is free. `gatera recover`
//!    prints the commands, with the override (G01, G02, G04) that they need; annotate again if the override has ended. It
//!    prints none if members would lose their data: `persistentVolumeClaimRetentionPolicy.whenScaled` has to be `Retain`, and
//!    each member needs a claim that is not being deleted.
//! 2. Find out where the data on each volume ends (`ID:NUMBER`). N is the ordinal of the member with the highest number, if
//!    all have the same id. A volume with `sst_in_progress` holds an incomplete copy and is never N. If the ids differ, two
//!    clusters were created: change nothing, and compare their tables first. If my.cnf gives InnoDB's files other paths or
//!    sizes, or encrypts them, add those options.
//! 3. Remove the last view from each volume, so that none is restored. On N only, set safe_to_bootstrap to 1.
//! 4. Make N the only member. The image then finds the name of no other member, and starts the cluster from N's data.
//! 5. If the tables are there, start the others: they copy everything. At the end remove the override.
//!
//! Run the commands step by step, in one shell: write your N into step 3 before you run it.
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
//! N= # the ordinal from step 2
//! for n in 0 1 2; do look $n "rm -f gvwstate.dat"; done
//! look ${N:?} "sed -i 's/^safe_to_bootstrap: 0/safe_to_bootstrap: 1/' grastate.dat"
//! # 4.
//! kubectl -n $ns patch statefulset $set --patch "{\"spec\":{\"replicas\":1,\"ordinals\":{\"start\":${N:?}}}}"
//! kubectl -n $ns wait statefulset/$set '--for=jsonpath={.status.readyReplicas}=1' --timeout=10m
//! # 5.
//! kubectl -n $ns patch statefulset $set --patch '{"spec":{"replicas":3,"ordinals":{"start":0}}}'
//! kubectl -n $ns wait statefulset/$set '--for=jsonpath={.status.readyReplicas}=3' --timeout=60m
//! kubectl -n $ns annotate statefulset $set gatera.dev/override-
//! ```
//!
//! If the values of Bitnami's chart name another member in `galera.bootstrap.bootstrapFromNode`, remove that value before step 4.
//! With other images and commands, a single member does not start by itself: set `wsrep_cluster_address = gcomm://` in the
//! members' ConfigMap before step 4 (with an override of G04 on the ConfigMap), and set it back before step 5. Adapt the data
//! folder, the provider's path and the user id in the commands.
//!
//! # Exceptions
//!
//! None: without the guard's mark no member starts first. To accept a loss of data, end the annotation with `accept-loss=TEXT`,
//! where TEXT is the loss as the refusal names it.

use crate::grant;
use crate::rule::{Finding, One, Origin, Review, Rule, Verdict, View, WRITTEN, YieldsTo};
use facts::marks;
use facts::marks::recovery::Recovery;
use facts::view::{Member, is_cluster};
use facts::way_out::{CommandLine, WayOut, run};
use objects::{Kind, Meta, Object};

pub(super) const RULE: Rule = Rule {
    id: "G20",
    name: "recovery",
    judges: &[(Kind::StatefulSet, WRITTEN, One(check))],
    depends_on_state: true,
    source: include_str!("recovery.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Option<Finding> {
    refusal(requested(review)?, review, view)
}

/// Returns the recovery that this change requests. An earlier request was judged when it was written.
fn requested(review: &Review) -> Option<&str> {
    let now = stateful_set_meta(review.new.as_ref())?.mark(marks::RECOVER)?;
    let before = stateful_set_meta(review.old.as_ref()).and_then(|old| old.mark(marks::RECOVER));
    (before != Some(now) && review.origin != Origin::Audit).then_some(now)
}

fn stateful_set_meta(object: Option<&Object>) -> Option<&Meta> {
    object.filter(|it| matches!(it, Object::StatefulSet(_))).map(Object::meta)
}

/// Returns the value of the guard's mark: the requested recovery, if it is right; the old value, if nothing new is requested;
/// none without a request.
pub(super) fn granted(review: &Review, view: &View<'_>) -> Option<String> {
    stateful_set_meta(review.new.as_ref())?.mark(marks::RECOVER)?;
    match requested(review).filter(|text| refusal(text, review, view).is_none()) {
        Some(text) => Some(text.to_owned()),
        None => match &review.old {
            // The guard does not trust a mark from before the StatefulSet was adopted.
            Some(Object::StatefulSet(old)) if is_cluster(old, view.adoption()) => {
                old.metadata.mark(marks::RECOVERY).map(str::to_owned)
            }
            _ => None,
        },
    }
}

/// A change that grants a recovery, or ends one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryChange {
    /// This member may start the cluster now.
    Granted(Recovery),
    /// The member started the cluster, and serves.
    Done(Recovery),
    /// The request was removed before the member served.
    TakenBack(Recovery),
}

/// Returns the change of a recovery that is reported as an Event.
pub fn recovery_change(review: &Review, view: &View<'_>) -> Option<RecoveryChange> {
    let mark = |object| stateful_set_meta(object)?.mark(marks::RECOVERY);
    match (mark(review.old.as_ref()), mark(review.new.as_ref())) {
        (before, now) if before == now => None,
        (_, Some(now)) => Recovery::of(now).ok().map(RecoveryChange::Granted),
        (before, None) => {
            let recovery = Recovery::of(before.filter(|_| review.new.is_some())?).ok()?;
            let cluster = view.cluster(&review.namespace, &review.name);
            let serves = cluster.and_then(|it| it.member(&recovery.member)).is_some_and(Member::ready);
            Some(if serves { RecoveryChange::Done(recovery) } else { RecoveryChange::TakenBack(recovery) })
        }
    }
}

fn refusal(text: &str, review: &Review, view: &View<'_>) -> Option<Finding> {
    let (ns, name) = (&review.namespace, &review.name);
    let recover = run(CommandLine::new(format!("gatera recover {name} -n {ns}")))
        .say(", which shows where each member's data ends and starts from the newest");
    // The guard's mark follows from this request, so no mode and no exception applies.
    let finding = |verdict, says, instead: WayOut| {
        Some(RULE.finding(verdict, FIELD, says, WHY, instead).yielding_to(YieldsTo::Nothing))
    };
    let recovery = match Recovery::read(text, view.now) {
        Ok(recovery) => recovery,
        Err(invalid) => {
            return finding(Verdict::Deny, format!("the recovery annotation is invalid: {invalid}"), recover);
        }
    };
    let Some(cluster) = view.cluster(ns, name).filter(|_| review.exists()) else {
        let says = "it has no members yet; a recovery is for a cluster that is down".to_owned();
        return finding(Verdict::Deny, says, "apply the StatefulSet without this annotation".into());
    };
    // The view may be late: the API server shows what was granted a moment ago.
    let before = stateful_set_meta(review.old.as_ref())
        .and_then(|old| Recovery::read(old.mark(marks::RECOVERY)?, view.now).ok());
    let other = before.filter(|before| before.member != recovery.member);
    let other_under_way =
        other.map(|it| format!("a recovery from {} is under way, until {}", it.member, it.until));
    finding(Verdict::Deny, other_under_way.or_else(|| grant::refusal(&recovery, cluster, view))?, recover)
}

const FIELD: &str = "metadata.annotations[gatera.dev/recover]";
const WHY: &str = "all others copy the data of the member that starts first, and discard what it lacks";
