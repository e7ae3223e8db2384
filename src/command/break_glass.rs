//! `gatera break-glass`: for some minutes nothing is refused in a namespace.
//!
//! Owns: the way from the command to one annotation of the namespace, and whether the guard honours it. The end stands beside it,
//! and the guard takes care of that: nothing is left open when this command is killed. What follows from the annotation is
//! `rules/waived.rs`'s.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use decide::config::Settings;
use decide::marks::overrides::{LONGEST_OVERRIDE, Override};
use decide::marks::{BREAK_GLASS, PREFIX};
use decide::report::visible;
use decide::view::View;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use super::canary::{self, Answer};
use super::look::{self, Look};
use super::{Exit, installed, walk};
use crate::act::telemetry::chain;

/// Options of `gatera break-glass`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The namespace
    #[arg(value_name = "NAMESPACE")]
    of: String,
    /// For how long, an hour at most: 15m, 1h
    #[arg(long = "for", value_name = "TIME", value_parser = term, required_unless_present = "close")]
    term: Option<SignedDuration>,
    /// Why; everybody who works there reads it
    #[arg(long, value_name = "TEXT", required_unless_present = "close")]
    reason: Option<String>,
    /// Have what is refused be refused again
    #[arg(long, conflicts_with_all = ["term", "reason"])]
    close: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    access: look::Access,
}

/// What the guard has to notice first travels by a watch.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);
/// What an emergency does not need.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// Where nobody answers, this takes all of it away.
const WITHOUT_GUARD: &str =
    "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration gatera";

fn term(text: &str) -> Result<SignedDuration, String> {
    let term: SignedDuration = text.parse().map_err(|_| "write it as 15m or 1h".to_owned())?;
    if !(SHORTEST..=LONGEST_OVERRIDE).contains(&term) {
        return Err("it may be an hour at most".to_owned());
    }
    Ok(term)
}

/// Says what is opened, asks, opens, and looks whether it is open.
pub fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<Exit> {
    look::block_on(async {
        let client = options.access.client().await?;
        let api: Api<Namespace> = Api::all(client.clone());
        let found = api.get_opt(&options.of).await?;
        let found = found.with_context(|| format!("there is no namespace {}", options.of))?;
        match (options.term, &options.reason) {
            (Some(term), Some(reason)) => open(options, &client, &found, term, reason, out).await,
            _ => close(options, &client, &found, out).await,
        }
    })
}

async fn open(
    options: &Options,
    client: &Client,
    found: &Namespace,
    term: SignedDuration,
    reason: &str,
    out: &mut impl Write,
) -> anyhow::Result<Exit> {
    let (ns, settings) = (&options.of, installed::look(client).await.settings_or(&Settings::default()));
    let until = walk::in_time(term)?;
    let text = format!("until={until} reason={reason}");
    let written = Override::of_all(&text, Timestamp::now())
        .map_err(|problem| anyhow::anyhow!("this would open nothing: {problem}"))?;
    writeln!(out, "{}", holds(options, &settings).await)?;
    writeln!(
        out,
        "Until {until} nothing is refused in namespace {ns}: no second bootstrap, no deletion of data. Each command is still told \
         what it would have been refused for, and Events tell everybody."
    )?;
    if !options.yes && !walk::agrees(out)? {
        return Ok(Exit::Refused);
    }
    write(client, found, Some(&text)).await?;
    writeln!(
        out,
        "namespace {ns}: its glass is broken until {}: {}",
        written.until,
        visible(&written.reason)
    )?;
    let answer =
        until_it_is(client, ns, &settings, |it| matches!(it, Answer::Admitted(said) if !said.is_empty()))
            .await?;
    let (exit, words) = opened(&answer, ns);
    writeln!(out, "{words}\nwhen that is done: gatera break-glass {ns} --close")?;
    Ok(exit)
}

async fn close(
    options: &Options,
    client: &Client,
    found: &Namespace,
    out: &mut impl Write,
) -> anyhow::Result<Exit> {
    let (ns, settings) = (&options.of, installed::look(client).await.settings_or(&Settings::default()));
    write(client, found, None).await?;
    let answer = until_it_is(client, ns, &settings, |it| match it {
        Answer::Refused(_) => true,
        // Where rules only warn.
        Answer::Admitted(said) => said.iter().any(|it| !it.contains("(overridden until ")),
        _ => false,
    });
    let (exit, words) = match answer.await? {
        Answer::Refused(words) => (Exit::Clean, format!("the guard refuses again: {words}")),
        Answer::Admitted(said) if said.iter().any(|it| !it.contains("(overridden until ")) => {
            (Exit::Clean, "the guard warns there, as its mode has it".to_owned())
        }
        Answer::Admitted(_) => {
            (Exit::Refused, "and yet the guard refuses nothing; `gatera doctor` looks why".to_owned())
        }
        other => (Exit::Undecided, format!("whether the guard refuses again is not known: {}", why(&other))),
    };
    writeln!(out, "namespace {ns}: its glass is mended\n{words}")?;
    Ok(exit)
}

/// The clusters that lose their guard, or why they are not known: an emergency does not wait for that.
async fn holds(options: &Options, settings: &Settings) -> String {
    let look = Look::into(&options.access, &options.of);
    let (world, _) = match look::listed(&look, settings).await {
        Ok(listed) => listed,
        Err(error) => return format!("What is in it is not known: {}", chain(error.as_ref())),
    };
    let view = View::new(&world, Timestamp::now(), settings);
    let told = world
        .clusters()
        .map(|it| format!("\n  {}  {}  {}", it.id.name, view.state(it).name(), visible(&it.describe())));
    let told: String = told.collect();
    if told.is_empty() {
        format!("Namespace {} holds no Galera cluster.", options.of)
    } else {
        format!("Namespace {} holds{told}", options.of)
    }
}

/// The same namespace as was looked at.
async fn write(client: &Client, found: &Namespace, text: Option<&str>) -> anyhow::Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    let name = found.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({ "metadata": {
        "uid": found.metadata.uid,
        "annotations": { format!("{PREFIX}{BREAK_GLASS}"): text },
    } });
    let result = api.patch(name, &walk::params(), &Patch::Merge(&patch)).await;
    result.map(drop).with_context(|| format!("annotating namespace {name}"))
}

/// Asks until the answer is as it should be by now, or it is late.
async fn until_it_is(
    client: &Client,
    namespace: &str,
    settings: &Settings,
    is: impl Fn(&Answer) -> bool,
) -> anyhow::Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = canary::ask(client, namespace, &settings.adoption).await?;
        if is(&answer) || matches!(answer, Answer::NotAllowed(_)) || Instant::now() >= deadline {
            return Ok(answer);
        }
        sleep(PAUSE).await;
    }
}

/// What the guard makes of it.
fn opened(answer: &Answer, namespace: &str) -> (Exit, String) {
    match answer {
        Answer::Admitted(said) => match said.first() {
            Some(words) => (Exit::Clean, format!("the guard honours it, and says so each time: {words}")),
            None => (
                Exit::Undecided,
                "no guard said anything of what it should warn of: it may be switched off here, or adopt by other labels"
                    .to_owned(),
            ),
        },
        Answer::Refused(words) => (
            Exit::Refused,
            format!("the guard still refuses; its clock may differ from this one, or it may not see namespace {namespace}: {words}"),
        ),
        Answer::Unanswered(words) => (
            Exit::Undecided,
            format!("no guard answers ({words}), so what it insists on is refused by the API server itself. If it cannot be made to \
                 run, this takes it away everywhere, until it runs again and is installed anew: {WITHOUT_GUARD}"),
        ),
        other => (Exit::Undecided, format!("whether the guard honours it is not known: {}", why(other))),
    }
}

fn why(answer: &Answer) -> String {
    match answer {
        Answer::Away(words) | Answer::Refused(words) => words.clone(),
        Answer::NotAllowed(words) => format!("a dry run would tell: {words}"),
        Answer::Other(code, words) => format!("the API server answers {code}: {words}"),
        Answer::Unanswered(words) => format!("no guard answers: {words}"),
        Answer::Admitted(_) => "no guard says anything".to_owned(),
    }
}
