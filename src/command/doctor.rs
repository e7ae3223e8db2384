//! `gatera doctor`: checks that the guard runs, that API servers can reach it, and that it sees and refuses what it should.
//!
//! Owns: the questions, each asked with the rights of the person who runs the command. All of them only read, except for the
//! canary (a dry run). `inspect/doctor.rs` decides what the answers mean. A question that cannot be asked is a row of its own,
//! and the others are still asked. Secrets are never read.

mod dry_run;
pub mod rights;

use std::io::Write;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::Request;
use clap::Args;
use engine::webhooks::Destination;
use facts::view::{Cluster, View, World};
use inspect::doctor::{self, AnswerOrReason, AnswerState, DoctorRow, Replica};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::client::Body;
use kube::core::Status;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use objects::{Kind, Object};
use serde_json::Value;
use tokio::time::timeout;

use super::Exit;
use super::installed::{self, InstalledGuard, SettingsSource};
use super::look::{self, LookArgs, SurveyArgs};
use super::site::Site;
use super::terminal::progress::Progress;
use crate::act::telemetry::chain;
use crate::act::watch::pages::ListPages;
use crate::act::{certs, connect, watch};
use crate::rulebook;

/// Options of `gatera doctor`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub survey: SurveyArgs,
    /// Only send the dry run that the guard must refuse (in mode warn: warn about) [default namespace: default]
    #[arg(long)]
    canary: bool,
    /// Retry the dry run for up to this many seconds: a new guard needs some seconds to register
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "canary")]
    wait: u64,
}

/// The time limit for the answer of one pod.
const READYZ_DEADLINE: Duration = Duration::from_secs(5);
/// The label of the chart's pods.
pub(super) const POD_LABEL: &str = "app.kubernetes.io/name=gatera";
/// The namespace of the dry run if none is named and no cluster is known.
const DEFAULT_NAMESPACE: &str = "default";
/// The name of the port that serves `/readyz`.
const OPERATIONS_PORT: &str = "operations";

/// Asks the questions, and prints what the answers mean.
pub async fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<Exit> {
    let (survey, look) = (&options.survey, &options.survey.look);
    let (output, colour) = (survey.output()?, survey.colour.wanted());
    let progress = Progress::start();
    progress.show(|| "asking the API server for its version …".to_owned());
    let rows = if options.canary {
        vec![only_dry_run(&look.site(survey.quiet).await?, look, options.wait, &progress).await]
    } else {
        let site = Site::of(look.client().await?, look.config.as_deref()).await?;
        let rows = all_rows(look, &site, &progress).await?.1;
        let user = connect::user(&site.client).await.unwrap_or_default();
        doctor::merge_missing_rights(rows, watch::served_kinds(&site.client).await, &user)
    };
    drop(progress);
    let text = if survey.quiet { report::doctor::needing_attention } else { report::doctor::text };
    out.write_all(output.of(|| text(&rows, colour), || report::doctor::json(&rows))?.as_bytes())?;
    Ok(match doctor::worst(&rows) {
        // With `--canary`, a dry run that shows nothing is a failure.
        AnswerState::Remark if options.canary => Exit::Refused,
        AnswerState::Well | AnswerState::Remark => Exit::Clean,
        AnswerState::NotAsked => Exit::Undecided,
        AnswerState::Wrong => Exit::Refused,
    })
}

async fn only_dry_run(site: &Site, look: &LookArgs, seconds: u64, progress: &Progress) -> DoctorRow {
    progress.show(|| "sending the dry run that must be refused …".to_owned());
    let namespace = look.namespace().unwrap_or(DEFAULT_NAMESPACE);
    let own = site.guard.namespace.as_deref().unwrap_or(installed::NAME);
    let wait = Duration::from_secs(seconds);
    dry_run::row(site, namespace, own, wait, |rule| site.settings.mode(rule)).await
}

/// Asks all questions. Returns the guard's namespace, and what the answers mean.
pub(super) async fn all_rows(
    look: &LookArgs,
    site: &Site,
    progress: &Progress,
) -> anyhow::Result<(String, Vec<DoctorRow>)> {
    let now = |what: &str| progress.show(|| format!("{what} …"));
    let Site { client, settings, guard: installed, .. } = site;
    now("asking the API server for its version");
    let version = client.apiserver_version().await.context("asking the API server for its version")?;
    let mut rows = vec![doctor::api_server(&version.major, &version.minor, &version.git_version)];

    let (namespace, guard_rows) = guard_rows(site, progress).await;
    rows.extend(guard_rows);
    if installed.is_there() {
        now("checking the guard's permissions");
        let user = format!("system:serviceaccount:{namespace}:{}", installed::NAME);
        rows.extend(doctor::rights(&user, &rights::check(client, &namespace, &user).await));
    }

    now("listing the objects of the cluster");
    let world = match look::list_world(look.namespace(), site).await {
        Ok((world, unseen)) => {
            let why = |plural| format!("{plural} could not be listed; what depends on them is not judged");
            rows.extend(unseen.iter().map(|plural| DoctorRow::not_asked("view", why(plural))));
            Some(world)
        }
        Err(error) => {
            rows.push(DoctorRow::not_asked("view", chain(error.as_ref())));
            None
        }
    };
    let ns = add_cluster_rows(look, site, &mut rows, world.as_ref()).await;
    if installed.is_there() {
        let view = world.as_ref().map(|world| site.view(world));
        let mode =
            |rule: &str| view.as_ref().map_or_else(|| settings.mode(rule), |view| view.mode(rule, &ns));
        now("sending the dry run that must be refused");
        rows.push(dry_run::row(site, &ns, &namespace, Duration::ZERO, mode).await);
    }
    Ok((namespace, rows))
}

/// Asks about the guard: its entries, its replicas, its leader. Returns its namespace, and what the answers mean.
pub(super) async fn guard_rows(site: &Site, progress: &Progress) -> (String, Vec<DoctorRow>) {
    progress.show(|| "reading how the guard is registered …".to_owned());
    let Site { client, settings, source, guard: installed, .. } = site;
    let own_version = env!("CARGO_PKG_VERSION");
    let target = destination(installed);
    let namespace = match &target {
        Some(Destination::Service { namespace, .. } | Destination::Url { namespace, .. }) => {
            namespace.clone()
        }
        // A guard that is not ready has registered nothing yet.
        None => guard_namespace(client).await,
    };
    let replicas = replicas(client, &namespace, progress).await;
    let versions = replicas.iter().flatten().filter_map(|it| it.version.as_deref());
    let same_version = versions.clone().all(|version| version == own_version);
    let known = !matches!(source, SettingsSource::Defaults(_));
    let mut rows = doctor::webhooks(
        rulebook(),
        &installed.entries,
        Some(settings).filter(|_| known),
        target.as_ref(),
        &watch::served(client).await,
        same_version,
    );
    let ends = |bundle: &str| certs::expirations(bundle).map_err(|error| chain(&error));
    rows.extend(doctor::authority(&installed.entries, ends, site.clock.now()));
    if installed.is_there() {
        rows.extend(match &target {
            Some(Destination::Url { base, .. }) => vec![doctor::outside_cluster(base)],
            _ => doctor::replicas(&replicas, own_version),
        });
        rows.push(doctor::leader(&leader(client, &namespace).await, site.clock.now()));
        let known = installed.settings.as_ref().map(Clone::clone).map_err(|error| chain(error.as_ref()));
        rows.push(doctor::settings(rulebook(), &known));
    }
    (namespace, rows)
}

/// Adds rows about namespaces, clusters, and database servers that no selector adopts. Returns the namespace for the dry run.
async fn add_cluster_rows(
    look: &LookArgs,
    site: &Site,
    rows: &mut Vec<DoctorRow>,
    world: Option<&World>,
) -> String {
    let asked_for = look.namespace();
    let Some(world) = world else { return asked_for.unwrap_or(DEFAULT_NAMESPACE).to_owned() };
    let view = site.view(world);
    let clusters: Vec<&Cluster> = world.clusters().collect();
    if site.guard.is_there() {
        rows.extend(doctor::namespaces(&view, &clusters));
    }
    rows.extend(doctor::clusters(rulebook(), &view, &clusters));
    rows.extend(doctor::once_guarded(&view));
    rows.extend(doctor::lone_bootstrap_nodes(&view));
    let unguarded = unguarded(&site.client, asked_for, &view).await;
    if unguarded.is_empty() {
        rows.push(DoctorRow::well(doctor::ADOPTION, "no database server runs that no selector adopts"));
    }
    rows.extend(unguarded);
    let first = clusters.first().map(|it| &*it.id.namespace);
    asked_for.or(first).unwrap_or(DEFAULT_NAMESPACE).to_owned()
}

/// Returns the destination of API servers' requests, as the webhook entries name it.
fn destination(installed: &InstalledGuard) -> Option<Destination> {
    let client = installed.entries.iter().flatten().flatten().flatten().next()?.get("clientConfig")?;
    let text = |at: &str| client.pointer(at).and_then(Value::as_str).map(str::to_owned);
    match (text("/service/namespace"), text("/service/name"), text("/url")) {
        (Some(namespace), Some(name), _) => Some(Destination::Service { namespace, name }),
        (_, _, Some(url)) => {
            let base = url.rsplit_once('/')?.0.to_owned();
            // A URL does not name the guard's namespace; the chart's usual one is taken.
            Some(Destination::Url { base, namespace: installed::NAME.to_owned() })
        }
        _ => None,
    }
}

/// Returns the namespace of the guard's pods; if none is found, the chart's usual one.
async fn guard_namespace(client: &Client) -> String {
    let api: Api<Pod> = Api::all(client.clone());
    let found = api.list(&ListParams::default().labels(POD_LABEL)).await;
    let namespace = found.ok().and_then(|it| it.items.first()?.namespace());
    namespace.unwrap_or_else(|| installed::NAME.to_owned())
}

/// Returns the guard's replicas, each with the text of its `/readyz`.
async fn replicas(client: &Client, namespace: &str, progress: &Progress) -> AnswerOrReason<Vec<Replica>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default().labels(POD_LABEL)).await.map_err(|error| chain(&error))?;
    let mut replicas = Vec::new();
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
        pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Failed" | "Succeeded"))
    };
    for pod in found.items.iter().filter(|it| !has_ended(it)) {
        let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        let ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
        let ports = pod.spec.iter().flat_map(|it| &it.containers).flat_map(|it| it.ports.iter().flatten());
        let port = ports
            .into_iter()
            .find(|it| it.name.as_deref() == Some(OPERATIONS_PORT))
            .map(|it| it.container_port);
        // The pods of the chart's test have no such port, and are not replicas.
        let Some(port) = port else { continue };
        let name = pod.name_any();
        progress.show(|| format!("reading the /readyz of replica {name} …"));
        let says = timeout(READYZ_DEADLINE, readyz(client, namespace, &name, port)).await;
        let says = says.unwrap_or_else(|_| Err(format!("no answer within {} s", READYZ_DEADLINE.as_secs())));
        let version = pod.labels().get("app.kubernetes.io/version").cloned();
        replicas.push(Replica { name, ready, version, says });
    }
    Ok(replicas)
}

/// Reads a pod's `/readyz`, through the API server.
async fn readyz(client: &Client, namespace: &str, pod: &str, port: i32) -> AnswerOrReason<String> {
    let path = format!("{}/{pod}:{port}/proxy/readyz", Pod::url_path(&(), Some(namespace)));
    let request = Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(|error| chain(&error))?;
    let body = answer.into_body().collect_bytes().await.map_err(|error| chain(&error))?;
    // A guard that is not ready answers 503 with its reasons as text. If the API server cannot reach it, or the caller has no
    // right to, the API server answers with a Status.
    match serde_json::from_slice::<Status>(&body) {
        Ok(status) => Err(status.message),
        Err(_) => Ok(String::from_utf8_lossy(&body).into_owned()),
    }
}

/// Returns the leader that the Lease names, and when it renewed the Lease.
async fn leader(client: &Client, namespace: &str) -> AnswerOrReason<Option<(String, Timestamp)>> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(installed::NAME).await.map_err(|error| chain(&error))?;
    let spec = found.and_then(|it| it.spec);
    Ok(spec.and_then(|it| Some((it.holder_identity.filter(|it| !it.is_empty())?, it.renew_time?.0))))
}

/// Returns rows about StatefulSets that run a database server and that no selector adopts.
pub(super) async fn unguarded(client: &Client, namespace: Option<&str>, view: &View<'_>) -> Vec<DoctorRow> {
    let url = StatefulSet::url_path(&(), namespace);
    let (mut pages, mut found) = (ListPages::of(client, url, ListParams::default()), Vec::new());
    let not_asked = |why: String| DoctorRow::not_asked(doctor::ADOPTION, why);
    loop {
        match pages.next().await {
            Ok(None) => return found,
            Ok(Some(piece)) => match Object::read(Kind::StatefulSet, &piece.text) {
                Ok(Object::StatefulSet(workload)) => found.extend(doctor::unguarded(&workload, view)),
                Ok(_) => {}
                Err(problem) => found.push(not_asked(format!("a StatefulSet cannot be read: {problem}"))),
            },
            Err(error) => {
                found.push(not_asked(chain(&error)));
                return found;
            }
        }
    }
}
