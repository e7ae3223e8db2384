//! An object as the API server sent it: its name and version, and its text for the reader.
//!
//! kube's watches parse objects into a type, so that one malformed object ends a whole watch, and objects in requests and in
//! watches would be read by different code. So only the name and version are read here, and `Object::read` reads the text.

use facts::view::Id;
use serde::Deserialize;

/// An object that has not been parsed yet.
pub(super) struct RawObject<'a> {
    pub(super) id: Id,
    pub(super) version: String,
    pub(super) text: &'a str,
}

impl<'a> RawObject<'a> {
    /// Reads the name and version. Fails if the text is not an object of Kubernetes.
    pub(super) fn of(text: &'a str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct ObjectHead {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            name: Option<String>,
            namespace: Option<String>,
            resource_version: Option<String>,
        }
        let ObjectHead { metadata: Metadata { name, namespace, resource_version } } =
            serde_json::from_str(text)?;
        let id = Id::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
        Ok(Self { id, version: resource_version.unwrap_or_default(), text })
    }
}
