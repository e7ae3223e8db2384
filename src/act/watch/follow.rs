//! A list and its watch, which records the time up to which it has missed nothing.
//!
//! Must not know: what becomes of its messages. If a connection stalls without being closed, no error is reported, and a proxy
//! in between may go on acknowledging TCP segments. So a watch is requested in rounds of a few seconds: the API server ends each
//! round, and this end, like an event or a bookmark, proves that nothing was missed. A watch that is silent for longer is cut
//! off and started again. kube's own `watcher` hides bookmarks and the ends of watches, and treats a broken stream as one that
//! ended.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::core::{Request, Status};
use objects::Kind;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::pages::{self, ListPages};
use super::sent::RawObject;
use super::{Message, message_about};
use crate::act::api::{Fault, refusal};
use crate::act::guard::{Guard, WatchFreshness};
use crate::act::telemetry::{chain, repeated};

/// The length of one round of a watch, in seconds. Each watch sends a request this often, on a connection that stays open.
const ROUND_SECONDS: u32 = 8;
/// The length of a round after something may have been missed, in seconds: short, because its end proves that everything
/// was sent.
const CATCH_UP_SECONDS: u32 = 1;
/// The time after the planned end of a round within which a working API server always ends it.
const ROUND_GRACE: Duration = Duration::from_secs(3);
/// The time within which a round, or a list of a pack's kind, ends unless something is wrong.
const ROUND_DEADLINE: Duration = Duration::from_secs(15);
/// The time within which the API server must begin its answer to a watch.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A round that ends earlier than this before its planned end was cut off.
const EARLY_END: Duration = Duration::from_millis(500);
/// The pause after a first failure. It doubles with each further one, up to `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Follows one collection, or the part of it that a selector matches.
pub(super) struct Follower {
    pub(super) client: Client,
    pub(super) kind: Kind,
    /// The URL path of the collection.
    pub(super) url: String,
    pub(super) selector: Option<String>,
    /// The index of this watch among all watches.
    pub(super) watch: usize,
    pub(super) freshness: WatchFreshness,
    /// The guard, whose settings determine which packs are on.
    pub(super) guard: Arc<Guard>,
    /// Whether to list again, because objects that did not fit into memory may fit now.
    pub(super) relist: Arc<AtomicBool>,
    pub(super) messages: mpsc::Sender<(usize, Message)>,
}

/// The last report to the keeper about a pack's kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KindReport {
    None,
    Reachable,
    Unreachable,
    Absent,
}

/// The state of a watch between two rounds.
struct WatchProgress {
    version: String,
    /// Whether nothing was missed up to `data_at`.
    caught_up: bool,
    /// When the last data arrived.
    data_at: Instant,
}

/// The reason why a list or a round was not completed.
#[derive(Debug, thiserror::Error)]
enum Interruption {
    #[error("the API server no longer keeps this resourceVersion")]
    Expired,
    #[error("no data arrived for {}s", .0.as_secs())]
    Silent(Duration),
    #[error("the request to the API server failed")]
    Request(#[source] kube::Error),
    #[error("an answer from the API server could not be read")]
    Unreadable(#[source] serde_json::Error),
    #[error("the pack of this kind is switched off")]
    PackOff,
    #[error("the receiver is gone")]
    ReceiverGone,
}

impl Interruption {
    /// Returns whether the collection does not exist, or its pack is switched off.
    fn is_absent(&self) -> bool {
        match self {
            Self::PackOff => true,
            Self::Request(error) => Fault::of(error) == Fault::NotFound,
            _ => false,
        }
    }
}

impl From<kube::Error> for Interruption {
    fn from(error: kube::Error) -> Self {
        if Fault::of(&error) == Fault::Expired { Self::Expired } else { Self::Request(error) }
    }
}

impl Follower {
    /// Lists and watches until the receiver is gone.
    pub(super) async fn follow(self) {
        let (mut progress, mut pause, mut reported) = (None, FIRST_PAUSE, KindReport::None);
        loop {
            let outcome = if self.pack_is_off() {
                Err(Interruption::PackOff)
            } else {
                self.list_or_round_with_report(&mut progress, &mut reported).await
            };
            let interruption = match outcome {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    let before = std::mem::replace(&mut reported, KindReport::Reachable);
                    if before == KindReport::Unreachable && self.send(Message::Reachable(true)).await.is_err()
                    {
                        return;
                    }
                    continue;
                }
                Err(Interruption::ReceiverGone) => return,
                Err(interruption) => interruption,
            };
            // The kind may be installed or switched on later, so it is requested again after the time of a round.
            if self.kind.is_optional() && interruption.is_absent() {
                progress = None;
                if reported != KindReport::Absent && self.report_absent().await.is_err() {
                    return;
                }
                (reported, pause) = (KindReport::Absent, FIRST_PAUSE);
                self.freshness.record_now(self.watch);
                sleep(Duration::from_secs(u64::from(ROUND_SECONDS))).await;
                continue;
            }
            let error = chain(&interruption);
            if let Some(times) = repeated::times("watch", &error) {
                warn!(watch = %self.url, selector = self.selector, error, times, "a list or watch failed and is started again");
            }
            match (&interruption, &mut progress) {
                (Interruption::Expired, progress) => *progress = None,
                (_, Some(progress)) => progress.caught_up = false,
                (_, None) => {}
            }
            // If a report was sent before, a first failure is not reported: the request is repeated soon.
            if (reported == KindReport::None || pause > FIRST_PAUSE)
                && self.report_unreachable(&mut reported).await.is_err()
            {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Returns whether the pack of this kind is switched off. The answer may change: settings can be reloaded at any time.
    fn pack_is_off(&self) -> bool {
        self.kind.is_optional() && !crate::rulebook().reads(self.kind, &self.guard.settings.load())
    }

    /// Reports that there are no objects of this kind, because it is not offered or its pack is switched off.
    async fn report_absent(&self) -> Result<(), Interruption> {
        for message in [Message::ListBegun, Message::Serves(false), Message::Listed] {
            self.send(message).await?;
        }
        Ok(())
    }

    /// Reports that the kind of a pack cannot be listed now, so that no other kind waits for it and its rules answer UNKNOWN.
    /// The kind counts as offered: if it were not, the API server would answer that it does not exist.
    async fn report_unreachable(&self, reported: &mut KindReport) -> Result<(), Interruption> {
        if self.kind.is_optional() && *reported != KindReport::Unreachable {
            *reported = KindReport::Unreachable;
            self.send(Message::Serves(true)).await?;
            self.send(Message::Reachable(false)).await?;
        }
        Ok(())
    }

    /// Does what `list_or_round` does, and reports to the keeper if that takes too long for a kind of a pack.
    async fn list_or_round_with_report(
        &self,
        progress: &mut Option<WatchProgress>,
        reported: &mut KindReport,
    ) -> Result<(), Interruption> {
        let limit = if *reported == KindReport::None { ROUND_GRACE } else { ROUND_DEADLINE };
        let mut attempt = std::pin::pin!(self.list_or_round(progress));
        if self.kind.is_optional() {
            if let Ok(outcome) = timeout(limit, attempt.as_mut()).await {
                return outcome;
            }
            self.report_unreachable(reported).await?;
        }
        attempt.await
    }

    /// Runs one list, or one round of the watch.
    async fn list_or_round(&self, progress: &mut Option<WatchProgress>) -> Result<(), Interruption> {
        if self.relist.swap(false, Ordering::Relaxed) {
            *progress = None;
        }
        let Some(progress) = progress else {
            let version = self.list().await?;
            *progress = Some(WatchProgress { version, caught_up: false, data_at: Instant::now() });
            return Ok(());
        };
        let (begun, seconds) =
            (Instant::now(), if progress.caught_up { ROUND_SECONDS } else { CATCH_UP_SECONDS });
        self.round(progress, seconds).await?;
        // A proxy may end rounds at once; without a pause it would be flooded with requests.
        if begun.elapsed() < Duration::from_secs(u64::from(seconds)) / 2 {
            sleep(FIRST_PAUSE).await;
        }
        Ok(())
    }

    /// Lists the collection, and returns the version from which the watch continues.
    async fn list(&self) -> Result<String, Interruption> {
        self.send(Message::ListBegun).await?;
        let requested_at = Instant::now();
        let params = ListParams { label_selector: self.selector.clone(), ..ListParams::default() };
        let pages = ListPages::of(&self.client, self.url.clone(), params);
        let mut pages = pages.metadata_only(self.kind == Kind::ConfigMap);
        while let Some(object) = pages.next().await? {
            let message = self.message(RawObject::of(&object.text).map_err(Interruption::Unreadable)?);
            self.send(message).await?;
        }
        if self.kind.is_optional() {
            self.send(Message::Serves(true)).await?;
        }
        self.send(Message::Listed).await?;
        // All pages show the state at the time when the first one was requested.
        self.freshness.record_at(self.watch, requested_at);
        Ok(pages.version())
    }

    /// Watches for this number of seconds.
    async fn round(&self, progress: &mut WatchProgress, seconds: u32) -> Result<(), Interruption> {
        let params = WatchParams {
            label_selector: self.selector.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(&self.url);
        let request = if self.kind == Kind::ConfigMap {
            request.watch_metadata(&params, &progress.version)
        } else {
            request.watch(&params, &progress.version)
        };
        let request = request.map_err(kube::Error::BuildRequest)?.map(Body::from);
        let begun = Instant::now();
        let answer = within(ANSWER_TIMEOUT, self.client.send(request)).await??;
        let code = answer.status().as_u16();
        let mut body = answer.into_body();
        if code != 200 {
            return Err(refusal(code, &within(ANSWER_TIMEOUT, body.collect()).await??.to_bytes()).into());
        }
        let silence = ROUND_GRACE + Duration::from_secs(u64::from(seconds));
        let (mut text, mut searched, mut permit) = (Vec::new(), 0, None);
        loop {
            let waiting_since = Instant::now();
            let frame = within(silence, body.frame()).await?;
            progress.data_at = Instant::now();
            let Some(frame) = frame else { break };
            let Ok(data) = frame?.into_data() else { continue };
            if permit.is_none() && text.len() + data.len() > pages::UNLIMITED_TEXT_SIZE {
                permit = pages::large_text_permit().await;
            }
            text.extend_from_slice(&data);
            while let Some(end) = text[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = text.split_off(searched + end + 1);
                self.apply_line(&text, progress).await?;
                (text, searched) = (rest, 0);
            }
            searched = text.len();
            permit = permit.filter(|_| searched > pages::UNLIMITED_TEXT_SIZE);
            // If the keeper accepted no messages for this long, the API server may have cut off the watch.
            if waiting_since.elapsed() > silence + ROUND_GRACE {
                return Err(Interruption::Silent(waiting_since.elapsed()));
            }
        }
        // API servers also end the watch of a client that reads too slowly, and then events are missing.
        if begun.elapsed() + EARLY_END >= Duration::from_secs(u64::from(seconds)) {
            self.up_to_date(progress);
        } else {
            progress.caught_up = false;
        }
        Ok(())
    }

    /// Handles one line of a watch.
    async fn apply_line(&self, line: &[u8], progress: &mut WatchProgress) -> Result<(), Interruption> {
        let WatchLine { kind, object } = serde_json::from_slice(line).map_err(Interruption::Unreadable)?;
        if kind == "ERROR" {
            let code = serde_json::from_str::<Status>(object.get()).map_or(500, |status| status.code);
            return Err(refusal(code, object.get().as_bytes()).into());
        }
        let sent = RawObject::of(object.get()).map_err(Interruption::Unreadable)?;
        progress.version.clone_from(&sent.version);
        match &*kind {
            "BOOKMARK" => self.up_to_date(progress),
            "DELETED" => self.send_event(Message::Gone(sent.id), progress).await?,
            _ => self.send_event(self.message(sent), progress).await?,
        }
        Ok(())
    }

    /// Sends a change to the keeper. After an interruption a change may be one of many, so it does not prove that the watch has
    /// caught up.
    async fn send_event(&self, message: Message, progress: &WatchProgress) -> Result<(), Interruption> {
        self.send(message).await?;
        if progress.caught_up {
            self.freshness.record_at(self.watch, progress.data_at);
        }
        Ok(())
    }

    fn up_to_date(&self, progress: &mut WatchProgress) {
        progress.caught_up = true;
        self.freshness.record_at(self.watch, progress.data_at);
    }

    fn message(&self, sent: RawObject<'_>) -> Message {
        match self.kind {
            Kind::ConfigMap => Message::Version(sent.id, sent.version),
            kind => message_about(kind, sent),
        }
    }

    async fn send(&self, message: Message) -> Result<(), Interruption> {
        self.messages.send((self.watch, message)).await.map_err(|_| Interruption::ReceiverGone)
    }
}

/// The content of one line of a watch.
#[derive(Deserialize)]
struct WatchLine<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Returns the outcome if it arrives within the limit. If the process was suspended meanwhile, data that waited for it is
/// not accepted as new.
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Interruption> {
    let begun = Instant::now();
    match timeout(limit, future).await {
        Ok(outcome) if begun.elapsed() <= limit + ROUND_GRACE => Ok(outcome),
        _ => Err(Interruption::Silent(begun.elapsed())),
    }
}
