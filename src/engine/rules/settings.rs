//! G09: options that break a cluster are not set, and options that the data depends on are not changed.
//!
//! Reads option files as MariaDB does, in ConfigMaps that a cluster reads or that configure Galera, and options on the server's
//! command line. Refuses values with which a member does not start, does not replicate or splits the cluster; a change of
//! options that are fixed for existing data, or that all members must have in common; the removal of `wsrep_on` or
//! `wsrep_provider` if nothing else sets it; options for one member in a file for all; and options without effect, because no
//! server reads their `[group]` or a second `wsrep_provider_options` replaces them. Warns about risky options, about options
//! that the server of the image does not know (misspelt, or of another series), about a memory limit below the buffer pool, and
//! about an `!include` of files that are in no ConfigMap. Files that one server reads together, by its mounts, are judged
//! together; files for one member each, or files that a script chooses, are judged one by one. A ConfigMap that no cluster
//! reads is judged when a template begins to read it; one that is created after the template that names it is compared with the
//! options that members run with. An init container may create the server's file from a ConfigMap that only the init container
//! reads, so placeholders are allowed there.
//!
//! # Why
//!
//! A bad option has no effect while the members run. It takes effect at the next restart: in a rollout of the change, or
//! when the first node fails. Then a member does not start, or it starts as a separate server that is Ready, but does not
//! replicate its writes. The reverse is as bad: `[innodb]` looks like a group of an option file, but no server reads it, so
//! `innodb_autoinc_lock_mode = 2` in it has no effect.
//!
//! # Example
//!
//! ```text
//! $ kubectl apply -f nodeconfig.yaml
//! [G09] ConfigMap db/nodeconfig: [innodb] in innodb.cnf is a group that no server reads: innodb_autoinc_lock_mode on
//! line 2 has no effect
//! ```
//!
//! # What to do instead
//!
//! The message names the option, the line and what to write. Server options belong under `[mysqld]` or `[galera]`, and all
//! provider options in one line, joined by `;`. Options that are fixed for existing data (`innodb_page_size`,
//! `lower_case_table_names`, …) can change only in a new cluster into which you load a dump. Options that all members must have
//! in common (`wsrep_cluster_name`, TLS between members) can change while the cluster is stopped, after `gatera stop`, or in the
//! steps of the message. TLS needs two rollouts, on and off: a member with TLS and `socket.dynamic=yes` connects to members with
//! TLS and to members without it. So every member first runs with both, and then without `socket.dynamic` (or without TLS).
//!
//! # Exceptions
//!
//! Annotate the ConfigMap or the StatefulSet (for a bootstrap node its Deployment), for an hour at most:
//! `gatera.dev/override: "G09 until=2026-12-01T10:00:00Z reason=…"`. To accept a finding permanently, lower the rule's
//! mode in the settings or in the namespace; an option that was there before gives only a warning.

mod changing;
mod files;
mod memory;
mod together;
mod unknown;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use super::newly_read;
use crate::rule::{All, Change, Findings, OfTemplates, Review, Rule, Verdict, View, WRITTEN};
use facts::galera::options::{self, Effective};
use facts::galera::server;
use facts::revision;
use facts::view::Cluster;
use objects::{ConfigMap, Container, Kind, Workload};

use changing::ChangingCluster;
use together::FileSets;
use values::OptionPlace;

pub(super) const RULE: Rule = Rule {
    id: "G09",
    name: "settings",
    judges: &[
        (Kind::ConfigMap, WRITTEN, All(config_map)),
        (Kind::StatefulSet, WRITTEN, OfTemplates(workload)),
        (Kind::Deployment, WRITTEN, OfTemplates(workload)),
    ],
    depends_on_state: true,
    source: include_str!("settings.rs"),
};

/// The largest number of findings in one answer.
const MOST_FINDINGS: usize = 25;

fn config_map(review: &Review, view: &View<'_>) -> Findings {
    let (ns, Change { old, new }) = (&review.namespace, review.change::<ConfigMap>());
    match (old, new.filter(|new| view.is_galeras(ns, new))) {
        (Some(old), Some(new)) => changed_config(ns, old, new, view),
        (None, Some(new)) => worst_first(in_config(ns, new, view, None)),
        _ => Findings::new(),
    }
}

fn workload(review: &Review, view: &View<'_>) -> Findings {
    let (ns, Change { old, new: Some(new) }) = (&review.namespace, review.change::<Workload>()) else {
        return Findings::new();
    };
    let mut found = in_template(review.kind, new, view);
    found.extend(memory::judge(ns, new, view));
    found.extend(newly_read::judged(review, view, |map, by| {
        in_config(ns, map, view, Some((review.kind, by)))
    }));
    found.extend(old.into_iter().flat_map(|old| changed_template(ns, old, new, view)));
    worst_first(found)
}

/// A new template that reads the ConfigMap.
type NewReader<'a> = (Kind, &'a Workload);

/// Returns findings about the files of a ConfigMap, and about the options that one server reads from them.
fn in_config(ns: &str, map: &ConfigMap, view: &View<'_>, new_reader: Option<NewReader<'_>>) -> Findings {
    let files = texts(map).map(|(file, _)| file).collect();
    let readers = readers(ns, map, new_reader, view);
    let sets = FileSets::of(ns, map, &files, &readers, view);
    let mut found: Findings = texts(map).flat_map(|(file, text)| files::judge(file, text, &sets)).collect();
    let for_one = match new_reader {
        Some((kind, reader)) => kind == Kind::Deployment || is_source(reader, &map.metadata.name),
        None => is_for_one_member(ns, map, view),
    };
    let place = OptionPlace { container: None, for_one };
    let series = unknown::series_of_readers(&readers);
    found.extend(
        texts(map)
            .take(unknown::MOST_TEXTS)
            .flat_map(|(file, text)| unknown::in_file(&place, file, text, &series)),
    );
    // One server may read a file together with others, and another server may read it alone.
    let mut judged = BTreeSet::new();
    let known = texts(map).collect();
    for set in sets.together.iter().cloned().chain(sets.alone.iter().map(|key| BTreeSet::from([*key]))) {
        let settings = effective(&known, &set);
        found.extend(files::lost(&settings));
        let news = settings.iter().filter(|(key, it)| judged.insert((it.file, it.line, (*key).to_owned())));
        found.extend(news.flat_map(|(key, placed)| {
            let doubtful = sets.is_doubtful(placed.file);
            let mut findings = place.judge(key, placed);
            findings.iter_mut().filter(|_| doubtful).for_each(|it| it.verdict = Verdict::Warn);
            findings
        }));
    }
    found.extend(sets.unknown());
    found
}

/// Returns the workloads that read this ConfigMap, with a new reader.
fn readers<'a>(ns: &str, map: &ConfigMap, new: Option<NewReader<'a>>, view: &View<'a>) -> Vec<&'a Workload> {
    let name = &*map.metadata.name;
    let clusters = view.readers_of(ns, name).map(|it| &*it.workload);
    clusters.chain(view.deployments_that_read(ns, name)).chain(new.map(|(_, it)| it)).collect()
}

fn changed_config(ns: &str, old: &ConfigMap, new: &ConfigMap, view: &View<'_>) -> Findings {
    let mut found = in_config(ns, new, view, None);
    let name = &new.metadata.name;
    found.extend(
        view.readers_of(ns, name).find_map(|it| memory::judge(ns, &it.workload, &view.with_config_map(new))),
    );
    let [was, is]: [BTreeMap<_, _>; 2] = [old, new].map(|map| texts(map).collect());
    let files = was.keys().chain(is.keys()).copied().collect();
    let sets = FileSets::of(ns, new, &files, &readers(ns, new, None, view), view);
    let changes_of = |cluster: &Cluster| {
        let settings = |map| all_settings(ns, &cluster.workload, &view.with_config_map(map));
        let after = settings(new);
        let cluster = ChangingCluster::of(cluster, || settings(old), &after, view);
        // One more file for a single member does not change the other members.
        let changes = |set| {
            let [was, is] = [&was, &is].map(|files| effective(files, set));
            OptionPlace { container: None, for_one: false }.changes(&was, &is, &cluster)
        };
        sets.together.iter().chain([&sets.alone]).flat_map(changes).collect::<Findings>()
    };
    // A fault for several clusters is reported once, which is enough to refuse the change.
    let clusters = view.readers_of(ns, name).filter(|cluster| cluster.has_data());
    found.extend(clusters.map(changes_of).find(|found| !found.is_empty()).unwrap_or_default());
    worst_first(found)
}

/// Returns the options in effect for a server that reads these files.
fn effective<'m>(known: &BTreeMap<&'m str, &'m str>, files: &BTreeSet<&'m str>) -> Effective<'m> {
    Effective::of_files(
        files.iter().filter_map(|file| known.get_key_value(file).map(|(file, text)| (*file, *text))),
    )
}

/// Returns the keys that are option files, in the order in which a server reads them.
fn texts(map: &ConfigMap) -> impl Iterator<Item = (&str, &str)> {
    let all = map.data.iter().map(|(key, text)| (&**key, text.look()));
    all.filter(|(key, text)| options::is_file(key, text))
}

/// Returns whether members do not share this file, as far as is known: no server reads it directly. A file that has no reader yet
/// is judged again when a template begins to read it.
fn is_for_one_member(ns: &str, map: &ConfigMap, view: &View<'_>) -> bool {
    view.readers_of(ns, &map.metadata.name).all(|cluster| is_source(&cluster.workload, &map.metadata.name))
}

/// Returns whether an init container reads the ConfigMap and the server does not: the init container creates each member's file
/// from it.
fn is_source(workload: &Workload, map: &str) -> bool {
    let template = &workload.spec.template;
    let reads = |it: &Container| revision::sources(&template.spec, it).contains_key(map);
    template.spec.init_containers.iter().any(reads) && !server::of(template).is_some_and(reads)
}

fn in_template(kind: Kind, workload: &Workload, view: &View<'_>) -> Findings {
    let Some(server) = server_of(workload, view) else { return Findings::new() };
    let place = OptionPlace { container: Some(&server.name), for_one: kind == Kind::Deployment };
    let settings = Effective::of_flags(options::flags(server));
    let judged = settings.iter().flat_map(|(key, placed)| place.judge(key, placed));
    judged.chain(unknown::on_command_line(&place, server)).collect()
}

fn changed_template(ns: &str, old: &Workload, new: &Workload, view: &View<'_>) -> Findings {
    let same = old.spec.template.fingerprint == new.spec.template.fingerprint;
    let cluster = view.cluster(ns, &new.metadata.name).filter(|cluster| !same && cluster.has_data());
    let (Some(cluster), Some((_, was)), Some((name, is))) =
        (cluster, command_line(old, view), command_line(new, view))
    else {
        return Findings::new();
    };
    let after = all_settings(ns, new, view);
    let cluster = ChangingCluster::of(cluster, || all_settings(ns, old, view), &after, view);
    let mut found = OptionPlace { container: Some(name), for_one: false }.changes(&was, &is, &cluster);
    let maps =
        |of: &Workload| revision::reaching(&of.spec.template.spec).into_keys().collect::<BTreeSet<_>>();
    let (before, after) = (maps(old), maps(new));
    let known = |name: &String| view.config_map(ns, name).is_some();
    // Files that both templates read were judged when they were written, and unknown files cannot be judged.
    if before != after && before.iter().chain(&after).all(known) {
        let [was, is] = [old, new].map(|it| of_files(ns, it, view));
        let changes = OptionPlace { container: None, for_one: false }.changes(&was, &is, &cluster);
        found.extend(changes.into_iter().map(|it| newly_read::of_template(it, "its ConfigMaps")));
    }
    found
}

/// Returns the options that a server of this workload reads from its files.
fn of_files<'s>(ns: &str, workload: &'s Workload, view: &View<'s>) -> Effective<'s> {
    let files = view.files(ns, &workload.spec.template.spec);
    let files = files.iter().filter(|file| options::is_file(file.key, file.text));
    Effective::of_files(files.map(|file| (file.key, file.text)))
}

/// Returns the options that a server of this workload reads from its files and its command line.
fn all_settings<'s>(ns: &str, workload: &'s Workload, view: &View<'s>) -> Effective<'s> {
    let flags = command_line(workload, view).map(|(_, flags)| flags).unwrap_or_default();
    of_files(ns, workload, view).then(flags)
}

/// Returns the server container of an adopted template.
fn server_of<'a>(workload: &'a Workload, view: &View<'_>) -> Option<&'a Container> {
    let template = &workload.spec.template;
    server::of(template).filter(|_| view.adoption().adopts(&template.metadata.labels))
}

/// Returns the server container of an adopted template, and the options on its command line.
fn command_line<'a>(workload: &'a Workload, view: &View<'_>) -> Option<(&'a str, Effective<'a>)> {
    let server = server_of(workload, view)?;
    Some((&server.name, Effective::of_flags(options::flags(server))))
}

/// Returns the findings in order of severity, cut to a readable number.
fn worst_first(mut found: Findings) -> Findings {
    found.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    found.truncate(MOST_FINDINGS);
    found
}
