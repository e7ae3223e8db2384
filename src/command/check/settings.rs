//! The settings that count for a check: those that are named, or those that lie beside the manifests.
//!
//! Owns: where they are looked for. Not above the top of a repository, and outside of one only in the folder itself: nobody else's
//! file may make a check milder.

use std::fs;
use std::path::{Path, PathBuf};

use decide::config::Settings;

use super::sources;
use crate::act::reload;

/// How the file is called.
const NAME: &str = ".gatera.yaml";

/// The settings for these paths.
pub(super) fn of(named: Option<&Path>, paths: &[PathBuf]) -> anyhow::Result<Settings> {
    if let Some(path) = named {
        return Ok(reload::load(path)?);
    }
    let mut all: Vec<_> = paths.iter().map(|path| beside(path)).collect();
    all.dedup();
    match &all[..] {
        [] | [None] => Ok(Settings::default()),
        [Some(path)] => Ok(reload::load(path)?),
        _ => {
            let named: Vec<_> = all
                .iter()
                .map(|it| it.as_ref().map_or("none".to_owned(), |it| it.display().to_string()))
                .collect();
            anyhow::bail!(
                "these paths have different settings ({}); --config names one file",
                named.join(", ")
            )
        }
    }
}

/// The nearest one.
fn beside(path: &Path) -> Option<PathBuf> {
    let path = if sources::is_standard_input(path) { Path::new(".") } else { path };
    let folder = if path.is_dir() {
        path
    } else {
        path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
    };
    let folder = fs::canonicalize(folder).ok()?;
    let top = folder.ancestors().find(|it| it.join(".git").exists()).unwrap_or(&folder);
    let within = folder.ancestors().take_while(|it| it.starts_with(top));
    within.map(|it| it.join(NAME)).find(|it| it.is_file())
}
