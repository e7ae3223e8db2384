//! `gatera break-glass`: suspends refusals in one namespace for a few minutes.
//!
//! Owns: writing one annotation of the namespace, and checking whether the guard honours it. The annotation contains the time
//! at which it ends, which the guard enforces, so nothing stays open if this command is killed. `engine::exceptions` decides what
//! follows from the annotation.

use std::io::Write;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use engine::exceptions::break_glass_notice;
use facts::marks::overrides::{LONGEST_OVERRIDE, Override};
use facts::marks::{BREAK_GLASS, PREFIX};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use objects::visible;
use serde_json::json;
use tokio::time::timeout;

use super::canary::{self, CanaryAnswer};
use super::look;
use super::site::{Clock, Site};
use super::{Exit, guided};
use crate::act::api::{self, Exactly, Fault};
use crate::act::telemetry::chain;
use crate::rulebook;

/// Options of `gatera break-glass`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Namespace in which nothing is refused meanwhile
    #[arg(value_name = "NAMESPACE")]
    namespace: String,
    /// Duration, at least one minute and at most one hour, such as 15m
    #[arg(long = "for", value_name = "TIME", value_parser = suspension_duration, required_unless_present = "close")]
    duration: Option<SignedDuration>,
    /// Reason, shown to everyone who works in the namespace
    #[arg(long, value_name = "TEXT", required_unless_present = "close")]
    reason: Option<String>,
    /// End the suspension now
    #[arg(long, conflicts_with_all = ["duration", "reason"])]
    close: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    connection: look::ConnectionArgs,
}

/// The time limit for the guard to see the changed annotation. Until then, the canary is repeated.
const GUARD_CATCH_UP: Duration = Duration::from_secs(20);
/// The time limit for listing the contents of the namespace. It is short because a person is waiting in an emergency.
const LIST_DEADLINE: Duration = Duration::from_secs(5);
/// The shortest suspension: a shorter one would end before a person has read the output.
const SHORTEST_SUSPENSION: SignedDuration = SignedDuration::from_mins(1);
/// The way out if no guard answers: the command that deletes the guard's webhook configurations.
const SWITCH_OFF_COMMAND: &str =
    "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration gatera";

fn suspension_duration(text: &str) -> Result<SignedDuration, String> {
    let duration: SignedDuration = text.parse().map_err(|_| "write it as 15m or 1h".to_owned())?;
    if !(SHORTEST_SUSPENSION..=LONGEST_OVERRIDE).contains(&duration) {
        return Err("it must be at least one minute and at most one hour".to_owned());
    }
    Ok(duration)
}

/// Opens break-glass after a confirmation, or closes it, and checks that the guard honours the change.
pub async fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<Exit> {
    // Not `for_judging`, which fails if the guard's settings cannot be read: in an emergency the command works without them.
    let site = &Site::of(options.connection.client().await?, None).await?;
    site.print_source();
    let found = existing_namespace(&site.client, &options.namespace).await?;
    match (options.duration, &options.reason) {
        (Some(duration), Some(reason)) => open(options, site, &found, duration, reason, out).await,
        _ => close(options, site, &found, out).await,
    }
}

async fn existing_namespace(client: &Client, name: &str) -> anyhow::Result<Namespace> {
    let api: Api<Namespace> = Api::all(client.clone());
    let found = api.get_opt(name).await.with_context(|| format!("asking for namespace {name}"))?;
    found.with_context(|| format!("there is no namespace {name}"))
}

async fn open(
    options: &Options,
    site: &Site,
    found: &Namespace,
    duration: SignedDuration,
    reason: &str,
    out: &mut impl Write,
) -> anyhow::Result<Exit> {
    let ns = &options.namespace;
    let text = |until: Timestamp| format!("until={until} reason={reason}");
    let override_at = |now: Timestamp| {
        let until = guided::time_after(now, duration)?;
        Override::break_glass(&text(until), now)
            .map_err(|problem| anyhow::anyhow!("this break-glass would have no effect: {problem}"))
    };
    override_at(site.clock.now())?;
    writeln!(out, "{}", describe_contents(options, site).await)?;
    print_open_break_glass(found, &site.clock, out)?;
    writeln!(
        out,
        "For {duration:#} no request in namespace {ns} is refused, not even one that deletes its data or the namespace itself. Each command still gets a warning \
         that says what it would have been refused for, and Events record it, with the reason. A bootstrap Deployment that is applied again stays \
         at 0. Changes that are made meanwhile are not undone."
    )?;
    if !options.yes && !guided::confirms(out)? {
        return Ok(Exit::Refused);
    }
    // The suspension begins now, because the confirmation may have taken a while.
    let open = override_at(site.clock.now())?;
    if let Err(answer) = annotate(&site.client, found, Some(&text(open.until))).await? {
        return report_not_written(&answer, ns, out);
    }
    writeln!(out, "annotated: namespace {ns} is open until {}: {}", open.until, visible(&open.reason))?;
    let warning = break_glass_notice(ns, &open);
    let honours = |it: &str| it.starts_with(&warning);
    let is_open = |it: &CanaryAnswer| matches!(it, CanaryAnswer::Admitted(warnings) if warnings.iter().any(|it| honours(it)));
    let answer = canary::send_until(site, ns, GUARD_CATCH_UP, is_open).await?;
    let (exit, message) = opening_result(&answer, ns, honours);
    writeln!(out, "{}\nto end it: gatera break-glass {ns} --close", visible(&message))?;
    Ok(exit)
}

async fn close(
    options: &Options,
    site: &Site,
    found: &Namespace,
    out: &mut impl Write,
) -> anyhow::Result<Exit> {
    let ns = &options.namespace;
    if annotation(found).is_none() {
        writeln!(out, "namespace {ns} has no break-glass, so there is nothing to close")?;
        return Ok(Exit::Clean);
    }
    print_open_break_glass(found, &site.clock, out)?;
    if let Err(answer) = annotate(&site.client, found, None).await? {
        return report_not_written(&answer, ns, out);
    }
    writeln!(out, "namespace {ns}: break-glass is closed")?;
    // While the namespace is open, one of the guard's warnings says so.
    let guards =
        |warnings: &[String]| !warnings.is_empty() && !warnings.iter().any(|it| it.starts_with("until "));
    let answer = canary::send_until(site, ns, GUARD_CATCH_UP, |it| match it {
        CanaryAnswer::Refused(_) => true,
        CanaryAnswer::Admitted(warnings) => guards(warnings),
        _ => false,
    });
    let (exit, message) = match answer.await? {
        CanaryAnswer::Refused(message) => (Exit::Clean, format!("the guard refuses again: {message}")),
        CanaryAnswer::Admitted(warnings) if guards(&warnings) => {
            (Exit::Clean, "the guard only warns there, as its mode says".to_owned())
        }
        CanaryAnswer::Admitted(_) => {
            (Exit::Refused, "but the guard still refuses nothing there; `gatera doctor` shows why".to_owned())
        }
        other => {
            (Exit::Undecided, format!("it is unknown whether the guard refuses again: {}", reason_of(&other)))
        }
    };
    writeln!(out, "{}", visible(&message))?;
    Ok(exit)
}

/// Returns the break-glass annotation of a namespace, even if it has no effect.
fn annotation(found: &Namespace) -> Option<&String> {
    found.metadata.annotations.as_ref()?.get(&format!("{PREFIX}{BREAK_GLASS}"))
}

/// If the namespace has a break-glass annotation already, prints until when it is open, or why the annotation has no effect.
fn print_open_break_glass(found: &Namespace, clock: &Clock, out: &mut impl Write) -> anyhow::Result<()> {
    match annotation(found).map(|text| Override::break_glass(text, clock.now())) {
        Some(Ok(open)) => {
            writeln!(out, "Break-glass is open until {}: {}", open.until, visible(&open.reason))?;
        }
        Some(Err(problem)) => {
            writeln!(out, "The namespace has a break-glass annotation that has no effect: {problem}")?;
        }
        None => {}
    }
    Ok(())
}

/// Returns a text that lists the clusters of the namespace, or says why they could not be listed in time.
async fn describe_contents(options: &Options, site: &Site) -> String {
    let unknown = |why: &str| format!("The contents of the namespace are unknown: {why}");
    let (world, _) = match timeout(LIST_DEADLINE, look::list_world(Some(&options.namespace), site)).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => return unknown(&visible(&chain(error.as_ref()))),
        Err(_) => return unknown("the API server did not answer in time"),
    };
    let view = site.view(&world);
    let clusters = world
        .clusters()
        .map(|it| format!("\n  {}  {}  {}", it.id.name, view.state(it).name(), visible(&it.describe())));
    let listed: String = clusters.collect();
    if listed.is_empty() {
        format!("Namespace {} holds no Galera cluster.", options.namespace)
    } else {
        format!("Namespace {} holds{listed}", options.namespace)
    }
}

/// Annotates the namespace unless it has changed since it was read. If the guard refused or did not answer, returns that answer.
async fn annotate(
    client: &Client,
    found: &Namespace,
    text: Option<&str>,
) -> anyhow::Result<Result<(), CanaryAnswer>> {
    let api: Api<Namespace> = Api::all(client.clone());
    let name = found.metadata.name.as_deref().unwrap_or_default();
    let annotations = json!({ format!("{PREFIX}{BREAK_GLASS}"): text });
    let it = Exactly::of(&found.metadata);
    let Err(error) = api::annotate(&api, it, guided::MANAGER, &annotations).await else { return Ok(Ok(())) };
    if Fault::of(&error) == Fault::Conflict {
        anyhow::bail!("namespace {name} was changed meanwhile, so nothing was done; run this again");
    }
    match canary::answer_of_error(&error) {
        answer @ (CanaryAnswer::Refused(_) | CanaryAnswer::Unanswered(_)) => Ok(Err(answer)),
        _ => Err(error).with_context(|| format!("annotating namespace {name}")),
    }
}

fn report_not_written(answer: &CanaryAnswer, namespace: &str, out: &mut impl Write) -> anyhow::Result<Exit> {
    let (exit, message) = match answer {
        CanaryAnswer::Unanswered(message) => (Exit::Undecided, no_guard_answers(message)),
        other => (
            Exit::Refused,
            format!("the guard refuses the annotation of namespace {namespace}: {}", reason_of(other)),
        ),
    };
    writeln!(out, "nothing was changed: {}", visible(&message))?;
    Ok(exit)
}

fn no_guard_answers(message: &str) -> String {
    format!(
        "no guard answers ({message}), so the API server itself refuses every request that needs the guard's answer. If the guard cannot be \
         started, this switches it off in the whole cluster, until `helm upgrade` brings it back: {SWITCH_OFF_COMMAND}"
    )
}

/// Judges from the answer to the canary whether the guard honours the annotation. Returns the exit code and a text.
fn opening_result(answer: &CanaryAnswer, namespace: &str, honours: impl Fn(&str) -> bool) -> (Exit, String) {
    match answer {
        CanaryAnswer::Admitted(warnings) => match (warnings.iter().find(|it| rulebook().page_of_message(it).is_some()), warnings.iter().any(|it| honours(it))) {
            (Some(message), true) => (Exit::Clean, format!("the guard honours it, and says so each time: {message}")),
            (Some(message), false) => (
                Exit::Undecided,
                format!("the guard refuses nothing there, but does not say that break-glass is why: {message}"),
            ),
            (None, _) => (
                Exit::Undecided,
                "no guard warned about a request that it should warn about: it may be switched off in this namespace, or its `adopt` may select other labels"
                    .to_owned(),
            ),
        },
        CanaryAnswer::Refused(message) => (
            Exit::Refused,
            format!(
                "the guard still refuses; it may not have seen the change of namespace {namespace} yet (its /readyz shows whether its view is \
                 current). An override on the object itself works without that (`gatera explain G18`). Its answer: {message}"
            ),
        ),
        CanaryAnswer::Unanswered(message) => (Exit::Undecided, no_guard_answers(message)),
        other => (Exit::Undecided, format!("it is unknown whether the guard honours it: {}", reason_of(other))),
    }
}

fn reason_of(answer: &CanaryAnswer) -> String {
    match answer {
        CanaryAnswer::Away(message) | CanaryAnswer::Refused(message) => message.clone(),
        CanaryAnswer::NotAllowed(message) => {
            format!("it takes a dry run to find out, which is not allowed: {message}")
        }
        CanaryAnswer::Other(code, message) => format!("the API server answers {code}: {message}"),
        CanaryAnswer::Unanswered(message) => format!("no guard answers: {message}"),
        CanaryAnswer::Admitted(_) => "no guard warned about the dry run".to_owned(),
    }
}
