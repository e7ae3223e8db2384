//! The connection to an API server, for every command that needs one.
//!
//! Owns: the identity and the timeouts of a client, and the address of the server in its errors. `kubeconfig.rs` decides which
//! kubeconfig is used.

mod kubeconfig;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::client::ClientBuilder;
use kube::{Api, Client, Config};
use tower::BoxError;
use tower::util::MapErrLayer;

use self::kubeconfig::ClientConfig;

/// The time for opening a connection, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest silence between two parts of an answer of the API server, because a connection may stall without closing. It is
/// longer than the duration of any watch.
const READ_TIMEOUT: Duration = Duration::from_secs(12);
/// The longest silence for a person's command, which may wait for the output of a pod for a minute.
const PERSON_READ_TIMEOUT: Duration = Duration::from_secs(75);

/// The API server that a person's command uses, and the identity that the command presents to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// The kubeconfig file; `None`: the one that kubectl would use.
    pub kubeconfig: Option<PathBuf>,
    /// The context; `None`: the current one.
    pub context: Option<String>,
    /// The user to act as, instead of the user of the context.
    pub user: Option<String>,
    /// The groups to act as a member of, together with `user`.
    pub groups: Vec<String>,
    /// The longest wait for a connection and for an answer; `None`: the defaults.
    pub request_timeout: Option<Duration>,
}

/// Returns a client for the guard, from the kubeconfig file or the pod's service account.
pub async fn guard(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let mut found = match kubeconfig {
        Some(path) => kubeconfig::find(Some(path), None).await?,
        None => {
            let config = Config::incluster()
                .context("no --kubeconfig, and this is not a pod with a service account")?;
            ClientConfig { config, origin: "the pod's service account".to_owned() }
        }
    };
    found.config.connect_timeout = Some(CONNECT_TIMEOUT);
    found.config.read_timeout = Some(READ_TIMEOUT);
    found.config.write_timeout = Some(READ_TIMEOUT);
    client(found)
}

/// Returns a client for the person at the terminal.
pub async fn person(by: &ClientOptions) -> anyhow::Result<Client> {
    let mut found = kubeconfig::find(by.kubeconfig.as_deref(), by.context.as_deref()).await?;
    let config = &mut found.config;
    config.read_timeout = Some(by.request_timeout.unwrap_or(PERSON_READ_TIMEOUT));
    if let Some(limit) = by.request_timeout {
        config.connect_timeout = Some(limit);
        config.write_timeout = Some(limit);
    }
    if by.user.is_some() {
        config.auth_info.impersonate.clone_from(&by.user);
        config.auth_info.impersonate_groups = Some(by.groups.clone()).filter(|it| !it.is_empty());
    }
    client(found)
}

fn client(ClientConfig { mut config, origin }: ClientConfig) -> anyhow::Result<Client> {
    // The read timeout counts from the request, not from the last use of its connection.
    config.reset_reader_on_write = true;
    // The client must not retry: an eviction that is refused for now could succeed later, when it is no longer wanted. The
    // caller looks at the cluster again instead, and repeats the request only if it is still right.
    config.default_retry = false;
    // The user information of the URL is left out, because it may contain a password.
    let url = &config.cluster_url;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let (scheme, host) = (url.scheme_str().unwrap_or("https"), url.host().unwrap_or_default());
    let server = format!("{scheme}://{host}{port} ({origin})");
    let builder =
        ClientBuilder::try_from(config).with_context(|| format!("preparing a client for {server}"))?;
    let named = MapErrLayer::new(move |error: BoxError| RequestError::naming(&server, error));
    Ok(builder.with_layer(&named).build())
}

/// The error of a request without an answer: the address of the server, the origin of that address, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{server}")]
struct RequestError {
    server: String,
    #[source]
    why: BoxError,
}

impl RequestError {
    /// Adds the address of the server to an error. Errors of kube are returned unchanged, because callers depend on their type.
    fn naming(server: &str, why: BoxError) -> BoxError {
        if why.is::<kube::Error>() || why.is::<kube::client::AuthError>() {
            return why;
        }
        Box::new(Self { server: server.to_owned(), why })
    }
}

/// Returns the name that the API server has for the user of this client.
pub async fn user(client: &Client) -> kube::Result<String> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|it| it.user_info?.username).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_request_that_was_answered_with_429_is_not_retried() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let router = Router::new().fallback(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], "{}") }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let text = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": [{ "name": "a", "cluster": { "server": server } }], "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }], "users": [{ "name": "a", "user": {} }] });
        std::fs::write(&file, text.to_string()).unwrap();
        let by = ClientOptions { kubeconfig: Some(file.clone()), ..ClientOptions::default() };
        for (number, client) in [guard(Some(&file)).await, person(&by).await].into_iter().enumerate() {
            assert!(client.unwrap().apiserver_version().await.is_err());
            assert_eq!(asked.load(Ordering::Relaxed), number + 1);
        }
        serving.abort();
    }
}
