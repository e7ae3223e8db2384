//! Lists once, for commands, what the watches list. A failure is an error, whereas a watch tries again.
//!
//! A user who has rights in only one namespace can list just that namespace.

use std::collections::BTreeSet;

use facts::galera::adopt::Adoption;
use facts::view::{Facts, Id};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, GetParams, ListParams, Request};
use kube::{Client, Resource as _};
use objects::{Kind, Object};

use super::contents::CONCURRENT_FETCHES;
use super::member_events::{MemberEvent, Topic, events};
use super::pages::ListPages;
use super::sent::RawObject;
use super::{Message, message_about, resource, unreadable_message};
use crate::act::api::Fault;
use crate::act::config_maps;

/// The outcome of listing everything once.
#[derive(Debug)]
pub struct Listing {
    /// The facts from all objects that were listed.
    pub facts: Facts,
    /// The kinds that could not be listed: a user of one namespace often may not list nodes, and a pack's kind may be broken.
    pub unseen: Vec<&'static str>,
}

/// The reason why the objects could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A list failed.
    #[error("listing {0}")]
    List(&'static str, #[source] kube::Error),
    /// The content of a ConfigMap could not be read.
    #[error("reading ConfigMap {0}")]
    Content(Id, #[source] kube::Error),
    /// The requested namespace does not exist.
    #[error("there is no namespace {0}")]
    NoNamespace(String),
}

impl Error {
    /// Returns whether the caller lacks the right to list or read something.
    pub fn forbidden(&self) -> bool {
        matches!(self, Self::List(_, error) | Self::Content(_, error) if is_forbidden(error))
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    Fault::of(error) == Fault::Forbidden
}

/// Lists everything, or everything of one namespace.
pub async fn once(client: &Client, namespace: Option<&str>, adoption: &Adoption) -> Result<Listing, Error> {
    let mut listed = Listing { facts: crate::rulebook().facts(adoption), unseen: Vec::new() };
    for kind in super::kinds() {
        let plural = kind.plural();
        match (kind, namespace) {
            (Kind::Namespace, Some(name)) => {
                let found = get_namespace(client, name, &mut listed.facts).await;
                found.map_err(|error| match Fault::of(&error) {
                    Fault::NotFound => Error::NoNamespace(name.to_owned()),
                    _ => Error::List(plural, error),
                })?;
            }
            _ => match list_all(client, namespace, kind, &mut listed.facts).await {
                Err(error) if kind == Kind::Node && namespace.is_some() && is_forbidden(&error) => {
                    listed.unseen.push(plural);
                }
                // Without the right to list them, only a remark about autoscalers is missing.
                Err(error) if kind == Kind::Autoscaler && is_forbidden(&error) => {
                    listed.unseen.push(plural);
                }
                // Every user may ask whether the API server offers a kind.
                Err(error) if kind.is_optional() && is_forbidden(&error) => {
                    if is_served(client, kind).await {
                        listed.unseen.push(plural);
                    }
                }
                // A broken kind of another system must not prevent the examination of all others.
                Err(error) if kind.is_optional() && Fault::of(&error) == Fault::Broken => {
                    listed.facts.kept.set_listed(kind, false);
                    listed.unseen.push(plural);
                }
                // The kind is not installed.
                Err(error) if kind.is_optional() && Fault::of(&error) == Fault::NotFound => {}
                Ok(()) if kind.is_optional() => drop(listed.facts.kept.set_served(kind, true)),
                result => result.map_err(|error| Error::List(plural, error))?,
            },
        }
    }
    let ids = listed.facts.config_maps_that_are_read();
    let mut found = stream::iter(ids.into_iter().map(|id| config_map_message(client, id)))
        .buffer_unordered(CONCURRENT_FETCHES);
    while let Some(message) = found.try_next().await? {
        if let Some(message) = message {
            apply(&mut listed.facts, Kind::ConfigMap, message);
        }
    }
    read_member_events(client, namespace, &mut listed.facts).await;
    Ok(listed)
}

/// Returns the kinds of packs that the API server offers, as far as it answers.
pub async fn served(client: &Client) -> BTreeSet<Kind> {
    let mut served = BTreeSet::new();
    for kind in crate::rulebook().kinds().watched() {
        if is_served(client, kind).await {
            served.insert(kind);
        }
    }
    served
}

async fn is_served(client: &Client, kind: Kind) -> bool {
    let version = format!("{}/{}", kind.group(), kind.version());
    let offered = client.list_api_group_resources(&version).await;
    offered.is_ok_and(|all| all.resources.iter().any(|it| it.name == kind.plural()))
}

/// Reads the probe output of servers that are not Ready, and the reasons why pods were not created. Without the right to list
/// Events, or when they are gone, the facts lack these details.
async fn read_member_events(client: &Client, namespace: Option<&str>, facts: &mut Facts) {
    if facts.pods().any(|pod| pod.server && !pod.ready) {
        let found = events(client, Topic::Probes, namespace, None).await.unwrap_or_default();
        for MemberEvent { about, uid, at, message } in found {
            facts.add_report(&about, &uid, at, &message);
        }
    }
    if facts.lacks_a_pod() {
        let found = events(client, Topic::Creation, namespace, None).await.unwrap_or_default();
        for MemberEvent { about, uid, at, message } in found {
            facts.not_created(about, &uid, at, &message);
        }
    }
}

async fn get_namespace(client: &Client, name: &str, facts: &mut Facts) -> kube::Result<()> {
    let request = Request::new(Namespace::url_path(&(), None)).get(name, &GetParams::default());
    let text = client.request_text(request.map_err(kube::Error::BuildRequest)?).await?;
    let sent = RawObject::of(&text).map_err(kube::Error::SerdeError)?;
    apply(facts, Kind::Namespace, message_about(Kind::Namespace, sent));
    Ok(())
}

/// Lists all objects of one kind. Their text is never in memory as a whole.
async fn list_all(
    client: &Client,
    namespace: Option<&str>,
    kind: Kind,
    facts: &mut Facts,
) -> kube::Result<()> {
    let namespace = namespace.filter(|_| !kind.is_cluster_wide());
    let url = DynamicObject::url_path(&resource(kind), namespace);
    let mut pages = ListPages::of(client, url, ListParams::default());
    while let Some(object) = pages.next().await? {
        let sent = RawObject::of(&object.text).map_err(kube::Error::SerdeError)?;
        apply(facts, kind, message_about(kind, sent));
    }
    Ok(())
}

async fn config_map_message(client: &Client, id: Id) -> Result<Option<Message>, Error> {
    Ok(match config_maps::get(client, &id).await {
        Ok(Some(Ok(map))) => Some(Message::Put(Box::new(Object::ConfigMap(map)))),
        Ok(Some(Err(problem))) => Some(unreadable_message(id, problem)),
        Ok(None) => None,
        Err(error) => return Err(Error::Content(id, error)),
    })
}

fn apply(facts: &mut Facts, kind: Kind, message: Message) {
    match message {
        Message::Put(object) => {
            facts.put(*object);
        }
        Message::Unreadable(id, problem) => {
            facts.cannot_read(kind, id, problem);
        }
        _ => {}
    }
}
