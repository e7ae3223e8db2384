//! Whether the marks on a pod are this guard's own. They are believed afterwards: a member that carries them counts as
//! Synced when it is Ready, and its server runs what they say.
//!
//! Owns: [`doubt`], which compares a pod with what injection makes. Must not know: what becomes of a pod that is doubted.

use super::{Profile, Start, VERSION, configuration, files, identity, probes};
use facts::galera::server;
use facts::marks::{self, IDENTITY, INJECTED, MY_CNF, PREFIX, REVISION, SCRIPT, START_SCRIPT};
use facts::view::View;
use objects::Pod;

/// The marks of a pod are not what this guard would have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt<'p> {
    /// Another version of the guard may have.
    OtherVersion,
    /// Somebody else wrote them, or took away what they stand for.
    Forged {
        /// The first that gives it away.
        mark: &'p str,
        /// By what.
        why: &'static str,
    },
}

/// What is doubtful about the marks of a new pod, if it carries any. Other webhooks add containers, volumes and
/// annotations of theirs: only what is ours is looked at.
pub fn doubt<'p>(pod: &'p Pod, view: &View<'_>) -> Option<Doubt<'p>> {
    let meta = &pod.metadata;
    let mut guards = meta.marks.keys().filter(|key| marks::is_guards(key)).map(|key| &key[PREFIX.len()..]);
    let first = guards.clone().next()?;
    let there = |mark: &'p str| if meta.mark(mark).is_some() { mark } else { first };
    let forged = |mark, why| Some(Doubt::Forged { mark: there(mark), why });
    if let Some(stray) =
        guards.find(|mark| ![INJECTED, SCRIPT, START_SCRIPT, MY_CNF, IDENTITY, REVISION].contains(mark))
    {
        return forged(stray, "it does not belong on a pod");
    }
    let Some((version, claim)) = meta.mark(INJECTED).map(|mark| mark.split_once(' ').unwrap_or((mark, "")))
    else {
        return forged(first, "the pod was not prepared by gatera");
    };
    if version != VERSION {
        return Some(Doubt::OtherVersion);
    }
    let server = server::in_pod(meta, &pod.spec);
    let adopted = view.adoption().adopts(&meta.labels);
    let Some(server) = server.filter(|_| adopted) else {
        return forged(INJECTED, "gatera prepares no such pod");
    };
    if meta.mark(SCRIPT) != Some(files::SCRIPT_TEXT) {
        return forged(SCRIPT, "the script is not this guard's");
    }
    if meta.mark(START_SCRIPT) != Some(files::START_SCRIPT_TEXT) {
        return forged(START_SCRIPT, "the script is not this guard's");
    }
    if !meta.mark(MY_CNF).is_some_and(files::is_option_file) {
        return forged(MY_CNF, "the option file is not this guard's");
    }
    if !meta.mark(IDENTITY).is_some_and(identity::is_known) {
        return forged(IDENTITY, "the id of its cluster is not this guard's");
    }
    if meta.mark(REVISION).is_some_and(|mark| !configuration::reads_copies(pod, server, mark)) {
        return forged(REVISION, "its volumes point at other copies of its ConfigMaps");
    }
    if !files::are_there(server, &pod.spec) || files::conflict(server, &pod.spec, None).is_some() {
        return forged(INJECTED, "the volumes and mounts that it stands for are not there");
    }
    if Start::of(server, meta) == Start::Prepended {
        return forged(INJECTED, "the server does not start by the step that it stands for");
    }
    let proves = || {
        let sees = server.readiness_probe.as_ref().is_some_and(probes::sees_galera);
        sees && Profile::of(server, meta.mark(marks::PROFILE)).keeps_probes().is_none()
    };
    match claim {
        marks::UNPROVEN => None,
        "" if proves() => None,
        _ => forged(INJECTED, "the readiness probe does not prove what it says"),
    }
}
