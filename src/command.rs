//! The command line: the commands and options of the program, and their exit codes. Each subcommand has a file; commands that
//! look at a cluster share `site` and `look`, and commands that do several steps to it share `guided`.
//!
//! Must not know: how anything is decided or served.

pub mod audit;
pub mod break_glass;
pub mod bundle;
pub mod canary;
pub mod check;
mod complete;
pub mod doctor;
pub mod explain;
pub mod generate;
pub mod guided;
mod help;
pub mod installed;
pub mod look;
pub mod passwd;
pub mod recover;
pub mod rollout;
pub mod serve;
pub mod site;
pub mod status;
pub mod stop;
mod suggest;
pub mod terminal;

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use jiff::Timestamp;
use objects::visible;

use crate::act::reload;
use crate::act::telemetry::chain;

use self::look::block_on;
use self::recover::RecoverGoal;
use self::terminal::Folded;

/// A gate in front of MariaDB Galera on Kubernetes. It refuses the ordinary commands that destroy a cluster, and says
/// what to do instead.
#[derive(Debug, Parser)]
#[command(name = "gatera", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// List the existing objects that the rules would refuse
    #[command(
        after_help = "Exit codes: 0 if nothing would be refused, 1 if something would, 2 if unknown\n\nExamples:\n  gatera audit\n  gatera audit --namespace db\n  gatera audit --output json | jq -r '.findings[].says'"
    )]
    Audit(look::SurveyArgs),
    /// Suspend refusals in one namespace for a few minutes
    #[command(
        after_help = "Exit codes: 0 if the guard honours it, 1 if not, 2 if unknown\n\nExamples:\n  gatera break-glass db --for 15m --reason 'node-2 burns, members must move now'\n  gatera break-glass db --close"
    )]
    BreakGlass(break_glass::Options),
    /// Judge manifests by the rules before they reach a cluster
    Check(Box<check::Options>),
    /// Print completions for a shell
    #[command(
        hide = true,
        after_help = "Examples:\n  source <(gatera completions bash)\n  gatera completions fish > ~/.config/fish/completions/gatera.fish"
    )]
    Completions(generate::CompletionsArgs),
    /// Check that the guard runs, is reachable, and refuses what it must
    #[command(
        after_help = "Exit codes: 0 if all is well, 1 if something is wrong, 2 if something could not be asked\n\nExamples:\n  gatera doctor\n  gatera doctor --namespace db\n  gatera doctor --canary --wait 60\n  gatera doctor --output json | jq -r '.rows[] | select(.state == \"wrong\") | .says'"
    )]
    Doctor(doctor::Options),
    /// List the rules, or print the manual page of one
    #[command(
        after_help = "Examples:\n  gatera explain\n  gatera explain G04\n  gatera explain second-bootstrap\n  gatera explain --output json | jq -r '.rules[].id'"
    )]
    Explain(explain::Options),
    /// Print a manual page for man
    #[command(
        hide = true,
        after_help = "Examples:\n  gatera man | man -l -\n  gatera man check > gatera-check.1"
    )]
    Man(generate::ManArgs),
    /// Change a password in MariaDB and its Secret, and restart what reads it
    #[command(
        after_help = "Exit codes: 0 if done, 1 if refused, 2 if unknown, or if it gave up waiting (--patience)\n\nExamples:\n  gatera passwd galera -n db --dry-run\n  gatera passwd galera -n db --user sst\n  gatera passwd galera -n db --abort"
    )]
    Passwd(passwd::Options),
    /// Recover a cluster that is down, from its newest member
    #[command(
        after_help = "Exit codes: 0 if the cluster serves, 1 if refused, 2 if unknown, or if it gave up waiting (--patience)\n\nExamples:\n  gatera recover galera -n db --dry-run\n  gatera recover galera -n db"
    )]
    Recover(recover::Options),
    /// Collect what a bug report needs; no Secrets, no contents of ConfigMaps
    #[command(
        after_help = "The report holds versions, the doctor's answers, clusters, findings, and the logs and Events of the guard. \
                      No Secret is read, and no content of a ConfigMap is included.\n\nExamples:\n  gatera report > report.json\n  gatera report --namespace db > report.json"
    )]
    Report(look::LookArgs),
    /// Show, pause, resume, retry or undo the rollout of a configuration
    #[command(
        subcommand,
        after_help = "Examples:\n  gatera rollout status galera -n db --watch\n  gatera rollout history galera -n db\n  gatera rollout undo galera -n db"
    )]
    Rollout(rollout::RolloutCommand),
    #[command(hide = true, disable_help_flag = true)]
    Rules(RemovedCommand),
    #[command(hide = true, disable_help_flag = true)]
    Selftest(RemovedCommand),
    /// Serve the admission webhooks
    #[command(
        after_help = "Examples:\n  gatera serve --namespace gatera --config settings.yaml\n  gatera serve --kubeconfig ~/.kube/config --webhook-url https://192.0.2.7:8443"
    )]
    Serve(Box<serve::Options>),
    #[command(hide = true, disable_help_flag = true)]
    Simulate(RemovedCommand),
    /// Start a cluster that was stopped, with as many members as before
    #[command(
        after_help = "Exit codes: 0 if the cluster serves, 1 if refused, 2 if unknown, or if it gave up waiting (--patience)\n\nExamples:\n  gatera start galera -n db"
    )]
    Start(recover::Options),
    /// Show each cluster's state: members, bootstrap node, addresses, findings
    #[command(
        after_help = "Examples:\n  gatera status\n  gatera status galera -n db --watch\n  gatera status --output json"
    )]
    Status(status::StatusArgs),
    /// Stop a cluster in order, and record where each member's data ends
    #[command(
        after_help = "Exit codes: 0 if the cluster is stopped, 1 if refused, 2 if unknown, or if it gave up waiting (--patience)\n\nExamples:\n  gatera stop galera -n db --dry-run\n  gatera stop galera -n db"
    )]
    Stop(guided::ClusterArgs),
    /// Print version, commit and build
    Version,
}

impl CliCommand {
    /// Returns whether the output is text for people, which may be folded. The output of commands that are not listed is not.
    fn is_for_people(&self) -> bool {
        match self {
            Self::Audit(options) => options.is_for_people(),
            Self::Doctor(options) => options.survey.is_for_people(),
            Self::Check(options) => options.is_for_people(),
            Self::Explain(options) => options.is_for_people(),
            Self::Status(options) => options.is_for_people(),
            Self::BreakGlass(_)
            | Self::Passwd(_)
            | Self::Recover(_)
            | Self::Rollout(_)
            | Self::Start(_)
            | Self::Stop(_) => true,
            _ => false,
        }
    }
}

/// A command that was removed, with its arguments. It only names the command that replaces it.
#[derive(Debug, Args)]
struct RemovedCommand {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _given: Vec<String>,
}

/// The exit code of a command, on which a pipeline branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Nothing would be refused, or the command did what it was asked to do.
    Clean = 0,
    /// Something would be refused, or the command did not do what it was asked to do.
    Refused = 1,
    /// The result is unknown, because something could not be read or took too long, or the command line has a mistake.
    Undecided = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Options with a value that users of kubectl write before the command.
const KUBECTL_OPTIONS: [&str; 7] =
    ["-n", "--namespace", "--context", "--kubeconfig", "--as", "--as-group", "--request-timeout"];
/// Options without a value that users of kubectl write before the command.
const KUBECTL_FLAGS: [&str; 2] = ["-A", "--all-namespaces"];

/// Moves options that stand before the command behind it, because each command has its own options.
fn with_command_first(mut words: Vec<OsString>) -> Vec<OsString> {
    let mut end = 1;
    while let Some(word) = words.get(end).and_then(|word| word.to_str()) {
        let (option, value) =
            word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        end += match value {
            None if KUBECTL_OPTIONS.contains(&option) => 2,
            Some(_) if KUBECTL_OPTIONS.contains(&option) => 1,
            None if KUBECTL_FLAGS.contains(&option) => 1,
            _ => break,
        };
    }
    // The options of `rollout` belong to its subcommand, which is a second word.
    let command_words = if words.get(end).is_some_and(|it| it == "rollout") { 2 } else { 1 };
    if end > 1 && end + command_words <= words.len() {
        words[1..end + command_words].rotate_right(command_words);
    }
    words
}

impl Cli {
    /// Parses the command line. If it has a mistake, or if a shell asks for completions, prints the answer and ends the process.
    /// kubectl runs a file called `kubectl-gatera` as `kubectl gatera`, so that name appears in the help.
    pub fn from_command_line() -> Self {
        complete::answer(Self::command);
        let command = help::grouped(Self::command());
        let plugin = env::args_os().next().is_some_and(|name| Path::new(&name).ends_with("kubectl-gatera"));
        let command = if plugin { command.bin_name("kubectl gatera") } else { command };
        let matches = command.get_matches_from(with_command_first(env::args_os().collect()));
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Runs the command, and prints its error. A command that does several steps stops when its output is no longer read.
    pub fn run(self) -> ExitCode {
        let exit = self.execute().unwrap_or_else(|error| {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if kind != Some(io::ErrorKind::BrokenPipe) {
                terminal::print_note(&visible(&chain(error.as_ref())));
            }
            Exit::Undecided
        });
        exit.into()
    }

    fn execute(self) -> anyhow::Result<Exit> {
        let mut out = Folded::stdout(self.command.is_for_people());
        match self.command {
            CliCommand::Audit(options) => return block_on(audit::run(&options, &mut out)),
            CliCommand::BreakGlass(options) => {
                return block_on(break_glass::run(&options, out.ending_with_reader()));
            }
            CliCommand::Check(options) => return check::run(&options, Timestamp::now(), &mut out),
            CliCommand::Completions(options) => generate::completions(&options, &mut out)?,
            CliCommand::Doctor(options) => return block_on(doctor::run(&options, &mut out)),
            CliCommand::Explain(options) => explain::run(&options, Timestamp::now(), &mut out)?,
            CliCommand::Man(options) => generate::man(&options, Self::command(), &mut out)?,
            CliCommand::Passwd(options) => {
                return block_on(passwd::run(&options, out.ending_with_reader()));
            }
            CliCommand::Recover(options) => {
                return block_on(recover::run(&options, RecoverGoal::Serve, out.ending_with_reader()));
            }
            CliCommand::Report(options) => block_on(bundle::run(&options, &mut out))?,
            CliCommand::Rollout(command) => return block_on(rollout::run(&command, &mut out)),
            CliCommand::Rules(_) => anyhow::bail!("`gatera rules` was removed: `gatera explain` lists them"),
            CliCommand::Selftest(_) => anyhow::bail!(
                "`gatera selftest` was removed: `gatera doctor --canary --wait 60` sends the same dry run"
            ),
            CliCommand::Serve(options) => {
                drop(out);
                let settings = options.config.as_deref().map(reload::load).transpose()?.unwrap_or_default();
                serve::run(*options, settings)?;
            }
            CliCommand::Simulate(_) => anyhow::bail!(
                "`gatera simulate` was removed: add --dry-run=server to the kubectl command, which then asks the guard and changes nothing"
            ),
            CliCommand::Start(options) => {
                return block_on(recover::run(&options, RecoverGoal::StartAll, out.ending_with_reader()));
            }
            CliCommand::Status(options) => return block_on(status::run(&options, out.ending_with_reader())),
            CliCommand::Stop(cluster) => return block_on(stop::run(&cluster, out.ending_with_reader())),
            CliCommand::Version => generate::version(&mut out)?,
        }
        Ok(Exit::Clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_the_command_move_behind_it() {
        let reordered = |line: &str| {
            let all = with_command_first(line.split(' ').map(OsString::from).collect());
            all.into_iter().map(|it| it.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (written, read) in [
            ("gatera -n db status galera", "gatera status -n db galera"),
            ("gatera --context=a --kubeconfig b audit -q", "gatera audit --context=a --kubeconfig b -q"),
            ("gatera -A --as=a status -o wide", "gatera status -A --as=a -o wide"),
            ("gatera -n db rollout status galera", "gatera rollout status -n db galera"),
            ("gatera -n db rollout", "gatera -n db rollout"),
            ("gatera status -n db", "gatera status -n db"),
            ("gatera --help", "gatera --help"),
            ("gatera -n", "gatera -n"),
            ("gatera -n db", "gatera -n db"),
        ] {
            assert_eq!(reordered(written), read);
        }
    }
}
