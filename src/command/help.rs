//! The first page of the program's help: its commands in groups.
//!
//! clap has one heading for all subcommands, so this page is built here, from the description of each command.

use std::fmt::Write as _;

use clap::Command;

/// Headings of the first page, each with its commands.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Look", &["status", "doctor", "audit", "explain", "report", "version"]),
    ("Prevent", &["check"]),
    ("Act", &["recover", "start", "stop", "rollout", "passwd", "break-glass"]),
    ("Serve", &["serve"]),
];

/// Returns the program with the grouped page as its help.
pub(super) fn grouped(program: Command) -> Command {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let (widest, style) = (names.map(|name| name.len()).max().unwrap_or_default(), program.get_styles());
    let (header, literal) = (style.get_header(), style.get_literal());
    let mut page = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (heading, names) in GROUPS {
        let _ = writeln!(page, "{header}{heading}:{header:#}");
        for name in names {
            let about = program.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(page, "  {literal}{name:<widest$}{literal:#}  {about}");
        }
        page.push('\n');
    }
    let _ = write!(
        page,
        "{header}Options:{header:#}\n{{options}}\n\n`gatera COMMAND --help` shows options and examples of a command."
    );
    program.help_template(page)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::command::Cli;

    #[test]
    fn every_visible_command_is_in_one_group_and_fits_a_line() {
        let program = Cli::command();
        let visible = program.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name);
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(visible.collect::<BTreeSet<_>>(), grouped.iter().copied().collect());
        assert_eq!(grouped.len(), grouped.iter().collect::<BTreeSet<_>>().len());
        let page = super::grouped(program).render_help().to_string();
        let long: Vec<_> = page.lines().skip(3).filter(|line| line.len() > 88).collect();
        assert!(long.is_empty(), "{long:?}");
    }
}
