//! The places at which code hosts show findings about objects that were removed: they show only files that exist.
//!
//! Owns: which file stands in for one that is gone. Must not know: formats.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The files of the new state.
#[derive(Debug, Default)]
pub(super) struct StandIns {
    /// The number of lines of each file.
    lines: HashMap<Arc<str>, u64>,
    /// The first file in or below each folder.
    first_files: HashMap<Arc<Path>, Arc<str>>,
}

impl StandIns {
    /// Collects the names of the new files, in their order, with their numbers of lines. Standard input is not a file.
    pub(super) fn of(files: impl Iterator<Item = (Arc<str>, u64)>) -> Self {
        let mut all = Self::default();
        for (name, lines) in files.filter(|(name, _)| &**name != "-") {
            for folder in Path::new(&*name).ancestors().skip(1) {
                all.first_files.entry(folder.into()).or_insert_with(|| name.clone());
            }
            all.lines.insert(name, lines);
        }
        all
    }

    /// Returns the place that stands in for a line of a removed document: the same line of the file, if the file still exists,
    /// otherwise the nearest file.
    pub(super) fn of_removed(&self, file: &str, line: u64) -> Option<(Arc<str>, u64)> {
        if let Some((name, lines)) = self.lines.get_key_value(file) {
            return Some((name.clone(), line.min(*lines).max(1)));
        }
        let nearest = Path::new(file).ancestors().skip(1).find_map(|folder| self.first_files.get(folder));
        nearest.map(|name| (name.clone(), 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_file_or_the_nearest_one_stands_in() {
        let files = [("apps/db/a.yaml", 10), ("apps/web/b.yaml", 5), ("-", 3)];
        let all = StandIns::of(files.into_iter().map(|(name, lines)| (name.into(), lines)));
        for (file, line, shown) in [
            ("apps/db/a.yaml", 7, Some(("apps/db/a.yaml", 7))),
            ("apps/db/a.yaml", 70, Some(("apps/db/a.yaml", 10))),
            ("apps/web/gone.yaml", 7, Some(("apps/web/b.yaml", 1))),
            ("apps/gone/deep/c.yaml", 7, Some(("apps/db/a.yaml", 1))),
            ("gone.yaml", 7, Some(("apps/db/a.yaml", 1))),
            ("/elsewhere/gone.yaml", 7, None),
        ] {
            let found = all.of_removed(file, line);
            assert_eq!(found.as_ref().map(|(name, line)| (&**name, *line)), shown, "{file}");
        }
    }
}
