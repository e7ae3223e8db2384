//! The option files of a ConfigMap that are judged together, because one server reads them together. Every other file is judged
//! by itself, because it may be the file of one member.
//!
//! Must not know: how options are judged.

use std::collections::BTreeSet;

use super::RULE;
use crate::verdict::Finding;
use facts::galera::options::{Include, includes};
use facts::galera::reading::{Reading, paths, reading};
use facts::galera::server;
use facts::view::View;
use facts::way_out::say;
use objects::{ConfigMap, Workload};

/// The keys of one ConfigMap, by how servers read them.
#[derive(Default)]
pub(super) struct FileSets<'a> {
    /// Sets of keys that one server reads together.
    pub(super) together: BTreeSet<BTreeSet<&'a str>>,
    /// Keys of which a server reads one, or some.
    pub(super) alone: BTreeSet<&'a str>,
    /// The mount path of those keys.
    chosen_from: Option<String>,
    /// The paths of files that servers read, and their folders.
    paths: BTreeSet<String>,
}

impl<'a> FileSets<'a> {
    /// Sorts these option files of a ConfigMap, which these workloads read. Files that have no reader yet count as read together,
    /// unless their names have the number of a member.
    pub(super) fn of(
        ns: &str,
        map: &ConfigMap,
        files: &BTreeSet<&'a str>,
        readers: &[&Workload],
        view: &View<'_>,
    ) -> Self {
        let name = &*map.metadata.name;
        let mut sets = Self::default();
        let mut readings = Vec::new();
        for workload in readers {
            let template = &workload.spec.template;
            if !template.spec.config_maps().any(|it| it == name) {
                continue;
            }
            let Some(server) = server::of(template) else { continue };
            let all = view.with_config_map(map).files(ns, &template.spec);
            let included: BTreeSet<_> = all.iter().flat_map(|file| includes(file.text)).collect();
            readings.extend(reading(&template.spec, server, name, files, &included));
            if !included.is_empty() {
                for place in paths(&template.spec, server, &all) {
                    sets.paths.extend(place.rsplit_once('/').map(|(folder, _)| folder.to_owned()));
                    sets.paths.insert(place);
                }
            }
        }
        if readings.is_empty() {
            let (alone, together) = files.iter().copied().partition(|key| is_numbered(key));
            (sets.alone, sets.together) = (alone, BTreeSet::from([together]));
        }
        for Reading { together, chosen, chosen_from } in readings {
            if chosen.len() > 1 {
                sets.chosen_from = sets.chosen_from.or_else(|| chosen_from.map(str::to_owned));
            }
            sets.alone.extend(chosen);
            sets.together.insert(together);
        }
        let is_alone = |key: &&str| !sets.together.iter().any(|set| set.contains(key));
        sets.alone = sets.alone.iter().copied().filter(is_alone).collect();
        sets
    }

    /// Returns whether it is unknown if a server reads this file: no mount shows it, and its name has no member's number.
    pub(super) fn is_doubtful(&self, file: &str) -> bool {
        self.alone.contains(file) && !is_numbered(file)
    }

    /// Returns whether the included file or folder is known; then its files are judged themselves.
    pub(super) fn hold(&self, include: Include<'_>) -> bool {
        let (Include::File(path) | Include::Folder(path)) = include;
        self.paths.contains(path)
    }

    /// Returns a warning if it is unknown which files a server reads.
    pub(super) fn unknown(&self) -> Option<Finding> {
        let place = self.chosen_from.as_ref()?;
        let says = format!(
            "it is not known which of its option files a server reads (mounted at {place}), so each is judged by itself"
        );
        let why = "a fault that arises only from two files together is not found";
        let instead = say("mount files for all members as a folder, such as /etc/mysql/conf.d")
            .then("if each file is for one member, ignore this warning");
        Some(RULE.warn("data", says, why, instead))
    }
}

/// Returns whether the file name ends in the number of one member.
pub(super) fn is_numbered(file: &str) -> bool {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    stem.rsplit_once(['-', '_', '.']).is_some_and(|(_, end)| end.parse::<u64>().is_ok())
}
