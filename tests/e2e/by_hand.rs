//! `make lab`: three real nodes for trying things by hand, and a shell with kubectl, helm and gatera on its PATH.
//!
//! Runs inside `tests/lab/machines/enter.sh`. When the shell ends, everything is removed. With RUN='…', that command runs
//! instead of a shell.
#![forbid(unsafe_code)]
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a person runs it, and a panic is how it fails"
)]

#[path = "../lab/mod.rs"]
mod lab;

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use lab::{ControlPlane, User};

/// The commands that a newcomer types next, as in README.
const NEXT: &str = "\
kubectl, helm and gatera are on the PATH; the nodes have the images gatera, mariadb:10.11 and busybox. Next, for example:

  helm install gatera charts/gatera --namespace gatera --create-namespace --wait
  kubectl create namespace db
  kubectl label namespace db gatera.dev/mode=enforce
  helm install shop charts/galera --namespace db --set volumeSize=1Gi
  gatera status -n db --watch
  kubectl -n db delete pod -l app=galera

";

fn main() -> ExitCode {
    let started = Instant::now();
    let plane = ControlPlane::start_with_machines();
    if let Some(image) = env::var_os("GATERA_IMAGE") {
        plane.import_image(image.as_ref());
    }
    plane.have_volumes(20);
    let seconds = started.elapsed().as_secs_f64();
    eprintln!(
        "Three nodes are Ready after {seconds:.1} s. Volumes are below /tmp/hostpath_pv, logs below {}.",
        plane.folder().display()
    );
    if env::var_os("GATERA_IMAGE").is_some() {
        eprint!("{NEXT}");
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let gatera = env::var_os("GATERA_FOLDER").into_iter().map(PathBuf::from);
    let path = gatera.chain([plane.tools_folder().to_owned()]).chain(env::split_paths(&path));
    let path = env::join_paths(path).expect("no folder on the PATH contains a colon");
    let mut shell = match env::var("RUN").ok().filter(|run| !run.is_empty()) {
        Some(run) => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &run]);
            shell
        }
        None => Command::new(env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
    };
    let status = shell
        .env("KUBECONFIG", plane.kubeconfig(User::Admin))
        .env("PATH", path)
        .env("LAB", plane.folder())
        .status()
        .expect("a shell");
    ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1))
}
