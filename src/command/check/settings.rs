//! The settings of a check: those in the file that `--config` names, or those in a file beside the manifests. With `--live`, the
//! guard's settings take precedence over a file beside the manifests.
//!
//! Owns: where the file is searched for, and whose settings count. The search does not go above the top of a repository, and
//! outside of a repository it stays in the folder itself. The settings must belong to the owner of the manifests, so that no other
//! user's file makes a check milder. With a base in git, no change makes its own check milder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::rulebook;
use anyhow::{Context as _, ensure};
use facts::mode::Mode;
use facts::settings::Settings;

use super::{Base, nearest, sources};
use crate::act::reload;
use crate::command::installed::SettingsSource;
use crate::command::site::Site;

/// The name of the settings file.
const NAME: &str = ".gatera.yaml";

/// The settings, and where they come from.
pub(super) struct ChosenSettings {
    pub(super) settings: Settings,
    /// The file that they come from.
    pub(super) file: Option<String>,
    origin: String,
}

impl ChosenSettings {
    fn of(settings: Settings, file: &Path, origin: &str) -> Self {
        let file = file.display().to_string();
        Self { settings, origin: format!("{file}, {origin}"), file: Some(file) }
    }

    /// Returns the settings for `--live`: the file that `--config` names, or the guard's settings, or, if those are unknown, the
    /// file beside the manifests.
    pub(super) fn or_of_guard(self, site: &Site) -> Self {
        match &site.source {
            SettingsSource::Defaults(_) if self.file.is_some() => self,
            SettingsSource::File(_) => self,
            source => Self { settings: site.settings.clone(), file: None, origin: source.to_string() },
        }
    }

    /// Returns the origin of the settings, for `--verbose`.
    pub(super) fn origin_line(&self, mode: Option<Mode>) -> String {
        let mode = mode.map(|mode| format!("; --mode {}", mode.name())).unwrap_or_default();
        format!("settings: {}{mode}", self.origin)
    }
}

/// Returns the settings for these paths: those of the file `named`, or those of the nearest settings file, or the defaults. With
/// a base in git, rules of a settings file that was found are no milder than in the base.
pub(super) fn of(
    named: Option<&Path>,
    paths: &[PathBuf],
    base: Option<&Base>,
) -> anyhow::Result<ChosenSettings> {
    const BESIDE: &str = "found beside the manifests or in a folder above them";
    if let Some(path) = named {
        return Ok(ChosenSettings::of(reload::load(path)?, path, "as --config says"));
    }
    let mut all = paths.iter().map(|path| file_beside(path)).collect::<anyhow::Result<Vec<_>>>()?;
    all.dedup();
    let found = match &all[..] {
        [] => None,
        [found] => found.clone(),
        _ => {
            let shown =
                |it: &Option<PathBuf>| it.as_ref().map_or("none".to_owned(), |it| it.display().to_string());
            let named: Vec<_> = all.iter().map(shown).collect();
            anyhow::bail!(
                "these paths have different settings ({}); --config names one file",
                named.join(", ")
            )
        }
    };
    let Some(path) = found else {
        let origin =
            format!("the defaults; there is no {NAME} beside the manifests or in a folder above them");
        return Ok(ChosenSettings { settings: Settings::default(), file: None, origin });
    };
    let settings = reload::load(&path)?;
    let Some(Base::Git(revision)) = base else { return Ok(ChosenSettings::of(settings, &path, BESIDE)) };
    // A change that makes rules milder must not thereby pass its own check.
    let before = super::base::text_of(revision, &path)?;
    let before = before.map_or_else(|| Ok(Settings::default()), |text| reload::parse(&path, &text));
    let ids: Vec<_> = rulebook().rules().iter().map(|rule| rule.id).collect();
    Ok(ChosenSettings::of(settings.no_milder_than(&before.unwrap_or_default(), &ids), &path, BESIDE))
}

/// Returns the settings file that is nearest to the path, or to its former place if it does not exist any more. Fails if the file
/// belongs to another user.
fn file_beside(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    let path = if sources::is_standard_input(path) { Path::new(".") } else { path };
    let nearest = fs::canonicalize(nearest(path, Path::exists))
        .with_context(|| format!("looking for settings beside {}", path.display()))?;
    let folder = if nearest.is_dir() { &nearest } else { nearest.parent().unwrap_or(&nearest) };
    let top = folder.ancestors().find(|it| it.join(".git").exists()).unwrap_or(folder);
    let within = folder.ancestors().take_while(|it| it.starts_with(top));
    let Some(found) = within.map(|it| it.join(NAME)).find(|it| it.is_file()) else { return Ok(None) };
    ensure!(
        owner(&found) == owner(&nearest),
        "{} and {} belong to different users, so the settings may not be yours; to use them, add --config {}",
        found.display(),
        path.display(),
        found.display()
    );
    Ok(Some(found))
}

#[cfg(unix)]
fn owner(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    Some(fs::metadata(path).ok()?.uid())
}

#[cfg(not(unix))]
fn owner(_: &Path) -> Option<u32> {
    None
}
