//! Completion scripts for shells and pages for `man`, generated from clap's description of the commands; and the version of this
//! program.

use std::io::Write;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::act::telemetry::COMMIT;
use crate::rulebook;

/// Options of `gatera completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// Shell that reads the output
    shell: Shell,
}

/// Options of `gatera man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Command whose page is printed [default: gatera itself]
    command: Option<String>,
}

/// Prints the completion script for a shell, which runs this program to complete commands.
pub fn completions(options: &CompletionsArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let shell = shells.completer(&options.shell.to_string()).context("no script for this shell")?;
    Ok(shell.write_registration("COMPLETE", "gatera", "gatera", "gatera", out)?)
}

/// Prints a page for `man`.
pub fn man(options: &ManArgs, mut program: Command, out: &mut impl Write) -> anyhow::Result<()> {
    // Sets the full name of each command.
    program.build();
    let of = match &options.command {
        None => &program,
        Some(wanted) => program
            .find_subcommand(wanted)
            .with_context(|| format!("there is no command {wanted}; `gatera help` lists them"))?,
    };
    Ok(clap_mangen::Man::new(of.clone()).render(out)?)
}

/// Prints version, commit and build of this program, as far as they were known when it was built.
pub fn version(out: &mut impl Write) -> std::io::Result<()> {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    writeln!(out, "gatera {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "commit      {COMMIT}")?;
    writeln!(out, "build       {build}, {}-{}", std::env::consts::OS, std::env::consts::ARCH)?;
    writeln!(out, "rules       {}", rulebook().rules().len())?;
    writeln!(out, "kubernetes  1.30 and later")
}
