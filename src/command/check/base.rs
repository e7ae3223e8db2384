//! The base of a check: the earlier state of the manifests, which `--against` names.
//!
//! Owns: reading a revision of the repository that the paths are in, with the installed `git`. Must not know: what changed.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::str::FromStr;

use anyhow::{Context as _, ensure};
use inspect::check::{Input, MissingText};

use super::exclusions::Exclusions;
use super::{input, nearest, sources, with_slashes};
use crate::command::terminal::progress::Progress;

/// The earlier state that `--against` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A file or folder with the earlier state.
    Path(PathBuf),
    /// A revision of the repository that the paths are in.
    Git(String),
}

impl FromStr for Base {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("git:") {
            Some("") => Err("write git: and a revision, for example git:origin/main...".to_owned()),
            Some(revision) => Ok(Self::Git(revision.to_owned())),
            None if text == "-" => {
                Err("the base cannot come from standard input; write it to a file and name that".to_owned())
            }
            None => Ok(Self::Path(text.into())),
        }
    }
}

impl Base {
    /// Reads every text of the base below these paths.
    pub(super) fn read(
        &self,
        paths: &[PathBuf],
        exclusions: &Exclusions,
        progress: &Progress,
    ) -> anyhow::Result<Vec<Input>> {
        let revision = match self {
            Self::Path(path) => return Ok(sources::read(std::slice::from_ref(path), exclusions, progress)),
            Self::Git(revision) => revision,
        };
        progress.show(|| "reading the base …".to_owned());
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        for path in paths {
            ensure!(
                !sources::is_standard_input(path),
                "standard input has no earlier revision in git; to compare it with a file, use --against FILE"
            );
            let tree = Tree::of(path, revision)?;
            let included = |it: &Input| !exclusions.exclude(path, Path::new(&*it.name), false);
            all.extend(tree.texts()?.into_iter().filter(|it| included(it) && seen.insert(it.name.clone())));
        }
        Ok(all)
    }
}

/// A path in a revision.
struct Tree<'a> {
    path: &'a Path,
    /// The folder in which `git` runs: that of the path, or the nearest one above it that still exists.
    folder: &'a Path,
    commit: String,
}

/// A path in a revision that cannot be compared, such as a link or a submodule, and the reason.
type Incomparable = (PathBuf, String);
/// A file in a revision: the id of its content, and its path below the folder.
type Blob = (String, PathBuf);

impl<'a> Tree<'a> {
    fn of(path: &'a Path, revision: &str) -> anyhow::Result<Self> {
        let folder = nearest(path, Path::is_dir);
        Ok(Self { path, folder, commit: commit(folder, path, revision)? })
    }

    /// Reads every manifest below the path. A path that cannot be compared becomes an input without text, with the reason.
    fn texts(&self) -> anyhow::Result<Vec<Input>> {
        let (blobs, incomparable) = self.blobs()?;
        let contents = self.contents(&blobs)?;
        let named = |((_, name), bytes): (Blob, Vec<u8>)| {
            let name = self.name(name);
            input(self.path, &name, sources::text(bytes).map_err(MissingText::Unread))
        };
        let left_out = incomparable
            .into_iter()
            .map(|(name, reason)| input(self.path, &self.name(name), Err(MissingText::LeftOut(reason))));
        Ok(blobs.into_iter().zip(contents).map(named).chain(left_out).collect())
    }

    /// Returns the name by which the new state lists the same file.
    fn name(&self, below: PathBuf) -> PathBuf {
        let here = self.folder == Path::new(".") && !self.path.starts_with(".");
        if here { below } else { self.folder.join(below) }
    }

    fn blobs(&self) -> anyhow::Result<(Vec<Blob>, Vec<Incomparable>)> {
        let below = self.path.strip_prefix(self.folder).unwrap_or(self.path);
        let below = with_slashes(below);
        let mut arguments = vec!["ls-tree", "-r", "-z", &self.commit];
        if !matches!(&*below, "" | ".") {
            arguments.extend(["--", &below]);
        }
        let output = git(self.folder, &arguments)?;
        ensure!(output.status.success(), "git ls-tree: {}", first_line(&output));
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let (mut blobs, mut incomparable) = (Vec::new(), Vec::new());
        for (fields, name) in listed.split('\0').filter_map(|entry| entry.split_once('\t')) {
            let mut fields = fields.split(' ');
            let (Some(mode), _, Some(id)) = (fields.next(), fields.next(), fields.next()) else { continue };
            let is_wanted = *name == *below || sources::is_manifest(Path::new(name));
            let reason = match mode {
                "160000" => {
                    "is a submodule in the base, so its earlier content is unknown; check it in its own repository"
                }
                "120000" if is_wanted => {
                    "is a symbolic link in the base, so its earlier content is unknown; name its target as well"
                }
                _ if is_wanted => {
                    blobs.push((id.to_owned(), PathBuf::from(name)));
                    continue;
                }
                _ => continue,
            };
            incomparable.push((PathBuf::from(name), reason.to_owned()));
        }
        if self.path.is_file() && blobs.is_empty() && incomparable.is_empty() {
            let reason = "does not exist in the base, so all of it was judged as new; if it was moved, name its folder instead";
            incomparable.push((PathBuf::from(&*below), reason.to_owned()));
        }
        let charts = blobs.iter().filter(|(_, name)| name.ends_with(sources::CHART));
        let templates: HashSet<_> = charts.map(|(_, name)| name.with_file_name(sources::TEMPLATES)).collect();
        let is_template = |name: &Path| name.ancestors().any(|it| templates.contains(it));
        blobs.retain(|(_, name)| *name == *below || !is_template(name));
        Ok((blobs, incomparable))
    }

    /// Reads the contents of these files, with one `git` process.
    fn contents(&self, blobs: &[Blob]) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut child = command(self.folder, &["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("running git")?;
        let mut stdin = child.stdin.take().context("opening the standard input of git")?;
        // git writes answers while it still reads ids, so another thread writes the ids: otherwise git and this program could
        // wait for each other.
        let ids: String = blobs.iter().map(|(id, _)| format!("{id}\n")).collect();
        let writer = std::thread::spawn(move || stdin.write_all(ids.as_bytes()));
        let output = child.wait_with_output().context("running git")?;
        let complete = writer.join().is_ok_and(|it| it.is_ok()) && output.status.success();
        let mut rest = &*output.stdout;
        let contents = blobs.iter().map_while(|_| {
            let head = rest.iter().position(|byte| *byte == b'\n')?;
            let size: usize = str::from_utf8(&rest[..head]).ok()?.rsplit(' ').next()?.parse().ok()?;
            let content = rest.get(head + 1..head + 1 + size)?;
            rest = rest.get(head + 2 + size..)?;
            Some(content.to_vec())
        });
        let contents: Vec<_> = contents.collect();
        ensure!(
            complete && contents.len() == blobs.len(),
            "git could not read every file of this revision; `git fsck` checks the repository"
        );
        Ok(contents)
    }
}

/// Returns the commit that a revision names; for `REV...` and `A...B`, their merge base.
fn commit(folder: &Path, path: &Path, revision: &str) -> anyhow::Result<String> {
    let shown = path.display();
    let inside = git(folder, &["rev-parse", "--git-dir"])?;
    ensure!(inside.status.success(), "--against git:{revision}: {shown}: {}", first_line(&inside));
    let verified = |name: &str| {
        let name = format!("{}^{{commit}}", if name.is_empty() { "HEAD" } else { name });
        let output = git(folder, &["rev-parse", "--verify", "--end-of-options", &name])?;
        ensure!(
            output.status.success(),
            "--against git:{revision}: the repository of {shown} has no such revision; if the clone is shallow, `git fetch` it first"
        );
        anyhow::Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some((from, to)) = revision.split_once("...") else { return verified(revision) };
    let output = git(folder, &["merge-base", &verified(from)?, &verified(to)?])?;
    ensure!(
        output.status.success(),
        "--against git:{revision}: git finds no common ancestor of these revisions; if the clone is shallow, run `git fetch --unshallow` first"
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the text of a file in a revision; `None`: there was no such file, or it was not UTF-8.
pub(super) fn text_of(revision: &str, path: &Path) -> anyhow::Result<Option<String>> {
    let tree = Tree::of(path, revision)?;
    let (blobs, _) = tree.blobs()?;
    let text = tree.contents(&blobs)?.pop();
    Ok(text.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// Variables that git sets for its hooks. They may name another repository than the one that a path is in.
const GIT_HOOK_VARIABLES: [&str; 6] =
    ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"];

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    for name in GIT_HOOK_VARIABLES {
        command.env_remove(name);
    }
    // The contents of the folder must not choose programs that git starts, or make git use another repository inside the folder.
    command.args(["-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit"]);
    command.arg("-C").arg(folder).args(arguments).env("GIT_OPTIONAL_LOCKS", "0").stderr(Stdio::piped());
    command
}

pub(super) fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    command(folder, arguments).stdin(Stdio::null()).output().context("--against git: needs the program git")
}

fn first_line(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    stderr.lines().next().unwrap_or("git failed").trim_start_matches("fatal: ").to_owned()
}
