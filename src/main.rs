//! The process: crypto provider, command line, exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // The only place that chooses the crypto provider of the process. The call fails only if one was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    gatera::command::Cli::from_command_line().run()
}
