//! The way to an API server, for every command that needs one.
//!
//! Owns: which kubeconfig counts, and how long the guard waits for an answer. Errors never quote one: it holds tokens, and its parser quotes what it reads.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// To a connection, with TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// Between two words of the API server, for whoever waits for one: a link may stall without closing. Longer than a round
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
    // Counted from the question, not from when its connection was used last.
    config.reset_reader_on_write = true;
    Client::try_from(config).context("preparing the client")
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
    config.reset_reader_on_write = true;
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
