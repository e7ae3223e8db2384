//! Objects that look like part of a cluster, but are not judged, or not as they are written. A note about each says so, so that
//! none of them is reported as fine.
//!
//! Owns: these notes. Must not know: rules.

use crate::manifest::Place;
use crate::stored::prune;
use facts::galera::{options, server};
use facts::review::Review;
use facts::view::{View, is_cluster};
use objects::{Container, Kind, Kinds, Object, Shared, Template, Workload};

use super::item::ManifestItem;

/// The versions that API servers since 1.30 offer, for kinds that had other versions before.
const OFFERED_VERSIONS: [(Kind, &[&str]); 6] = [
    (Kind::StatefulSet, &["apps/v1"]),
    (Kind::Deployment, &["apps/v1"]),
    (Kind::Budget, &["policy/v1"]),
    (Kind::Autoscaler, &["autoscaling/v1", "autoscaling/v2"]),
    (Kind::Eviction, &["policy/v1"]),
    (Kind::Scale, &["autoscaling/v1"]),
];
/// Groups of Kubernetes itself: a known kind in another one of them is a mistake; in any other group it is another
/// kind.
const KUBERNETES_GROUPS: [&str; 5] = ["", "apps", "extensions", "policy", "autoscaling"];

/// Returns why this object was not judged, if it was not.
pub(super) fn of(
    item: &ManifestItem,
    review: &Review,
    view: &View<'_>,
    kinds: &Kinds,
) -> Option<(Place, String)> {
    if item.kind() == Kind::Other {
        return unknown_kind(item, kinds).or_else(|| unjudged_contents(item));
    }
    without_containers(item, review).or_else(|| unadopted_server(item, view))
}

/// Finds objects, or a database server, inside an object whose kind no rule covers.
fn unjudged_contents(item: &ManifestItem) -> Option<(Place, String)> {
    let mut json = item.document.json();
    prune(&mut json);
    let kind = json["kind"].as_str()?;
    if json["objects"].as_array().is_some_and(|all| all.iter().any(|it| it["kind"].is_string())) {
        let message = format!(
            "the objects in this {kind} were not judged; judge its output: oc process --local -f FILE -o yaml | gatera check -"
        );
        return Some((item.document.find("objects"), message));
    }
    let template: Shared<Template> =
        serde_json::from_str(&json.pointer("/spec/template")?.to_string()).ok()?;
    let server = server::of(&template)?;
    let message = format!(
        "container {} runs a database server, and no rule covers a {kind}, so it was not judged: only a StatefulSet is a cluster",
        server.name
    );
    Some((item.document.find("kind"), message))
}

/// Finds a workload or a pod without containers.
fn without_containers(item: &ManifestItem, review: &Review) -> Option<(Place, String)> {
    let (spec, field) = match review.new.as_ref()? {
        Object::StatefulSet(it) | Object::Deployment(it) => {
            (&it.spec.template.spec, "spec.template.spec.containers")
        }
        Object::Pod(it) => (&it.spec, "spec.containers"),
        _ => return None,
    };
    spec.containers.is_empty().then(|| {
        let message = format!("it has no {field}, so it was not judged, and API servers reject it");
        (item.document.start(), message)
    })
}

/// Finds a version that no API server offers any more. The object is still judged.
pub(super) fn outdated_version(item: &ManifestItem) -> Option<(Place, String)> {
    let (_, offered) = OFFERED_VERSIONS.iter().find(|(kind, _)| *kind == item.kind())?;
    let version = &item.version;
    (!offered.contains(&&**version)).then(|| {
        let now = offered.join(" or ");
        let message = format!(
            "no API server since 1.30 offers apiVersion {version} of a {}; it was judged as {now}",
            item.kind().name()
        );
        (item.document.find("apiVersion"), message)
    })
}

/// Finds a kind or an API group that is misspelt.
fn unknown_kind(item: &ManifestItem, kinds: &Kinds) -> Option<(Place, String)> {
    let (version, json) = (&item.version, item.document.json());
    let written = json.get("kind")?.as_str()?;
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let meant = meant_kind(written, kinds)?;
    let name = meant.name();
    if !KUBERNETES_GROUPS.contains(&group) {
        let slipped = |it: &&&str| it.len() > 3 && strsim::osa_distance(it, group) == 1;
        let right = KUBERNETES_GROUPS.iter().find(slipped).filter(|_| written == name)?;
        let message = format!("there is no API group {group}, so it was not judged; did you mean {right}?");
        return Some((item.document.find("apiVersion"), message));
    }
    if written == name {
        let offered = OFFERED_VERSIONS.iter().find(|(kind, _)| *kind == meant);
        let offered = offered.map_or("v1".to_owned(), |(_, all)| all.join(" or "));
        let message = format!("there is no {name} in {version}, so it was not judged; it is in {offered}");
        return Some((item.document.find("apiVersion"), message));
    }
    let message = format!("there is no kind {written}, so it was not judged; kubectl knows {name}");
    Some((item.document.find("kind"), message))
}

/// Returns the kind that was probably meant: in another case, in the plural, or with one or two wrong letters.
fn meant_kind(written: &str, kinds: &Kinds) -> Option<Kind> {
    let singular = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.strip_suffix('s').map(str::to_owned).unwrap_or(name)
    };
    let named =
        || kinds.all().map(|kind| (strsim::osa_distance(&singular(kind.name()), &singular(written)), kind));
    let close = named().filter(|(wrong, kind)| *wrong == 0 || *wrong <= 2 && kind.name().len() > 5);
    close.min_by_key(|(wrong, _)| *wrong).map(|(_, kind)| kind)
}

/// Finds a database server that no selector adopts, so that it is not judged as a cluster.
fn unadopted_server(item: &ManifestItem, view: &View<'_>) -> Option<(Place, String)> {
    let Object::StatefulSet(workload) = item.object()? else { return None };
    let container = server::of(&workload.spec.template)?;
    if is_cluster(workload, view.adoption()) {
        return None;
    }
    let name = &workload.metadata.name;
    let message = if let Some(owner) = workload.metadata.operator() {
        format!(
            "container {} runs a database server, and {owner} owns this StatefulSet, so it was not judged: the guard leaves it to its operator",
            container.name
        )
    } else {
        let sure = if is_galera(workload, view, &item.id.namespace) {
            "a Galera server"
        } else {
            "a database server; if that is Galera"
        };
        format!(
            "container {} runs {sure}, and no selector adopts the labels of its pod template, so it was not judged as a cluster: add the label gatera.dev/cluster: {name} to spec.template.metadata.labels, or a selector to `adopt` in the settings",
            container.name
        )
    };
    Some((item.document.find("spec.template.metadata.labels"), message))
}

/// Returns whether the workload has a port of Galera, or a file that it reads configures Galera.
pub fn is_galera(workload: &Workload, view: &View<'_>, namespace: &str) -> bool {
    let spec = &workload.spec.template.spec;
    let listens = |it: &Container| it.ports.iter().any(|port| port.container_port == server::GALERA_PORT);
    let files = view.files(namespace, spec);
    spec.containers.iter().any(listens) || files.iter().any(|file| options::configures_galera(file.text))
}
