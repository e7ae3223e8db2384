//! Which option files of a ConfigMap are judged together: those that one server reads together. Of the others each is judged
//! by itself, since it may be the file of one member.
//!
//! Must not know: what is wrong with an option.

use std::collections::BTreeSet;

use super::finding;
use crate::galera::reading::{Reading, reading};
use crate::galera::server;
use crate::marks;
use crate::object::Workload;
use crate::verdict::{Finding, Verdict};
use crate::view::View;

/// Keys of one ConfigMap, set by set.
pub(super) struct Sets<'a> {
    /// What is read together.
    pub(super) all: BTreeSet<BTreeSet<&'a str>>,
    /// Where the files are of which a server reads nobody knows which.
    chosen_from: Option<String>,
}

impl<'a> Sets<'a> {
    /// Of these option files, with a reader that comes.
    pub(super) fn of(
        ns: &str,
        map: &str,
        files: &BTreeSet<&'a str>,
        view: &View<'_>,
        coming: Option<&Workload>,
    ) -> Self {
        let known = view.readers_of(ns, map).map(|it| &*it.workload).chain(view.deployments_in(ns));
        let templates = known.chain(coming);
        let readings: Vec<_> = templates.filter_map(|it| read_by(it, map, files)).collect();
        let mut sets = Self { all: BTreeSet::new(), chosen_from: None };
        if readings.is_empty() {
            let (alone, together): (Vec<_>, BTreeSet<_>) = (
                files.iter().copied().filter(|key| is_numbered(key)).collect(),
                files.iter().copied().filter(|key| !is_numbered(key)).collect(),
            );
            sets.all.insert(together);
            sets.all.extend(alone.into_iter().map(|key| BTreeSet::from([key])));
        }
        for Reading { together, chosen_from } in readings {
            let rest: Vec<_> = files.difference(&together).copied().collect();
            if rest.len() > 1 {
                sets.chosen_from = sets.chosen_from.or_else(|| chosen_from.map(str::to_owned));
            }
            sets.all.extend(rest.into_iter().map(|key| BTreeSet::from([key])));
            sets.all.insert(together);
        }
        // What one server reads together need not be judged alone for another.
        let alone = |set: &BTreeSet<&str>| set.len() == 1;
        let larger: BTreeSet<_> = sets.all.iter().filter(|set| !alone(set)).flatten().copied().collect();
        sets.all.retain(|set| !alone(set) || !set.is_subset(&larger));
        sets
    }

    /// What cannot be told is said.
    pub(super) fn unknown(&self) -> Option<Finding> {
        let place = self.chosen_from.as_ref()?;
        Some(finding(
            Verdict::Warn,
            "data".to_owned(),
            format!(
                "which of its option files a server reads cannot be told (mounted at {place}), so each is judged by itself"
            ),
            "what two of them do together is not seen",
            "mount what all members read as a folder, such as /etc/mysql/conf.d; of files for one member each no more can be known",
        ))
    }
}

fn read_by<'w, 'k>(workload: &'w Workload, map: &str, files: &BTreeSet<&'k str>) -> Option<Reading<'w, 'k>> {
    let template = &workload.spec.template;
    let server = server::container(&template.spec, template.metadata.mark(marks::CONTAINER))?;
    reading(&template.spec, server, map, files)
}

/// It bears the number of one member.
pub(super) fn is_numbered(file: &str) -> bool {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    stem.rsplit_once(['-', '_', '.']).is_some_and(|(_, end)| end.parse::<u64>().is_ok())
}
