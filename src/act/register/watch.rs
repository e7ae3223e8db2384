//! The watch of a single object, selected by its name.
//!
//! Owns: the stream, and the three states that it reports. kube's `watch_object` requests watches of five minutes; on a
//! connection that stalls without closing, such a watch would receive nothing for that time. These watches end after seconds
//! and continue: one request each time, and bookmarks keep the position without a new list. kube abandons a watch that is
//! silent for five seconds longer than its duration; the client's read timeout (`connect.rs`) may end it a second earlier.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::log_watch_error;

/// The duration of one watch in seconds. A dead connection is noticed after five more seconds at most.
const WATCH_SECONDS: u32 = 8;
/// The pause between two attempts while the API server cannot be reached; each attempt of the three watches is a small request.
/// It never grows, because a registration that waits for half a minute after an outage makes the outage longer.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// The last known state of an object.
#[derive(Clone, Debug, Default)]
pub(super) enum Watched<T> {
    /// No watch has reported anything yet.
    #[default]
    NotYet,
    /// The object does not exist.
    Gone,
    /// The object, as it was last reported.
    There(T),
}

impl<T> Watched<T> {
    pub(super) fn there(&self) -> Option<&T> {
        match self {
            Self::There(object) => Some(object),
            Self::NotYet | Self::Gone => None,
        }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Watched<U> {
        match self {
            Self::NotYet => Watched::NotYet,
            Self::Gone => Watched::Gone,
            Self::There(object) => Watched::There(change(object)),
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}

/// Returns the states of the object with this name: one for each change, including its deletion. Failures are logged, and the
/// watch continues.
pub(super) fn object<K>(api: Api<K>, name: &str) -> impl Stream<Item = Watched<K>> + use<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let mut listed = false;
    watcher(api, config).filter_map(move |event| {
        let failed = event.is_err();
        let state = match event {
            Err(error) => {
                log_watch_error(&error, &K::kind(&()));
                None
            }
            Ok(Event::Init) => {
                listed = false;
                None
            }
            Ok(Event::InitApply(object)) => {
                listed = true;
                Some(Watched::There(object))
            }
            Ok(Event::Apply(object)) => Some(Watched::There(object)),
            // The object was deleted between two watches, or never existed.
            Ok(Event::InitDone) => (!listed).then_some(Watched::Gone),
            Ok(Event::Delete(_)) => Some(Watched::Gone),
        };
        async move {
            if failed {
                sleep(RETRY_PAUSE).await;
            }
            state
        }
    })
}
