//! Git repositories that programs fetch by HTTP: busybox runs Git's own server program for each request.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::control_plane::{ControlPlane, free_port};
use super::error::{Doing, Error};
use super::supervise::Component;

/// A repository with one branch, `main`. It is served until dropped.
pub(crate) struct Repository {
    folder: PathBuf,
    port: u16,
    _server: Component,
}

impl ControlPlane {
    /// Creates a repository with an empty first commit.
    pub(crate) fn repository(&self, name: &str) -> Repository {
        Repository::create(&self.folder().join(name)).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Repository {
    fn create(at: &Path) -> Result<Self, Error> {
        let folder = at.join("repository");
        let program = at.join("served/cgi-bin/git");
        let made = || -> std::io::Result<()> {
            fs::create_dir_all(&folder)?;
            fs::create_dir_all(at.join("served/cgi-bin"))?;
            let text = format!(
                "#!/bin/sh\nGIT_PROJECT_ROOT={} GIT_HTTP_EXPORT_ALL=1 exec git -c safe.directory='*' http-backend\n",
                at.display()
            );
            fs::write(&program, text)?;
            fs::set_permissions(&program, Permissions::from_mode(0o755))
        };
        made().doing(|| format!("making {}", at.display()))?;
        let port = free_port()?;
        let flags = ["httpd", "-f", "-p", &format!("127.0.0.1:{port}"), "-h", "served"].map(str::to_owned);
        let server = Component::start(at, "git", Path::new("busybox"), &flags)?;
        let it = Self { folder, port, _server: server };
        it.git(&["init", "--quiet", "--initial-branch=main"]);
        it.commit("lab", "begin");
        Ok(it)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/cgi-bin/git/repository", self.port)
    }

    /// Returns the folder whose files the next commit takes.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Commits all files. Returns the name of the commit.
    pub(crate) fn commit(&self, who: &str, message: &str) -> String {
        self.git(&["add", "--all"]);
        let author = format!("--author={who} <{who}@example.org>");
        self.git(&["commit", "--quiet", "--allow-empty", &author, "--message", message]);
        self.head()
    }

    /// Returns the name of the last commit.
    pub(crate) fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Undoes the last commit by another one. Returns its name.
    pub(crate) fn revert(&self) -> String {
        // Without --no-commit, the revert of a commit that changed nothing fails.
        self.git(&["revert", "--no-commit", "HEAD"]);
        self.commit("lab", "revert")
    }

    fn git(&self, arguments: &[&str]) -> String {
        let ours = ["-c", "user.name=lab", "-c", "user.email=lab@example.org"];
        let mut git = Command::new("git");
        git.current_dir(&self.folder).args(ours).args(arguments);
        // The personal settings of the user who runs the tests have no effect.
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        let output = git.output().expect("git is installed");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}
