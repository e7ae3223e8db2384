//! Reads the texts of the paths that the user gave: of a file, of every manifest in a folder, or of standard input.
//!
//! Owns: which files are read, in which order, and why a file is not read. Must not know: what the texts contain.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use inspect::check::{Input, MissingText};

use super::base::git;
use super::exclusions::Exclusions;
use super::input;
use crate::command::terminal::progress::Progress;

/// The size limit of one file, 64 MiB. Files that people write are smaller, and an API server takes no object of more than 3 MiB.
const LARGEST_FILE: u64 = 64 << 20;
const LEADS_OUT: &str =
    "is a symbolic link to a place outside this folder, so it was not followed; name its target as well";
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads every text below the paths once. The texts of a folder are in the order of their names.
pub(super) fn read(paths: &[PathBuf], exclusions: &Exclusions, progress: &Progress) -> Vec<Input> {
    let mut found = InputList {
        inputs: Vec::new(),
        given: Path::new(""),
        asks_git: false,
        exclusions,
        seen: HashSet::new(),
        progress,
    };
    for path in paths {
        found.given = path;
        if path.is_dir() {
            let top = fs::canonicalize(path).unwrap_or_default();
            let tracked = tracked_though_ignored(path, &top);
            found.asks_git = tracked.is_some();
            read_folder(path, &top, &mut found);
            for tracked in tracked.into_iter().flatten() {
                let is_template = tracked.ancestors().skip(1).any(is_templates);
                if !is_template && !exclusions.exclude(path, &tracked, false) {
                    read_file_in_folder(&tracked, &top, &mut found);
                }
            }
        } else if is_standard_input(path) || found.mark_read(path) {
            if is_standard_input(path) {
                // The progress line must not disturb a person who types manifests at a terminal.
                progress.show(String::new);
            }
            found.push(path, read_one(path));
        }
    }
    found.inputs
}

/// The inputs so far, and the progress line that counts them.
struct InputList<'a> {
    inputs: Vec<Input>,
    /// The path of the command line that is being read.
    given: &'a Path,
    /// Whether files below that path are left out if git ignores them.
    asks_git: bool,
    exclusions: &'a Exclusions,
    seen: HashSet<PathBuf>,
    progress: &'a Progress,
}

impl InputList<'_> {
    fn push(&mut self, name: &Path, text: Result<String, MissingText>) {
        self.inputs.push(input(self.given, name, text));
        let files = self.inputs.len();
        self.progress.show(|| format!("reading: {files} file{} …", if files == 1 { "" } else { "s" }));
    }

    /// Marks a path as read, and returns whether this was the first time: a link may lead to a file or folder that was already
    /// read, or to a folder above the link.
    fn mark_read(&mut self, path: &Path) -> bool {
        fs::canonicalize(path).map_or(true, |path| self.seen.insert(path))
    }
}

/// Returns whether the path is `-`, which stands for standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns whether a file in a folder is read as a manifest, judged by its extension.
pub(super) fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|it| EXTENSIONS.iter().any(|known| it.eq_ignore_ascii_case(known)))
}

/// Reads the files in a folder, except those that git ignores.
fn read_folder(folder: &Path, top: &Path, found: &mut InputList<'_>) {
    if !found.mark_read(folder) {
        return;
    }
    for entry in walk(folder, found) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let why = error.io_error().map_or_else(|| error.to_string(), problem);
                found.push(&place_of(&error).unwrap_or_else(|| folder.to_owned()), unread(why));
                continue;
            }
        };
        let path = entry.path();
        if entry.depth() == 0 {
            continue;
        }
        if is_templates(path) {
            found.push(path, Err(MissingText::Chart));
        } else if !path.is_dir() {
            read_file_in_folder(path, top, found);
        } else if !entry.path_is_symlink() {
            found.mark_read(path);
        } else if fs::canonicalize(path).is_ok_and(|it| it.starts_with(top)) {
            read_folder(path, top, found);
        } else {
            // The author of a link must not choose what else on this machine is read.
            found.push(path, unread(LEADS_OUT.to_owned()));
        }
    }
}

/// Walks through a folder in the order of names. Of the ignore rules only those of git count, and only in a repository: a
/// person's global rules would make the same check differ on another machine.
fn walk(folder: &Path, found: &InputList<'_>) -> ignore::Walk {
    let (exclusions, given) = (found.exclusions.clone(), found.given.to_owned());
    let mut walk = WalkBuilder::new(folder);
    let git = found.asks_git;
    walk.standard_filters(false).parents(git).git_ignore(git).git_exclude(git).require_git(true);
    walk.sort_by_file_path(Path::cmp);
    walk.filter_entry(move |entry| {
        let path = entry.path();
        let is_folder = entry.file_type().is_some_and(|it| it.is_dir());
        entry.depth() == 0
            || !(is_folder && path.ends_with(".git")
                || path.parent().is_some_and(is_templates)
                || exclusions.exclude(&given, path, is_folder))
    });
    walk.build()
}

/// Returns whether the path is the folder of a chart's templates. The folder itself is listed, and its contents are not.
fn is_templates(path: &Path) -> bool {
    path.ends_with(TEMPLATES) && path.with_file_name(CHART).is_file() && path.is_dir()
}

/// Returns the path that an error is about.
fn place_of(error: &ignore::Error) -> Option<PathBuf> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path.clone()),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => place_of(err),
        _ => None,
    }
}

/// Returns the files that were committed although git ignores them; git does not treat them as ignored. `None`: nothing is left
/// out, because git cannot be asked, or because it ignores the folder that was named.
fn tracked_though_ignored(folder: &Path, top: &Path) -> Option<Vec<PathBuf>> {
    if !top.ancestors().any(|it| it.join(".git").exists()) {
        return None;
    }
    let asked = |arguments: &[&str]| git(folder, arguments).ok().filter(|it| it.status.success());
    if asked(&["check-ignore", "--quiet", "any.yaml"]).is_some() {
        return None;
    }
    let listed = asked(&["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"])?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let paths = names.split('\0').filter(|name| !name.is_empty()).map(|name| folder.join(name));
    Some(paths.filter(|path| path.exists()).collect())
}

/// Reads a file in a folder, if its extension is that of a manifest.
fn read_file_in_folder(path: &Path, top: &Path, found: &mut InputList<'_>) {
    if !is_manifest(path) || !found.mark_read(path) {
        return;
    }
    let special = fs::metadata(path).is_ok_and(|it| !it.is_file());
    let leads_out = fs::canonicalize(path).is_ok_and(|it| !it.starts_with(top));
    let text = match (leads_out, special) {
        (true, _) => unread(LEADS_OUT.to_owned()),
        (_, true) => unread("is not a file".to_owned()),
        _ => read_one(path),
    };
    found.push(path, text);
}

fn read_one(path: &Path) -> Result<String, MissingText> {
    let bytes = if is_standard_input(path) {
        read_limited(io::stdin().lock())
    } else {
        File::open(path).map_err(|error| problem(&error)).and_then(read_limited)
    };
    bytes.and_then(text).or_else(unread)
}

fn unread(why: String) -> Result<String, MissingText> {
    Err(MissingText::Unread(why))
}

/// The file that makes a folder a chart.
pub(super) const CHART: &str = "Chart.yaml";
/// The folder in a chart that holds templates, which are not manifests.
pub(super) const TEMPLATES: &str = "templates";

fn read_limited(source: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    source.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(|error| problem(&error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LARGEST_FILE) {
        return Err(format!("has more than {} MiB, which is too large; split it", LARGEST_FILE >> 20));
    }
    Ok(bytes)
}

/// Returns these bytes as text, or the reason why they are not text.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err("this is UTF-16, which kubectl does not read; save it as UTF-8".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        format!("this is not text (line {line} is not UTF-8), so it is not YAML")
    })
}

fn problem(error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "you have no permission to read it".to_owned(),
        _ => error.to_string(),
    };
    format!("cannot be read: {why}")
}
