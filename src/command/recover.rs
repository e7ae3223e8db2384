//! `gatera recover` and `gatera start`: lead a cluster that is down back, from its newest data, with the rights of whoever asks.
//!
//! Owns: the loop of looking and doing, and the question before it. What comes next is `decide::recovery`'s; who may start first
//! is the guard's to say. Nothing is remembered between two looks: run again, it goes on where it was.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use decide::config::Settings;
use decide::marks::recovery::Recovery;
use decide::marks::{PREFIX, RECOVER, RECOVERY};
use decide::recovery::{self, Step, Want};
use decide::report::recovery as report;
use decide::report::visible;
use decide::view::{Cluster, View};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions};
use serde_json::json;
use tokio::time::sleep;

use super::Exit;
use super::look::{self, Seen};
use super::walk::{LOOK, MANAGER, Of, Said, agrees, in_time, is_away, params, release};

/// For so long a member may start first; the transfers that follow need no permission.
const VALID: SignedDuration = SignedDuration::from_mins(30);
/// For so long a member may be asked where its data ends.
const ASKED: SignedDuration = SignedDuration::from_mins(5);
/// What one look shows the guard has heard by then.
const HEARD: Duration = Duration::from_secs(60);
/// A look that took longer says nothing about how long things have been so.
const LONG: Duration = Duration::from_secs(10);
/// The same thing is tried so often.
const MOST_TRIES: u32 = 5;

/// Options of `gatera recover`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    of: Of,
    /// Start from this member, by its name or number, and not from the newest
    #[arg(long, value_name = "MEMBER")]
    from: Option<String>,
    /// What may be lost by it, word for word as this command says it: "12 transactions", or unknown
    #[arg(long, value_name = "LOSS", requires = "from")]
    accept_loss: Option<String>,
    /// Take back what was asked for
    #[arg(long)]
    abort: bool,
}

impl Options {
    /// The settings file.
    pub fn config(&self) -> Option<&Path> {
        self.of.config()
    }
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Somebody serves.
    Serve,
    /// As many members as before it was stopped.
    StartAll,
}

/// Leads it back.
pub fn run(options: &Options, to: To, settings: &Settings, out: &mut impl Write) -> anyhow::Result<Exit> {
    let want = Want {
        from: options.from.clone(),
        loss: options.accept_loss.clone(),
        all: to == To::StartAll,
        before: Vec::new(),
    };
    let agreed = options.of.agreed();
    let way = Way {
        options,
        settings,
        want,
        agreed,
        begun: agreed,
        acted: false,
        since: Instant::now(),
        table: String::new(),
        said: Said::default(),
        tries: BTreeMap::new(),
    };
    look::block_on(way.go(out))
}

/// One walk.
struct Way<'a> {
    options: &'a Options,
    settings: &'a Settings,
    want: Want,
    /// A person said yes to who starts the cluster.
    agreed: bool,
    /// Or to what comes before that.
    begun: bool,
    /// Something was done.
    acted: bool,
    /// Since when nothing has changed in the table.
    since: Instant,
    table: String,
    said: Said,
    /// What was done again and again.
    tries: BTreeMap<String, u32>,
}

/// Whether a person was asked just now, or nobody has to be.
enum Asked {
    Now,
    Before,
}

impl Way<'_> {
    async fn go(mut self, out: &mut impl Write) -> anyhow::Result<Exit> {
        loop {
            let asked = Instant::now();
            let seen = self.options.of.seen(self.settings, &mut self.said, out).await?;
            if asked.elapsed() > LONG {
                // Nobody looked meanwhile, and what is shown may be from before.
                self.since = Instant::now();
            }
            if self.options.abort {
                return abort(&seen, out).await;
            }
            let (cluster, view) = (seen.cluster()?, View::new(&seen.world, Timestamp::now(), self.settings));
            let now = report::table(cluster, &view);
            if self.table.is_empty() {
                self.want.before = cluster.pods().map(|pod| pod.uid.clone()).collect();
            }
            if now != self.table {
                (self.table, self.since) = (now, Instant::now());
            }
            let still = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
            let step = recovery::next(cluster, &view, &self.want, still);
            match self.ends(&step, cluster, &view, out)? {
                ControlFlow::Break(exit) => return Ok(exit),
                // The question may have taken a while.
                ControlFlow::Continue(Asked::Now) => continue,
                ControlFlow::Continue(Asked::Before) => {}
            }
            self.said.step(report::says(&step), out)?;
            if self.options.of.gives_up(self.since, out)? {
                return Ok(Exit::Undecided);
            }
            if let ControlFlow::Break(exit) = self.act(&step, &seen, out).await? {
                return Ok(exit);
            }
            sleep(LOOK).await;
        }
    }

    /// What ends it before anything is done, and the question whether it is to be done.
    fn ends(
        &mut self,
        step: &Step,
        cluster: &Cluster,
        view: &View<'_>,
        out: &mut impl Write,
    ) -> anyhow::Result<ControlFlow<Exit, Asked>> {
        let exit = match step {
            // Whoever was made anew is waited for.
            Step::Serves if self.acted && recovery::next_in_turn(cluster, view).is_some() => {
                return Ok(ControlFlow::Continue(Asked::Before));
            }
            Step::Serves => {
                writeln!(out, "{}", report::serves(cluster, view))?;
                Exit::Clean
            }
            Step::Cannot(why) => {
                let what = if self.want.all { "started" } else { "recovered" };
                writeln!(out, "{} cannot be {what}: {}", cluster.id, visible(why))?;
                Exit::Refused
            }
            Step::Refuse { stake, from } => {
                write!(out, "{}{}", self.table, report::refusal(cluster, stake, from.as_deref()))?;
                Exit::Refused
            }
            Step::Ask { .. } if self.agreed => return Ok(ControlFlow::Continue(Asked::Before)),
            step if self.begun && !matches!(step, Step::Ask { .. }) => {
                return Ok(ControlFlow::Continue(Asked::Before));
            }
            step => {
                // What was granted was agreed to.
                let begins = matches!(step, Step::Ask { .. } | Step::Scale { .. })
                    || matches!(step, Step::Restart { .. }) && cluster.recovery().is_none();
                if !self.options.of.dry_run && !begins {
                    return Ok(ControlFlow::Continue(Asked::Before));
                }
                write!(out, "{}{}", self.table, report::proposal(cluster, step))?;
                if self.options.of.dry_run {
                    Exit::Clean
                } else if agrees(out)? {
                    self.agreed |= matches!(step, Step::Ask { .. });
                    self.begun = true;
                    return Ok(ControlFlow::Continue(Asked::Now));
                } else {
                    Exit::Refused
                }
            }
        };
        Ok(ControlFlow::Break(exit))
    }

    async fn act(
        &mut self,
        step: &Step,
        seen: &Seen,
        out: &mut impl Write,
    ) -> anyhow::Result<ControlFlow<Exit>> {
        self.acted |= !matches!(step, Step::Wait(_) | Step::Serves);
        match act(seen, step).await {
            Ok(()) => {
                if let Step::Finish { without } = step {
                    writeln!(out, "{}", report::back(seen.cluster()?, without))?;
                    return Ok(ControlFlow::Break(Exit::Clean));
                }
                if self.goes_round(step) {
                    writeln!(
                        out,
                        "done {MOST_TRIES} times, and it does not help; kubectl logs of that member tells why"
                    )?;
                    return Ok(ControlFlow::Break(Exit::Undecided));
                }
            }
            Err(problem) => {
                self.said.problem(&problem, out)?;
                // The guard hears a little later what servers told. One that does not answer is waited for.
                if matches!(step, Step::Ask { .. }) && self.since.elapsed() > HEARD && !is_away(&problem) {
                    return Ok(ControlFlow::Break(Exit::Refused));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// It was done before, and before, and it is where it was.
    fn goes_round(&mut self, step: &Step) -> bool {
        let what = match step {
            Step::Restart { member, .. } => member,
            Step::TakeBack(why) => why,
            _ => return false,
        };
        let tries = self.tries.entry(what.clone()).or_default();
        *tries += 1;
        *tries > MOST_TRIES
    }
}

async fn act(seen: &Seen, step: &Step) -> anyhow::Result<()> {
    match step {
        Step::Scale { to } => seen.scale(*to).await,
        Step::Create { ordinal, .. } => create(seen, *ordinal).await,
        Step::Restart { member, uid, .. } => restart(seen, member, uid).await,
        Step::Ask { member, at, loss } => {
            let (member, position, loss) = (member.clone(), at.clone(), loss.clone());
            let asked = Recovery { member, position, until: in_time(VALID)?, loss };
            ask(seen, &asked.to_string()).await
        }
        Step::TakeBack(_) => take_off(seen).await,
        Step::Finish { .. } => {
            // Until all of that is done a recovery is under way, and whoever comes after goes on with it.
            let recorded = seen.cluster()?.claims.iter().filter(|claim| claim.stopped.is_some());
            seen.record(&recorded.map(|claim| claim.name.clone()).collect::<Vec<_>>(), None).await?;
            take_off(seen).await
        }
        Step::Serves | Step::Wait(_) | Step::Refuse { .. } | Step::Cannot(_) => Ok(()),
    }
}

/// What the guard did not repeat counts for nobody; what it granted to somebody else stays.
async fn ask(seen: &Seen, asked: &str) -> anyhow::Result<()> {
    let set = seen.annotate(json!({ format!("{PREFIX}{RECOVER}"): asked })).await?;
    let granted = set.annotations().get(&format!("{PREFIX}{RECOVERY}")).cloned();
    if granted.as_deref() != Some(asked) {
        let back = json!({ format!("{PREFIX}{RECOVER}"): granted });
        let done = seen.annotate_version(set.metadata.resource_version.as_deref(), back).await;
        done.context("taking back what the guard did not confirm")?;
        anyhow::bail!(
            "the guard did not confirm it, and nobody starts without its word: it is away, or it only warns (gatera.dev/mode of the \
             namespace, or the mode of G20) and has not heard yet what members told"
        );
    }
    Ok(())
}

/// The guard's mark goes with what was asked for.
async fn take_off(seen: &Seen) -> anyhow::Result<()> {
    let nothing = json!({ format!("{PREFIX}{RECOVER}"): null, format!("{PREFIX}{RECOVERY}"): null });
    seen.annotate(nothing).await.map(drop)
}

async fn abort(seen: &Seen, out: &mut impl Write) -> anyhow::Result<Exit> {
    if seen.cluster()?.workload.metadata.mark(RECOVER).is_none() {
        writeln!(out, "no recovery of {} is under way", seen.id)?;
        return Ok(Exit::Clean);
    }
    take_off(seen).await.context("taking it back")?;
    writeln!(
        out,
        "what was asked for {} is taken back; members that were made anew stay as they are",
        seen.id
    )?;
    Ok(Exit::Clean)
}

/// Whoever made it first, it is one pod: a name is given once.
async fn create(seen: &Seen, ordinal: i64) -> anyhow::Result<()> {
    let set = seen.sets().get(&seen.id.name).await?;
    let pod = recovery::member_pod(&serde_json::to_value(&set)?, ordinal).context("it is no StatefulSet")?;
    let pod: Pod = serde_json::from_value(pod)?;
    match seen
        .pods()
        .create(&PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }, &pod)
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(drop).map_err(anyhow::Error::from),
    }
}

/// The very pod that was looked at. Before anything is asked for, the guard would keep a server that runs, and rightly: so the
/// person's word stands on the pod, and goes with it.
async fn restart(seen: &Seen, member: &str, uid: &str) -> anyhow::Result<()> {
    let pods = seen.pods();
    if seen.cluster()?.recovery().is_none() {
        let release = release("G02", ASKED, "gatera recover asks it where its data ends")?;
        let patch = json!({ "metadata": { "uid": uid, "annotations": release } });
        pods.patch(member, &params(), &Patch::Merge(&patch)).await?;
    }
    let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
    let delete = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match pods.delete(member, &delete).await {
        // It has gone, or is another one by now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result.map(drop).map_err(anyhow::Error::from),
    }
}
