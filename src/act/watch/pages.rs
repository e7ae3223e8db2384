//! A list from the API server, read page by page and, within a page, one object at a time.
//!
//! Owns: how much text of lists and watches is in memory at once. One object may be three megabytes of text that users wrote,
//! and all kinds are listed at the same time, so a page is never held as a whole, and only few large objects are held at once.
//! Must not know: what is read of an object.

mod split;

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use kube::Client;
use kube::api::ListParams;
use kube::client::Body;
use kube::core::{ListMeta, Request};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::act::api::refusal;
use split::ListSplitter;

/// The time within which a page must begin to arrive.
const PAGE_DEADLINE: Duration = Duration::from_secs(60);
/// The longest silence within a page.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// The number of objects in the first page. API servers hold a whole page in memory, so the number grows only while pages
/// are small.
const FIRST_LIMIT: u32 = 64;
/// The maximum number of objects in a page.
const MAX_LIMIT: u32 = 500;
/// The size of a page in bytes below which the next page has more objects; above four times this size it has fewer.
const PAGE_SIZE: usize = 1 << 20;
/// The bytes of one object's text that may be held at any time. A longer text needs a permit.
pub(super) const UNLIMITED_TEXT_SIZE: usize = 64 << 10;
/// The permits for lists and watches that hold a larger text: two at the same time. They bound the memory of the process, so all
/// lists and watches share them.
static LARGE_TEXT_PERMITS: Semaphore = Semaphore::const_new(2);

/// Waits until another large text may be held.
pub(super) async fn large_text_permit() -> Option<SemaphorePermit<'static>> {
    // The semaphore is never closed.
    LARGE_TEXT_PERMITS.acquire().await.ok()
}

/// One list. It ends after its last page.
pub(crate) struct ListPages {
    client: Client,
    url: String,
    params: ListParams,
    metadata_only: bool,
    page: Option<ListPage>,
    /// The version of the whole list, once its last page has been read.
    version: Option<String>,
}

/// The text of one object. While a long text is held, others may have to wait until it is dropped.
pub(crate) struct ListedObject {
    /// The object as JSON.
    pub(crate) text: String,
    /// The permit for a long text. It is declared after the text, so that it is dropped after it.
    _permit: Option<SemaphorePermit<'static>>,
}

/// The answer to one request.
struct ListPage {
    body: Body,
    data: Bytes,
    split: ListSplitter,
    permit: Option<SemaphorePermit<'static>>,
    bytes: usize,
}

impl ListPages {
    /// Prepares a list. The first request is sent by `next`.
    pub(crate) fn of(client: &Client, url: String, params: ListParams) -> Self {
        let (client, params) = (client.clone(), params.limit(FIRST_LIMIT));
        Self { client, url, params, metadata_only: false, page: None, version: None }
    }

    /// Sets whether the API server sends only the metadata of each object.
    pub(crate) fn metadata_only(self, metadata_only: bool) -> Self {
        Self { metadata_only, ..self }
    }

    /// Returns the version of the list, from which a watch can continue; empty before the end of the list.
    pub(crate) fn version(self) -> String {
        self.version.unwrap_or_default()
    }

    /// Returns the next object; `None` after the last one.
    pub(crate) async fn next(&mut self) -> kube::Result<Option<ListedObject>> {
        while self.version.is_none() {
            let page = match &mut self.page {
                Some(page) => page,
                None => {
                    let page = self.request_page().await?;
                    self.page.insert(page)
                }
            };
            if let Some(object) = page.next().await? {
                return Ok(Some(object));
            }
            let (bytes, meta) = (page.bytes, page.split.metadata().map_err(kube::Error::SerdeError)?);
            self.page = None;
            self.finish_page(bytes, meta);
        }
        Ok(None)
    }

    fn finish_page(&mut self, bytes: usize, meta: ListMeta) {
        self.params.limit = self.params.limit.map(|limit| next_limit(limit, bytes));
        match meta.continue_.filter(|token| !token.is_empty()) {
            Some(token) => self.params.continue_token = Some(token),
            None => self.version = Some(meta.resource_version.unwrap_or_default()),
        }
    }

    async fn request_page(&mut self) -> kube::Result<ListPage> {
        let request = Request::new(&self.url);
        let request =
            if self.metadata_only { request.list_metadata(&self.params) } else { request.list(&self.params) };
        let request = request.map_err(kube::Error::BuildRequest)?.map(Body::from);
        let answer = in_time(PAGE_DEADLINE, self.client.send(request)).await??;
        let (code, body) = (answer.status().as_u16(), answer.into_body());
        if code == 200 {
            return Ok(ListPage {
                body,
                data: Bytes::new(),
                split: ListSplitter::default(),
                permit: None,
                bytes: 0,
            });
        }
        let text = in_time(MAX_SILENCE, body.collect()).await??.to_bytes();
        Err(refusal(code, &text))
    }
}

impl ListPage {
    async fn next(&mut self) -> kube::Result<Option<ListedObject>> {
        loop {
            if self.data.is_empty() {
                let Some(frame) = in_time(MAX_SILENCE, self.body.frame()).await? else { return Ok(None) };
                self.data = frame?.into_data().unwrap_or_default();
                self.bytes += self.data.len();
                continue;
            }
            if self.permit.is_none() && self.split.object_len() > UNLIMITED_TEXT_SIZE {
                self.permit = large_text_permit().await;
            }
            let taken = self.data.len().min(UNLIMITED_TEXT_SIZE);
            let (used, object) = self.split.take(&self.data[..taken]);
            let _ = self.data.split_to(used);
            if let Some(object) = object {
                let text = String::from_utf8(object).map_err(kube::Error::FromUtf8)?;
                return Ok(Some(ListedObject { text, _permit: self.permit.take() }));
            }
        }
    }
}

/// Returns the number of objects to request after a page with this limit and this number of bytes.
fn next_limit(limit: u32, bytes: usize) -> u32 {
    match bytes {
        _ if bytes < PAGE_SIZE => (limit * 2).min(MAX_LIMIT),
        _ if bytes > PAGE_SIZE * 4 => (limit / 2).max(1),
        _ => limit,
    }
}

async fn in_time<T>(limit: Duration, request: impl Future<Output = T>) -> kube::Result<T> {
    let silent = |_| kube::Error::Service(format!("no answer within {}s", limit.as_secs()).into());
    timeout(limit, request).await.map_err(silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_while_they_are_small_and_shrink_when_they_are_large() {
        let small = std::iter::successors(Some(FIRST_LIMIT), |limit| Some(next_limit(*limit, 1000)));
        assert_eq!(small.take(5).collect::<Vec<_>>(), [64, 128, 256, 500, 500]);
        // Objects of a megabyte and a half.
        let large = std::iter::successors(Some(FIRST_LIMIT), |limit| {
            Some(next_limit(*limit, *limit as usize * 1_500_000))
        });
        assert_eq!(large.take(8).collect::<Vec<_>>(), [64, 32, 16, 8, 4, 2, 2, 2]);
    }
}
