//! An object as the API server sent it: its name for the watch, its text for the reader.
//!
//! kube would have us choose a type; then one odd object ends a whole watch, and reviews and watches would read by two
//! different doors. So the text is kept for `Object::read` and dropped right after.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

/// An object that has not been parsed yet.
#[derive(Clone, Debug)]
pub(super) struct RawObject {
    meta: ObjectMeta,
    text: Box<RawValue>,
}

impl RawObject {
    pub(super) fn text(&self) -> &str {
        self.text.get()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Named {
            metadata: Who,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Who {
            name: Option<String>,
            namespace: Option<String>,
            uid: Option<String>,
            resource_version: Option<String>,
        }
        let text = Box::<RawValue>::deserialize(input)?;
        let Named { metadata } = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
        let Who { name, namespace, uid, resource_version } = metadata;
        Ok(Self {
            meta: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() },
            text,
        })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }
    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }
    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }
    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.api_version)
    }
    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
