//! A proxy between a guard and the API server that forwards a given number of writes into a namespace and none after them. The
//! answer to the last write never arrives, as if the guard had been killed at that moment.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, header};
use axum::response::Response;
use kube::Client;
use tokio::runtime::Runtime;

use crate::lab::ControlPlane;
use crate::wire::client_without_credentials;

pub struct Gate {
    address: SocketAddr,
    limit: Arc<Mutex<Option<Limit>>>,
    // Runs the proxy until it is dropped.
    _runtime: Runtime,
}

struct Limit {
    /// The part that all paths in the namespace have.
    folder: String,
    /// The number of writes that are still forwarded.
    left: usize,
    reached: bool,
    /// The number of requests without an answer.
    open: usize,
}

impl Gate {
    pub fn start(plane: &ControlPlane) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let limit = Arc::<Mutex<Option<Limit>>>::default();
        let (api_server, limits) = (runtime.block_on(client_without_credentials(plane)), Arc::clone(&limit));
        let address = runtime.block_on(async move {
            let app = Router::new().fallback(move |request: Request| {
                let (api_server, limits) = (api_server.clone(), Arc::clone(&limits));
                let is_counted = is_counted(&limits, &request);
                async move {
                    if is_counted && is_over(&limits, 0) {
                        std::future::pending::<()>().await;
                    }
                    let response = forward(&api_server, request).await;
                    if is_counted && is_over(&limits, usize::from(response.status().is_success())) {
                        std::future::pending::<()>().await;
                    }
                    if let Some(limit) = limits.lock().unwrap().as_mut().filter(|_| is_counted) {
                        limit.open -= 1;
                    }
                    response
                }
            });
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move { axum::serve(listener, app).await });
            address
        });
        Self { address, limit, _runtime: runtime }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Allows this many writes into the namespace from now on.
    pub fn allow_writes(&self, namespace: &str, writes: usize) {
        let folder = format!("/namespaces/{namespace}/");
        *self.limit.lock().unwrap() = Some(Limit { folder, left: writes, reached: false, open: 0 });
    }

    /// Whether every write was answered.
    pub fn is_idle(&self) -> bool {
        self.limit.lock().unwrap().as_ref().is_none_or(|limit| limit.open == 0)
    }

    /// Whether a request waits for an answer that never arrives.
    pub fn holds_a_request(&self) -> bool {
        self.limit.lock().unwrap().as_ref().is_some_and(|limit| limit.reached)
    }
}

/// Whether the request writes into the limited namespace. A write that the API server refuses (a conflict) changes nothing and is
/// not counted.
fn is_counted(limit: &Mutex<Option<Limit>>, request: &Request) -> bool {
    let mut limit = limit.lock().unwrap();
    let Some(limit) = limit.as_mut() else { return false };
    let is_counted = request.method() != Method::GET && request.uri().path().contains(&limit.folder);
    limit.open += usize::from(is_counted);
    is_counted
}

/// Counts successful writes; returns whether the limit is reached.
fn is_over(limit: &Mutex<Option<Limit>>, written: usize) -> bool {
    let mut limit = limit.lock().unwrap();
    let Some(limit) = limit.as_mut() else { return false };
    limit.left = limit.left.saturating_sub(written);
    limit.reached |= limit.left == 0;
    limit.left == 0
}

async fn forward(api_server: &Client, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    head.headers.remove(header::HOST);
    let request = axum::http::Request::from_parts(head, kube::client::Body::from(bytes.to_vec()));
    let response = api_server.send(request).await.unwrap();
    let (mut head, body) = response.into_parts();
    for hop in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        head.headers.remove(hop);
    }
    Response::from_parts(head, Body::new(body))
}
