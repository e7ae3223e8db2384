//! New texts that could not be read, or only in part: objects that their earlier versions held do not count as removed.
//!
//! Owns: which text of the base is the earlier version of an incomplete text. Must not know: why it could not be read.

use std::path::Path;

use super::Input;

/// Texts that could not be read completely, by the names or paths that their earlier versions have.
#[derive(Debug, Default)]
pub(super) struct Gaps<'a> {
    /// Names that the base has, too.
    named: Vec<&'a Path>,
    /// Paths below the given folder, which has another name in the base.
    below: Vec<&'a Path>,
}

impl<'a> Gaps<'a> {
    /// Collects the texts that could not be read completely. `alone`: there is only one new text.
    pub(super) fn of(incomplete: &[&'a Input], base: &[&Input], alone: bool) -> Self {
        let mut gaps = Self::default();
        for text in incomplete {
            let name = Path::new(&*text.name);
            // A base in another folder has other names.
            if base.iter().any(|it| Path::new(&*it.name).starts_with(name)) {
                gaps.named.push(name);
            } else if alone || !text.below.as_os_str().is_empty() {
                gaps.below.push(&text.below);
            }
        }
        gaps
    }

    /// Returns whether the later version of this text of the base is incomplete. A folder that could not be read stands for every
    /// file in it.
    pub(super) fn cover(&self, before: &Input) -> bool {
        self.named.iter().any(|it| Path::new(&*before.name).starts_with(it))
            || self.below.iter().any(|it| before.below.starts_with(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> Input {
        let below = name.split_once('/').map_or("", |(_, below)| below);
        Input { name: name.into(), below: Path::new(below).into(), text: Ok(String::new()) }
    }

    #[test]
    fn the_earlier_version_has_the_same_name_or_the_same_path_below_its_folder() {
        for (incomplete, base, alone, held) in [
            ("apps/a.yaml", &["apps/a.yaml", "apps/b.yaml"][..], false, &["apps/a.yaml"][..]),
            ("new/a.yaml", &["old/a.yaml", "old/b/a.yaml"], false, &["old/a.yaml"]),
            ("apps/b", &["apps/b/a.yaml", "apps/c.yaml"], false, &["apps/b/a.yaml"]),
            ("new/b", &["old/b/a.yaml", "old/c.yaml"], false, &["old/b/a.yaml"]),
            ("-", &["before.yaml"], true, &["before.yaml"]),
            ("a.yaml", &["apps/b.yaml"], false, &[]),
        ] {
            let (incomplete, all) =
                (text(incomplete), base.iter().map(|name| text(name)).collect::<Vec<_>>());
            let gaps = Gaps::of(&[&incomplete], &all.iter().collect::<Vec<_>>(), alone);
            let found: Vec<_> = all.iter().filter(|it| gaps.cover(it)).map(|it| &*it.name).collect();
            assert_eq!(found, held, "{}", incomplete.name);
        }
    }
}
