//! The kubeconfig: which files are used, and the messages about what is wrong with them.
//!
//! Owns: the order in which kubectl looks for these files. A kubeconfig holds tokens, and its parser quotes what it reads. So the
//! errors here name files, contexts and clusters, and quote nothing else.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};

/// The configuration of a client, and where it comes from.
pub(super) struct ClientConfig {
    pub(super) config: Config,
    /// The context and the files, for error messages.
    pub(super) origin: String,
}

/// Returns the configuration from this file, or from the files that kubectl would use; for this context, or the current one.
pub(super) async fn find(named: Option<&Path>, context: Option<&str>) -> anyhow::Result<ClientConfig> {
    let mut files = match named {
        Some(path) => vec![path.to_owned()],
        None => files_in_environment(),
    };
    if files.is_empty() {
        match env::home_dir().map(|home| home.join(".kube").join("config")) {
            Some(default_file) if default_file.exists() => files.push(default_file),
            default_file => return pod_config(default_file),
        }
    }
    load(&files, context).await
}

/// Returns the files that KUBECONFIG names and that exist. If none exists, returns all, so that an error names them.
fn files_in_environment() -> Vec<PathBuf> {
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let all: Vec<_> = env::split_paths(&named).filter(|it| !it.as_os_str().is_empty()).collect();
    let existing: Vec<_> = all.iter().filter(|it| it.exists()).cloned().collect();
    if existing.is_empty() { all } else { existing }
}

/// Returns the configuration of a pod, which has a service account instead of a file.
fn pod_config(default_file: Option<PathBuf>) -> anyhow::Result<ClientConfig> {
    let home = default_file
        .map_or("there is no home folder".to_owned(), |it| format!("{} does not exist", it.display()));
    // kube's error is left out: which part of a service account is missing does not matter outside of a cluster.
    let config = Config::incluster().map_err(|_| {
        anyhow!("there is no kubeconfig: --kubeconfig and KUBECONFIG are not given, and {home}; this is not a pod with a service account, either")
    })?;
    Ok(ClientConfig { config, origin: "the pod's service account".to_owned() })
}

async fn load(files: &[PathBuf], context: Option<&str>) -> anyhow::Result<ClientConfig> {
    let files_text = files.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(" and ");
    let mut merged = Kubeconfig::default();
    for path in files {
        // `kubectl config unset current-context` leaves an empty name.
        let without_empty = |mut file: Kubeconfig| {
            file.current_context.take_if(|name| name.is_empty());
            file
        };
        merged = match Kubeconfig::read_from(path).map(without_empty).and_then(|file| merged.merge(file)) {
            Err(KubeconfigError::ReadConfig(error, path)) => {
                return Err(error).with_context(|| format!("reading the kubeconfig {}", path.display()));
            }
            file => file.map_err(|_| anyhow!("{} is not a kubeconfig", path.display()))?,
        };
    }
    let known: Vec<_> = merged.contexts.iter().map(|it| it.name.clone()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let wanted = context.map(str::to_owned).or_else(|| merged.current_context.clone());
    let origin = format!("context {} of {files_text}", wanted.as_deref().unwrap_or_default());
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    match Config::from_custom_kubeconfig(merged, &options).await {
        Ok(config) => Ok(ClientConfig { config, origin }),
        Err(KubeconfigError::CurrentContextNotSet) => {
            Err(anyhow!("{files_text} has no current context; choose one with --context: {known}"))
        }
        Err(KubeconfigError::LoadContext(context)) => {
            Err(anyhow!("there is no context {context} in {files_text}; it has {known}"))
        }
        Err(problem) => Err(anyhow!("{origin}: {}", description(&problem))),
    }
}

/// Returns what is wrong with a context. Of its contents, only the name of a cluster and paths of files are quoted.
fn description(problem: &KubeconfigError) -> String {
    let loading = |what: &str, problem: &LoadDataError| match problem {
        LoadDataError::ReadFile(error, path) => format!("reading its {what} {}: {error}", path.display()),
        LoadDataError::DecodeBase64(_) => format!("its {what} is not base64"),
        LoadDataError::NoBase64DataOrFile => format!("its {what} is missing"),
    };
    match problem {
        KubeconfigError::LoadClusterOfContext(cluster) => {
            format!("it names the cluster {cluster}, which is not defined")
        }
        KubeconfigError::MissingClusterUrl | KubeconfigError::ParseClusterUrl(_) => {
            "its cluster has no valid address (server)".to_owned()
        }
        KubeconfigError::LoadCertificateAuthority(problem) => loading("certificate authority", problem),
        KubeconfigError::ParseCertificates(_) => {
            "its certificate authority is not a PEM certificate".to_owned()
        }
        KubeconfigError::LoadClientCertificate(problem) => loading("client certificate", problem),
        KubeconfigError::LoadClientKey(problem) => loading("client key", problem),
        _ => "it cannot be used".to_owned(),
    }
}
