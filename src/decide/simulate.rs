//! A write as a dry run: what an API server said to it, what is said of it here, and whether that is the same.
//!
//! Owns: the way from a request on its way to an API server to the [`Review`] that the guard would be sent, and the comparison.
//! Must not know: how it was overheard, or how the cluster was looked at. Data: method, path and body in; a review out, which
//! `rules::evaluate` judges; both answers in, [`Compared`] out, which `report/simulate.rs` lays out.

mod target;

use jiff::Timestamp;
use serde_json::Value;

use crate::object::{DeleteOptions, Kind, Object};
use crate::report::pages::Pages;
use crate::report::{refusal, warnings};
use crate::review::{Operation, Origin, Review};
use crate::rules;
use crate::stored::{Patch, applied, complete, last, patched};
use crate::verdict::Decision;

pub use target::Target;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// POST
    Create,
    /// PUT
    Replace,
    /// PATCH
    Patch(Patch),
    /// DELETE
    Delete,
}

/// One write, and what came back.
#[derive(Clone, Debug)]
pub struct Passage {
    /// To what.
    pub target: Target,
    /// What is done.
    pub method: Method,
    /// As whom, if not as whoever runs it.
    pub user: Option<String>,
    /// What was sent; null: nothing.
    pub body: Value,
    /// What was there; null: nothing. In words, why that is not known.
    pub before: Result<Value, String>,
    /// What was answered.
    pub answer: Answer,
}

/// What an API server answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 200 and the like.
    pub code: u16,
    /// Why not.
    pub message: String,
    /// What it says besides.
    pub warnings: Vec<String>,
    /// What would be there; null: it was refused.
    pub object: Value,
}

/// Who said no, and in which words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum There {
    /// Nobody.
    Allowed,
    /// The guard.
    Refused(String),
    /// The API server asked the guard, and got no answer.
    Unanswered(String),
    /// Something else: rights, the form of the object, another webhook.
    Other(u16, String),
}

/// How the two answers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Word for word.
    Same,
    /// One refuses and the other does not.
    Opposite,
    /// Both refuse, or both do not, in other words.
    OtherWords,
    /// The guard's answer there is not known.
    Unknown,
}

/// Both answers.
#[derive(Clone, Debug)]
pub struct Compared {
    /// "StatefulSet db/galera".
    pub subject: String,
    /// "scale", "patch".
    pub verb: &'static str,
    /// What is said of it here; in words, why nothing is.
    pub here: Result<Here, String>,
    /// What became of it.
    pub there: There,
    /// What was said there besides, by the guard as far as that can be told.
    pub warnings: Vec<String>,
    /// How they compare.
    pub likeness: Likeness,
}

/// What is said of it here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Why it is refused; `None`: it is not.
    pub refusal: Option<String>,
    /// What it is told.
    pub warnings: Vec<String>,
    /// The rules by which it is refused.
    pub rules: Vec<&'static str>,
}

impl Passage {
    /// What a person calls it.
    pub fn verb(&self) -> &'static str {
        match (&*self.target.subresource, self.method) {
            ("scale", _) => "scale",
            ("eviction", _) => "evict",
            (_, Method::Create) => "create",
            (_, Method::Replace) => "replace",
            (_, Method::Patch(Patch::Apply)) => "apply",
            (_, Method::Patch(_)) => "patch",
            (_, Method::Delete) => "delete",
        }
    }

    /// Of what kind the object is that is meant.
    fn kind(&self) -> Kind {
        let Target { group, plural, .. } = &self.target;
        Kind::of_plural(group, plural)
    }

    /// The review that a guard would make of it; in words, why there is none. `user` asks, unless somebody else is meant.
    pub fn review(&self, user: &str) -> Result<Review, String> {
        let (Self { target, body, .. }, before) = (self, self.before.as_ref().map_err(Clone::clone)?);
        if self.method == Method::Delete && target.name.is_empty() {
            return Err("what is deleted as a whole collection is not judged here".to_owned());
        }
        if body.is_string() {
            return Err("what was sent is neither JSON nor YAML, and is not read here".to_owned());
        }
        let kind = self.kind();
        let sent = |object: &Value| {
            let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
            Some(Kind::of(version.split_once('/').map_or("", |(group, _)| group), kind))
        };
        let namespace = if kind == Kind::Node { "" } else { &*target.namespace };
        let stored = |object: &Value| {
            let mut object = object.clone();
            // What has a subresource of its own is in the namespace of its parent already.
            complete(&mut object, kind, if kind == Kind::Namespace { "" } else { namespace });
            object
        };
        let mut after = match self.method {
            Method::Delete => Value::Null,
            Method::Replace if !before.is_null() => replaced(before, &stored(body), &self.answer.object),
            Method::Create | Method::Replace => stored(body),
            // Server-side apply of what is not there creates it.
            Method::Patch(Patch::Apply) if before.is_null() => stored(body),
            Method::Patch(_) if before.is_null() => return Err("there is nothing to patch".to_owned()),
            Method::Patch(how) => stored(&patched(before, body, how)?),
        };
        if target.subresource == "status" && after.is_object() {
            // What is written of the rest is thrown away.
            after["spec"] = before["spec"].clone();
        }
        let creates = matches!(self.method, Method::Create) || before.is_null() && !after.is_null();
        let mut unreadable = None;
        let mut read = |object: &Value| {
            if object.is_null() {
                return None;
            }
            let kind = if target.subresource.is_empty() { kind } else { sent(object).unwrap_or(kind) };
            Object::read(kind, &object.to_string()).map_err(|problem| unreadable = Some(problem)).ok()
        };
        let new = read(&after);
        let old = if creates { None } else { read(before) };
        let named = |object: &Object| Some(object.meta().name.clone()).filter(|name| !name.is_empty());
        let name = Some(target.name.clone())
            .filter(|name| !name.is_empty())
            .or_else(|| new.as_ref().and_then(named))
            .or_else(|| new.as_ref().map(|object| object.meta().generate_name.clone()))
            .unwrap_or_default();
        let options = match &new {
            Some(Object::Eviction(eviction)) => eviction.delete_options.clone(),
            _ if self.method == Method::Delete => DeleteOptions::read(body),
            _ => DeleteOptions::default(),
        };
        Ok(Review {
            origin: Origin::Live,
            operation: match self.method {
                Method::Delete => Operation::Delete,
                _ if creates => Operation::Create,
                _ => Operation::Update,
            },
            kind,
            subresource: target.subresource.clone(),
            namespace: if kind == Kind::Namespace { name.clone() } else { namespace.to_owned() },
            name,
            user: self.user.clone().unwrap_or_else(|| user.to_owned()),
            dry_run: true,
            options,
            takes_over: false,
            old,
            new,
            unreadable,
        })
    }

    /// Both answers beside each other.
    pub fn compared(&self, judged: Result<(&Review, &Decision), String>, pages: &Pages) -> Compared {
        let subject = match &judged {
            Ok((review, _)) => review.subject(),
            Err(_) => self.target.to_string(),
        };
        let here = judged.map(|(review, decision)| Here::of(&review.subject(), decision, pages));
        let there = There::of(self.answer.code, &self.answer.message);
        let warnings = here.as_ref().map_or_else(
            |_| Vec::new(),
            |here| {
                let mut said = self.answer.warnings.clone();
                said.retain(|it| is_a_guards(it) || here.warnings.contains(it));
                said.sort();
                said.dedup();
                said
            },
        );
        let likeness = likeness(&here, &there, &warnings);
        Compared { subject, verb: self.verb(), here, there, warnings, likeness }
    }
}

/// Warnings of a guard's begin with a rule, or say that a namespace is open.
pub fn is_a_guards(warning: &str) -> bool {
    rules::said_by(warning).is_some() || warning.starts_with("until ")
}

impl Compared {
    /// By either.
    pub fn refused(&self) -> bool {
        let here = self.here.as_ref().is_ok_and(|here| here.refusal.is_some());
        here || matches!(self.there, There::Refused(_))
    }
}

impl Here {
    fn of(subject: &str, decision: &Decision, pages: &Pages) -> Self {
        let refused = decision.with(crate::verdict::Effect::Refused);
        let mut rules: Vec<_> = refused.map(|judged| judged.finding.rule).collect();
        rules.sort_unstable();
        rules.dedup();
        let mut warnings = warnings(subject, decision);
        warnings.sort();
        warnings.dedup();
        let refusal = (!decision.allowed()).then(|| refusal(subject, decision, pages));
        Self { refusal, warnings, rules }
    }
}

impl There {
    /// Whose words these are.
    pub fn of(code: u16, message: &str) -> Self {
        if code < 400 {
            return Self::Allowed;
        }
        let denied = message
            .strip_prefix("admission webhook \"")
            .and_then(|it| it.split_once("\" denied the request: "))
            .filter(|(name, _)| name.ends_with(".gatera.dev"));
        match denied {
            // An eviction is refused with 429, so that whoever drains waits.
            Some((_, words)) if matches!(code, 403 | 429) && rules::said_by(words).is_some() => {
                return Self::Refused(words.to_owned());
            }
            Some((_, words)) => return Self::Unanswered(words.to_owned()),
            None => {}
        }
        let called =
            message.split_once("failed calling webhook \"").and_then(|(_, it)| it.split_once("\": "));
        match called {
            Some((name, words)) if name.ends_with(".gatera.dev") => Self::Unanswered(words.to_owned()),
            _ => Self::Other(code, message.to_owned()),
        }
    }
}

/// What is there after it was replaced. An API server fills in what the new object does not say, as it did before.
fn replaced(before: &Value, body: &Value, answered: &Value) -> Value {
    let mut after = match (last(before), answered) {
        (Some(_), _) => applied(before, body),
        (None, Value::Null) => body.clone(),
        (None, answered) => answered.clone(),
    };
    after["metadata"] = body["metadata"].clone();
    after
}

fn likeness(here: &Result<Here, String>, there: &There, warnings: &[String]) -> Likeness {
    let Ok(here) = here else { return Likeness::Unknown };
    let told = |warnings: &[String]| warnings.iter().map(|it| comparable(it)).collect::<Vec<_>>();
    let same = match (&here.refusal, there) {
        (_, There::Unanswered(_) | There::Other(..)) => return Likeness::Unknown,
        (Some(here), There::Refused(there)) => comparable(here) == comparable(there),
        (None, There::Allowed) => told(&here.warnings) == told(warnings),
        (Some(_), There::Allowed) | (None, There::Refused(_)) => return Likeness::Opposite,
    };
    if same { Likeness::Same } else { Likeness::OtherWords }
}

/// What is said, without where there is more to read (that depends on who is installed where), and without the times of both
/// answers.
fn comparable(text: &str) -> Vec<String> {
    let lines = text.trim_end().lines().filter(|line| !line.starts_with("  more: "));
    lines.map(timeless).collect()
}

fn timeless(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let shown = words.iter().enumerate().map(|(number, word)| {
        let is_time = |text: &str| text.parse::<Timestamp>().is_ok();
        let ago = words.get(number + 1).is_some_and(|next| next.starts_with("ago"));
        match word.split_once("until=") {
            Some((before, value)) if is_time(value) => before,
            _ if ago && word.starts_with(|c: char| c.is_ascii_digit()) => "some time",
            _ => word,
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
