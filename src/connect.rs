//! The way to an API server, for every command that needs one.
//!
//! Owns: which kubeconfig counts. Errors never quote one: it holds tokens, and its parser quotes what it reads.

use std::path::Path;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// As the guard: the file, or the pod's service account.
pub async fn guard(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let config = match kubeconfig {
        Some(path) => file(path).await?,
        None => Config::incluster().context("no --kubeconfig, and this is no pod with a service account")?,
    };
    Client::try_from(config).context("preparing the client")
}

/// As the person at the terminal: the file, or what kubectl would take.
pub async fn person(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let config = match kubeconfig {
        Some(path) => file(path).await?,
        None => Config::infer().await.ok().context(
            "no --kubeconfig, and neither KUBECONFIG nor ~/.kube/config nor a pod's service account will do",
        )?,
    };
    Client::try_from(config).context("preparing the client")
}

async fn file(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the kubeconfig {}", path.display()))?;
    let file =
        Kubeconfig::from_yaml(&text).ok().with_context(|| format!("{} is no kubeconfig", path.display()))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .context("understanding the kubeconfig")
}
