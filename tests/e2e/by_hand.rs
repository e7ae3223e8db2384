//! `make lab`: a cluster with three real nodes for trying things by hand, and a shell that knows it: kubectl, helm, ctr.
//!
//! Runs inside `tests/lab/machines/enter.sh`. Everything is gone when the shell ends. RUN='…' runs that instead of a shell.
#![forbid(unsafe_code)]
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "it is tried by hand, and a panic is how it fails"
)]

#[path = "../lab/mod.rs"]
mod lab;

use std::env;
use std::process::{Command, ExitCode};
use std::time::Instant;

use lab::{ControlPlane, User};

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
    let path = format!("{}:{}", plane.tools_folder().display(), env::var("PATH").unwrap_or_default());
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
