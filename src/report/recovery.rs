//! A recovery as text: where each member's data ends, what will be done, what is being done, and what is refused and
//! why.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp, Unit};

use engine::grant::{DataLoss, NewerData, member_data};
use facts::galera::start_report::Position;
use facts::view::{Cluster, View};
use leader::recovery::RecoveryStep;
use objects::visible;

/// Returns where each member's data ends: a heading, the recorded identity, and a line for each member and each left claim.
pub fn table(cluster: &Cluster, view: &View<'_>) -> String {
    let mut text = format!("{} ({})\n", cluster.id, view.count(cluster));
    if let Some(identity) = cluster.identity() {
        let _ = writeln!(text, "  recorded identity: {identity}");
    }
    for row in member_data(cluster, view) {
        let read = row.member.reader.iter().filter(|_| row.data_end.position().is_some());
        let data_end = read.fold(row.data_end.to_string(), |data_end, reader| {
            format!("{data_end}; read by pod {}", reader.name)
        });
        let ready = if row.member.ready() { "is Ready".to_owned() } else { data_end };
        let _ = writeln!(text, "  {} {}", row.member.name, visible(&ready));
    }
    for claim in cluster.left_claims().filter(|claim| claim.bound) {
        let _ =
            writeln!(text, "  claim {} belongs to no current member; its data was not examined", claim.name);
    }
    text
}

/// Returns the text for a cluster that needs no recovery.
pub fn serves(cluster: &Cluster, view: &View<'_>) -> String {
    format!(
        "{} serves ({}): there is nothing to recover; if a member is not Ready, `gatera status` shows what it waits for",
        cluster.id,
        view.count(cluster)
    )
}

/// Returns what will be done next.
pub fn proposal(cluster: &Cluster, step: &RecoveryStep) -> String {
    match step {
        RecoveryStep::Ask { member, at, loss, .. } => start_proposal(cluster, member, at, loss.as_deref()),
        step => {
            format!(
                "next step: {}\nYou are asked again before a member starts the cluster.\n",
                step_text(step)
            )
        }
    }
}

fn start_proposal(cluster: &Cluster, member: &str, at: &Position, loss: Option<&str>) -> String {
    let names = |is_held_up: bool| {
        let others = cluster.members.iter().filter(|it| it.name != member && it.does_not_run() == is_held_up);
        others.map(|it| &*it.name).collect::<Vec<_>>().join(", ")
    };
    let (others, held_up) = (names(false), names(true));
    let mut text = match loss {
        None => format!("{member} has the newest data. It starts the cluster from {at}; nothing is lost.\n"),
        Some(loss) => format!("{member} starts the cluster from {at}. This loses: {loss}.\n"),
    };
    let each = |names: &str, several, one| if names.contains(", ") { several } else { one };
    if !others.is_empty() {
        let are_recreated = "are re-created one after the other and copy what they lack";
        let each = each(&others, are_recreated, "is re-created and copies what it lacks");
        let _ = writeln!(text, "Then {others} {each}.");
    }
    if !held_up.is_empty() {
        let each = each(&held_up, "join later, once their pods run", "joins later, once its pod runs");
        let _ = writeln!(text, "{held_up} {each}.");
    }
    text
}

/// Returns why data could be lost, what to do instead, and the command that accepts the loss if nothing else is possible.
pub fn refusal(cluster: &Cluster, data_loss: &DataLoss, from: Option<&str>) -> String {
    let mut text = "Not started, because data would or might be lost:\n".to_owned();
    let (recover, ns) = (cluster.recover_command(), &cluster.id.namespace);
    let why = match data_loss {
        DataLoss::Unknown(why) => why.clone(),
        other => vec![other.to_string()],
    };
    text.extend(why.iter().map(|why| format!("  {}\n", visible(why))));
    let instead = match data_loss {
        DataLoss::Transactions { newer: NewerData::HeldUp(name), .. } => format!(
            "repair what keeps its pod from running (kubectl -n {ns} describe pod {name}), then run this again"
        ),
        DataLoss::Transactions { newer: NewerData::Claim(_), .. } => {
            "restore the volume of that claim, or its newest backup, then run this again".to_owned()
        }
        DataLoss::Unknown(_) => {
            "restore every member that may have newer data (a node that does not answer, a claim that is missing, a disk that is full, a pod that does not run), then run this again".to_owned()
        }
        _ => format!("{recover} (without --from), which starts from the newest member"),
    };
    let otherwise = match (from, data_loss.loss()) {
        (Some(from), Some(loss)) => {
            format!("start from {from} anyway: {recover} --from {from} --accept-loss '{loss}'")
        }
        _ => format!(
            "find out which member's data is right and name it: {recover} --from MEMBER --accept-loss unknown"
        ),
    };
    text + &format!("do instead: {instead}\nif that is not possible, {otherwise}\n")
}

/// Returns what to do by hand if the servers do not start through gatera's step script.
pub fn by_hand(cluster: &Cluster, why: &str, now: Timestamp) -> String {
    let (id, ns, set) = (&cluster.id, &cluster.id.namespace, &cluster.id.name);
    let (reason, pods) =
        (visible(why), cluster.members.iter().map(|it| &*it.name).collect::<Vec<_>>().join(" "));
    let until = now.saturating_add(OVERRIDE_DURATION).map(|it| it.round(Unit::Second).unwrap_or(it));
    let until = until.map(|it| it.to_string()).unwrap_or_default();
    let mut text = format!(
        "gatera recover cannot recover {id} and creates no pods for it: its servers do not start through gatera's step script, so rows could be \
         lost ({reason})\n\
         by hand: gatera explain G20, \"Without the step\". First stop what still runs (annotate again if the override ends):\n  \
         kubectl -n {ns} annotate --overwrite statefulset {set} 'gatera.dev/override=G01,G02,G04 until={until} reason=start it by hand'\n"
    );
    if cluster.workload.replicas() > 0 {
        let _ = writeln!(text, "  kubectl -n {ns} scale statefulset {set} --replicas=0");
        let _ = writeln!(text, "  kubectl -n {ns} delete pods {pods} --ignore-not-found");
    }
    text
}

/// The duration of a printed override: less than the hour that it may last, because the guard's clock may be behind.
const OVERRIDE_DURATION: SignedDuration = SignedDuration::from_mins(55);

/// Returns the last line of a recovery.
pub fn recovered(cluster: &Cluster, without: &[String]) -> String {
    if without.is_empty() {
        return format!("{} is back: every member is Ready", cluster.id);
    }
    format!(
        "{} is back without {}: gatera status shows why each of them is not Ready (its node, its claim, its pod, or it is in another cluster); a member whose data is newer than the start refuses to join and says so",
        cluster.id,
        without.join(", ")
    )
}

/// Returns the line that reports this step; empty: the step has a text of its own.
pub fn step_text(step: &RecoveryStep) -> String {
    let text = match step {
        RecoveryStep::Wait(what) => format!("waiting: {what}"),
        RecoveryStep::Scale { to } => {
            format!("setting the replicas to {to}, on the way back to the number before gatera stop")
        }
        RecoveryStep::Create { member, why, .. } => format!("{member}: creating its pod, {why}"),
        RecoveryStep::Read { member, .. } => {
            format!("{member}: its pod does not run, so another pod reads its data")
        }
        RecoveryStep::StopReading { member, reader, .. } => {
            format!("{member}: deleting {reader}, the pod that was created to read its data")
        }
        RecoveryStep::Restart { member, why, .. } => format!("{member}: re-creating its pod, {why}"),
        RecoveryStep::Ask { member, at, .. } => {
            format!("{member}: asking the guard whether it may start the cluster from {at}")
        }
        RecoveryStep::TakeBack(why) => format!("withdrawing the recovery request: {why}"),
        RecoveryStep::Finish { without } if without.is_empty() => {
            "every member is Ready: removing the recovery request".to_owned()
        }
        RecoveryStep::Finish { without } => {
            format!("every member but {} is Ready: removing the recovery request", without.join(", "))
        }
        RecoveryStep::Serves => "waiting: the others are not Ready yet".to_owned(),
        RecoveryStep::Cannot(_) | RecoveryStep::ByHand(_) | RecoveryStep::Refuse { .. } => String::new(),
    };
    visible(&text)
}
