//! Files that a check leaves out because the user says so: `--exclude`, and `exclude` in the settings beside the manifests.
//!
//! Owns: what a pattern is relative to. Must not know: what git ignores (`sources.rs`).

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Patterns as in a .gitignore; each set of them is relative to a folder.
#[derive(Clone, Debug, Default)]
pub(super) struct Exclusions(Arc<[(PathBuf, Gitignore)]>);

impl Exclusions {
    /// Collects the patterns of the command line, which are relative to the current folder, and those of the settings file, which
    /// are relative to its folder.
    pub(super) fn of(
        typed: &[String],
        settings: &[String],
        settings_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let here = std::env::current_dir().context("looking for the current folder")?;
        let folder = settings_file
            .and_then(Path::parent)
            .map_or_else(|| here.clone(), |folder| plain(&here.join(folder)));
        let sets = [(here, typed), (folder, settings)].into_iter().filter(|(_, globs)| !globs.is_empty());
        let all = sets.map(|(folder, globs)| Ok((folder.clone(), matcher(&folder, globs)?)));
        Ok(Self(all.collect::<anyhow::Result<Vec<_>>>()?.into()))
    }

    /// Returns whether a path, or a folder above it, is left out. `top` is the path that the user gave.
    pub(super) fn exclude(&self, top: &Path, path: &Path, is_folder: bool) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Ok(whole) = std::path::absolute(path).map(|it| plain(&it)) else { return false };
        self.0.iter().any(|(folder, globs)| {
            // Files of a base in another folder are matched by their path below that folder, as if they were here.
            let below = whole.strip_prefix(folder).or_else(|_| path.strip_prefix(top));
            below.is_ok_and(|it| globs.matched_path_or_any_parents(it, is_folder).is_ignore())
        })
    }
}

fn matcher(folder: &Path, globs: &[String]) -> anyhow::Result<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    for glob in globs {
        builder
            .add_line(None, glob)
            .with_context(|| format!("the pattern {glob:?} of files to leave out"))?;
    }
    builder.build().context("reading the patterns of files to leave out")
}

/// Returns the path without `.` and `..`. It does not look at the disk, because the file may not exist any more.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_a_gitignore() {
        let globs = ["vendor/", "/top.yaml", "*.tmpl.yaml", "!keep.tmpl.yaml"].map(str::to_owned);
        let all = Exclusions::of(&globs, &[], None).unwrap();
        for (path, excluded) in [
            ("vendor/a/b.yaml", true),
            ("./apps/vendor/b.yaml", true),
            ("apps/../top.yaml", true),
            ("apps/top.yaml", false),
            ("apps/x.tmpl.yaml", true),
            ("apps/keep.tmpl.yaml", false),
            ("apps/x.yaml", false),
        ] {
            assert_eq!(all.exclude(Path::new("."), Path::new(path), false), excluded, "{path}");
        }
        assert!(all.exclude(Path::new("/elsewhere"), Path::new("/elsewhere/vendor/a.yaml"), false));
        assert!(!Exclusions::default().exclude(Path::new("."), Path::new("vendor/a.yaml"), false));
        assert!(Exclusions::of(&["[z-a]".to_owned()], &[], None).is_err());
    }
}
