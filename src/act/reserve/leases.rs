//! Where reservations lie: Leases at the API server, and the time that its answers carry.
//!
//! Must not know: what stands in a Lease.

use axum::http::StatusCode;
use axum::http::header::DATE;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{GetParams, PostParams, Request};
use kube::client::Body;
use kube::core::Status;
use kube::{Api, Client, Error};

/// What was asked for, and the `Date` of the answer, if it had one that can be read.
type Dated<T> = (T, Option<Timestamp>);

/// Where reservations lie.
pub trait Store: Send + Sync {
    /// This Lease, if it exists.
    fn read(&self, name: &str) -> impl Future<Output = kube::Result<Dated<Option<Lease>>>> + Send;
    /// Writes it only over the version that it carries; without one only if there is none.
    fn write(&self, name: &str, lease: &Lease) -> impl Future<Output = kube::Result<Dated<Lease>>> + Send;
}

/// Those of the guard's own namespace.
#[derive(Debug)]
pub struct Leases {
    api: Api<Lease>,
}

impl Leases {
    /// Of this namespace.
    pub(super) fn of(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    fn requests(&self) -> Request {
        Request::new(self.api.resource_url())
    }

    /// The answer; `None`: there is no such Lease.
    async fn ask(&self, request: axum::http::Request<Vec<u8>>) -> kube::Result<Dated<Option<Lease>>> {
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
        let plain = || Status::failure(&String::from_utf8_lossy(&body), "");
        let said = serde_json::from_slice(&body).unwrap_or_else(|_| plain());
        Err(Error::Api(Status { code: code.as_u16(), ..said }.boxed()))
    }
}

impl Store for Leases {
    async fn read(&self, name: &str) -> kube::Result<Dated<Option<Lease>>> {
        let request = self.requests().get(name, &GetParams::default()).map_err(Error::BuildRequest)?;
        self.ask(request).await
    }

    async fn write(&self, name: &str, lease: &Lease) -> kube::Result<Dated<Lease>> {
        let text = serde_json::to_vec(lease).map_err(Error::SerdeError)?;
        // Also creates it: a Lease that was deleted comes back, by a right that names it.
        let request =
            self.requests().replace(name, &PostParams::default(), text).map_err(Error::BuildRequest)?;
        match self.ask(request).await? {
            (Some(lease), date) => Ok((lease, date)),
            (None, _) => Err(Error::Api(Status { code: 404, ..Status::default() }.boxed())),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Response;
    use tower::service_fn;

    use super::*;

    /// Something between us and the API server, or an API server that is overloaded, answers with plain words.
    #[tokio::test]
    async fn an_answer_in_plain_words_is_told_as_it_is() {
        let service = service_fn(async |_: axum::http::Request<Body>| {
            let answer = Response::builder().status(429).body(Body::from(b"Too many requests".to_vec()));
            Ok::<_, std::convert::Infallible>(answer.unwrap())
        });
        let leases = Leases::of(Client::new(service, "default"), "gatera");
        let Err(Error::Api(status)) = leases.read("it").await else { panic!("it was refused") };
        assert_eq!((status.code, &*status.message), (429, "Too many requests"));
    }
}
