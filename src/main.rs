//! The process: crypto provider, command line, exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // One provider for the whole process, chosen here and nowhere else; a second call would be a second main.
    let _ = rustls::crypto::ring::default_provider().install_default();
    gatera::command::Cli::parse().run()
}
