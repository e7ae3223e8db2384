//! What a command would have done, laid out: for a person at a terminal, for a program.
//!
//! The JSON is a contract; fields are added, never renamed:
//!
//! ```text
//! { "requests": [{ "object": as messages call it, "verb", "refused": by either, "likeness": "same|opposite|other words|unknown",
//!                  "here":  { "refusal": text or null, "rules": [id], "warnings": [text] } or { "unknown": why },
//!                  "there": { "by": "nobody|guard|unanswered|api server", "says", "warnings": [text] } }],
//!   "kubectl":  its exit code, or null,
//!   "summary":  { "requests", "refused", "same", "different", "unknown" } }
//! ```

use serde_json::{Value, json};

use super::visible;
use crate::simulate::{Compared, Here, Likeness, There};

/// For a person, below what kubectl printed. `guarded`: a guard is registered there.
pub fn text(all: &[Compared], guarded: bool) -> String {
    if all.is_empty() {
        return "nothing was sent that would change anything\n".to_owned();
    }
    let mut text = String::new();
    for one in all {
        let head = format!("{} {}: ", one.verb, one.subject);
        text.push_str(&(visible(&head) + &told(one, guarded)));
    }
    let [refused, same, different, unknown] = counts(all);
    let requests = super::audit::count(all.len(), "request");
    text.push_str(&format!(
        "{requests}: {refused} would be refused; {same} judged alike here and there, {different} differently, {unknown} not known; \
         nothing was changed\n"
    ));
    text
}

fn told(one: &Compared, guarded: bool) -> String {
    let Compared { here, there, warnings, likeness, .. } = one;
    let here = match here {
        Ok(here) => here,
        Err(why) => return format!("not judged here: {}\n", visible(why)) + &said_there(there, warnings),
    };
    match (likeness, there) {
        (Likeness::Same, There::Refused(_)) => {
            format!("refused by {}; the API server and gatera here say the same\n", here.rules.join(", "))
        }
        (Likeness::Same, _) => match here.warnings.len() {
            0 => "nothing is said of it, there and here\n".to_owned(),
            number => {
                format!("allowed with {}, the same there and here\n", super::audit::count(number, "warning"))
            }
        },
        (_, There::Allowed) if !guarded => {
            format!("no guard is registered there, so nobody asks one; gatera here says\n{}", said_here(here))
        }
        (Likeness::Unknown, _) if here.refusal.is_none() && here.warnings.is_empty() => {
            said_there(there, warnings)
        }
        (Likeness::Unknown, _) => said_there(there, warnings) + "    gatera here says\n" + &said_here(here),
        (_, There::Allowed) => format!(
            "NOT THE SAME: the API server lets it pass. Either it does not ask the guard (gatera doctor tells whether it does, and what \
             carries no labels of a cluster is asked about only in namespaces with the label gatera.dev/mode), or another version or \
             other settings judge there\n    the API server says\n{}    gatera here says\n{}",
            indented(&there_words(there, warnings)),
            said_here(here)
        ),
        _ => format!(
            "NOT THE SAME: another version, other settings, or something that happened just now\n    the API server says\n{}    gatera \
             here says\n{}",
            indented(&there_words(there, warnings)),
            said_here(here)
        ),
    }
}

fn said_there(there: &There, warnings: &[String]) -> String {
    let head = match there {
        There::Unanswered(_) => "the API server asked the guard and got no answer, so it refuses",
        There::Other(..) => "the API server itself refuses, so what the guard would say is not known",
        There::Refused(_) => "the API server says",
        There::Allowed => "the API server lets it pass",
    };
    format!("{head}\n{}", indented(&there_words(there, warnings)))
}

fn there_words(there: &There, warnings: &[String]) -> String {
    match there {
        There::Refused(words) | There::Unanswered(words) => words.clone(),
        There::Other(code, words) => format!("{code}: {words}"),
        There::Allowed if warnings.is_empty() => "nothing".to_owned(),
        There::Allowed => warnings.join("\n"),
    }
}

fn said_here(here: &Here) -> String {
    let words = match (&here.refusal, &here.warnings[..]) {
        (Some(refusal), _) => refusal.clone(),
        (None, []) => "nothing".to_owned(),
        (None, warnings) => warnings.join("\n"),
    };
    indented(&words)
}

fn indented(words: &str) -> String {
    words.lines().map(|line| format!("      {}\n", visible(line))).collect()
}

/// For a program.
pub fn json(all: &[Compared], kubectl: Option<i32>) -> Value {
    let request = |one: &Compared| {
        let here = match &one.here {
            Ok(Here { refusal, warnings, rules }) => {
                json!({ "refusal": refusal, "rules": rules, "warnings": warnings })
            }
            Err(why) => json!({ "unknown": why }),
        };
        let (by, says) = match &one.there {
            There::Allowed => ("nobody", String::new()),
            There::Refused(words) => ("guard", words.clone()),
            There::Unanswered(words) => ("unanswered", words.clone()),
            There::Other(code, words) => ("api server", format!("{code}: {words}")),
        };
        let likeness = match one.likeness {
            Likeness::Same => "same",
            Likeness::Opposite => "opposite",
            Likeness::OtherWords => "other words",
            Likeness::Unknown => "unknown",
        };
        json!({
            "object": one.subject, "verb": one.verb, "refused": one.refused(), "likeness": likeness, "here": here,
            "there": { "by": by, "says": says, "warnings": one.warnings },
        })
    };
    let [refused, same, different, unknown] = counts(all);
    json!({
        "requests": all.iter().map(request).collect::<Vec<_>>(),
        "kubectl": kubectl,
        "summary": { "requests": all.len(), "refused": refused, "same": same, "different": different, "unknown": unknown },
    })
}

fn counts(all: &[Compared]) -> [usize; 4] {
    let like = |wanted: &[Likeness]| all.iter().filter(|it| wanted.contains(&it.likeness)).count();
    let refused = all.iter().filter(|it| it.refused()).count();
    [
        refused,
        like(&[Likeness::Same]),
        like(&[Likeness::Opposite, Likeness::OtherWords]),
        like(&[Likeness::Unknown]),
    ]
}
