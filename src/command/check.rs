//! `gatera check`: judges manifests before they reach a cluster.
//!
//! Owns: the options, and the exit code. `check/sources.rs` and `check/base.rs` read the texts, `inspect::check` judges them, and
//! `report::check` lays out the findings. Must not know: live clusters (`check/live.rs` reads them).

mod base;
mod exclusions;
mod live;
mod settings;
mod sources;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use facts::mode::Mode;
use facts::settings::Settings;
use inspect::check::{
    self, CheckFinding, CheckFindingKind, CheckOptions, Checked, Input, Level, MissingText,
};
use jiff::Timestamp;
use objects::visible;
use report::check::{Format, in_brief, in_full, lay_out};

use super::Exit;
use super::suggest::did_you_mean;
use super::terminal::print_note;
use super::terminal::progress::Progress;

pub use base::Base;

use exclusions::Exclusions;
use settings::ChosenSettings;

use crate::rulebook;

/// Options of `gatera check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  gatera check
  gatera check galera.yaml
  helm template shop charts/galera | gatera check -
  gatera check manifests/ --against git:origin/main...
  gatera check manifests/ --namespace db --live
  gatera check manifests/ --output sarif=gatera.sarif --output github

A comment waives a finding on its line, on the line below it, or of the object that begins there:
  # gatera: waive G13 reason=the test cluster has one node

Settings come from --config; or, with --live, from the guard of that cluster; or from .gatera.yaml
beside the manifests or in a folder above them, up to the top of the repository.
In a repository, files that git ignores are left out, unless they are named or committed.

Exit codes: 0 if nothing would be refused, 1 if something would, 2 if unreadable or nothing to judge")]
pub struct Options {
    /// Files, folders, or - for standard input
    /// [default: the current folder]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Judge only what changes since BASE, deletions included: a file, a folder, git:REV, or git:REV... (where this branch left REV)
    #[arg(long, value_name = "BASE")]
    against: Option<Base>,
    #[command(flatten)]
    live: live::LiveArgs,
    /// Output format, and its file: text, concise, json, sarif, junit, github, gitlab or markdown; may be repeated if all but one
    /// have a file [default: text]
    #[arg(long, short, value_name = "FORMAT[=FILE]", value_parser = output_target)]
    output: Vec<OutputTarget>,
    /// Leave out files that match, as in a .gitignore; may be repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Check only these rules, by id or name; several are separated by commas
    #[arg(long, value_name = "RULE", value_parser = rule_id, value_delimiter = ',', add = ArgValueCandidates::new(super::complete::rules))]
    rule: Vec<&'static str>,
    /// Judge as in this mode: enforce, warn, audit or off; modes of single rules in the settings still apply
    #[arg(long, value_parser = mode)]
    mode: Option<Mode>,
    /// Exit with 2 if something could not be judged, such as an unknown kind or a database that no selector adopts
    #[arg(long)]
    strict: bool,
    /// Exit with 1 from this verdict on
    #[arg(long, value_name = "VERDICT", value_enum, default_value_t = FailOn::Refused)]
    fail_on: FailOn,
    /// Exit with 0 if there was nothing to judge
    #[arg(long)]
    allow_empty: bool,
    /// Namespace of objects that name none [default: "default"; with --live, that of the kubeconfig's context]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Settings file: adopt (label selectors), modes (per rule) [default: .gatera.yaml, see below]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the rules' pages (docs/rules of this program's repository), for links in SARIF
    #[arg(long, value_name = "URL", value_parser = http_address)]
    rules_url: Option<String>,
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(flatten)]
    colour: super::terminal::Colour,
}

/// How much is printed.
#[derive(Clone, Copy, Debug, Args)]
struct Verbosity {
    /// Print only findings that decide the exit code, and nothing if it is 0
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Also print each object that is fine, and where the settings come from
    #[arg(long, short)]
    verbose: bool,
}

/// The namespace in which kubectl puts objects that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// The mildest verdict that makes the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Something would be refused
    Refused,
    /// Something would be allowed with a warning
    Warn,
}

/// An output format, and the file that it is written to; `None`: standard output.
#[derive(Clone, Debug)]
struct OutputTarget {
    format: Format,
    file: Option<PathBuf>,
}

fn output_target(text: &str) -> Result<OutputTarget, String> {
    let (name, file) = match text.split_once('=') {
        Some((_, "")) => return Err("name a file after the =, or leave out the =".to_owned()),
        Some((name, file)) => (name, Some(PathBuf::from(file))),
        None => (text, None),
    };
    let formats = || Format::ALL.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ");
    let format =
        Format::read(name).ok_or_else(|| format!("there is no format {name}; there are {}", formats()))?;
    Ok(OutputTarget { format, file })
}

fn rule_id(text: &str) -> Result<&'static str, String> {
    let names = rulebook().rules().iter().flat_map(|rule| [rule.id, rule.name]);
    let id = rulebook().rule_named(text).map(|rule| rule.id);
    id.ok_or_else(|| {
        format!("there is no rule {text}{} `gatera explain` lists them", did_you_mean(text, names))
    })
}

fn http_address(text: &str) -> Result<String, String> {
    let is_address =
        ["https://", "http://"].iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    if is_address { Ok(text.to_owned()) } else { Err("it must begin with https:// or http://".to_owned()) }
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::read(text).ok_or_else(|| "choose enforce, warn, audit or off".to_owned())
}

/// Reads the manifests, judges them, and prints the findings.
pub fn run(options: &Options, now: Timestamp, out: &mut impl Write) -> anyhow::Result<Exit> {
    let to_stdout = options.output.iter().filter(|it| it.file.is_none()).count();
    anyhow::ensure!(
        to_stdout < 2,
        "only one format can go to standard output; give the others a file, as in --output sarif=gatera.sarif"
    );
    options.ensure_verbosity_fits_format()?;
    anyhow::ensure!(
        options.live.live || !options.live.connection.is_given(),
        "only --live asks a cluster: add it, or leave out the options that name a cluster or a user"
    );
    let here = [PathBuf::from(".")];
    let paths = if options.paths.is_empty() { &here[..] } else { &options.paths };
    if options.paths.is_empty() && !options.verbosity.quiet {
        print_note("no path given: judging the current folder; for standard input, pass -");
    }
    let mut chosen = settings::of(options.config.as_deref(), paths, options.against.as_ref())?;
    let exclusions =
        Exclusions::of(&options.exclude, &chosen.settings.exclude, chosen.file.as_deref().map(Path::new))?;
    let progress = Progress::start();
    let base = options.against.as_ref().map(|base| base.read(paths, &exclusions, &progress)).transpose()?;
    let mut new = sources::read(paths, &exclusions, &progress);
    if let Some(base) = &base {
        // A path that exists only in the base was deleted, so it is not an error that it cannot be read.
        let in_base = |path: &Path| base.iter().any(|it| Path::new(&*it.name).starts_with(path));
        let was_removed = |path: &Path| !path.exists() && in_base(path);
        new.retain(|it| it.text.is_ok() || !was_removed(Path::new(&*it.name)));
    }
    let mut checked = if options.live.live {
        let checked;
        (checked, chosen) = live::check(options, &new, chosen, &progress)?;
        checked
    } else {
        progress.show(|| "judging …".to_owned());
        let settings = options.with_mode(&chosen.settings);
        let namespace = options.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let mut checked =
            check::run(&new, base.as_deref(), &options.check_options(&settings, namespace, now));
        checked.advise_edits();
        checked
    };
    drop(progress);
    checked.settings.clone_from(&chosen.file);
    checked.rules_url.clone_from(&options.rules_url);
    // Files are written first, so that they are complete even if writing to standard output fails.
    for OutputTarget { format, file } in &options.output {
        if let Some(file) = file {
            let text = lay_out(&checked, *format, false);
            fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
        }
    }
    let exit = options.exit(&checked);
    options.print(checked, exit, &chosen, out)?;
    Ok(exit)
}

impl Options {
    /// Returns whether the output may be folded at the width of the terminal. Folding would break tables, and lines for `grep`.
    pub fn is_for_people(&self) -> bool {
        self.stdout_format() == Format::Text
    }

    /// Returns the format of standard output.
    fn stdout_format(&self) -> Format {
        self.output.iter().find(|it| it.file.is_none()).map_or(Format::Text, |it| it.format)
    }

    /// Fails if `--quiet` or `--verbose` is combined with a format for programs, because such a format is always complete.
    fn ensure_verbosity_fits_format(&self) -> anyhow::Result<()> {
        let (option, formats, names) = match (self.verbosity.quiet, self.verbosity.verbose) {
            (true, _) => (
                "--quiet",
                &[Format::Text, Format::Concise, Format::Markdown][..],
                "text, concise or markdown",
            ),
            (_, true) => ("--verbose", &[Format::Text, Format::Concise][..], "text or concise"),
            _ => return Ok(()),
        };
        anyhow::ensure!(
            formats.contains(&self.stdout_format()),
            "{option} works with --output {names} only; other formats are always complete"
        );
        Ok(())
    }

    /// Prints the result to standard output, with as much detail as `--quiet` or `--verbose` asks for.
    fn print(
        &self,
        mut checked: Checked,
        exit: Exit,
        chosen: &ChosenSettings,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let (format, colour) = (self.stdout_format(), self.colour.wanted());
        if self.verbosity.verbose {
            out.write_all(in_full(&checked, format, colour).as_bytes())?;
            return writeln!(out, "{}", visible(&chosen.origin_line(self.mode)));
        }
        if self.verbosity.quiet {
            if exit == Exit::Clean {
                return Ok(());
            }
            checked.findings.retain(|finding| self.decides_exit(finding));
            return out.write_all(in_brief(&checked, format, colour).as_bytes());
        }
        out.write_all(lay_out(&checked, format, colour).as_bytes())
    }

    /// Returns whether this finding decides the exit code.
    fn decides_exit(&self, finding: &CheckFinding) -> bool {
        match finding.level() {
            Level::Refused | Level::Unread => true,
            Level::Warning => self.fail_on == FailOn::Warn,
            Level::Waived | Level::Note => {
                self.strict && matches!(finding.what, CheckFindingKind::Unjudged(_))
            }
        }
    }

    /// Returns these settings, with the mode of `--mode` if it is given.
    fn with_mode(&self, settings: &Settings) -> Settings {
        match self.mode {
            Some(mode) => settings.clone().with_mode(mode),
            None => settings.clone(),
        }
    }

    fn check_options<'a>(
        &'a self,
        settings: &'a Settings,
        namespace: &'a str,
        now: Timestamp,
    ) -> CheckOptions<'a> {
        CheckOptions { rulebook: rulebook(), settings, namespace, now, rules: &self.rule }
    }

    fn exit(&self, checked: &Checked) -> Exit {
        let refused = checked.count(Level::Refused) > 0;
        let warned = self.fail_on == FailOn::Warn && checked.count(Level::Warning) > 0;
        let unknown = checked.count(Level::Unread) > 0
            || checked.objects.is_empty() && !self.allow_empty
            || self.strict && checked.unjudged_findings() > 0;
        if unknown {
            Exit::Undecided
        } else if refused || warned {
            Exit::Refused
        } else {
            Exit::Clean
        }
    }
}

/// Returns the input `name` with this text. Its path below `top`, the path that the user gave, identifies the same file in the
/// base, which may be another folder.
fn input(top: &Path, name: &Path, text: Result<String, MissingText>) -> Input {
    let below = name.strip_prefix(top).unwrap_or(Path::new("")).into();
    Input { name: with_slashes(name).into(), below, text }
}

/// Returns the path, or the nearest folder above it, for which `accepts` returns true; if there is none, the current folder.
fn nearest(path: &Path, accepts: fn(&Path) -> bool) -> &Path {
    let mut folders = path.ancestors().filter(|it| !it.as_os_str().is_empty());
    folders.find(|it| accepts(it)).unwrap_or(Path::new("."))
}

/// Returns a path as git and code hosts write it, also on Windows.
fn with_slashes(path: &Path) -> String {
    let path = path.to_string_lossy();
    if cfg!(windows) { path.replace('\\', "/") } else { path.into_owned() }
}
