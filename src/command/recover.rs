//! `gatera recover` and `gatera start`: recover a cluster that is down, from its newest data, with the rights of the caller.
//!
//! Owns: what follows from a look, and which steps need a confirmation; the steps are in `recover/actions.rs`. `leader::recovery`
//! decides which step comes next, and the guard decides which member may start first. A second run continues where the first
//! one ended, because each step follows from what the cluster shows.

mod actions;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use facts::marks::RECOVER;
use facts::view::{Cluster, View};
use jiff::SignedDuration;
use leader::recovery::{self, RecoveryOptions, RecoveryStep};
use objects::visible;
use report::recovery as report;
use tokio::time::timeout;

use super::Exit;
use super::guided::{AfterLook, ClusterArgs, GuidedRun, is_by_the_guard};
use super::look::ObservedCluster;
use super::site::is_away;

/// The time after which the guard has seen what this command sees.
const GUARD_CATCH_UP: Duration = Duration::from_secs(60);
/// The longest look that can still show that nothing has changed since the last one.
const LONGEST_CONCLUSIVE_LOOK: Duration = Duration::from_secs(10);
/// The time limit for deleting the reader pods after a failed run, so that the command ends when the API server is away.
const CLEANUP_DEADLINE: Duration = Duration::from_secs(30);
/// The largest number of tries of the same step.
const MOST_TRIES: u32 = 5;

/// Options of `gatera recover`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Start from this member (name or ordinal) instead of the newest
    #[arg(long, value_name = "MEMBER")]
    from: Option<String>,
    /// Accept this loss of data, as the command names it: "12 transactions", or unknown
    #[arg(long, value_name = "LOSS", requires = "from")]
    accept_loss: Option<String>,
    /// Withdraw the recovery request of an earlier run
    #[arg(long, conflicts_with = "dry_run")]
    abort: bool,
}

/// The goal of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoverGoal {
    /// At least one member serves.
    Serve,
    /// As many members serve as before the stop.
    StartAll,
}

/// Recovers the cluster. If the run fails, it deletes the pods that it created only to read data.
pub async fn run(options: &Options, goal: RecoverGoal, out: &mut impl Write) -> anyhow::Result<Exit> {
    let mut guided = GuidedRun::begin(&options.cluster, out).await?;
    let mut run = RecoverRun {
        options,
        want: RecoveryOptions {
            from: options.from.clone(),
            loss: options.accept_loss.clone(),
            all: goal == RecoverGoal::StartAll,
            before: Vec::new(),
            unreadable: Vec::new(),
        },
        agreed: guided.agreed,
        acted: false,
        tries: BTreeMap::new(),
        failing_since: None,
    };
    let result = guided.drive(async |guided, seen| run.after_look(guided, seen).await).await;
    let may_have_readers = !guided.state.is_empty() && !options.cluster.dry_run;
    if may_have_readers && !matches!(result, Ok(Exit::Clean)) {
        let cleanup = timeout(CLEANUP_DEADLINE, async {
            actions::delete_readers(&guided.look_once().await?, &run.want.before).await
        });
        // The next run deletes the pods that are left now.
        if let Ok(Err(problem)) = cleanup.await {
            guided.problem(&problem.context("deleting the reader pods"))?;
        }
    }
    result
}

/// One run of the command. The state in [`GuidedRun`] is the table of members.
struct RecoverRun<'a> {
    options: &'a Options,
    want: RecoveryOptions,
    /// Whether a person confirmed which member starts the cluster. [`GuidedRun::agreed`] is about the steps before that.
    agreed: bool,
    /// Whether a step was done.
    acted: bool,
    /// The number of tries of each step.
    tries: BTreeMap<String, u32>,
    /// When a step was first refused, without a success since then.
    failing_since: Option<Instant>,
}

impl RecoverRun<'_> {
    async fn after_look(
        &mut self,
        guided: &mut GuidedRun<'_>,
        seen: &ObservedCluster,
    ) -> anyhow::Result<AfterLook> {
        if guided.look_took > LONGEST_CONCLUSIVE_LOOK {
            // The look took long and may show an earlier state, so the time without a change counts from now.
            guided.unchanged_since = Instant::now();
        }
        if self.options.abort {
            return abort(seen).await;
        }
        let (cluster, view) = (seen.cluster()?, seen.view());
        if guided.state.is_empty() {
            self.want.before = cluster
                .pods()
                .chain(cluster.readers.iter().map(AsRef::as_ref))
                .map(|pod| pod.uid.clone())
                .collect();
        }
        guided.set_state(report::table(cluster, &view));
        let step = recovery::next(cluster, &view, &self.want, time_unchanged(guided));
        if let Some((exit, text)) = self.ending(guided, &step, cluster, &view) {
            return Ok(AfterLook::End(exit, text));
        }
        let is_request = matches!(step, RecoveryStep::Ask { .. });
        let agreed = if is_request { self.agreed } else { guided.agreed };
        // A dry run prints any step as a proposal, also one that needs no confirmation.
        if !agreed && (self.options.cluster.dry_run || needs_agreement(&step, cluster.recovery().is_some())) {
            // This may be set before the answer is known, because the run ends if the person does not confirm.
            self.agreed |= is_request;
            let proposal = format!("{}{}", guided.state, report::proposal(cluster, &step));
            return Ok(AfterLook::Confirm(proposal));
        }
        if self.tries_of(&step).is_some_and(|tries| *tries >= MOST_TRIES) {
            return Ok(self.give_up(&step, seen));
        }
        if let Some(end) = guided.step(report::step_text(&step))? {
            return Ok(end);
        }
        self.act(guided, &step, seen).await
    }

    /// Returns how the run ends, if there is nothing left that it can do.
    fn ending(
        &self,
        guided: &GuidedRun<'_>,
        step: &RecoveryStep,
        cluster: &Cluster,
        view: &View<'_>,
    ) -> Option<(Exit, String)> {
        let table = &guided.state;
        match step {
            // The run waits for members that it recreated.
            RecoveryStep::Serves
                if self.acted && recovery::next_in_turn(cluster, view, time_unchanged(guided)).is_some() =>
            {
                None
            }
            RecoveryStep::Serves => Some((Exit::Clean, format!("{}\n", report::serves(cluster, view)))),
            RecoveryStep::Cannot(why) => {
                let what = if self.want.all { "started" } else { "recovered" };
                Some((Exit::Refused, format!("{} cannot be {what}: {}\n", cluster.id, visible(why))))
            }
            RecoveryStep::ByHand(why) => {
                Some((Exit::Refused, format!("{table}{}", report::by_hand(cluster, why, view.now))))
            }
            RecoveryStep::Refuse { data_loss, from } => {
                let refusal = report::refusal(cluster, data_loss, from.as_deref());
                Some((Exit::Refused, format!("{table}{refusal}")))
            }
            _ => None,
        }
    }

    /// Ends the run after a step that was tried often without an effect; if it read a member, goes on without that member.
    fn give_up(&mut self, step: &RecoveryStep, seen: &ObservedCluster) -> AfterLook {
        let logs = match step {
            // The reader pod was not created, because another pod has its name: this member cannot be read.
            RecoveryStep::Read { uid, .. } => {
                self.want.unreadable.push(uid.clone());
                return AfterLook::Pause;
            }
            RecoveryStep::Restart { member, .. } => {
                format!("; `kubectl -n {} logs {member}` shows why", seen.id.namespace)
            }
            _ => String::new(),
        };
        AfterLook::End(Exit::Undecided, format!("tried {MOST_TRIES} times without success{logs}\n"))
    }

    async fn act(
        &mut self,
        guided: &mut GuidedRun<'_>,
        step: &RecoveryStep,
        seen: &ObservedCluster,
    ) -> anyhow::Result<AfterLook> {
        self.acted |= !matches!(step, RecoveryStep::Wait(_) | RecoveryStep::Serves);
        match actions::act(seen, step).await {
            Ok(()) => {
                self.failing_since = None;
                if let RecoveryStep::Finish { without } = step {
                    let text = report::recovered(seen.cluster()?, without) + "\n";
                    return Ok(AfterLook::End(Exit::Clean, text));
                }
                if let Some(tries) = self.tries_of(step) {
                    *tries += 1;
                }
            }
            Err(problem) => {
                guided.problem(&problem)?;
                if is_away(&problem) {
                    self.failing_since = None;
                    return Ok(AfterLook::Pause);
                }
                if let RecoveryStep::Read { uid, .. } = step {
                    self.want.unreadable.push(uid.clone());
                }
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if is_final(step, &problem, guided.unchanged_since.elapsed(), since.elapsed()) {
                    let text =
                        "given up, because waiting does not change this: correct it, then run this again\n";
                    return Ok(AfterLook::End(Exit::Refused, text.to_owned()));
                }
            }
        }
        Ok(AfterLook::Pause)
    }

    /// Returns the number of tries of this step, if it is one that may succeed and change nothing.
    fn tries_of(&mut self, step: &RecoveryStep) -> Option<&mut u32> {
        let key = match step {
            RecoveryStep::Restart { member, .. } | RecoveryStep::Read { member, .. } => member,
            RecoveryStep::TakeBack(why) => why,
            _ => return None,
        };
        Some(self.tries.entry(key.clone()).or_default())
    }
}

/// Returns the time for which nothing has changed.
fn time_unchanged(guided: &GuidedRun<'_>) -> SignedDuration {
    SignedDuration::try_from(guided.unchanged_since.elapsed()).unwrap_or(SignedDuration::MAX)
}

/// Returns whether a step needs confirmation: before anything is created, and before a member may start the cluster. For a
/// recovery that is granted, a person has already confirmed the creation of pods.
fn needs_agreement(step: &RecoveryStep, granted: bool) -> bool {
    match step {
        RecoveryStep::Ask { .. } | RecoveryStep::Scale { .. } => true,
        RecoveryStep::Create { .. } | RecoveryStep::Read { .. } | RecoveryStep::Restart { .. } => !granted,
        _ => false,
    }
}

/// Returns whether a refusal is final, because it has lasted for a minute. The guard sees a little later what servers report, so
/// for a request the minute counts from the last change of the table. A refusal of another step by the guard may still change.
fn is_final(step: &RecoveryStep, problem: &anyhow::Error, unchanged: Duration, failing: Duration) -> bool {
    match step {
        RecoveryStep::Ask { .. } => unchanged > GUARD_CATCH_UP,
        _ => failing > GUARD_CATCH_UP && !is_by_the_guard(problem),
    }
}

/// Withdraws the recovery request, by which a member may start, and then deletes the reader pods.
async fn abort(seen: &ObservedCluster) -> anyhow::Result<AfterLook> {
    let is_requested = seen.cluster()?.workload.metadata.mark(RECOVER).is_some();
    if is_requested {
        actions::withdraw_request(seen).await.context("withdrawing the recovery request")?;
    }
    actions::delete_readers(seen, &[]).await.context("deleting the reader pods")?;
    let text = if is_requested {
        format!("the recovery request for {} was withdrawn; pods that were already recreated stay\n", seen.id)
    } else {
        format!("no recovery of {} is under way\n", seen.id)
    };
    Ok(AfterLook::End(Exit::Clean, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::api::refusal;

    #[test]
    fn creating_a_pod_needs_confirmation() {
        let (member, uid, why) = ("g-1".to_owned(), "1".to_owned(), String::new());
        for step in [
            RecoveryStep::Create { member: member.clone(), ordinal: 1, why: why.clone() },
            RecoveryStep::Read { member: member.clone(), uid: uid.clone() },
            RecoveryStep::Restart { member, uid, why },
        ] {
            assert!(needs_agreement(&step, false) && !needs_agreement(&step, true), "{step:?}");
        }
        assert!(
            needs_agreement(&RecoveryStep::Scale { to: 3 }, true)
                && !needs_agreement(&RecoveryStep::Serves, false)
        );
    }

    #[test]
    fn a_refusal_that_lasts_is_final_unless_a_rule_refuses() {
        let refused =
            |message: &str| anyhow::Error::from(refusal(403, message.as_bytes())).context("making it");
        let no_right = refused("pods is forbidden: User \"a\" cannot create resource \"pods\"");
        let by_a_rule = refused(
            "admission webhook \"pods.gatera.dev\" denied the request: [G02] Pod db/g-1: it serves\n  why: it does",
        );
        let create = RecoveryStep::Create { member: "g-1".to_owned(), ordinal: 1, why: String::new() };
        let [short, long] = [GUARD_CATCH_UP, GUARD_CATCH_UP + Duration::from_secs(1)];
        assert!(!is_final(&create, &no_right, long, short));
        assert!(is_final(&create, &no_right, short, long));
        assert!(!is_final(&create, &by_a_rule, long, long));
        assert!(is_final(&create, &anyhow::anyhow!("it would start without the step"), short, long));
    }
}
