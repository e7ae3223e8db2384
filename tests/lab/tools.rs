//! Finds the programs of the lab. `KUBEBUILDER_ASSETS` first, then the cache that `tools/build.sh` fills; the script is
//! also the only one who knows where that cache is. Hands out one path per program; runs none of them.

use std::env;
use std::ffi::OsStr;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use super::beside;
use super::error::Error;

const CONTROLLER_MANAGER: &str = "kube-controller-manager";

#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) etcd: PathBuf,
    pub(super) api_server: PathBuf,
    pub(super) controller_manager: PathBuf,
    pub(super) kubectl: PathBuf,
}

impl Tools {
    /// Once per process, so that planes started in parallel do not start parallel builds.
    pub(super) fn find() -> Result<Self, Error> {
        static FOUND: LazyLock<Result<Tools, String>> =
            LazyLock::new(|| match env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
                Some(folder) => Tools::given(&folder),
                None => Ok(Tools::in_folder(&build(&[])?)),
            });
        FOUND.clone().map_err(Error::Tools)
    }

    /// The usual bundles of test binaries come without a controller manager; ours then fills the gap.
    fn given(folder: &OsStr) -> Result<Self, String> {
        // Absolute, as the programs are started from a folder of their own.
        let folder = path::absolute(folder).map_err(|error| format!("KUBEBUILDER_ASSETS: {error}"))?;
        let mut tools = Self::in_folder(&folder);
        for program in [&tools.etcd, &tools.api_server, &tools.kubectl] {
            if !program.is_file() {
                return Err(format!("KUBEBUILDER_ASSETS is set, but there is no {}", program.display()));
            }
        }
        if !tools.controller_manager.is_file() {
            tools.controller_manager = build(&[CONTROLLER_MANAGER])?.join(CONTROLLER_MANAGER);
        }
        Ok(tools)
    }

    fn in_folder(folder: &Path) -> Self {
        Self {
            etcd: folder.join("etcd"),
            api_server: folder.join("kube-apiserver"),
            controller_manager: folder.join(CONTROLLER_MANAGER),
            kubectl: folder.join("kubectl"),
        }
    }
}

/// Runs `build.sh`, which returns at once when everything is there. Its progress and its errors reach the terminal even
/// inside a captured test: they are written by another process.
fn build(tools: &[&str]) -> Result<PathBuf, String> {
    let script = beside("tools/build.sh");
    let output = Command::new("/bin/sh")
        .arg(&script)
        .args(tools)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("running {}: {error}", script.display()))?;
    if !output.status.success() {
        return Err(format!("{} ended with {}; it says why above", script.display(), output.status));
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().last().map(PathBuf::from).ok_or_else(|| format!("{} named no folder", script.display()))
}
