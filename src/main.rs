//! The process: crypto provider, command line, exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // One provider for the whole process, chosen here and nowhere else; a second call would be a second main.
    let _ = rustls::crypto::ring::default_provider().install_default();
    gatera::command::Cli::asked().run()
}
