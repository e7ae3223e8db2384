//! Finds the programs of the lab: first in `KUBEBUILDER_ASSETS`, then in the cache that `tools/build.sh` fills. Only that
//! script decides where the cache is. This file returns one path per program and runs none of them.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::error::Error;
use super::lab_file;

const CONTROLLER_MANAGER: &str = "kube-controller-manager";

#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) etcd: PathBuf,
    pub(super) api_server: PathBuf,
    pub(super) controller_manager: PathBuf,
    pub(super) kubectl: PathBuf,
}

impl Tools {
    /// Finds the programs, once per process, so that planes started in parallel do not start parallel builds.
    pub(super) fn find() -> Result<Self, Error> {
        static FOUND: LazyLock<Result<Tools, String>> = LazyLock::new(|| match assets() {
            Some(folder) => Tools::from_assets(&folder),
            None => Ok(Tools::in_folder(&build(&[])?)),
        });
        FOUND.clone().map_err(Error::Tools)
    }

    /// Finds a program that only some tests need: kwok, the scheduler, Helm.
    pub(super) fn also(name: &'static str) -> Result<PathBuf, Error> {
        static FOUND: Mutex<BTreeMap<&str, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
        let look = || match assets().map(|folder| absolute(&folder)).transpose()? {
            Some(folder) if folder.join(name).is_file() => Ok(folder.join(name)),
            _ => Ok(build(&[name])?.join(name)),
        };
        // Held throughout, so that a second request finds the program built.
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(name).or_insert_with(look).clone().map_err(Error::Tools)
    }

    /// Takes the programs from `folder`, and builds the controller manager, which the usual bundles of test binaries lack.
    fn from_assets(folder: &OsStr) -> Result<Self, String> {
        let folder = absolute(folder)?;
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

fn assets() -> Option<OsString> {
    env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty())
}

/// Makes the path absolute, because the programs are started from another folder.
fn absolute(folder: &OsStr) -> Result<PathBuf, String> {
    path::absolute(folder).map_err(|error| format!("KUBEBUILDER_ASSETS: {error}"))
}

/// Runs `build.sh`, which returns at once when everything is built. Its progress and its errors reach the terminal even
/// from a captured test, because another process writes them.
fn build(tools: &[&str]) -> Result<PathBuf, String> {
    let script = lab_file("tools/build.sh");
    let output = Command::new("/bin/sh")
        .arg(&script)
        .args(tools)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("running {}: {error}", script.display()))?;
    if !output.status.success() {
        return Err(format!("{} ended with {}; the reason is above", script.display(), output.status));
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().last().map(PathBuf::from).ok_or_else(|| format!("{} named no folder", script.display()))
}

/// Returns the folder with the sources of a module that is pinned in a folder of `tools`, and downloads them if they are not
/// there.
pub(crate) fn sources_of(pins: &str, module: &str) -> PathBuf {
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json", module])
        .current_dir(lab_file("tools").join(pins))
        .env("GOWORK", "off");
    let output = go.output().expect("Go is installed");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("go prints JSON");
    answer["Dir"].as_str().unwrap_or_else(|| panic!("{answer}")).into()
}
