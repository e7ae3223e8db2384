//! The way to an API server, for every command that needs one.
//!
//! Owns: which kubeconfig counts, and how long the guard waits for an answer. Errors never quote one: it holds tokens, and its parser quotes what it reads.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

/// To a connection, with TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// Silence between two parts of an answer of the API server: a link may stall without closing. Longer than a round
/// of any watch.
const SILENCE: Duration = Duration::from_secs(12);
/// The same for a person's command, which may listen to a pod for a minute.
const PERSONS_SILENCE: Duration = Duration::from_secs(75);

/// As the guard: the file, or the pod's service account.
pub async fn guard(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => file(path, None).await?,
        None => Config::incluster().context("no --kubeconfig, and this is no pod with a service account")?,
    };
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(SILENCE);
    client(config)
}

/// As the person at the terminal: the file, or what kubectl would take; in this context, if not in the current one.
pub async fn person(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Client> {
    let mut config = match (kubeconfig, context) {
        (Some(path), context) => file(path, context).await?,
        (None, Some(context)) => {
            let options =
                KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
            let found = Config::from_kubeconfig(&options).await.ok();
            found.with_context(|| {
                format!("there is no context {context} in the kubeconfig, or it will not do")
            })?
        }
        (None, None) => Config::infer().await.ok().context(
            "no --kubeconfig, and neither KUBECONFIG nor ~/.kube/config nor a pod's service account will do",
        )?,
    };
    config.read_timeout = Some(PERSONS_SILENCE);
    client(config)
}

fn client(mut config: Config) -> anyhow::Result<Client> {
    // Counted from the question, not from when its connection was used last.
    config.reset_reader_on_write = true;
    // An eviction that is refused for now, asked for again and again by itself, would pass when it is no longer meant. A caller that
    // asked looks anew, and asks again if that is still right.
    config.default_retry = false;
    Client::try_from(config).context("preparing the client")
}

async fn file(path: &Path, context: Option<&str>) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the kubeconfig {}", path.display()))?;
    let file =
        Kubeconfig::from_yaml(&text).ok().with_context(|| format!("{} is no kubeconfig", path.display()))?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await.context("understanding the kubeconfig")
}

/// What the API server calls the user of this client.
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
    async fn what_is_refused_for_now_is_asked_once() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let router = Router::new().fallback(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], "{}") }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let server_runs = tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let text = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": [{ "name": "a", "cluster": { "server": server } }], "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }], "users": [{ "name": "a", "user": {} }] });
        std::fs::write(&file, text.to_string()).unwrap();
        for (number, client) in
            [guard(Some(&file)).await, person(Some(&file), None).await].into_iter().enumerate()
        {
            assert!(client.unwrap().apiserver_version().await.is_err());
            assert_eq!(asked.load(Ordering::Relaxed), number + 1);
        }
        server_runs.abort();
    }
}
