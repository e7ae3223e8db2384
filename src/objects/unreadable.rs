//! Reading an object, and in which words it is said that one cannot be read.
//!
//! The words name the field, and of what stands there the type alone: it may be a secret. Nobody wrote the JSON that arrives
//! here as it is, so its lines and columns are told to nobody.

use serde::Deserialize;

use super::Kind;

/// Why nothing is known of an object but that it is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is not what its kind promises.
    #[error("cannot be read as a {kind}: {field}{}{problem}", if field.is_empty() { "" } else { ": " })]
    Odd {
        /// Its kind.
        kind: &'static str,
        /// Which field is wrong; empty: the object as a whole.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no room for it beside all others. In a request of its own it is read.
    #[error("is not looked at: {0}")]
    TooMuch(&'static str),
}

impl Unreadable {
    /// Which field is wrong; empty: the object as a whole.
    pub fn field(&self) -> &str {
        match self {
            Self::Odd { field, .. } => field,
            Self::TooMuch(_) => "",
        }
    }
}

/// Reads one object of a type that is known.
pub fn read<T: for<'de> Deserialize<'de>>(kind: Kind, json: &str) -> Result<T, Unreadable> {
    read_as(kind.name(), json)
}

pub(super) fn read_as<T: for<'de> Deserialize<'de>>(kind: &'static str, json: &str) -> Result<T, Unreadable> {
    serde_json::from_str(json).map_err(|_| {
        let (field, problem) = problem::<T>(json);
        Unreadable::Odd { kind, field, problem }
    })
}

/// A template is read in one piece, and what is wrong in it is told as of the whole object.
const WITHIN: &str = "within ";

/// What is wrong inside a part that was read by itself.
pub(super) fn within<T: for<'de> Deserialize<'de>>(json: &str) -> String {
    let (field, problem) = problem::<T>(json);
    format!("{WITHIN}{field}: {problem}")
}

/// Reads it once more, to know the field.
fn problem<T: for<'de> Deserialize<'de>>(json: &str) -> (String, String) {
    let read = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(json));
    let Err(error) = read else { return (String::new(), "something follows its end".to_owned()) };
    let path: String =
        error.path().to_string().chars().filter(|c| !c.is_control()).take(LONGEST_PATH).collect();
    let text = without_values(&error.inner().to_string());
    let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
    let inner = text.strip_prefix(WITHIN).and_then(|inner| inner.split_once(": "));
    match (&*path, inner) {
        (".", _) => (String::new(), plain(text)),
        (_, Some(("", problem))) => (path, problem.to_owned()),
        (_, Some((field, problem))) => (format!("{path}.{field}"), problem.to_owned()),
        (_, None) => (path, plain(text)),
    }
}

const LONGEST_PATH: usize = 160;

/// In words of the field instead of the parser.
fn plain(problem: &str) -> String {
    let types = problem.strip_prefix("invalid type: ").and_then(|types| types.split_once(", expected "));
    match types {
        Some((is, wanted)) => format!("{} is expected, and there is {}", thing(wanted), thing(is)),
        None if problem.starts_with("EOF") => "it ends too early".to_owned(),
        None if problem.starts_with("invalid value: integer") => "the number is out of range".to_owned(),
        None => problem.to_owned(),
    }
}

fn thing(word: &str) -> &str {
    match word {
        "a string" | "string" | "text" => "a text",
        "a boolean" | "boolean" => "true or false",
        "a sequence" | "sequence" => "a list",
        "integer" | "i32" | "i64" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "floating point" | "f64" => "a number",
        "null" | "unit value" => "nothing",
        "map" | "a map" | "annotations" => "an object",
        _ if word.starts_with("struct ") => "an object",
        other => other,
    }
}

/// `invalid type: string "hunter2", expected i64 at …` becomes `invalid type: string, expected i64 at …`; numbers and
/// booleans are quoted by serde in backticks.
fn without_values(problem: &str) -> String {
    let mut kept = String::with_capacity(problem.len());
    let mut quote = None;
    let mut escaped = false;
    for c in problem.chars() {
        match quote {
            None if c == '"' || c == '`' => {
                kept.truncate(kept.trim_end().len());
                quote = Some(c);
            }
            None => kept.push(c),
            Some(end) if c == end && !escaped => quote = None,
            Some(_) => {}
        }
        escaped = c == '\\' && !escaped;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;

    #[test]
    fn what_cannot_be_read_says_where_and_never_what() {
        for (kind, json, words) in [
            (
                Kind::StatefulSet,
                r#"{"spec":{"template":{"spec":{"containers":[{"env":[{"name":"P","value":4711}]}]}}}}"#,
                "StatefulSet: spec.template.spec.containers[0].env[0].value: a text is expected, and there is a whole number",
            ),
            (
                Kind::Pod,
                r#"{"spec":{"containers":"secret"}}"#,
                "Pod: spec.containers: a list is expected, and there is a text",
            ),
            (Kind::Pod, r#"{"metadata":"x"}"#, "Pod: metadata: an object is expected, and there is a text"),
            (
                Kind::StatefulSet,
                r#"{"spec":{"replicas":"4711"}}"#,
                "StatefulSet: spec.replicas: a whole number is expected, and there is a text",
            ),
            (Kind::Pod, "true", "Pod: an object is expected, and there is true or false"),
            (
                Kind::Secret,
                r#"{"data":{"root":4711}}"#,
                "Secret: data.root: a text is expected, and there is a whole number",
            ),
            (
                Kind::Claim,
                r#"{"spec":{"resources":{"requests":{"storage":true}}}}"#,
                "PersistentVolumeClaim: spec.resources.requests.storage: a number or text is expected, and there is true or false",
            ),
            (
                Kind::StatefulSet,
                r#"{"spec":{"replicas":18446744073709551615}}"#,
                "StatefulSet: spec.replicas: the number is out of range",
            ),
            (Kind::Pod, r#"{"spec":"#, "Pod: spec: it ends too early"),
            (Kind::Pod, "{} {}", "Pod: something follows its end"),
        ] {
            let error = Object::read(kind, json).expect_err("it is odd");
            assert_eq!(error.to_string(), format!("cannot be read as a {words}"), "{json}");
        }
        assert_eq!(
            without_values(r#"invalid type: string "a\"b`c", expected i64"#),
            "invalid type: string, expected i64"
        );
    }
}
