//! The parts of the API server's protocol that several modules use: what its errors mean, and writes that affect exactly one
//! object.
//!
//! Must not know: the purpose of a request.

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::act::telemetry::chain;

/// The meaning of an error of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such object, or no such kind (404).
    NotFound,
    /// Another writer changed the object first, or the name is taken (409).
    Conflict,
    /// A list or a watch cannot continue from its version, because that version is too old (410).
    Expired,
    /// The caller lacks the right, or a webhook refused the request (403).
    Forbidden,
    /// The content is not valid, for example because it lacks the version of an existing object (422).
    Invalid,
    /// There are too many requests, or a budget refuses an eviction (429).
    TooMany,
    /// The API server, or a webhook that it called, failed (5xx).
    Broken,
    /// There was no answer (408, or the connection failed).
    NoAnswer,
    /// The error has another meaning.
    Other,
}

impl Fault {
    /// Returns the meaning of this error.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                404 => Self::NotFound,
                408 => Self::NoAnswer,
                409 => Self::Conflict,
                410 => Self::Expired,
                403 => Self::Forbidden,
                422 => Self::Invalid,
                429 => Self::TooMany,
                500.. => Self::Broken,
                _ => Self::Other,
            },
            kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
                Self::NoAnswer
            }
            _ => Self::Other,
        }
    }

    /// Returns whether the same request may succeed later, because its content was not the reason.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::TooMany | Self::Broken | Self::NoAnswer)
    }

    /// Returns whether the object is gone, or has another version than the one that was read.
    pub fn is_overtaken(self) -> bool {
        matches!(self, Self::NotFound | Self::Conflict)
    }
}

/// Returns the error for an answer that kube did not parse. Proxies and overloaded API servers answer in plain text.
pub fn refusal(code: u16, body: &[u8]) -> kube::Error {
    let plain = || Status::failure(&String::from_utf8_lossy(body), "");
    let status: Status = serde_json::from_slice(body).unwrap_or_else(|_| plain());
    kube::Error::Api(status.with_code(code).boxed())
}

/// Waits for a request, at most this long. The error is the one of the request, in words, or `late` if no answer came in time.
pub async fn outcome_in_words<T>(
    limit: Duration,
    late: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, String> {
    match timeout(limit, request).await {
        Ok(outcome) => outcome.map_err(|error| chain(&error)),
        Err(_) => Err(late.to_owned()),
    }
}

/// The object of a write, as it was read: the write fails if another object has this name by now.
#[derive(Clone, Copy, Debug)]
pub struct Exactly<'a> {
    /// The name of the object.
    pub name: &'a str,
    /// Its uid; if empty, any object with this name is meant.
    pub uid: &'a str,
    /// Its resourceVersion, so that a write fails if the object has changed; if empty, changes are overwritten.
    pub version: &'a str,
}

impl<'a> Exactly<'a> {
    /// Returns the object with this metadata.
    pub fn of(it: &'a ObjectMeta) -> Self {
        let [name, uid, version] =
            [&it.name, &it.uid, &it.resource_version].map(|it| it.as_deref().unwrap_or_default());
        Self { name, uid, version }
    }
}

/// Returns the parameters of a write by this field manager.
pub fn written_by(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

/// Sets annotations of this object, and removes those whose value is null. Returns the changed object.
pub async fn annotate<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    it: Exactly<'_>,
    manager: &str,
    annotations: &Value,
) -> kube::Result<K> {
    let mut patch = json!({ "metadata": { "annotations": annotations } });
    for (key, value) in [("uid", it.uid), ("resourceVersion", it.version)] {
        if !value.is_empty() {
            patch["metadata"][key] = json!(value);
        }
    }
    api.patch(it.name, &written_by(manager), &Patch::Merge(&patch)).await
}

/// Deletes this object, with background propagation. An object that does not exist counts as deleted.
pub async fn delete<K: Clone + DeserializeOwned + Debug>(api: &Api<K>, it: Exactly<'_>) -> kube::Result<()> {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: given(it.uid), resource_version: given(it.version) }),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    match api.delete(it.name, &params).await {
        Err(error) if Fault::of(&error) == Fault::NotFound => Ok(()),
        result => result.map(drop),
    }
}

/// Deletes this object, unless it has changed or another object has its name: then nothing is deleted, which is not an error.
pub async fn delete_unless_changed<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    it: Exactly<'_>,
) -> kube::Result<()> {
    match delete(api, it).await {
        Err(error) if Fault::of(&error) == Fault::Conflict => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_overload_failures_and_missing_answers_are_transient() {
        for (code, is_transient) in [
            (400, false),
            (403, false),
            (404, false),
            (408, true),
            (409, false),
            (410, false),
            (422, false),
            (429, true),
            (500, true),
            (504, true),
        ] {
            assert_eq!(Fault::of(&refusal(code, b"")).is_transient(), is_transient, "{code}");
        }
        let no_connection = kube::Error::Service(Box::new(io::Error::other("connection refused")));
        assert_eq!(Fault::of(&no_connection), Fault::NoAnswer);
        assert!(Fault::of(&no_connection).is_transient());
    }

    #[test]
    fn an_answer_in_plain_text_is_the_message() {
        let status = br#"{ "kind": "Status", "message": "no", "code": 500 }"#;
        for (body, message) in [(&b"Too many requests"[..], "Too many requests"), (status, "no")] {
            let kube::Error::Api(status) = refusal(429, body) else { panic!("it is an answer") };
            assert_eq!((status.code, &*status.message), (429, message));
        }
    }
}
