//! Whether this guard wrote the marks on a pod. The guard trusts them afterwards: a member that carries them counts as
//! Synced when it is Ready, and its server runs the scripts in them.
//!
//! Owns: [`doubt`], which compares a pod with the result of injection. Must not know: what rules do about a doubt.

use super::{Profile, StartMethod, VERSION, configuration, files, identity, probes};
use facts::galera::server;
use facts::marks::{
    self, BITNAMI_SCRIPT, IDENTITY, INJECTED, MY_CNF, PREFIX, REVISION, SCRIPT, START_SCRIPT,
};
use facts::view::View;
use objects::Pod;

/// Why the marks of a pod differ from what this guard would have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt<'p> {
    /// Another version of the guard may have written them.
    OtherVersion,
    /// Another user wrote them, or removed what they describe.
    Forged { mark: &'p str, why: &'static str },
}

/// Returns the first doubt about the marks of a new pod, if it carries any. Other webhooks may add containers, volumes and
/// annotations, so only the guard's own parts are compared.
pub fn doubt<'p>(pod: &'p Pod, view: &View<'_>) -> Option<Doubt<'p>> {
    let meta = &pod.metadata;
    let mut guards = meta.marks.keys().filter(|key| marks::is_guards(key)).map(|key| &key[PREFIX.len()..]);
    let first = guards.clone().next()?;
    let present_or_first = |mark: &'p str| if meta.mark(mark).is_some() { mark } else { first };
    let forged = |mark, why| Some(Doubt::Forged { mark: present_or_first(mark), why });
    let of_pods = [INJECTED, SCRIPT, START_SCRIPT, BITNAMI_SCRIPT, MY_CNF, IDENTITY, REVISION];
    if let Some(stray) = guards.find(|mark| !of_pods.contains(mark)) {
        return forged(stray, "it does not belong on a pod");
    }
    let Some((version, proof)) = meta.mark(INJECTED).map(|mark| mark.split_once(' ').unwrap_or((mark, "")))
    else {
        return forged(first, "gatera did not inject this pod");
    };
    if version != VERSION {
        return Some(Doubt::OtherVersion);
    }
    let server = server::in_pod(meta, &pod.spec);
    let adopted = view.adoption().adopts(&meta.labels);
    let Some(server) = server.filter(|_| adopted) else {
        return forged(INJECTED, "gatera does not inject anything into such a pod");
    };
    for (mark, text) in [
        (SCRIPT, &*files::SCRIPT_TEXT),
        (START_SCRIPT, &*files::START_SCRIPT_TEXT),
        (BITNAMI_SCRIPT, &*files::BITNAMI_SCRIPT_TEXT),
    ] {
        if meta.mark(mark) != Some(&**text) {
            return forged(mark, "the script differs from the one that this guard injects");
        }
    }
    if !meta.mark(MY_CNF).is_some_and(files::is_option_file) {
        return forged(MY_CNF, "the option file differs from the one that this guard injects");
    }
    if !meta.mark(IDENTITY).is_some_and(identity::is_known) {
        return forged(IDENTITY, "the id of its cluster is not a value that this guard writes");
    }
    if meta.mark(REVISION).is_some_and(|mark| !configuration::reads_snapshots(pod, server, mark)) {
        return forged(REVISION, "its volumes refer to other snapshots of its ConfigMaps");
    }
    if !files::are_mounted(server, &pod.spec) || files::conflict(server, &pod.spec, None).is_some() {
        return forged(INJECTED, "its volumes and mounts are missing");
    }
    if StartMethod::of(server, meta) == StartMethod::Prepended {
        return forged(INJECTED, "the server does not start through the step script");
    }
    let ready_means_synced = || {
        let sees = server.readiness_probe.as_ref().is_some_and(probes::sees_galera);
        sees && Profile::of(server, meta).keeps_probes().is_none()
    };
    match proof {
        marks::UNPROVEN => None,
        "" if ready_means_synced() => None,
        _ => forged(INJECTED, "the readiness probe does not match it"),
    }
}
