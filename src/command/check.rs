//! `gatera check`: judges manifests before they reach a cluster.
//!
//! Owns: the way from paths to an exit code. The verdicts come from the same `evaluate` as the webhook's, on a World
//! built from the files themselves: what is not in the files is not known, and nothing is running.
//! Must not know: clusters that live. Data: paths -> texts -> documents -> reviews -> decisions -> lines.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use decide::config::Settings;
use decide::manifest::{self, Document};
use decide::object::{Kind, Object};
use decide::report::{self, pages::Pages};
use decide::review::{Origin, Review};
use decide::rules;
use decide::verdict::{Decision, Effect};
use decide::view::{Facts, Freshness, View, World};
use jiff::Timestamp;
use serde_json::Value;

use super::Exit;

/// Options of `gatera check`.
#[derive(Debug, Args)]
pub struct Options {
    /// Files, folders, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Namespace of objects that name none
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Settings file: adopt (label selectors), modes (per rule)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Judges every document below these paths and writes what was found. `-` is standard input.
pub fn run(
    paths: &[PathBuf],
    namespace: &str,
    settings: &Settings,
    now: Timestamp,
    out: &mut impl Write,
) -> io::Result<Exit> {
    let mut outcome = Exit::Clean;
    let mut judged = Vec::new();
    let mut others = 0;
    for source in sources(paths) {
        let read = source.and_then(|name| Ok((read_text(&name)?, name)));
        let (text, name) = match read {
            Ok(read) => read,
            Err(Unread { name, problem }) => {
                writeln!(out, "{}: {problem}\n", report::visible(&name))?;
                outcome = Exit::Undecided;
                continue;
            }
        };
        match manifest::read(&text) {
            Err(error) => {
                writeln!(
                    out,
                    "{}:{}:{}: this is not YAML: {}\n",
                    report::visible(&name),
                    error.place.line,
                    error.place.column,
                    report::visible(&error.to_string())
                )?;
                outcome = Exit::Undecided;
            }
            Ok(documents) => {
                for document in documents {
                    match Subject::of(&document, namespace) {
                        Some(subject) => judged.push((name.clone(), document, subject)),
                        None => others += 1,
                    }
                }
            }
        }
    }
    let mut facts = Facts::of(&settings.adoption);
    for (.., subject) in &judged {
        subject.put_into(&mut facts);
    }
    let world = World::build(facts, Freshness::Current);
    let view = View::new(&world, now, settings);
    let (mut refused, mut warned) = (0, 0);
    for (name, document, subject) in &judged {
        let decision = rules::evaluate(&subject.review, &view);
        write_findings(out, name, document, &subject.review, &decision)?;
        refused += usize::from(!decision.allowed());
        warned += usize::from(decision.allowed() && decision.with(Effect::Warned).next().is_some());
    }
    if refused > 0 {
        outcome = outcome.max(Exit::Refused);
    }
    let skipped = if others > 0 { format!(", {others} without a kind left out") } else { String::new() };
    writeln!(
        out,
        "{} judged{skipped}: {refused} would be refused, {warned} allowed with a warning",
        count(judged.len(), "object")
    )?;
    Ok(outcome)
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn write_findings(
    out: &mut impl Write,
    name: &str,
    document: &Document,
    review: &Review,
    decision: &Decision,
) -> io::Result<()> {
    let name = report::visible(name);
    for (effect, label) in [(Effect::Refused, "refused"), (Effect::Warned, "warning")] {
        for judged in decision.with(effect) {
            let place = document.find(&judged.finding.field);
            writeln!(out, "{name}:{}:{}: {label}", place.line, place.column)?;
            writeln!(out, "{}", report::text(&review.subject(), &judged.finding, &Pages::Program))?;
            if let Some(softened) = &judged.softened {
                writeln!(out, "  only a warning: {}", report::visible(&report::because(softened)))?;
            }
            writeln!(out)?;
        }
    }
    for remark in &decision.remarks {
        let place = document.start();
        writeln!(out, "{name}:{}:{}: warning\n{}\n", place.line, place.column, report::visible(remark))?;
    }
    Ok(())
}

/// A document as the API server would present it.
struct Subject {
    review: Review,
}

impl Subject {
    fn of(document: &Document, default_namespace: &str) -> Option<Self> {
        let mut json = document.json();
        let text = |json: &Value, pointer: &str| {
            json.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (version, kind) = (text(&json, "/apiVersion"), text(&json, "/kind"));
        if kind.is_empty() {
            return None;
        }
        let kind = Kind::of(version.split_once('/').map_or("", |(group, _)| group), &kind);
        let namespace = match (kind, text(&json, "/metadata/namespace")) {
            // As in a review: a namespace is in itself.
            (Kind::Namespace, _) => text(&json, "/metadata/name"),
            (Kind::Node, _) => String::new(),
            (_, own) if own.is_empty() => default_namespace.to_owned(),
            (_, own) => own,
        };
        if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), namespace.clone().into());
        }
        let name = Some(text(&json, "/metadata/name")).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| text(&json, "/metadata/generateName"));
        let object = Object::read(kind, &json.to_string());
        let review = Review::as_created(Origin::Check, kind, &namespace, &name, object);
        Some(Self { review })
    }

    fn put_into(&self, facts: &mut Facts) {
        if let Some(object) = &self.review.new {
            facts.put(object.clone());
        }
    }
}

/// A path that could not be read.
struct Unread {
    name: String,
    problem: String,
}

/// Every file below the paths, in the order of their names.
fn sources(paths: &[PathBuf]) -> Vec<Result<String, Unread>> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            below(path, &mut found);
        } else {
            found.push(Ok(path.display().to_string()));
        }
    }
    found
}

fn below(folder: &Path, found: &mut Vec<Result<String, Unread>>) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return found.push(Err(unread(&folder.display().to_string(), &error))),
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let manifest =
            path.extension().is_some_and(|it| ["yaml", "yml", "json"].iter().any(|known| it == *known));
        // A link to a folder above would never end.
        if path.is_dir() && !path.is_symlink() {
            below(&path, found);
        } else if manifest {
            found.push(Ok(path.display().to_string()));
        }
    }
}

fn read_text(name: &str) -> Result<String, Unread> {
    let read = if name == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(name)
    };
    read.map_err(|error| unread(name, &error))
}

fn unread(name: &str, error: &io::Error) -> Unread {
    let problem = match error.kind() {
        io::ErrorKind::InvalidData => "this is not text (UTF-8), so it is not YAML".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    Unread { name: name.to_owned(), problem }
}
