//! `gatera passwd`: changes a password that members read from a Secret, in MariaDB and in everything that reads it, with the
//! rights of the person who runs the command.
//!
//! Owns: what a look leads to, and the text of the confirmation. `leader::password` decides which step comes next. What a
//! look shows is not kept for the next one; until the change is over, a Secret of the command's own holds both passwords.

mod actions;
mod change;
mod observation;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead as _, IsTerminal as _, Write};

use anyhow::Context as _;
use clap::Args;
use facts::galera::accounts::Password;
use facts::view::Cluster;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use leader::password::{self, PasswordChange, PasswordStep, WhichPassword};
use report::password as report;

use self::observation::PasswordObservation;
use super::Exit;
use super::guided::{AfterLook, ClusterArgs, GuidedRun};
use super::look::ObservedCluster;

/// Options of `gatera passwd`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Account: root, sst (that of the state transfer), or a name
    #[arg(long, value_name = "ACCOUNT", default_value = "root")]
    user: String,
    /// Read the new password from standard input, one line [default: a random one]
    #[arg(long, conflicts_with = "abort")]
    stdin: bool,
    /// Stop before the old password ends; run it again without this option to end it
    #[arg(long, conflicts_with = "abort")]
    keep_old: bool,
    /// Go back to the old password, unless it is about to end
    #[arg(long, conflicts_with = "dry_run")]
    abort: bool,
}

/// Changes the password.
pub async fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<Exit> {
    let wanted = if options.stdin { password_from_standard_input()? } else { change::random_password()? };
    let mut run = PasswordRun { options, wanted, abort: options.abort, begun: false };
    let after_look =
        async |guided: &mut GuidedRun<'_>, seen: &ObservedCluster| match run.after_look(guided, seen).await {
            Err(problem) if run.begun && guided.agreed => {
                guided.problem(&problem)?;
                Ok(guided.given_up().unwrap_or(AfterLook::Pause))
            }
            result => result,
        };
    GuidedRun::begin(&options.cluster, out).await?.drive(after_look).await
}

fn password_from_standard_input() -> anyhow::Result<Password> {
    let stdin = io::stdin();
    anyhow::ensure!(
        !stdin.is_terminal(),
        "standard input is a terminal, which would show the password: redirect a file or a pipe to it"
    );
    let mut line = String::new();
    stdin.lock().read_line(&mut line).context("reading the new password from standard input")?;
    let line = line.trim_end_matches(['\n', '\r']);
    Password::new(line).map_err(|why| anyhow::anyhow!("the new password cannot be used: {why}"))
}

/// One run of the command.
struct PasswordRun<'a> {
    options: &'a Options,
    /// The new password of a change that begins now.
    wanted: Password,
    /// Whether the change is still to be reversed, because of `--abort`.
    abort: bool,
    /// Whether the change is recorded in the command's own Secret. From then on a failed step is tried again.
    begun: bool,
}

impl PasswordRun<'_> {
    async fn after_look(
        &mut self,
        guided: &mut GuidedRun<'_>,
        seen: &ObservedCluster,
    ) -> anyhow::Result<AfterLook> {
        let cluster = seen.cluster()?;
        if let Some(why) = password::state_obstacle(cluster, &seen.view()) {
            return Ok(AfterLook::End(Exit::Refused, report::cannot(cluster, &why, None)));
        }
        let observation = observation::observe(seen, &self.options.user, &self.wanted).await?;
        self.begun |= observation.own.is_some();
        let change = &observation.state.change;
        let step = password::next(&observation.state, seen.clock.now());
        if let Some(ending) = self.ending(cluster, &observation, &step) {
            return Ok(ending);
        }
        if !guided.agreed {
            let proposed = report::PasswordProposal {
                observed: &observation.state,
                given: self.options.stdin,
                goes_back: self.abort,
                keeps_old: self.options.keep_old,
                step: &step,
            };
            return Ok(AfterLook::Confirm(report::proposal(cluster, &proposed)));
        }
        if self.abort {
            // The reversal is done only once, so the run does not give up here, even if nothing has changed for long.
            guided.step(report::going_back(&change.account))?;
            actions::reverse(seen, &observation).await?;
            self.abort = false;
            return Ok(AfterLook::Pause);
        }
        let says = report::step_text(&step, &change.account, password::unreached_by_restart(cluster));
        guided.set_state(format!("{} {:?}", report::step_key(&step, &says), cluster.ready()));
        if let Some(end) = guided.step(says)? {
            return Ok(end);
        }
        actions::act(seen, &observation, &step).await?;
        self.begun = true;
        Ok(match step {
            PasswordStep::Finish => AfterLook::End(Exit::Clean, report::finished(cluster, change)),
            _ => AfterLook::Pause,
        })
    }

    /// Returns how the run ends, if there is nothing to do.
    fn ending(
        &self,
        cluster: &Cluster,
        observation: &PasswordObservation,
        step: &PasswordStep,
    ) -> Option<AfterLook> {
        let PasswordChange { account, old, new, underway, .. } = &observation.state.change;
        let (abort, keep_old) = (self.abort, self.options.keep_old);
        let refused = match (step, underway) {
            (_, Some(_)) if !observation.is_asked_for => report::other_account_is_under_way(account),
            (_, Some(_)) if self.options.stdin && self.wanted != *new => {
                report::other_password_is_under_way(account)
            }
            (_, None) if abort => report::nothing_to_abort(cluster),
            (_, Some(it)) if (abort || keep_old) && it.sealed && it.target == WhichPassword::New => {
                report::too_late(cluster, account)
            }
            (PasswordStep::Cannot(why), _) => {
                report::cannot(cluster, why, observation.own.as_ref().map(Secret::name_any).as_deref())
            }
            (PasswordStep::Begin, _) if old == new => format!("that is the password of {account} already\n"),
            (PasswordStep::Both, _) if keep_old => {
                return Some(AfterLook::End(Exit::Clean, report::both_accepted(cluster, account)));
            }
            _ => return None,
        };
        Some(AfterLook::End(Exit::Refused, refused))
    }
}
