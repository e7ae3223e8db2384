//! Reads and writes the Leases in the guard's own namespace, by which its replicas agree, and returns the date of each answer.
//!
//! Must not know: what a Lease contains.

use axum::http::StatusCode;
use axum::http::header::DATE;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{GetParams, PostParams, Request};
use kube::client::Body;
use kube::{Api, Client, Error};

use crate::act::api::refusal;

/// The object that was requested, and the `Date` of the answer, if that can be read.
pub type Dated<T> = (T, Option<Timestamp>);

/// A place where Leases are kept.
pub trait LeaseStore: Send + Sync {
    /// Reads this Lease, if it exists.
    fn read(&self, name: &str) -> impl Future<Output = kube::Result<Dated<Option<Lease>>>> + Send;
    /// Replaces the Lease if it still has the version that `lease` carries. Without a version, creates it if it does not exist.
    fn write(&self, name: &str, lease: &Lease) -> impl Future<Output = kube::Result<Dated<Lease>>> + Send;
}

/// The Leases of the guard's namespace, at the API server.
#[derive(Debug)]
pub struct Leases {
    api: Api<Lease>,
}

impl Leases {
    /// Returns the Leases of this namespace.
    pub(super) fn of(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    fn requests(&self) -> Request {
        Request::new(self.api.resource_url())
    }

    /// Sends a request and returns the Lease in the answer; `None`: there is no such Lease.
    async fn send(&self, request: axum::http::Request<Vec<u8>>) -> kube::Result<Dated<Option<Lease>>> {
        let answer = self.api.clone().into_client().send(request.map(Body::from)).await?;
        let date = answer.headers().get(DATE).and_then(|it| rfc2822::parse(it.to_str().ok()?).ok());
        let date = date.map(|it| it.timestamp());
        let code = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if code == StatusCode::NOT_FOUND {
            return Ok((None, date));
        }
        if code.is_success() {
            return Ok((Some(serde_json::from_slice(&body).map_err(Error::SerdeError)?), date));
        }
        Err(refusal(code.as_u16(), &body))
    }
}

impl LeaseStore for Leases {
    async fn read(&self, name: &str) -> kube::Result<Dated<Option<Lease>>> {
        let request = self.requests().get(name, &GetParams::default()).map_err(Error::BuildRequest)?;
        self.send(request).await
    }

    async fn write(&self, name: &str, lease: &Lease) -> kube::Result<Dated<Lease>> {
        let text = serde_json::to_vec(lease).map_err(Error::SerdeError)?;
        // A PUT also creates a Lease that was deleted, and RBAC can limit it to a name, unlike a POST.
        let request =
            self.requests().replace(name, &PostParams::default(), text).map_err(Error::BuildRequest)?;
        match self.send(request).await? {
            (Some(lease), date) => Ok((lease, date)),
            (None, _) => Err(refusal(404, b"there is no such Lease")),
        }
    }
}
