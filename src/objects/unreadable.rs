//! Reading an object, and the message for one that cannot be read.
//!
//! The message names the field and the type of its value, but not the value, which may be a secret. The API server sends
//! the JSON, so its lines and columns would not help the reader.

use serde::Deserialize;

/// The reason why only the name of an object is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The object does not match its kind.
    #[error("cannot be read as a {kind}: {field}{}{problem}", if field.is_empty() { "" } else { ": " })]
    Mismatch {
        kind: &'static str,
        /// The field that is wrong; empty: the object as a whole.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no room to keep the object. A request about it contains the whole object, so it can be judged.
    #[error("is not examined: {0}")]
    NotExamined(&'static str),
}

impl Unreadable {
    /// Returns the field that is wrong; empty: the object as a whole.
    pub fn field(&self) -> &str {
        match self {
            Self::Mismatch { field, .. } => field,
            Self::NotExamined(_) => "",
        }
    }
}

/// Reads one object of the kind with this name into its type.
pub(super) fn read_as<T: for<'de> Deserialize<'de>>(kind: &'static str, json: &str) -> Result<T, Unreadable> {
    serde_json::from_str(json).map_err(|_| {
        let (field, problem) = problem::<T>(json);
        Unreadable::Mismatch { kind, field, problem }
    })
}

/// The beginning of an error in a template. A template is parsed separately, so the path of such an error ends at the
/// template, and the error names the field in it.
const WITHIN: &str = "within ";

/// Returns the error in a part that was parsed separately.
pub(super) fn within<T: for<'de> Deserialize<'de>>(json: &str) -> String {
    let (field, problem) = problem::<T>(json);
    format!("{WITHIN}{field}: {problem}")
}

/// Parses the object again, and returns the field and the problem.
fn problem<T: for<'de> Deserialize<'de>>(json: &str) -> (String, String) {
    let read = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(json));
    let Err(error) = read else {
        return (String::new(), "there is more after the end of the object".to_owned());
    };
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

/// Rewrites the parser's message in terms of the field.
fn plain(problem: &str) -> String {
    let types = problem.strip_prefix("invalid type: ").and_then(|types| types.split_once(", expected "));
    match types {
        Some((found, expected)) => format!("expected {}, found {}", type_name(expected), type_name(found)),
        None if problem.starts_with("EOF") => "the value is cut off".to_owned(),
        None if problem.starts_with("invalid value: integer") => "the number is out of range".to_owned(),
        None => problem.to_owned(),
    }
}

fn type_name(word: &str) -> &str {
    match word {
        "a string" | "string" | "text" => "a string",
        "a boolean" | "boolean" => "true or false",
        "a sequence" | "sequence" => "a list",
        "integer" | "i32" | "i64" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "floating point" | "f64" => "a number",
        "null" | "unit value" => "nothing",
        "map" | "a map" => "an object",
        _ if word.starts_with("struct ") => "an object",
        other => other,
    }
}

/// Removes the value: `invalid type: string "hunter2", expected i64 at …` becomes `invalid type: string, expected i64
/// at …`; serde quotes numbers and booleans in backticks.
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
    use crate::{Kind, Object};

    #[test]
    fn an_unreadable_object_is_described_without_its_values() {
        for (kind, json, words) in [
            (
                Kind::StatefulSet,
                r#"{"spec":{"template":{"spec":{"containers":[{"env":[{"name":"P","value":4711}]}]}}}}"#,
                "StatefulSet: spec.template.spec.containers[0].env[0].value: expected a string, found a whole number",
            ),
            (
                Kind::Pod,
                r#"{"spec":{"containers":"secret"}}"#,
                "Pod: spec.containers: expected a list, found a string",
            ),
            (Kind::Pod, r#"{"metadata":"x"}"#, "Pod: metadata: expected an object, found a string"),
            (
                Kind::StatefulSet,
                r#"{"spec":{"replicas":"4711"}}"#,
                "StatefulSet: spec.replicas: expected a whole number, found a string",
            ),
            (Kind::Pod, "true", "Pod: expected an object, found true or false"),
            (
                Kind::Secret,
                r#"{"data":{"root":4711}}"#,
                "Secret: data.root: expected a string, found a whole number",
            ),
            (
                Kind::Claim,
                r#"{"spec":{"resources":{"requests":{"storage":true}}}}"#,
                "PersistentVolumeClaim: spec.resources.requests.storage: expected a number or a string, found true or false",
            ),
            (
                Kind::StatefulSet,
                r#"{"spec":{"replicas":18446744073709551615}}"#,
                "StatefulSet: spec.replicas: the number is out of range",
            ),
            (Kind::Pod, r#"{"spec":"#, "Pod: spec: the value is cut off"),
            (Kind::Pod, "{} {}", "Pod: there is more after the end of the object"),
        ] {
            let error = Object::read(kind, json).expect_err("it is unreadable");
            assert_eq!(error.to_string(), format!("cannot be read as a {words}"), "{json}");
        }
        assert_eq!(
            without_values(r#"invalid type: string "a\"b`c", expected i64"#),
            "invalid type: string, expected i64"
        );
    }
}
