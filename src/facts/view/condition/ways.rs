//! The way out of each condition of a member.
//!
//! Must not know: which members have it (`condition.rs`).

use super::{ClusterConditions, Condition};
use crate::galera::driver;
use crate::galera::start_report::StartReport;
use crate::view::{Member, transfer, way_out_of_silent_node};
use crate::way_out::{CommandLine, WayOut, page, run, say};

impl ClusterConditions<'_> {
    pub(super) fn way_out(&self, condition: Condition, first: &Member) -> Option<WayOut> {
        let (ns, name) = (&self.cluster.id.namespace, &first.name);
        let pod = first.pod.as_deref();
        let delete = CommandLine::new(format!("kubectl -n {ns} delete pod {name}"));
        let logs = CommandLine::new(format!("kubectl -n {ns} logs {name}"));
        Some(match condition {
            Condition::NodeAway => way_out_of_silent_node(pod.map(|pod| &*pod.node).unwrap_or_default()),
            Condition::Missing => match self.not_created.filter(|why| why.contains(&**name)) {
                Some(why) => say(format!("it cannot be created: {why}")).then(self.restored_release(why)),
                None if self.cluster.orphaned => say("its StatefulSet is gone, so nothing creates it"),
                None => {
                    let set = &self.cluster.id.name;
                    let describe = CommandLine::new(format!("kubectl -n {ns} describe statefulset {set}"));
                    run(describe).say(" shows why it is not created")
                }
            },
            Condition::Unscheduled | Condition::HeldUp => {
                let cause = pod.and_then(|pod| pod.held_up_by.as_deref()).unwrap_or_default().trim_end_matches('.');
                let describe = CommandLine::new(format!("kubectl -n {ns} describe pod {name}"));
                say(format!("Kubernetes says: {cause}"))
                    .then(run(describe).say(" shows its requests and Events"))
            }
            Condition::Leaving => {
                say("wait: it leaves within its grace period; if another member copies from it, that may take all of that time")
            }
            Condition::Refused => match pod.and_then(|pod| pod.start_report.as_deref()) {
                Some(StartReport::Refused(why)) => say(why),
                _ => return None,
            },
            Condition::DiskFull if self.serves() => {
                let room = say("make room, or give the claim a larger volume");
                room.then("then ").run(delete).say(": the member copies what it missed")
            }
            Condition::DiskFull => say("make room, or give the claim a larger volume")
                .then("delete no pod before another member serves"),
            Condition::Fails => {
                let ended = pod.and_then(|pod| pod.ended());
                let ended = ended.map(|ended| say(format!("its server ended: {ended}"))).unwrap_or_default();
                let why = run(logs.arg("--previous")).say(" shows why");
                ended.then(why).then("when that is fixed, ").run(delete).say(" restarts it at once")
            }
            Condition::CutOff if self.serves() => {
                say("check the network: the member serves again by itself when it reaches the others")
            }
            Condition::CutOff => say("wait: members serve again by themselves when enough of them reach each other").then(format!(
                "otherwise, and only if you are certain that no other server runs or will come back by itself{}, run this on the \
                 member with the highest wsrep_last_committed, and on that one only: SET GLOBAL wsrep_provider_options='pc.bootstrap=1'",
                self.unreachable_servers()
            )),
            Condition::Left if self.serves() => {
                let log = say("its log shows why (inconsistent with the others, or it could not write)");
                log.then("then ").run(delete).say(": the member copies their data")
            }
            Condition::Left => say("its log shows why").then("delete no pod before another member serves"),
            Condition::Stalled if self.serves() => {
                // A joiner counts for the majority while its server runs.
                let first = match (self.cluster.ready(), self.cluster.members.len()) {
                    (1, 2) => say("without it the member that serves may lose its majority; `gatera status` then prints how to continue")
                        .then("check its log"),
                    (1, _) => say("bring back the other members first: the member that serves may need this one's vote for its majority")
                        .then("then check its log"),
                    _ => say("check its log"),
                };
                first.say(": if nothing moves there either, ").run(delete).say(" restarts the member")
            }
            Condition::Stalled => say("its log shows why it receives nothing"),
            Condition::Waits => self.awaited(),
            Condition::Looks if self.serves() => {
                say("wait: every member that starts looks for the others").then(
                    "if it lasts, it cannot reach them: their headless Service needs publishNotReadyAddresses: true, and ports 4567, \
                     4568 and 4444 must be open",
                )
            }
            Condition::Looks if !self.cluster.has_data() => say("the bootstrap node has to be Ready first"),
            Condition::Looks if driver::of(&self.cluster.workload).is_some() => {
                say("wait: its operator starts the cluster again")
            }
            Condition::Looks if self.cluster.orphaned => {
                say("apply the StatefulSet again as it was: it takes over its pods")
            }
            Condition::Looks => say("no member starts the cluster by itself: ")
                .run(self.cluster.recover_command())
                .say(" finds the newest data, and says how the cluster starts from it"),
            Condition::Transfer => transfer::way_out_while_copying(self.cluster, first, self.now),
            Condition::Starts if !self.serves() && self.cluster.has_data() => {
                run(logs).say(" shows what it does")
            }
            Condition::Elsewhere => {
                say("it gets no clients, because gatera has recorded another cluster: compare the tables of both")
                    .then(page("G04").say(" describes how to keep the right one"))
            }
            Condition::Frozen => {
                say("its disk may hang, or its process was stopped: check its log and its node")
            }
            Condition::Blind => blind(self.serves() || !self.cluster.has_data()),
            Condition::Starts | Condition::NoIdentity | Condition::TwoHistories => return None,
        })
    }

    /// Returns the command that restores what `helm uninstall` deleted although the guard refused to delete the cluster; empty:
    /// nothing shows that this is the cause.
    fn restored_release(&self, why: &str) -> WayOut {
        let release = self.cluster.workload.metadata.helm_release().filter(|_| why.contains("not found"));
        let ns = &self.cluster.id.namespace;
        let rollback = |it| {
            run(CommandLine::new(format!("helm -n {ns} rollback {it} REVISION")))
                .say(" restores the deleted objects of its release (")
                .run(CommandLine::new(format!("helm -n {ns} history {it}")))
                .say(" lists the revisions)")
        };
        release.map(rollback).unwrap_or_default()
    }

    /// Returns the way out for members that wait for the others of their last view.
    fn awaited(&self) -> WayOut {
        let names = |wanted: &dyn Fn(&Member, Condition) -> bool| {
            let others =
                self.of_members.iter().filter(|(member, it)| *it != Condition::Waits && wanted(member, *it));
            others.map(|(member, _)| &*member.name).collect::<Vec<_>>().join(", ")
        };
        // A member that has run for a while and does not wait has no last view, or another one.
        let has_no_view = |member: &Member, it: Condition| it == Condition::Looks && self.has_looked(member);
        let without_view = names(&has_no_view);
        let absent = names(&|member, it| !has_no_view(member, it));
        // With OrderedReady, a pod is created only when the one before it is Ready, and a member that waits never is.
        let in_turn =
            self.of_members.iter().any(|(it, _)| it.pod.is_none() && self.cluster.is_created_in_turn(it));
        let form = "they form the cluster again by themselves once every member of their last view is back";
        let recover = self.cluster.recover_command();
        let found = match (&*without_view, &*absent) {
            _ if in_turn => {
                say("Kubernetes creates the members that they wait for only after they are Ready: ")
            }
            ("", "") => say(format!("{form}: their last views differ, or one of them is cut off"))
                .then("check the network, then "),
            ("", absent) => {
                let left =
                    say("if that is not possible, and their servers do not run anywhere, ").run(recover);
                let left = left.say(" starts from the newest data that is left");
                return say(format!("{form}: bring back {absent}")).or(left);
            }
            (without_view, _) => {
                let verbs = if without_view.contains(", ") {
                    "run, but do not know"
                } else {
                    "runs, but does not know"
                };
                say(format!(
                    "{without_view} {verbs} the last view, so they do not form the cluster by themselves: "
                ))
            }
        };
        found.run(recover).say(" starts from the newest data")
    }
}

/// Returns what to do about members whose servers would not know their positions after a crash.
fn blind(serves: bool) -> WayOut {
    if serves {
        say("after a crash the server would start without its position: ")
            .page("G19")
            .say(" (a pod that was created while gatera was down only has to be recreated)")
    } else {
        say("create no pods: servers that return together without their positions rejoin without comparing their data")
            .then(page("G20").say(", \"Without the step\", starts the cluster from its newest data"))
    }
}
