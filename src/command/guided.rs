//! Code shared by the commands that do several steps by themselves (`recover`, `start`, `stop`, `passwd`): their options, the
//! loop of looks and steps, the writes to the cluster with the rights of the user who runs them, and what they print.
//!
//! Must not know: which step comes next (`leader::recovery`, `leader::stop`, `leader::password`). What a look shows
//! is not kept for the next look, except as text that is compared.

use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use clap_complete::ArgValueCompleter;
use facts::marks::{OVERRIDE, PREFIX, STOPPED};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::Patch;
use kube::{Api, Resource};
use objects::visible;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::canary::{self, CanaryAnswer};
use super::look::{self, LookArgs, ObservedCluster};
use super::site::{Site, api_error, is_away};
use super::{Exit, complete};
use crate::act::api::{self, Exactly, Fault, written_by};
use crate::act::telemetry::chain;

/// The pause between two looks at the cluster.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// The field manager of writes by these commands; the guard uses another one.
pub const MANAGER: &str = "gatera-command";
/// The number of tries of a write that fails if the object was changed meanwhile.
const MOST_TRIES: u32 = 5;

/// Options that name one cluster, and how its steps are done.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// Name of the cluster: its StatefulSet, or the label that names it
    #[arg(value_name = "CLUSTER", add = ArgValueCompleter::new(complete::clusters))]
    cluster: String,
    /// Print the next step, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Give up after this many minutes without a change
    #[arg(long, value_name = "MINUTES", default_value_t = 30)]
    patience: u64,
    #[command(flatten)]
    look: LookArgs,
}

/// Methods that write to the objects of the cluster, and the APIs for them.
impl ObservedCluster {
    /// Returns the API for objects of a kind in the cluster's namespace.
    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.id.namespace)
    }

    /// Annotates the StatefulSet that was looked at, and returns it.
    pub async fn annotate(&self, annotations: Value) -> anyhow::Result<StatefulSet> {
        self.annotate_version("", annotations).await
    }

    /// Annotates the StatefulSet and returns it. Fails if it has changed since this version; an empty version matches any.
    pub async fn annotate_version(&self, version: &str, annotations: Value) -> anyhow::Result<StatefulSet> {
        let uid = &self.cluster()?.workload.metadata.uid;
        let target = Exactly { name: &self.id.name, uid, version };
        Ok(api::annotate(&self.api::<StatefulSet>(), target, MANAGER, &annotations).await?)
    }

    /// Records on these claims where their members' data ends; `None` removes the record.
    pub async fn record(&self, claims: &[String], record: Option<&str>) -> anyhow::Result<()> {
        let api = self.api::<PersistentVolumeClaim>();
        let annotations = json!({ format!("{PREFIX}{STOPPED}"): record });
        for name in claims {
            let target = Exactly { name, uid: "", version: "" };
            let result = api::annotate(&api, target, MANAGER, &annotations).await;
            result.with_context(|| format!("annotating claim {name}"))?;
        }
        Ok(())
    }

    /// Returns the time after this duration by the API server's clock, in whole seconds.
    pub fn time_after(&self, after: SignedDuration) -> anyhow::Result<Timestamp> {
        time_after(self.clock.now(), after)
    }

    /// Returns the annotation that overrides this rule for the duration.
    pub fn override_annotation(
        &self,
        rule: &str,
        duration: SignedDuration,
        why: &str,
    ) -> anyhow::Result<Value> {
        let until = self.time_after(duration)?;
        Ok(json!({ format!("{PREFIX}{OVERRIDE}"): format!("{rule} until={until} reason={why}") }))
    }

    /// Scales the StatefulSet, unless its replicas have changed since the look. Afterwards no manager owns the field, so that its
    /// earlier owner can set it again.
    pub async fn scale(&self, to: i64) -> anyhow::Result<()> {
        let sets = self.api::<StatefulSet>();
        let (scale, seen) = (sets.get_scale(&self.id.name).await?, self.cluster()?.workload.replicas());
        let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or_default();
        anyhow::ensure!(
            i64::from(replicas) == seen,
            "its replicas were changed meanwhile, from {seen} to {replicas}"
        );
        let version = scale.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "replicas": to } });
        sets.patch_scale(&self.id.name, &written_by(MANAGER), &Patch::Merge(&patch)).await?;
        for _ in 0..MOST_TRIES {
            let set = sets.get_metadata(&self.id.name).await?;
            let fields = set.metadata.managed_fields.unwrap_or_default();
            let is_ours = |it: &&ManagedFieldsEntry| {
                it.manager.as_deref() == Some(MANAGER) && it.subresource.as_deref() == Some("scale")
            };
            let others: Vec<_> = fields.iter().filter(|it| !is_ours(it)).collect();
            if others.len() == fields.len() || others.is_empty() {
                return Ok(());
            }
            let version = &set.metadata.resource_version;
            let patch = json!({ "metadata": { "resourceVersion": version, "managedFields": others } });
            match sets.patch_metadata(&self.id.name, &written_by(MANAGER), &Patch::Merge(&patch)).await {
                Err(error) if Fault::of(&error) == Fault::Conflict => {}
                result => return result.map(drop).map_err(anyhow::Error::from),
            }
        }
        Ok(())
    }
}

/// Returns whether a rule of the guard refused the request, or the guard did not answer. Both may change while the command waits.
pub fn is_by_the_guard(problem: &anyhow::Error) -> bool {
    let answer = api_error(problem).map(canary::answer_of_error);
    matches!(answer, Some(CanaryAnswer::Refused(_) | CanaryAnswer::Unanswered(_)))
}

/// Returns the time after this duration from `now`, in whole seconds.
pub fn time_after(now: Timestamp, after: SignedDuration) -> anyhow::Result<Timestamp> {
    let then = now.checked_add(after).context("no such time")?;
    Timestamp::from_second(then.as_second()).context("no such time")
}

/// One run of a command that does several steps to a cluster.
pub struct GuidedRun<'a> {
    args: &'a ClusterArgs,
    site: Site,
    out: &'a mut dyn Write,
    /// Whether the user confirmed the steps.
    pub agreed: bool,
    /// The time that the last look took, including the wait for an API server that did not answer.
    pub look_took: Duration,
    /// A text that changes whenever something has changed.
    pub state: String,
    /// When that text changed last.
    pub unchanged_since: Instant,
    /// The step that was printed last, and the reason why it is not done yet. Neither is repeated while nothing changes.
    step: String,
    problem: String,
}

/// What follows from a look.
pub enum AfterLook {
    /// The run ends, and prints this last.
    End(Exit, String),
    /// The run prints this, and continues if the user confirms it.
    Confirm(String),
    /// The run looks again after a pause.
    Pause,
}

impl<'a> GuidedRun<'a> {
    /// Connects to the API server. All steps of the run use this connection, even if the kubeconfig changes meanwhile.
    pub async fn begin(args: &'a ClusterArgs, out: &'a mut dyn Write) -> anyhow::Result<Self> {
        Ok(Self {
            site: args.look.site(false).await?,
            agreed: args.yes && !args.dry_run,
            look_took: Duration::ZERO,
            state: String::new(),
            unchanged_since: Instant::now(),
            step: String::new(),
            problem: String::new(),
            args,
            out,
        })
    }

    /// Looks at the cluster, and does what follows from it, until the run ends.
    pub async fn drive(
        &mut self,
        mut after_look: impl AsyncFnMut(&mut Self, &ObservedCluster) -> anyhow::Result<AfterLook>,
    ) -> anyhow::Result<Exit> {
        loop {
            let seen = self.look().await?;
            match after_look(self, &seen).await? {
                AfterLook::End(exit, text) => {
                    write!(self.out, "{text}")?;
                    return Ok(exit);
                }
                AfterLook::Confirm(proposal) => {
                    write!(self.out, "{proposal}")?;
                    if self.args.dry_run {
                        return Ok(Exit::Clean);
                    }
                    if !confirms(self.out)? {
                        return Ok(Exit::Refused);
                    }
                    // The confirmation may have taken a while, so the cluster is looked at again.
                    self.agreed = true;
                }
                AfterLook::Pause => sleep(LOOK_PAUSE).await,
            }
        }
    }

    /// Returns the only cluster of this name as it is now. After the first step, waits for an API server that does not answer.
    async fn look(&mut self) -> anyhow::Result<ObservedCluster> {
        let began = Instant::now();
        loop {
            match self.look_once().await {
                Err(problem)
                    if !self.step.is_empty() && is_away(&problem) && began.elapsed() < self.patience() =>
                {
                    self.problem(&problem)?;
                    sleep(LOOK_PAUSE).await;
                }
                result => {
                    self.look_took = began.elapsed();
                    return result;
                }
            }
        }
    }

    /// Returns the only cluster of this name as it is now.
    pub async fn look_once(&self) -> anyhow::Result<ObservedCluster> {
        look::observe(&self.args.cluster, &self.args.look, &self.site).await
    }

    /// Notes the text that changes whenever something has changed.
    pub fn set_state(&mut self, state: String) {
        if state != self.state {
            (self.state, self.unchanged_since) = (state, Instant::now());
        }
    }

    /// Prints the next step, with the time. Returns how the run ends, if nothing has changed for too long.
    pub fn step(&mut self, text: String) -> io::Result<Option<AfterLook>> {
        if text != self.step {
            (self.step, self.problem) = (text, String::new());
            print(&self.step, self.out)?;
        }
        Ok(self.given_up())
    }

    /// Prints why the step is not done yet.
    pub fn problem(&mut self, problem: &anyhow::Error) -> io::Result<()> {
        let why = chain(problem.as_ref());
        let text = format!("not yet: {}", why.lines().map(visible).collect::<Vec<_>>().join("\n"));
        if text == self.problem {
            return Ok(());
        }
        self.problem = text;
        print(&self.problem, self.out)
    }

    /// Returns how the run ends, if nothing has changed for too long.
    pub fn given_up(&self) -> Option<AfterLook> {
        (self.unchanged_since.elapsed() > self.patience()).then(|| {
            let minutes = self.args.patience;
            let text = format!("nothing has changed for {minutes} minutes; run this again to continue\n");
            AfterLook::End(Exit::Undecided, text)
        })
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(60 * self.args.patience)
    }
}

/// The result of a look, which is printed again whenever its text has changed.
pub struct Printout {
    /// Printed before the text, and not compared.
    pub header: String,
    /// The text that is compared.
    pub text: String,
    /// The exit code, if this is the last look.
    pub exit: Option<Exit>,
}

/// Looks, and prints what has changed, until a look is the last one. The argument of `look` is whether it is the first.
pub async fn print_changes(
    pause: Duration,
    out: &mut impl Write,
    mut look: impl AsyncFnMut(bool) -> anyhow::Result<Printout>,
) -> anyhow::Result<Exit> {
    let mut before = None;
    loop {
        let Printout { header, text, exit } = look(before.is_none()).await?;
        if before.as_ref() != Some(&text) {
            write!(out, "{header}{text}")?;
            out.flush()?;
        }
        if let Some(exit) = exit {
            return Ok(exit);
        }
        before = Some(text);
        sleep(pause).await;
    }
}

fn print(text: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} {text}", Timestamp::now().strftime("%H:%M:%S"))?;
    out.flush()
}

/// Asks the user at the terminal to confirm, and returns whether the answer is yes; if not, prints that no further step is done.
pub fn confirms(out: &mut dyn Write) -> anyhow::Result<bool> {
    anyhow::ensure!(io::stdin().is_terminal(), "standard input is not a terminal; use --yes to confirm");
    write!(out, "Go on? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let yes = matches!(answer.trim(), "y" | "Y" | "yes");
    if !yes {
        writeln!(out, "stopped here: no further step is done")?;
    }
    Ok(yes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::api::refusal;

    #[test]
    fn the_error_of_the_api_server_is_found_below_its_context() {
        let away = || anyhow::Error::from(refusal(504, b""));
        assert!(is_away(&away()) && is_away(&away().context("asking")));
        assert!(!is_away(&refusal(403, b"").into()));
        assert!(!is_away(&anyhow::anyhow!("there is no Galera cluster g")));
    }
}
