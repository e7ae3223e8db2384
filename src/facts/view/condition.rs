//! The conditions of clusters and members: what is wrong, each with its name and its way out.
//!
//! Must not know: formats, requests. The reports of members' probes come from Events (`watch/member_events.rs`). Without the
//! chart's policy for Events, other users can forge these reports, so a condition is not a proof.

mod ways;

use jiff::{SignedDuration, Timestamp};

use super::{Cluster, Member, View, transfer};
use crate::galera::start_report::{JoinPhase, StartReport};
use crate::way_out::{WayOut, say};

/// A condition of one member, or of the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// The cluster was formed without comparing positions.
    NoIdentity,
    /// Members hold data of different clusters.
    TwoHistories,
    /// The member's node does not answer.
    NodeAway,
    /// The member should exist, but does not.
    Missing,
    /// No node takes the member's pod.
    Unscheduled,
    /// Kubernetes cannot start the member's pod: an image, a volume or an object is missing.
    HeldUp,
    /// The member is being deleted.
    Leaving,
    /// The member's step script did not start the server.
    Refused,
    DiskFull,
    /// The member fails again and again.
    Fails,
    /// The member served, but it now reaches too few members for a majority.
    CutOff,
    /// The member served, but is in no cluster now.
    Left,
    /// The member joins, but receives nothing.
    Stalled,
    /// The member is Synced in another cluster than the recorded one.
    Elsewhere,
    /// Clients can connect to the member, but it does not answer.
    Frozen,
    /// The member waits for all members of its last Galera view.
    Waits,
    /// The member reaches no member that serves.
    Looks,
    /// The member receives a state transfer.
    Transfer,
    /// The member starts, and has reported nothing yet.
    Starts,
    /// The member would not know its position after a crash.
    Blind,
}

/// A member that can reach a peer does so within this time.
const PEER_FOUND_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// The name of each condition, and the words for a member that has it.
const CONDITIONS: [(Condition, &str, &str); 20] = [
    (Condition::NoIdentity, "NO-IDENTITY", "belongs to a cluster without an identity"),
    (Condition::TwoHistories, "TWO-HISTORIES", "has data of another cluster"),
    (Condition::NodeAway, "NODE-AWAY", "is on a node that does not answer"),
    (Condition::Missing, "MISSING", "does not exist"),
    (Condition::Unscheduled, "UNSCHEDULED", "has no node yet"),
    (Condition::HeldUp, "HELD-UP", "has a pod that cannot start"),
    (Condition::Leaving, "LEAVING", "is being deleted"),
    (Condition::Refused, "REFUSED", "was not started by its step script"),
    (Condition::DiskFull, "DISK-FULL", "has a full disk"),
    (Condition::Fails, "FAILS", "keeps failing"),
    (Condition::CutOff, "CUT-OFF", "does not serve: no majority"),
    (Condition::Left, "LEFT", "has left its cluster"),
    (Condition::Stalled, "STALLED", "joins and receives nothing"),
    (Condition::Elsewhere, "ELSEWHERE", "is Synced in another cluster"),
    (Condition::Frozen, "FROZEN", "does not answer"),
    (Condition::Waits, "WAITS", "waits for the members of its last view"),
    (Condition::Looks, "LOOKS", "finds no member that serves"),
    (Condition::Transfer, "TRANSFER", "receives a copy"),
    (Condition::Starts, "STARTS", "is not Ready yet"),
    (Condition::Blind, "BLIND", "would not know its position after a crash"),
];

impl Condition {
    pub fn all() -> impl Iterator<Item = Self> {
        CONDITIONS.into_iter().map(|(it, ..)| it)
    }

    /// Returns the name, as `gatera explain G02` lists it.
    pub fn name(self) -> &'static str {
        CONDITIONS[self as usize].1
    }

    /// Returns the words that follow a member's name.
    pub fn description(self) -> &'static str {
        CONDITIONS[self as usize].2
    }

    /// Returns whether waiting does not end the condition, so that two members that have one need not wait for each other.
    pub fn lasts(self) -> bool {
        matches!(self, Self::Left | Self::Stalled | Self::DiskFull | Self::Refused)
    }

    /// Returns the condition of a member; `None`: it is Ready.
    pub fn of(member: &Member, view: &View<'_>) -> Option<Self> {
        let Some(pod) = &member.pod else { return Some(Self::Missing) };
        let node_away = !pod.node.is_empty() && view.node(&pod.node).is_some_and(|node| !node.is_reachable());
        // A probe's report after the server has joined says more than the report of its start.
        let has_joined = pod.seen.is_some();
        let is_refused = || matches!(pod.start_report.as_deref(), Some(StartReport::Refused(_)));
        Some(match pod.phase() {
            _ if pod.ready => return None,
            _ if node_away => Self::NodeAway,
            _ if pod.terminating => Self::Leaving,
            _ if !pod.has_run && pod.held_up_by.is_some() && pod.node.is_empty() => Self::Unscheduled,
            _ if !pod.has_run && pod.held_up_by.is_some() => Self::HeldUp,
            None if is_refused() => Self::Refused,
            Some(JoinPhase::Full) => Self::DiskFull,
            _ if pod.stuck && !has_joined => Self::Fails,
            Some(JoinPhase::Looks) if has_joined => Self::Left,
            Some(JoinPhase::Waits) if has_joined => Self::CutOff,
            Some(JoinPhase::Looks) => Self::Looks,
            Some(JoinPhase::Waits) => Self::Waits,
            Some(JoinPhase::Stalls) => Self::Stalled,
            Some(JoinPhase::Receives) => Self::Transfer,
            Some(JoinPhase::Strays) => Self::Elsewhere,
            Some(JoinPhase::Freezes) => Self::Frozen,
            None => Self::Starts,
        })
    }
}

/// Members of one condition, and their way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    pub condition: Condition,
    /// The members with this condition; empty: the whole cluster.
    pub members: Vec<String>,
    pub instead: WayOut,
}

impl Diagnosis {
    /// Returns the condition, its members, and the way out.
    pub fn way_out(&self) -> WayOut {
        let Self { condition, members, instead } = self;
        let whom = if members.is_empty() { String::new() } else { format!(" {}", members.join(", ")) };
        say(format!("{}{whom}: ", condition.name())).and(instead.clone())
    }
}

impl std::fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.way_out().fmt(f)
    }
}

/// Returns the conditions of a cluster that have a way out, worst first; only that of the whole cluster, if it has one.
pub fn diagnoses(cluster: &Cluster, view: &View<'_>) -> Vec<Diagnosis> {
    let conditions = ClusterConditions {
        cluster,
        now: view.now,
        not_created: view.not_created(cluster),
        of_members: cluster.members.iter().filter_map(|it| Some((it, Condition::of(it, view)?))).collect(),
    };
    // A condition of the whole cluster comes before anything that you would do for one member.
    if let Some((condition, instead)) = conditions.of_cluster() {
        return vec![Diagnosis { condition, members: Vec::new(), instead }];
    }
    let by_condition = Condition::all().filter_map(|condition| {
        let members = conditions.members_with(condition);
        let instead = conditions.way_out(condition, members.first()?)?;
        let members = members.iter().map(|it| it.name.clone()).collect();
        Some(Diagnosis { condition, members, instead })
    });
    transfer::diagnosis(cluster, view.now).into_iter().chain(by_condition).collect()
}

/// Returns the way out for a member that is not Ready; `None` if it is only starting, or if the whole cluster has a condition.
pub fn way_out_of(member: &Member, cluster: &Cluster, view: &View<'_>) -> Option<WayOut> {
    let all = diagnoses(cluster, view);
    let diagnosis = all.iter().find(|it| it.members.contains(&member.name));
    diagnosis.filter(|it| it.condition != Condition::Starts).map(Diagnosis::way_out)
}

/// A cluster, and the condition of each member.
struct ClusterConditions<'a> {
    cluster: &'a Cluster,
    now: Timestamp,
    /// Why missing members could not be created.
    not_created: Option<&'a str>,
    of_members: Vec<(&'a Member, Condition)>,
}

impl<'a> ClusterConditions<'a> {
    /// Returns the members with this condition.
    fn members_with(&self, condition: Condition) -> Vec<&'a Member> {
        if condition == Condition::Blind {
            let is_blind = |it: &&Member| {
                it.pod.as_ref().is_some_and(|pod| pod.server && !pod.recovers && !pod.terminating)
            };
            return self.cluster.members.iter().filter(is_blind).collect();
        }
        let has_condition = |it: &&(&'a Member, Condition)| it.1 == condition;
        let members = self.of_members.iter().filter(has_condition).map(|(member, _)| *member);
        // A pod that is created only when the one before it is Ready is not missing yet.
        members.filter(|it| it.pod.is_some() || !self.cluster.is_created_in_turn(it)).collect()
    }

    /// Returns whether a member or the bootstrap node serves.
    fn serves(&self) -> bool {
        self.cluster.ready() > 0 || self.cluster.bootstrap.pods.iter().any(|pod| pod.ready)
    }

    /// Returns a remark about servers that may run and serve although their nodes do not answer; empty: there are none.
    fn unreachable_servers(&self) -> String {
        let away: Vec<_> = self.members_with(Condition::NodeAway).iter().map(|it| &*it.name).collect();
        if away.is_empty() {
            return String::new();
        }
        let away = away.join(", ");
        format!(
            " (the nodes of {away} do not answer, so servers there may still run: are they switched off?)"
        )
    }

    /// Returns whether this member has run long enough to have found a peer.
    fn has_looked(&self, member: &Member) -> bool {
        let start = member.pod.as_ref().and_then(|pod| pod.start_report.as_deref()?.start());
        start.is_some_and(|it| self.now.duration_since(it.at) > PEER_FOUND_WITHIN)
    }

    /// Returns the condition of the whole cluster.
    fn of_cluster(&self) -> Option<(Condition, WayOut)> {
        let reports: Vec<_> = self.cluster.start_reports().map(|(_, report)| report).collect();
        // After a cluster was created again, members that join it with their old data also report no identity.
        let unrecorded = self.cluster.identity().is_none();
        let no_identity_reported = unrecorded && reports.iter().any(|report| report.has_no_identity());
        if no_identity_reported && self.serves() {
            let instead = say("a member joins with data of a cluster without an identity: if the members that serve show zeros as well (SHOW STATUS LIKE \
                               'wsrep_cluster_state_uuid'), restart no other member, and follow ")
                .page("G04")
                .say(" (a cluster without an identity)")
                .then("if they show a UUID, do nothing: the member only copies all data");
            return Some((Condition::NoIdentity, instead));
        }
        if self.cluster.has_no_identity() || no_identity_reported {
            let instead = say("a member that leaves or restarts never joins again, so restart none")
                .then("compare the members' tables, then create the cluster anew from the member that is right, as ")
                .page("G04")
                .say(" describes (a cluster without an identity)");
            return Some((Condition::NoIdentity, instead));
        }
        let mut ids = reports.iter().filter_map(|report| report.position()).map(|it| &it.id);
        let first_id = ids.next()?;
        let differ = !self.serves() && ids.any(|id| id != first_id);
        differ.then(|| {
            let instead = say("two clusters were created: change nothing, and compare their tables first (");
            (Condition::TwoHistories, instead.page("G04").say(")"))
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_lists_the_conditions_in_their_order() {
        for (index, (condition, ..)) in super::CONDITIONS.into_iter().enumerate() {
            assert_eq!(condition as usize, index, "{}", condition.name());
        }
    }
}
