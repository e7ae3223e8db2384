//! `gatera selftest`: one request that must be refused, sent as a dry run, and what became of it.
//!
//! Owns: that request, and the words about its answer. It goes the whole way (API server, webhook entries, Service,
//! certificate, rules), so it can only be refused where a cluster is guarded. Must not know: how anything is decided.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::http::header::WARNING;
use clap::Args;
use decide::config::Settings;
use decide::galera::adopt::{Adoption, Requirement, Selector};
use decide::rules::{self, RULES};
use decide::verdict::Mode;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{PostParams, Request};
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Resource as _};
use serde_json::{Map, Value, json};

use crate::act::connect;
use crate::act::telemetry::chain;

/// Options of `gatera selftest`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Kubeconfig [default: as kubectl finds it, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace to try it in; nothing is left there. The guard's own namespace is never guarded
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// Seconds to try again: a guard that was installed just now takes a few to register
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// The guard's settings file: which labels to try with, and whether the guard refuses or warns
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

const NAME: &str = "gatera-selftest";
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks until the answer is right, or patience ends.
pub fn run(options: &Options, settings: &Settings, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    if RULES.iter().all(|rule| settings.mode(rule.id) < Mode::Warn) {
        writeln!(
            out,
            "by its settings the guard neither refuses nor warns, so there is nothing to see from here"
        )?;
        return Ok(ExitCode::from(1));
    }
    let deadline = Instant::now() + Duration::from_secs(options.patience);
    let answer = runtime.block_on(async {
        let client = connect::person(options.kubeconfig.as_deref()).await?;
        let request = forbidden(&settings.adoption).context("writing the request")?;
        loop {
            let answer = ask(&client, &options.namespace, settings, &request).await;
            if answer.is_ok() || Instant::now() >= deadline {
                return anyhow::Ok(answer);
            }
            tokio::time::sleep(PAUSE).await;
        }
    })?;
    match answer {
        Ok(words) => {
            writeln!(out, "{words}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(words) => {
            writeln!(out, "not refused by the guard: {words}")?;
            Ok(ExitCode::from(1))
        }
    }
}

/// What the guard said, in one line; or, in words, what happened instead. A rule whose mode is `warn` has to warn.
async fn ask(
    client: &Client,
    namespace: &str,
    settings: &Settings,
    request: &StatefulSet,
) -> Result<String, String> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let body = serde_json::to_vec(request).map_err(|error| chain(&error))?;
    let request = Request::new(StatefulSet::url_path(&(), Some(namespace)));
    let request = request.create(&params, body).map_err(|error| chain(&error))?;
    let answer = client.send(request.map(Body::from)).await.map_err(|error| chain(&error))?;
    if answer.status().is_success() {
        let warnings = answer.headers().get_all(WARNING);
        let mut warnings = warnings.iter().filter_map(|it| str::from_utf8(it.as_bytes()).ok());
        return match warnings.find_map(|it| warning(it, settings)) {
            Some(words) => Ok(format!("warned, as the settings have it: {words}")),
            None => Err(format!(
                "the API server admits a StatefulSet with a plain-text password in namespace {namespace}. Until a guard is \
                 ready its webhook configurations are empty (`kubectl get validatingwebhookconfiguration gatera`), and its \
                 /readyz says what it waits for; a mode in the settings or at the namespace may allow it too"
            )),
        };
    }
    let code = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.map_err(|error| chain(&error))?;
    let message = match serde_json::from_slice::<Status>(&body) {
        Ok(status) => status.message,
        Err(_) => String::from_utf8_lossy(&body).into_owned(),
    };
    match refusal(code, &message) {
        Some(words) if mode(words, settings) == Some(Mode::Enforce) => {
            Ok(format!("refused, as it must be: {words}"))
        }
        Some(words) => {
            Err(format!("the guard refuses what it should only warn of, so it has other settings: {words}"))
        }
        None => Err(format!("the API server answers {code}: {message}")),
    }
}

/// The guard's own words in what the API server says, up to the end of their first line.
fn refusal(code: u16, message: &str) -> Option<&str> {
    let (webhook, words) = message.split_once("\" denied the request: ")?;
    let ours = code == 403 && webhook.ends_with(".gatera.dev") && words.starts_with("[G");
    words.lines().next().filter(|_| ours)
}

/// The guard's own words in a warning header (`299 - "[G11] …"`), of a rule that is to warn.
fn warning(header: &str, settings: &Settings) -> Option<String> {
    let words = header.strip_prefix("299 - \"")?.strip_suffix('"')?;
    (mode(words, settings) == Some(Mode::Warn)).then(|| words.replace("\\\"", "\""))
}

/// What the settings say of the rule that these words begin with.
fn mode(words: &str, settings: &Settings) -> Option<Mode> {
    let rule = words.strip_prefix('[')?.split_once(']')?.0;
    Some(settings.mode(rules::find(rule)?.id))
}

/// A StatefulSet that breaks more than one rule, so that one mode does not make it harmless.
fn forbidden(adoption: &Adoption) -> Result<StatefulSet, serde_json::Error> {
    let labels = labels(adoption);
    serde_json::from_value(json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": NAME },
        "spec": {
            "serviceName": NAME,
            "replicas": 3,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "containers": [{
                        "name": "mariadb",
                        "image": "mariadb:10.11",
                        "ports": [{ "containerPort": 3306 }, { "containerPort": 4567 }],
                        "env": [{ "name": "MARIADB_ROOT_PASSWORD", "value": "selftest" }],
                        "volumeMounts": [{ "name": "data", "mountPath": "/var/lib/mysql" }],
                    }],
                    "volumes": [{ "name": "data", "emptyDir": {} }],
                },
            },
        },
    }))
}

/// Labels that the first selector adopts.
fn labels(adoption: &Adoption) -> Map<String, Value> {
    let requirements = adoption.selectors().first().map(Selector::requirements);
    let label = |Requirement { key, values }: &Requirement| {
        (key.clone(), json!(values.first().map_or(NAME, |value| value)))
    };
    requirements.unwrap_or_default().iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_guard_s_own_refusal_counts() {
        let ours = "admission webhook \"workloads.gatera.dev\" denied the request: [G11] StatefulSet a/b: c\n  why: d";
        assert_eq!(refusal(403, ours), Some("[G11] StatefulSet a/b: c"));
        for (code, message) in [
            (500, ours),
            (403, "statefulsets.apps is forbidden: User \"x\" cannot create resource \"statefulsets\""),
            (403, "admission webhook \"policy.example\" denied the request: [G11] nonsense"),
            (403, "admission webhook \"workloads.gatera.dev\" denied the request: gatera is not ready: …"),
        ] {
            assert_eq!(refusal(code, message), None, "{message}");
        }
    }

    #[test]
    fn a_warning_counts_where_the_rule_is_to_warn() {
        let warns = Settings::read("mode: warn\nmodes: {G07: enforce}", &["G07"]).unwrap();
        let words = "[G11] StatefulSet a/b: c; d";
        assert_eq!(warning(&format!("299 - \"{words}\""), &warns), Some(words.to_owned()));
        assert_eq!(warning(&format!("299 - \"{words}\""), &Settings::default()), None, "it is to refuse");
        assert_eq!(warning("299 - \"[G11] a \\\"b\\\" …\"", &warns).as_deref(), Some("[G11] a \"b\" …"));
        for header in ["299 - \"[G07] x\"", "299 - \"[G99] x\"", "299 - \"unknown field\"", "[G11] x", ""] {
            assert_eq!(warning(header, &warns), None, "{header}");
        }
    }

    #[test]
    fn the_labels_are_those_of_the_first_selector() {
        let adoption = Adoption::from_texts(["app in (db, other), team"]).unwrap();
        assert_eq!(json!(labels(&adoption)), json!({ "app": "db", "team": NAME }));
        assert_eq!(json!(labels(&Adoption::default())), json!({ "gatera.dev/cluster": NAME }));
        assert!(forbidden(&adoption).is_ok());
    }
}
