//! `gatera recover` and `gatera start`: recover a cluster that is down, from its newest data, with the rights of the caller.
//!
//! Owns: the loop of looks and steps, and the confirmation before it; the steps are in `recover/actions.rs`. `leader::recovery`
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
use tokio::time::{sleep, timeout};

use super::Exit;
use super::guided::{ClusterArgs, LOOK_PAUSE, Transcript, is_by_the_guard};
use super::look::{self, ObservedCluster};
use super::site::{Site, is_away};

/// The time after which the guard has seen what this command sees.
const GUARD_CATCH_UP: Duration = Duration::from_secs(60);
/// The longest look that can still show that nothing has changed since the last one.
const LONGEST_CONCLUSIVE_LOOK: Duration = Duration::from_secs(10);
/// The time limit for deleting the reader pods after a failed run, so that the command ends when the API server is away.
const CLEANUP_DEADLINE: Duration = Duration::from_secs(30);
/// The number of tries of the same step.
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

/// Recovers the cluster.
pub fn run(options: &Options, to: RecoverGoal, out: &mut impl Write) -> anyhow::Result<Exit> {
    let want = RecoveryOptions {
        from: options.from.clone(),
        loss: options.accept_loss.clone(),
        all: to == RecoverGoal::StartAll,
        before: Vec::new(),
        unreadable: Vec::new(),
    };
    let agreed = options.cluster.is_confirmed();
    let run = RecoverRun {
        options,
        want,
        agreed,
        agreed_to_begin: agreed,
        acted: false,
        unchanged_since: Instant::now(),
        table: String::new(),
        transcript: Transcript::default(),
        tries: BTreeMap::new(),
        failing_since: None,
    };
    look::block_on(run.recover(out))
}

/// One run of the command.
struct RecoverRun<'a> {
    options: &'a Options,
    want: RecoveryOptions,
    /// Whether a person confirmed which member starts the cluster.
    agreed: bool,
    /// Whether a person confirmed the steps before that.
    agreed_to_begin: bool,
    /// Whether a step was done.
    acted: bool,
    /// When the table changed last.
    unchanged_since: Instant,
    table: String,
    transcript: Transcript,
    /// The number of tries of each step.
    tries: BTreeMap<String, u32>,
    /// When a step was first refused, without a success since then.
    failing_since: Option<Instant>,
}

impl RecoverRun<'_> {
    /// Recovers the cluster. If the run fails, it deletes the pods that it created only to read data.
    async fn recover(mut self, out: &mut impl Write) -> anyhow::Result<Exit> {
        let site = self.options.cluster.site().await?;
        let result = self.run_steps(&site, out).await;
        let may_have_readers = !self.table.is_empty() && !self.options.cluster.dry_run;
        if may_have_readers && !matches!(result, Ok(Exit::Clean)) {
            let cleanup = timeout(CLEANUP_DEADLINE, async {
                let seen = self.options.cluster.seen(&site, &mut Transcript::default(), out).await?;
                actions::delete_readers(&seen, &self.want.before).await
            });
            // The next run deletes the pods that are left now.
            if let Ok(Err(problem)) = cleanup.await {
                self.transcript.problem(&problem.context("deleting the reader pods"), out)?;
            }
        }
        result
    }

    async fn run_steps(&mut self, site: &Site, out: &mut impl Write) -> anyhow::Result<Exit> {
        loop {
            let look_began = Instant::now();
            let seen = self.options.cluster.seen(site, &mut self.transcript, out).await?;
            if look_began.elapsed() > LONGEST_CONCLUSIVE_LOOK {
                // The look took long and may show an earlier state, so the time without a change counts from now.
                self.unchanged_since = Instant::now();
            }
            if self.options.abort {
                return abort(&seen, out).await;
            }
            let (cluster, view) = (seen.cluster()?, seen.view());
            let table = report::table(cluster, &view);
            if self.table.is_empty() {
                self.want.before = cluster
                    .pods()
                    .chain(cluster.readers.iter().map(AsRef::as_ref))
                    .map(|pod| pod.uid.clone())
                    .collect();
            }
            if table != self.table {
                (self.table, self.unchanged_since) = (table, Instant::now());
            }
            let step = recovery::next(cluster, &view, &self.want, self.time_unchanged());
            if let Some((exit, text)) = self.ending(&step, cluster, &view) {
                write!(out, "{text}")?;
                return Ok(exit);
            }
            if self.needs_confirmation(&step, cluster) {
                let proposal = format!("{}{}", self.table, report::proposal(cluster, &step));
                if let Some(exit) = self.options.cluster.unless_confirmed(&proposal, out)? {
                    return Ok(exit);
                }
                self.agreed |= matches!(step, RecoveryStep::Ask { .. });
                self.agreed_to_begin = true;
                // The confirmation may have taken a while, so the cluster is looked at again.
                continue;
            }
            self.transcript.step(report::step_text(&step), out)?;
            if self.options.cluster.gives_up(self.unchanged_since, out)? {
                return Ok(Exit::Undecided);
            }
            if let Some(exit) = self.act(&step, &seen, out).await? {
                return Ok(exit);
            }
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Returns the time for which nothing has changed.
    fn time_unchanged(&self) -> SignedDuration {
        SignedDuration::try_from(self.unchanged_since.elapsed()).unwrap_or(SignedDuration::MAX)
    }

    /// Returns how the run ends, if there is nothing left that it can do.
    fn ending(&self, step: &RecoveryStep, cluster: &Cluster, view: &View<'_>) -> Option<(Exit, String)> {
        let table = &self.table;
        match step {
            // The run waits for members that it recreated.
            RecoveryStep::Serves
                if self.acted && recovery::next_in_turn(cluster, view, self.time_unchanged()).is_some() =>
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

    /// Returns whether a person has to confirm before this step. A dry run shows any step in this way.
    fn needs_confirmation(&self, step: &RecoveryStep, cluster: &Cluster) -> bool {
        let agreed =
            if matches!(step, RecoveryStep::Ask { .. }) { self.agreed } else { self.agreed_to_begin };
        !agreed && (self.options.cluster.dry_run || needs_agreement(step, cluster.recovery().is_some()))
    }

    async fn act(
        &mut self,
        step: &RecoveryStep,
        seen: &ObservedCluster,
        out: &mut impl Write,
    ) -> anyhow::Result<Option<Exit>> {
        self.acted |= !matches!(step, RecoveryStep::Wait(_) | RecoveryStep::Serves);
        match actions::act(seen, step).await {
            Ok(()) => {
                self.failing_since = None;
                if let RecoveryStep::Finish { without } = step {
                    writeln!(out, "{}", report::recovered(seen.cluster()?, without))?;
                    return Ok(Some(Exit::Clean));
                }
                if self.is_looping(step) {
                    if let RecoveryStep::Read { uid, .. } = step {
                        // Another pod has the name of the reader pod, so this member cannot be read.
                        self.want.unreadable.push(uid.clone());
                        return Ok(None);
                    }
                    let logs = match step {
                        RecoveryStep::Restart { member, .. } => {
                            format!("; `kubectl -n {} logs {member}` shows why", seen.id.namespace)
                        }
                        _ => String::new(),
                    };
                    writeln!(out, "tried {MOST_TRIES} times without success{logs}")?;
                    return Ok(Some(Exit::Undecided));
                }
            }
            Err(problem) => {
                self.transcript.problem(&problem, out)?;
                if is_away(&problem) {
                    self.failing_since = None;
                    return Ok(None);
                }
                if let RecoveryStep::Read { uid, .. } = step {
                    self.want.unreadable.push(uid.clone());
                }
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if is_final(step, &problem, self.unchanged_since.elapsed(), since.elapsed()) {
                    writeln!(
                        out,
                        "given up, because waiting does not change this: correct it, then run this again"
                    )?;
                    return Ok(Some(Exit::Refused));
                }
            }
        }
        Ok(None)
    }

    /// Counts a try of the step. Returns whether it was tried too often.
    fn is_looping(&mut self, step: &RecoveryStep) -> bool {
        let key = match step {
            RecoveryStep::Restart { member, .. } | RecoveryStep::Read { member, .. } => member,
            RecoveryStep::TakeBack(why) => why,
            _ => return false,
        };
        let tries = self.tries.entry(key.clone()).or_default();
        *tries += 1;
        *tries > MOST_TRIES
    }
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
async fn abort(seen: &ObservedCluster, out: &mut impl Write) -> anyhow::Result<Exit> {
    let is_requested = seen.cluster()?.workload.metadata.mark(RECOVER).is_some();
    if is_requested {
        actions::withdraw_request(seen).await.context("withdrawing the recovery request")?;
    }
    actions::delete_readers(seen, &[]).await.context("deleting the reader pods")?;
    if is_requested {
        writeln!(
            out,
            "the recovery request for {} was withdrawn; pods that were already recreated stay",
            seen.id
        )?;
    } else {
        writeln!(out, "no recovery of {} is under way", seen.id)?;
    }
    Ok(Exit::Clean)
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
