//! How it was before: what `--against` names.
//!
//! Owns: reading a revision of the repository that the paths are in, by the `git` that is there. Must not know: what changed.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use decide::check::{Input, NoText};

use super::{input, sources};

/// What `--against` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Files as they were.
    Path(PathBuf),
    /// A revision of the repository.
    Git(String),
}

impl FromStr for Base {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("git:") {
            Some("") => Err("write git: and a revision, for example git:origin/main".to_owned()),
            Some(revision) => Ok(Self::Git(revision.to_owned())),
            None if text == "-" => {
                Err("a base cannot come from standard input; write it to a file".to_owned())
            }
            None => Ok(Self::Path(text.into())),
        }
    }
}

impl Base {
    /// Every text of the base below these paths.
    pub(super) fn read(&self, paths: &[PathBuf]) -> anyhow::Result<Vec<Input>> {
        let revision = match self {
            Self::Path(path) => return Ok(sources::read(std::slice::from_ref(path))),
            Self::Git(revision) => revision,
        };
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        for path in paths {
            ensure!(
                !sources::is_standard_input(path),
                "what comes through a pipe has no revision; --against FILE compares it with a file"
            );
            let tree = Tree::of(path, revision)?;
            all.extend(tree.texts()?.into_iter().filter(|it| seen.insert(it.name.clone())));
        }
        Ok(all)
    }
}

/// A path in a revision.
struct Tree<'a> {
    path: &'a Path,
    /// Where `git` is asked: the folder, or the nearest one above what is not there any more.
    folder: &'a Path,
    commit: String,
}

/// A file in a revision: its content's id, and its path below the folder.
type Blob = (String, PathBuf);

impl<'a> Tree<'a> {
    fn of(path: &'a Path, revision: &str) -> anyhow::Result<Self> {
        let is_folder = |it: &&Path| it.as_os_str().is_empty() || it.is_dir();
        let folder = path
            .ancestors()
            .find(is_folder)
            .filter(|it| !it.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let shown = path.display();
        if !git(folder, &["rev-parse", "--git-dir"])?.status.success() {
            bail!("--against git:{revision}: {shown} is in no git repository");
        }
        let commit = format!("{revision}^{{commit}}");
        let output = git(folder, &["rev-parse", "--verify", "--end-of-options", &commit])?;
        ensure!(
            output.status.success(),
            "--against git:{revision}: the repository of {shown} has no such revision; a shallow clone has few: `git fetch` it first"
        );
        Ok(Self { path, folder, commit: String::from_utf8_lossy(&output.stdout).trim().to_owned() })
    }

    /// Every manifest below the path.
    fn texts(&self) -> anyhow::Result<Vec<Input>> {
        let blobs = self.blobs()?;
        let contents = self.contents(&blobs)?;
        let named = |((_, name), bytes): (Blob, Vec<u8>)| {
            // Named as the same file is named now.
            let name = if self.folder == Path::new(".") && !self.path.starts_with(".") {
                name
            } else {
                self.folder.join(name)
            };
            input(&name, sources::text(bytes).map_err(NoText::Unread))
        };
        Ok(blobs.into_iter().zip(contents).map(named).collect())
    }

    fn blobs(&self) -> anyhow::Result<Vec<Blob>> {
        let below = self.path.strip_prefix(self.folder).unwrap_or(self.path);
        let below = below.to_string_lossy();
        let mut arguments = vec!["ls-tree", "-r", "-z", &self.commit];
        if !matches!(&*below, "" | ".") {
            arguments.extend(["--", &below]);
        }
        let output = git(self.folder, &arguments)?;
        ensure!(output.status.success(), "git ls-tree: {}", first_line(&output));
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let blobs = listed.split('\0').filter_map(|entry| {
            let (about, name) = entry.split_once('\t')?;
            let mut about = about.split(' ');
            let file = about.next()?.starts_with("100");
            let (_, id) = (about.next()?, about.next()?);
            let asked = *name == *below || sources::is_manifest(Path::new(name));
            (file && asked).then(|| (id.to_owned(), PathBuf::from(name)))
        });
        let blobs: Vec<_> = blobs.collect();
        let charts = blobs.iter().filter(|(_, name)| name.ends_with(sources::CHART));
        let templates: HashSet<_> = charts.map(|(_, name)| name.with_file_name(sources::TEMPLATES)).collect();
        let is_template = |name: &Path| name.ancestors().any(|it| templates.contains(it));
        Ok(blobs.into_iter().filter(|(_, name)| *name == *below || !is_template(name)).collect())
    }

    /// What is in them, by one process.
    fn contents(&self, blobs: &[Blob]) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut child = command(self.folder, &["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("running git")?;
        let mut asked = child.stdin.take().context("git takes no input")?;
        // It answers while it is asked: neither may wait for the other.
        let ids: String = blobs.iter().map(|(id, _)| format!("{id}\n")).collect();
        let asking = std::thread::spawn(move || asked.write_all(ids.as_bytes()));
        let output = child.wait_with_output().context("running git")?;
        let told = asking.join().is_ok_and(|it| it.is_ok()) && output.status.success();
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
            told && contents.len() == blobs.len(),
            "git cat-file did not hand out what git ls-tree lists"
        );
        Ok(contents)
    }
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments).env("GIT_OPTIONAL_LOCKS", "0").stderr(Stdio::piped());
    command
}

fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    command(folder, arguments).stdin(Stdio::null()).output().context("--against git: needs the program git")
}

fn first_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("it failed").to_owned()
}
