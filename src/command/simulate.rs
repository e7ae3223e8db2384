//! `gatera simulate`: what would be said of a command, by the API server and by the engine here, and whether that is the same.
//!
//! Owns: running kubectl as a dry run, on a way that lets nothing else pass (`act/relay.rs`), and asking the rules here about each
//! write that it sends. What is compared is `decide::simulate`'s, how it is laid out `report/simulate.rs`'s.

mod kubectl;

use std::fs;
use std::io::{self, Write};
use std::process::Stdio;

use anyhow::Context as _;
use clap::Args;
use decide::report;
use decide::review::Review;
use decide::rules;
use decide::simulate::{Compared, Passage, There};
use decide::view::{Freshness, View, World};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use self::kubectl::Steps;
use super::Exit;
use super::look::{self, Look, Output};
use super::site::Site;
use crate::act::config_maps::ConfigMaps;
use crate::act::connect;
use crate::act::relay::Relay;

/// Options of `gatera simulate`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Manifests, as for kubectl apply: a file, a folder, a URL, or - for standard input
    #[arg(long, short, value_name = "FILE", conflicts_with = "command", required_unless_present = "command")]
    filename: Vec<String>,
    #[command(flatten)]
    look: Look,
    /// The command: kubectl, and what follows it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Options {
    /// Nothing of it is for a program.
    pub fn is_for_people(&self) -> bool {
        self.look.is_for_people()
    }

    /// What is run.
    fn command(&self) -> Vec<String> {
        if self.filename.is_empty() {
            return self.command.clone();
        }
        let files = self.filename.iter().map(|file| format!("--filename={file}"));
        ["kubectl", "apply"].map(str::to_owned).into_iter().chain(files).collect()
    }
}

/// Runs it, judges what it sent, and prints how the two compare.
pub fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<Exit> {
    let steps = kubectl::as_dry_run(&options.command())?;
    look::block_on(async {
        // Who gets no answer to this gets none to anything else.
        let site = options.look.site().await?;
        let client = &site.client;
        let namespace = options.look.namespace().unwrap_or_else(|| client.default_namespace()).to_owned();
        let relay = Relay::to(client.clone(), &namespace).await.context("listening on loopback")?;
        // What is for programs is alone on standard output.
        let apart = matches!(options.look.output, Output::Json);
        let code = kubectl_run(steps, &relay, apart).await?;
        let heard = relay.heard();
        drop(relay);

        let compared = judged(&site, options.look.namespace(), &heard).await?;
        match options.look.output {
            Output::Text => {
                out.write_all(report::simulate::text(&compared, site.guard.is_there()).as_bytes())?;
            }
            Output::Json => writeln!(out, "{:#}", report::simulate::json(&compared, code))?,
        }
        Ok(exit(&compared, code))
    })
}

/// Its exit code; `None`: a signal ended it.
async fn kubectl_run(steps: Steps, relay: &Relay, apart: bool) -> anyhow::Result<Option<i32>> {
    let runs = async {
        let mut runs = program(&steps.runs, relay);
        if apart {
            runs.stdout(Stdio::from(io::stderr()));
        }
        let Some(prints) = &steps.prints else { return runs.status().await };
        let mut prints = program(prints, relay);
        let printed = prints.stdin(Stdio::inherit()).stderr(Stdio::inherit()).output().await?;
        if !printed.status.success() {
            return Ok(printed.status);
        }
        let file = relay.folder().join("made.json");
        fs::write(&file, printed.stdout)?;
        runs.stdin(Stdio::from(fs::File::open(file)?)).status().await
    };
    tokio::select! {
        ended = runs => Ok(ended.with_context(|| format!("running {}", steps.runs[0]))?.code()),
        interrupted = interrupted() => {
            interrupted?;
            // kubectl ends with this, and so does its folder.
            anyhow::bail!("interrupted; nothing was changed")
        }
    }
}

/// Somebody does not want to wait any longer, or has gone.
async fn interrupted() -> io::Result<()> {
    let [mut interrupt, mut terminate, mut hangup] =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

fn program(words: &[String], relay: &Relay) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("KUBECONFIG", relay.kubeconfig()).kill_on_drop(true);
    // Each address has a cache of its own, and this one is gone in a moment. What a person prefers is not what was typed.
    command.env("KUBECACHEDIR", relay.folder().join("cache")).env("KUBERC", "off");
    for proxy in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(proxy);
    }
    command
}

/// Each write, judged by what the cluster holds.
async fn judged(site: &Site, namespace: Option<&str>, heard: &[Passage]) -> anyhow::Result<Vec<Compared>> {
    if heard.is_empty() {
        return Ok(Vec::new());
    }
    let client = &site.client;
    // Nothing hangs on it but for the control plane's own, so it need not be known.
    let user = connect::user(client).await.unwrap_or_default();
    let namespaces = heard.iter().map(|it| &*it.target.namespace).filter(|it| !it.is_empty()).collect();
    let otherwise = namespace.unwrap_or(client.default_namespace());
    let listed =
        look::all_or_one(client, &site.settings, &namespaces, otherwise, "simulate what concerns").await?;
    look::tell_unseen(&listed.unseen);
    let world = World::build(listed.facts, Freshness::Current);
    let maps = ConfigMaps::at(client.clone());
    let mut compared = Vec::new();
    for passage in heard {
        let review: Result<Review, String> = passage.review(&user);
        let said = match &review {
            Ok(review) => {
                let view = site.view(&world);
                let unread = view.unread_config_maps(review);
                let fetched = maps.look(&review.namespace, unread).await.unwrap_or_default();
                let view = View { fetched: &fetched, ..view };
                passage.compared(Ok((review, &rules::evaluate(review, &view))), &site.settings.pages)
            }
            Err(why) => passage.compared(Err(why.clone()), &site.settings.pages),
        };
        compared.push(said);
    }
    Ok(compared)
}

fn exit(all: &[Compared], code: Option<i32>) -> Exit {
    let unknown =
        |it: &Compared| it.here.is_err() || matches!(it.there, There::Other(..) | There::Unanswered(_));
    let refused = all.iter().any(Compared::refused);
    if all.iter().any(unknown) || !refused && code != Some(0) {
        Exit::Undecided
    } else if refused {
        Exit::Refused
    } else {
        Exit::Clean
    }
}
