//! `gatera report`: prints one JSON document with what a bug report needs, without secrets.
//!
//! Owns: the contents of the document, read with the rights of the person who runs the command. No Secret is read, and no content
//! of a ConfigMap is included; only the shape of objects is kept (`report/bundle.rs`). The rest is output of the guard and of this
//! program, which contains names, and reasons that people wrote. The document also says what could not be read.

use std::io::Write;

use facts::view::{Cluster, Id};
use inspect::audit;
use inspect::status::ClusterStatus;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::doctor::{self, POD_LABEL};
use super::generate;
use super::look::{self, LookArgs};
use super::site::{Site, is_away};
use super::terminal::print_note;
use super::terminal::progress::Progress;
use crate::act::telemetry::chain;

/// The number of lines that are read from each log.
const LOG_LINES: i64 = 300;
/// The number of Events that are searched in one namespace.
const EVENT_LIMIT: u32 = 1000;
/// The reporting controller of the guard's Events, and the name of the guard's container.
const GUARD_NAME: &str = "gatera";

/// Collects the document, and prints it.
pub async fn run(look: &LookArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let progress = Progress::start();
    let bundle = bundle(look, &progress).await?;
    drop(progress);
    writeln!(out, "{:#}", report::bundle::without_control_characters(bundle))?;
    print_note(
        "the report contains no Secrets and no contents of ConfigMaps, but it contains names, labels, reasons that people wrote, and users in \
         the guard's logs: read it before you send it",
    );
    Ok(())
}

async fn bundle(look: &LookArgs, progress: &Progress) -> anyhow::Result<Value> {
    let mut version = Vec::new();
    generate::version(&mut version)?;
    let program: Vec<_> = String::from_utf8_lossy(&version).lines().map(str::to_owned).collect();
    let mut bundle = json!({ "version": report::json::VERSION, "program": program });
    let site = match Site::of(look.client().await?, look.config.as_deref()).await {
        Err(error) if is_away(&error) => {
            bundle["notAsked"] = json!(chain(error.as_ref()));
            return Ok(bundle);
        }
        site => site?,
    };
    let client = &site.client;
    bundle["at"] = json!(site.clock.now().to_string());
    match doctor::all_rows(look, &site, progress).await {
        Ok((namespace, rows)) => {
            bundle["doctor"] = report::doctor::json(&rows);
            // The guard's logs name objects of all namespaces, so a report about one namespace does not include them.
            if look.namespace().is_none() {
                progress.show(|| "reading the guard's logs …".to_owned());
                bundle["logs"] = logs(client, &namespace).await;
            }
        }
        Err(error) => bundle["doctor"] = json!(format!("not asked: {}", chain(error.as_ref()))),
    }
    progress.show(|| "listing the objects of the cluster …".to_owned());
    match look::list_world(look.namespace(), &site).await {
        Err(error) => bundle["notAsked"] = json!(chain(error.as_ref())),
        Ok((world, unseen)) => {
            let view = site.view(&world);
            let audit = audit::run(crate::rulebook(), &view);
            let clusters: Vec<_> = world.clusters().collect();
            let statuses = ClusterStatus::all(&view);
            bundle["status"] = report::status::json(&statuses, &[])["clusters"].take();
            bundle["audit"] = report::audit::json(&audit, &statuses, &[]);
            bundle["unseen"] = json!(unseen);
            progress.show(|| "reading the objects of each Galera cluster …".to_owned());
            bundle["objects"] = objects(client, &clusters).await;
            bundle["events"] = events(client, &clusters).await;
        }
    }
    Ok(bundle)
}

/// Returns the StatefulSet, the members and the claims of each cluster: the shape of each object, or why it could not be read.
async fn objects(client: &Client, clusters: &[&Cluster]) -> Value {
    let mut all = Map::new();
    for cluster in clusters {
        let Id { namespace: ns, name } = &cluster.id;
        let members = cluster.members.iter().map(|it| ("", "Pod", &it.name));
        let claims = cluster.claims.iter().map(|it| ("", "PersistentVolumeClaim", &it.name));
        for (group, kind, name) in [("apps", "StatefulSet", name)].into_iter().chain(members).chain(claims) {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), ns, &resource);
            let value = match api.get_opt(name).await {
                Ok(None) => json!("does not exist"),
                Ok(Some(object)) => {
                    serde_json::to_value(object).map_or(Value::Null, |it| report::bundle::shape(&it))
                }
                Err(error) => json!(format!("not asked: {}", chain(&error))),
            };
            all.insert(format!("{kind} {ns}/{name}"), value);
        }
    }
    Value::Object(all)
}

/// Returns the guard's own Events. Events of other reporters may contain the output of a probe.
async fn events(client: &Client, clusters: &[&Cluster]) -> Value {
    let mut namespaces: Vec<_> = clusters.iter().map(|it| &*it.id.namespace).collect();
    namespaces.dedup();
    let mut all = Vec::new();
    for ns in namespaces {
        let api: Api<Event> = Api::namespaced(client.clone(), ns);
        match api.list(&ListParams::default().limit(EVENT_LIMIT)).await {
            Err(error) => all.push(json!(format!("not asked in namespace {ns}: {}", chain(&error)))),
            Ok(found) => {
                let ours =
                    found.items.iter().filter(|it| it.reporting_controller.as_deref() == Some(GUARD_NAME));
                all.extend(ours.map(|it| {
                    let about = it.regarding.as_ref();
                    let kind = about.and_then(|it| it.kind.as_deref()).unwrap_or_default();
                    let name = about.and_then(|it| it.name.as_deref()).unwrap_or_default();
                    json!({
                        "at": it.event_time.as_ref().map(|at| at.0.to_string()),
                        "about": format!("{kind} {ns}/{name}"),
                        "reason": it.reason,
                        "says": it.note,
                    })
                }));
            }
        }
    }
    json!(all)
}

/// Returns the last lines of each replica's log. The guard logs no secrets.
async fn logs(client: &Client, namespace: &str) -> Value {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = match api.list(&ListParams::default().labels(POD_LABEL)).await {
        Ok(found) => found,
        Err(error) => return json!(format!("not asked: {}", chain(&error))),
    };
    let mut all = Map::new();
    for pod in found.items {
        let name = pod.name_any();
        let params = LogParams {
            container: Some(GUARD_NAME.to_owned()),
            tail_lines: Some(LOG_LINES),
            ..LogParams::default()
        };
        let value = match api.logs(&name, &params).await {
            Ok(text) => json!(text.lines().collect::<Vec<_>>()),
            Err(error) => json!(format!("not asked: {}", chain(&error))),
        };
        all.insert(name, value);
    }
    Value::Object(all)
}
