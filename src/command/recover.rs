//! `gatera recover`: leads a cluster that is down back, from its newest data, with the rights of whoever asks.
//!
//! Owns: the loop of looking and doing, and the question before it. What comes next is `decide::recovery`'s; who may start first
//! is the guard's to say. Nothing is remembered between two looks: run again, it goes on where it was.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use decide::config::Settings;
use decide::marks::recovery::Recovery;
use decide::marks::{OVERRIDE, PREFIX, RECOVER, RECOVERY};
use decide::recovery::{self, Step, Want};
use decide::report::recovery as report;
use decide::report::visible;
use decide::view::{Cluster, Id, View, World};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Exit;
use super::look::{self, Look};
use crate::act::telemetry::chain;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);
/// For so long a member may start first; the transfers that follow need no permission.
const VALID: SignedDuration = SignedDuration::from_mins(30);
/// For so long a member may be asked where its data ends.
const ASKED: SignedDuration = SignedDuration::from_mins(5);
/// What one look shows the guard has heard by then.
const HEARD: Duration = Duration::from_secs(60);
/// The same thing is tried so often.
const MOST_TRIES: u32 = 5;
/// Whom the API server names as the writer.
const MANAGER: &str = "gatera-recover";

/// Options of `gatera recover`.
#[derive(Clone, Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Options {
    /// Name of the cluster: its StatefulSet, or the label that names it
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// Only tell what would come next
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Start from this member, by its name or number, and not from the newest
    #[arg(long, value_name = "MEMBER")]
    from: Option<String>,
    /// What may be lost by it, word for word as this command says it: "12 transactions", or unknown
    #[arg(long, value_name = "LOSS", requires = "from")]
    accept_loss: Option<String>,
    /// Take back what was asked for
    #[arg(long)]
    abort: bool,
    /// Give up when nothing has changed for so many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 30)]
    patience: u64,
    #[command(flatten)]
    look: Look,
}

impl Options {
    /// The settings file.
    pub fn config(&self) -> Option<&Path> {
        self.look.config.as_deref()
    }
}

/// Leads it back.
pub fn run(options: &Options, settings: &Settings, out: &mut impl Write) -> anyhow::Result<Exit> {
    look::block_on(async {
        Way { options, settings, told: Default::default(), tries: BTreeMap::new() }.go(out).await
    })
}

/// One walk.
struct Way<'a> {
    options: &'a Options,
    settings: &'a Settings,
    /// What was said last of the step, and of why it is not done: neither is repeated while nothing changes.
    told: [String; 2],
    /// What was done again and again.
    tries: BTreeMap<String, u32>,
}

/// The cluster at one look.
struct Seen {
    client: Client,
    world: World,
    id: Id,
}

impl Seen {
    fn cluster(&self) -> anyhow::Result<&Cluster> {
        self.world.cluster(&self.id.namespace, &self.id.name).context("its StatefulSet has gone")
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.id.namespace)
    }

    fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), &self.id.namespace)
    }
}

impl Way<'_> {
    async fn look(&self) -> anyhow::Result<Seen> {
        let (world, client, id) = look::one(&self.options.cluster, &self.options.look, self.settings).await?;
        Ok(Seen { client, world, id })
    }

    async fn go(&mut self, out: &mut impl Write) -> anyhow::Result<Exit> {
        let want = Want { from: self.options.from.clone(), loss: self.options.accept_loss.clone() };
        let (mut table, mut since, mut agreed, mut acted) =
            (String::new(), Instant::now(), self.options.yes, false);
        loop {
            let seen = self.look().await?;
            let (cluster, view) = (seen.cluster()?, View::new(&seen.world, Timestamp::now(), self.settings));
            if self.options.abort {
                return abort(&seen, out).await;
            }
            let now = report::table(cluster, &view);
            if now != table {
                (table, since) = (now, Instant::now());
            }
            let still = SignedDuration::try_from(since.elapsed()).unwrap_or(SignedDuration::MAX);
            let step = recovery::next(cluster, &view, &want, still);
            match &step {
                // Whoever was made anew is waited for.
                Step::Serves if acted && recovery::next_in_turn(cluster, &view).is_some() => {}
                Step::Serves => {
                    writeln!(out, "{}", report::serves(cluster, &view))?;
                    return Ok(Exit::Clean);
                }
                Step::Cannot(why) => {
                    writeln!(out, "{} cannot be recovered: {}", seen.id, visible(why))?;
                    return Ok(Exit::Refused);
                }
                Step::Refuse { stake, from } => {
                    write!(out, "{table}{}", report::refusal(cluster, stake, from.as_deref()))?;
                    return Ok(Exit::Refused);
                }
                Step::Ask { member, at, loss } => {
                    if !agreed || self.options.dry_run {
                        write!(out, "{table}{}", report::proposal(cluster, member, at, loss.as_deref()))?;
                    }
                    if self.options.dry_run {
                        return Ok(Exit::Clean);
                    }
                    if !agreed && !agrees(out)? {
                        writeln!(out, "nothing was done")?;
                        return Ok(Exit::Refused);
                    }
                    agreed = true;
                }
                Step::Restart { .. } if cluster.recovery().is_none() && !agreed && !self.options.dry_run => {
                    write!(out, "{table}{}", report::would(&step))?;
                    if !agrees(out)? {
                        writeln!(out, "nothing was done")?;
                        return Ok(Exit::Refused);
                    }
                    agreed = true;
                }
                _ if self.options.dry_run => {
                    write!(out, "{table}{}", report::would(&step))?;
                    return Ok(Exit::Clean);
                }
                _ => {}
            }
            self.tell_step(&step, out)?;
            if since.elapsed() > Duration::from_secs(60 * self.options.patience) {
                writeln!(
                    out,
                    "nothing has changed for {} minutes; run this again to go on",
                    self.options.patience
                )?;
                return Ok(Exit::Undecided);
            }
            let done = act(&seen, &step).await;
            match (&done, &step) {
                (Ok(()), Step::Finish { without }) => {
                    writeln!(out, "{}", report::back(cluster, without))?;
                    return Ok(Exit::Clean);
                }
                (Ok(()), _) if self.goes_round(&step) => {
                    writeln!(
                        out,
                        "done {MOST_TRIES} times, and it does not help; kubectl logs of that member tells why"
                    )?;
                    return Ok(Exit::Undecided);
                }
                (Ok(()), _) => {}
                (Err(problem), _) => self.tell_problem(problem, out)?,
            }
            // The guard hears a little later what servers told.
            if done.is_err() && matches!(step, Step::Ask { .. }) && since.elapsed() > HEARD {
                return Ok(Exit::Refused);
            }
            acted |= !matches!(step, Step::Wait(_) | Step::Serves);
            sleep(LOOK).await;
        }
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

    /// What comes next, with the time.
    fn tell_step(&mut self, step: &Step, out: &mut impl Write) -> io::Result<()> {
        let text = report::says(step);
        if text == self.told[0] {
            return Ok(());
        }
        self.told = [text, String::new()];
        tell(&self.told[0], out)
    }

    /// Why it is not done yet.
    fn tell_problem(&mut self, problem: &anyhow::Error, out: &mut impl Write) -> io::Result<()> {
        let why = chain(problem.as_ref());
        let text = format!("not yet: {}", why.lines().map(visible).collect::<Vec<_>>().join("\n"));
        if text == self.told[1] {
            return Ok(());
        }
        self.told[1] = text;
        tell(&self.told[1], out)
    }
}

fn tell(text: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{} {text}", Timestamp::now().strftime("%H:%M:%S"))?;
    out.flush()
}

fn agrees(out: &mut impl Write) -> anyhow::Result<bool> {
    anyhow::ensure!(
        io::stdin().is_terminal(),
        "nobody is asked here, so --yes has to say that this is to be done"
    );
    write!(out, "Go on? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

async fn act(seen: &Seen, step: &Step) -> anyhow::Result<()> {
    match step {
        Step::Create { ordinal, .. } => create(seen, *ordinal).await,
        Step::Restart { member, uid, .. } => restart(seen, member, uid).await,
        Step::Ask { member, at, loss } => {
            let (member, position, loss) = (member.clone(), at.clone(), loss.clone());
            let asked = Recovery { member, position, until: in_time(VALID)?, loss };
            annotate(seen, json!({ format!("{PREFIX}{RECOVER}"): asked.to_string() })).await
        }
        Step::TakeBack(_) | Step::Finish { .. } => take_off(seen).await,
        Step::Serves | Step::Wait(_) | Step::Refuse { .. } | Step::Cannot(_) => Ok(()),
    }
}

/// So long from now, to the second.
fn in_time(after: SignedDuration) -> anyhow::Result<Timestamp> {
    let then = Timestamp::now().checked_add(after).context("no such time")?;
    Timestamp::from_second(then.as_second()).context("no such time")
}

/// The same StatefulSet as was looked at.
async fn annotate(seen: &Seen, annotations: Value) -> anyhow::Result<()> {
    let uid = &seen.cluster()?.workload.metadata.uid;
    let patch = json!({ "metadata": { "uid": uid, "annotations": annotations } });
    seen.sets().patch(&seen.id.name, &params(), &Patch::Merge(&patch)).await?;
    Ok(())
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// The guard's mark goes with what was asked for.
async fn take_off(seen: &Seen) -> anyhow::Result<()> {
    annotate(seen, json!({ format!("{PREFIX}{RECOVER}"): null, format!("{PREFIX}{RECOVERY}"): null })).await
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
        let until = in_time(ASKED)?;
        let release = format!("G02 until={until} reason=gatera recover asks it where its data ends");
        let patch =
            json!({ "metadata": { "uid": uid, "annotations": { format!("{PREFIX}{OVERRIDE}"): release } } });
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
