//! Completion of a command line, including the names of clusters and rules.
//!
//! Owns: the names that are offered, and the two ways in which shells ask: through the script that `gatera completions` prints,
//! and through kubectl, which runs `kubectl_complete-gatera` with the words after `kubectl gatera`. Names of clusters come from
//! the API server; if it does not answer in time, none are offered.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use clap::Command;
use clap_complete::CompleteEnv;
use clap_complete::engine::{CompletionCandidate, complete};
use facts::galera::adopt::Adoption;
use facts::view::is_cluster;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Resource as _;
use kube::api::ListParams;
use objects::{Kind, Object};
use tokio::time::timeout;

use super::look;
use crate::act::connect::{self, ClientOptions};
use crate::act::watch::pages::ListPages;
use crate::rulebook;

/// The time limit for listing names, because a person waits at the prompt.
const LIST_DEADLINE: Duration = Duration::from_secs(2);
/// The name under which kubectl runs this program for completions.
const KUBECTL_COMPLETION_NAME: &str = "kubectl_complete-gatera";
/// The last line for kubectl, after which it offers no names of files (cobra's `ShellCompDirectiveNoFileComp`).
const NO_FILES_DIRECTIVE: &str = ":4";

/// If a shell or kubectl asks for completions, prints them and ends the process.
pub(super) fn answer(program: fn() -> Command) {
    CompleteEnv::with_factory(program).complete();
    let mut words = env::args_os();
    if words.next().is_some_and(|name| Path::new(&name).ends_with(KUBECTL_COMPLETION_NAME)) {
        let _ = print_for_kubectl(program(), words.collect());
        std::process::exit(0);
    }
}

fn print_for_kubectl(mut program: Command, words: Vec<OsString>) -> io::Result<()> {
    let mut line = vec![OsString::from("gatera")];
    line.extend(words);
    let last = line.len() - 1;
    let mut out = io::stdout().lock();
    // Where a name is possible, options are left out, as kubectl does for its own commands.
    let is_option = |it: &CompletionCandidate| it.get_value().as_encoded_bytes().starts_with(b"-");
    let all = complete(&mut program, line, last, None)?;
    let no_options = all.iter().any(|it| !is_option(it));
    for candidate in all.iter().filter(|it| !(no_options && is_option(it))) {
        let help = candidate.get_help().map(|help| format!("\t{help}")).unwrap_or_default();
        writeln!(out, "{}{help}", candidate.get_value().display())?;
    }
    writeln!(out, "{NO_FILES_DIRECTIVE}")
}

/// Returns the ids of rules, with their names.
pub(super) fn rules() -> Vec<CompletionCandidate> {
    let rule = |id: &'static str, name: &'static str| CompletionCandidate::new(id).help(Some(name.into()));
    rulebook().rules().iter().map(|it| rule(it.id, it.name)).collect()
}

/// Returns the clusters whose names begin with `begun`: by name if the line names a namespace, otherwise as NAMESPACE/NAME.
pub(super) fn clusters(begun: &OsStr) -> Vec<CompletionCandidate> {
    let line: Vec<_> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let option = |names: &[&str]| {
        let joined = line.iter().find_map(|word| {
            let (name, value) = word.split_once('=')?;
            names.contains(&name).then(|| value.to_owned())
        });
        let apart = || line.iter().position(|word| names.contains(&&**word));
        joined.or_else(|| apart().and_then(|at| line.get(at + 1)).cloned())
    };
    let namespace = option(&["-n", "--namespace"]);
    let options = ClientOptions {
        kubeconfig: option(&["--kubeconfig"]).map(Into::into),
        context: option(&["--context"]),
        request_timeout: Some(LIST_DEADLINE),
        ..ClientOptions::default()
    };
    let listed = look::block_on(async {
        timeout(LIST_DEADLINE, cluster_names(&options, namespace.as_deref()))
            .await
            .unwrap_or_else(|_| Ok(Vec::new()))
    });
    let begun = begun.to_string_lossy();
    let names = listed.unwrap_or_default().into_iter().filter(|name| name.starts_with(&*begun));
    names.map(CompletionCandidate::new).collect()
}

async fn cluster_names(options: &ClientOptions, namespace: Option<&str>) -> anyhow::Result<Vec<String>> {
    let client = connect::person(options).await?;
    let adoption = Adoption::default();
    let mut pages = ListPages::of(&client, StatefulSet::url_path(&(), namespace), ListParams::default());
    let mut found = Vec::new();
    while let Some(piece) = pages.next().await? {
        let Ok(Object::StatefulSet(set)) = Object::read(Kind::StatefulSet, &piece.text) else { continue };
        if is_cluster(&set, &adoption) {
            let name = &set.metadata.name;
            found.push(
                namespace.map_or_else(|| format!("{}/{name}", set.metadata.namespace), |_| name.clone()),
            );
        }
    }
    Ok(found)
}
