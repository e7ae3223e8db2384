//! Which option files of a ConfigMap are judged together: those that one server reads together. Of the others each is judged
//! by itself, since it may be the file of one member.
//!
//! Must not know: what is wrong with an option.

use std::collections::BTreeSet;

use super::RULE;
use crate::verdict::{Finding, Verdict};
use facts::galera::options::Include;
use facts::galera::reading::{Included, Reading, places, reading};
use facts::galera::server;
use facts::view::View;
use objects::{ConfigMap, Workload};

/// Keys of one ConfigMap, by how they are read.
#[derive(Default)]
pub(super) struct Sets<'a> {
    /// Each of these sets is read together.
    pub(super) together: BTreeSet<BTreeSet<&'a str>>,
    /// Of these somebody reads one, or some.
    pub(super) alone: BTreeSet<&'a str>,
    /// Where those are mounted.
    chosen_from: Option<String>,
    /// Where servers find these and others, and the folders that those are in.
    places: BTreeSet<String>,
}

impl<'a> Sets<'a> {
    /// Of these option files, with a reader that comes. Files that nobody reads yet are taken for read together, unless they
    /// bear the number of a member.
    pub(super) fn of(
        ns: &str,
        map: &ConfigMap,
        files: &BTreeSet<&'a str>,
        view: &View<'_>,
        coming: Option<&Workload>,
    ) -> Self {
        let name = &*map.metadata.name;
        let known =
            view.readers_of(ns, name).map(|it| &*it.workload).chain(view.deployments_that_read(ns, name));
        let mut sets = Self::default();
        let mut readings = Vec::new();
        for workload in known.chain(coming) {
            let template = &workload.spec.template;
            if !template.spec.config_maps().any(|it| it == name) {
                continue;
            }
            let Some(server) = server::of(template) else { continue };
            let all = view.with(map).files(ns, &template.spec);
            let included = Included::by(&all);
            readings.extend(reading(&template.spec, server, name, files, &included));
            if !included.is_empty() {
                for place in places(&template.spec, server, &all) {
                    sets.places.extend(place.rsplit_once('/').map(|(folder, _)| folder.to_owned()));
                    sets.places.insert(place);
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
        let together = |key: &&str| !sets.together.iter().any(|set| set.contains(key));
        sets.alone = sets.alone.iter().copied().filter(together).collect();
        sets
    }

    /// Whether a server reads this file as options is not known: no mount says so, and its name bears no member's number.
    pub(super) fn is_doubtful(&self, file: &str) -> bool {
        self.alone.contains(file) && !is_numbered(file)
    }

    /// What is included there is known, and judged where it stands.
    pub(super) fn hold(&self, include: Include<'_>) -> bool {
        let (Include::File(path) | Include::Folder(path)) = include;
        self.places.contains(path)
    }

    /// What cannot be told is said.
    pub(super) fn unknown(&self) -> Option<Finding> {
        let place = self.chosen_from.as_ref()?;
        Some(RULE.finding(
            Verdict::Warn,
            "data",
            format!(
                "which of its option files a server reads cannot be told (mounted at {place}), so \
                 each is judged by itself"
            ),
            "what two of them do together is not seen",
            "mount what all members read as a folder, such as /etc/mysql/conf.d; of files for one \
             member each no more can be known",
        ))
    }
}

/// It bears the number of one member.
pub(super) fn is_numbered(file: &str) -> bool {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    stem.rsplit_once(['-', '_', '.']).is_some_and(|(_, end)| end.parse::<u64>().is_ok())
}
