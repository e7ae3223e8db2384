//! Texts below paths: files as they are, folders with all that is in them, standard input.
//!
//! Owns: which files count, in which order, and what keeps one from being read. Must not know: what is in them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use inspect::check::{Input, NoText};

use super::input;
use crate::command::terminal::progress::Progress;

/// No person writes a longer file by hand, and an API server takes no object of more than three.
const LONGEST: u64 = 64 << 20;
const LEADS_OUT: &str =
    "is a link that leads out of this folder, so it was not followed; name what it leads to as well";
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Every text below the paths, each once, those of a folder in the order of their names.
pub(super) fn read(paths: &[PathBuf], progress: &Progress) -> Vec<Input> {
    let mut found = InputList { inputs: Vec::new(), given: Path::new(""), progress };
    let mut seen = HashSet::new();
    for path in paths {
        found.given = path;
        if path.is_dir() {
            below(path, &fs::canonicalize(path).unwrap_or_default(), &mut seen, &mut found);
        } else if is_standard_input(path) || first_time(path, &mut seen) {
            if is_standard_input(path) {
                // A person who types manifests at a terminal is not interrupted.
                progress.says(String::new);
            }
            found.push(path, one(path));
        }
    }
    found.inputs
}

/// The inputs so far, and the progress line that counts them.
struct InputList<'a> {
    inputs: Vec<Input>,
    /// The path that is read now.
    given: &'a Path,
    progress: &'a Progress,
}

impl InputList<'_> {
    fn push(&mut self, name: &Path, text: Result<String, NoText>) {
        self.inputs.push(input(self.given, name, text));
        let files = self.inputs.len();
        self.progress.says(|| format!("reading: {files} file{} …", if files == 1 { "" } else { "s" }));
    }
}

/// `-` is a pipe.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A file that is read as manifests when it lies in a folder.
pub(super) fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|it| ENDINGS.iter().any(|known| it.eq_ignore_ascii_case(known)))
}

/// A link may lead to what was read before, or to a folder above it.
fn first_time(path: &Path, seen: &mut HashSet<PathBuf>) -> bool {
    fs::canonicalize(path).map_or(true, |path| seen.insert(path))
}

fn below(folder: &Path, top: &Path, seen: &mut HashSet<PathBuf>, found: &mut InputList<'_>) {
    if !first_time(folder, seen) {
        return;
    }
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = match entries {
        Ok(entries) => entries,
        Err(error) => return found.push(folder, unread(problem(&error))),
    };
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let is_chart = paths.iter().any(|path| path.ends_with(CHART));
    for path in paths {
        if is_chart && path.ends_with(TEMPLATES) {
            found.push(&path, Err(NoText::LeftOut(left_out(folder))));
        } else if path.is_dir() && !path.ends_with(".git") {
            // The author of a link must not choose what else of a machine is read.
            if fs::canonicalize(&path).is_ok_and(|it| it.starts_with(top)) {
                below(&path, top, seen, found);
            } else {
                found.push(&path, unread(LEADS_OUT.to_owned()));
            }
        } else if is_manifest(&path) && first_time(&path, seen) {
            let special = fs::metadata(&path).is_ok_and(|it| !it.is_file());
            let leads_out = fs::canonicalize(&path).is_ok_and(|it| !it.starts_with(top));
            let text = match (leads_out, special) {
                (true, _) => unread(LEADS_OUT.to_owned()),
                (_, true) => unread("is not a file".to_owned()),
                _ => one(&path),
            };
            found.push(&path, text);
        }
    }
}

fn one(path: &Path) -> Result<String, NoText> {
    let bytes = if is_standard_input(path) { limited(io::stdin().lock()) } else { file(path) };
    bytes.and_then(text).or_else(unread)
}

fn unread(why: String) -> Result<String, NoText> {
    Err(NoText::Unread(why))
}

fn left_out(chart: &Path) -> String {
    let chart = chart.display();
    format!(
        "these are templates of a chart, so they were not judged; judge what comes of them: helm template {chart} | gatera check -"
    )
}

/// Below a folder with a file of the first name, a folder of the second one holds no manifests.
pub(super) const CHART: &str = "Chart.yaml";
pub(super) const TEMPLATES: &str = "templates";

fn file(path: &Path) -> Result<Vec<u8>, String> {
    limited(File::open(path).map_err(|error| problem(&error))?)
}

fn limited(source: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    source.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|error| problem(&error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LONGEST) {
        return Err(format!("has more than {} MiB, which no set of manifests has; part it", LONGEST >> 20));
    }
    Ok(bytes)
}

/// The text that these bytes are.
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
        io::ErrorKind::PermissionDenied => "it may not be read".to_owned(),
        _ => error.to_string(),
    };
    format!("cannot be read: {why}")
}
