//! G09: options that break a cluster are not set, and what data was made with is not changed.
//!
//! Reads option files as MariaDB does, in ConfigMaps that a cluster reads or that configure Galera, and options on the server's
//! command line. Refuses values with which a member does not start, does not replicate or splits the cluster; a change of what
//! existing data was made with, or of what all members must have in common; taking out `wsrep_on` or `wsrep_provider` where
//! nothing else sets it; options of one member in a file of all; options that no server reads, because their `[group]` is
//! nobody's or a second `wsrep_provider_options` replaces them. Warns of what is merely risky, and of `!include` of what no
//! ConfigMap shows. Files are judged together if one server reads them together, by what it mounts where; of a file for each
//! member, or one that a script chooses, each is judged by itself. A ConfigMap that was nobody's is judged when a template comes
//! that reads it; one that is made after the template that names it is compared with what members run with. What only an init container reads is a source from which it makes the server's file, so placeholders stay there.
//!
//! # Why
//!
//! A bad option does nothing while the members run. It waits for the next restart: of one member, if somebody rolls
//! out the change, or of the first node that fails. Then a member does not come back, or it comes back as a server of
//! its own, Ready, with writes that reach nobody. The reverse is as bad: `[innodb]` looks like a group of an option
//! file, and no server reads it, so whoever put `innodb_autoinc_lock_mode = 2` there runs without it.
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
//! The message names the option, the line and what to write. Server options belong under `[mysqld]` or `[galera]`; all
//! provider options into one line, joined by `;`. What the data was made with (`innodb_page_size`,
//! `lower_case_table_names`, …) changes only with a new cluster into which a dump is loaded. What all members must have
//! in common (`wsrep_cluster_name`, TLS between members) changes while the cluster is stopped, after `gatera stop`, or in the steps
//! the message names: TLS is switched on when every member that runs was started with `socket.dynamic=yes`.
//!
//! # How to waive it
//!
//! Annotate the ConfigMap or the StatefulSet (for a bootstrap node its Deployment), for an hour at most:
//! `gatera.dev/override: "G09 until=2026-12-01T10:00:00Z reason=…"`. To live with a finding for good, lower the rule's
//! mode in the settings or in the namespace; an option that was there before is only a warning anyway.

mod files;
mod memory;
mod together;
mod under;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use super::newly_read;
use crate::rule::{Rule, WRITTEN};
use crate::verdict::{Findings, Verdict};
use facts::galera::options::{self, Effective};
use facts::galera::server;
use facts::review::Review;
use facts::revision;
use facts::view::{Cluster, View};
use objects::{ConfigMap, Container, Kind, Object, Workload};

use together::Sets;
use under::Under;
use values::Setting;

pub(super) const RULE: Rule = Rule {
    id: "G09",
    name: "settings",
    touches: &[(Kind::ConfigMap, WRITTEN), (Kind::StatefulSet, WRITTEN), (Kind::Deployment, WRITTEN)],
    depends_on_state: true,
    source: include_str!("settings.rs"),
    check,
};

/// More than anybody reads at once.
const MOST: usize = 25;

fn check(review: &Review, view: &View<'_>) -> Findings {
    let ns = &*review.namespace;
    match (&review.old, &review.new) {
        (Some(Object::ConfigMap(old)), Some(Object::ConfigMap(new))) if view.is_galeras(ns, new) => {
            changed_config(ns, old, new, view)
        }
        (_, Some(Object::ConfigMap(new))) if view.is_galeras(ns, new) => {
            worst(in_config(ns, new, view, None))
        }
        (old, Some(Object::StatefulSet(new) | Object::Deployment(new))) => {
            let old = match old {
                Some(Object::StatefulSet(old) | Object::Deployment(old)) => Some(&**old),
                _ => None,
            };
            let mut found = in_template(review.kind, new, view);
            found.extend(memory::judge(ns, new, view));
            found.extend(newly_read::judged(review, view, |map, by| {
                in_config(ns, map, view, Some((review.kind, by)))
            }));
            found.extend(old.into_iter().flat_map(|old| changed_template(ns, old, new, view)));
            worst(found)
        }
        _ => Findings::new(),
    }
}

/// A template that comes and reads the ConfigMap.
type Coming<'a> = Option<(Kind, &'a Workload)>;

/// What is wrong with its files, and with what one server reads of them.
fn in_config(ns: &str, map: &ConfigMap, view: &View<'_>, coming: Coming<'_>) -> Findings {
    let files = texts(map).map(|(file, _)| file).collect();
    let sets = Sets::of(ns, map, &files, view, coming.map(|(_, it)| it));
    let mut found: Findings = texts(map).flat_map(|(file, text)| files::judge(file, text, &sets)).collect();
    let of_one = match coming {
        Some((kind, reader)) => kind == Kind::Deployment || is_source(reader, &map.metadata.name),
        None => of_one_member(ns, map, view),
    };
    let place = Setting::in_file(of_one);
    // A file may be read together with others by one server, and with none by another.
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

fn changed_config(ns: &str, old: &ConfigMap, new: &ConfigMap, view: &View<'_>) -> Findings {
    let mut found = in_config(ns, new, view, None);
    let name = &new.metadata.name;
    found.extend(view.readers_of(ns, name).find_map(|it| memory::judge(ns, &it.workload, &view.with(new))));
    let [was, is]: [BTreeMap<_, _>; 2] = [old, new].map(|map| texts(map).collect());
    let files = was.keys().chain(is.keys()).copied().collect();
    let sets = Sets::of(ns, new, &files, view, None);
    let changes_under = |cluster: &Cluster| {
        let settings = |map| all_settings(ns, &cluster.workload, &view.with(map));
        let after = settings(new);
        let under = Under::of(cluster, || settings(old), &after, view);
        // Of files for one member each another one more changes nothing for those that are there.
        let changes = |set| {
            let [was, is] = [&was, &is].map(|files| effective(files, set));
            Setting::in_file(false).changes(&was, &is, &under)
        };
        sets.together.iter().chain([&sets.alone]).flat_map(changes).collect::<Findings>()
    };
    // What is wrong for several is told once: one of them is enough to refuse it.
    let clusters = view.readers_of(ns, name).filter(|cluster| cluster.has_data());
    found.extend(clusters.map(changes_under).find(|found| !found.is_empty()).unwrap_or_default());
    worst(found)
}

/// What a server ends up with that reads these files.
fn effective<'m>(known: &BTreeMap<&'m str, &'m str>, files: &BTreeSet<&'m str>) -> Effective<'m> {
    Effective::of_files(
        files.iter().filter_map(|file| known.get_key_value(file).map(|(file, text)| (*file, *text))),
    )
}

/// The keys that are option files, in the order in which a server reads them.
fn texts(map: &ConfigMap) -> impl Iterator<Item = (&str, &str)> {
    let all = map.data.iter().map(|(key, text)| (&**key, text.look()));
    all.filter(|(key, text)| options::is_file(key, text))
}

/// Members do not share this file, as far as is known: no server of several reads it as it is. Of one that nobody reads yet this is
/// judged when its reader comes.
fn of_one_member(ns: &str, map: &ConfigMap, view: &View<'_>) -> bool {
    view.readers_of(ns, &map.metadata.name).all(|cluster| is_source(&cluster.workload, &map.metadata.name))
}

/// An init container reads it and the server does not: what the server reads is made from it, for each member another.
fn is_source(workload: &Workload, map: &str) -> bool {
    let template = &workload.spec.template;
    let reads = |it: &Container| revision::sources(&template.spec, it).contains_key(map);
    template.spec.init_containers.iter().any(reads) && !server::of(template).is_some_and(reads)
}

fn in_template(kind: Kind, workload: &Workload, view: &View<'_>) -> Findings {
    let Some((name, settings)) = command_line(workload, view) else { return Findings::new() };
    let place = Setting::in_container(name, kind == Kind::Deployment);
    settings.iter().flat_map(|(key, placed)| place.judge(key, placed)).collect()
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
    let under = Under::of(cluster, || all_settings(ns, old, view), &after, view);
    let mut found = Setting::in_container(name, false).changes(&was, &is, &under);
    let maps =
        |of: &Workload| revision::reaching(&of.spec.template.spec).into_keys().collect::<BTreeSet<_>>();
    let (before, after) = (maps(old), maps(new));
    let known = |name: &String| view.config_map(ns, name).is_some();
    // What the same files say was judged when it was written, and of what is not known nothing follows.
    if before != after && before.iter().chain(&after).all(known) {
        let [was, is] = [old, new].map(|it| of_files(ns, it, view));
        let changes = Setting::in_file(false).changes(&was, &is, &under);
        found.extend(changes.into_iter().map(|it| newly_read::of_template(it, "its ConfigMaps")));
    }
    found
}

/// What a server of this workload is told by its files.
fn of_files<'s>(ns: &str, workload: &'s Workload, view: &View<'s>) -> Effective<'s> {
    let files = view.files(ns, &workload.spec.template.spec);
    let files = files.iter().filter(|file| options::is_file(file.key, file.text));
    Effective::of_files(files.map(|file| (file.key, file.text)))
}

/// What a server of this workload is told by its files and by its command line.
fn all_settings<'s>(ns: &str, workload: &'s Workload, view: &View<'s>) -> Effective<'s> {
    let flags = command_line(workload, view).map(|(_, flags)| flags).unwrap_or_default();
    of_files(ns, workload, view).then(flags)
}

/// The server container of an adopted template, and what its command line says.
fn command_line<'a>(workload: &'a Workload, view: &View<'_>) -> Option<(&'a str, Effective<'a>)> {
    let template = &workload.spec.template;
    let adopted = view.adoption().adopts(&template.metadata.labels);
    let server = server::of(template).filter(|_| adopted)?;
    Some((&server.name, Effective::of_flags(options::flags(server))))
}

/// The worst first, and not more than somebody reads.
fn worst(mut found: Findings) -> Findings {
    found.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    found.truncate(MOST);
    found
}
