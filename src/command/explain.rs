//! `gatera explain`: the rules, and the manual page of each.

use std::io::Write;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use engine::rule::Page;
use facts::marks::overrides;
use report::{manual, rules};

use crate::rulebook;
use jiff::Timestamp;

use super::complete;
use super::suggest::did_you_mean;
use super::terminal::Colour;

/// The end of overrides in the manual pages. It is replaced by a time in the future, because people copy overrides.
const ANY_TIME: &str = "until=2026-12-01T10:00:00Z";

/// Options of `gatera explain`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Id or name of a rule, such as G01 or scale-order [default: list all rules]
    #[arg(add = ArgValueCandidates::new(complete::rules))]
    rule: Option<String>,
    /// Format of the list
    #[arg(long, short, value_enum, default_value_t = ExplainForm::Text, conflicts_with = "rule")]
    output: ExplainForm,
    #[command(flatten)]
    colour: Colour,
}

impl Options {
    /// Returns whether the output is a list for people. The page of a rule is not: `manual::rendered` wraps it.
    pub fn is_for_people(&self) -> bool {
        self.rule.is_none() && matches!(self.output, ExplainForm::Text)
    }
}

/// The format of the list of rules.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExplainForm {
    /// One line for each rule
    Text,
    /// For programs, with the manual pages
    Json,
    /// A Markdown table
    Markdown,
}

/// Prints all rules, or the page of one: rendered on a terminal, otherwise unchanged.
pub fn run(options: &Options, now: Timestamp, out: &mut impl Write) -> anyhow::Result<()> {
    let Some(rule) = &options.rule else { return list(options.output, out) };
    let page = page_named(rule)?;
    let until = format!("until={}", overrides::example_end(now));
    let text = page.text().replace(ANY_TIME, &until);
    match options.colour.width() {
        Some(width) => out.write_all(manual::rendered(&text, width, options.colour.wanted()).as_bytes())?,
        None => writeln!(out, "{text}")?,
    }
    Ok(())
}

fn page_named(name: &str) -> anyhow::Result<Page> {
    let names = rulebook().pages().flat_map(|it| [it.id, it.name]);
    rulebook().page(name).with_context(|| {
        format!("there is no rule {name}{} `gatera explain` lists them", did_you_mean(name, names))
    })
}

fn list(form: ExplainForm, out: &mut impl Write) -> anyhow::Result<()> {
    let rules: Vec<_> = rulebook().rules().iter().collect();
    let text = match form {
        ExplainForm::Text => rules::text(&rules),
        ExplainForm::Markdown => rules::markdown(&rules),
        ExplainForm::Json => format!("{:#}\n", rules::json(&rules)),
    };
    Ok(out.write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use facts::marks::overrides::Override;

    use super::*;

    /// An override on a page is valid if a person copies it and adds a reason.
    #[test]
    fn overrides_on_pages_end_in_the_future() {
        let now: Timestamp = "2027-03-01T09:00:00Z".parse().unwrap();
        let mut shown = 0;
        for rule in rulebook().rules() {
            let until = format!("until={}", overrides::example_end(now));
            let page = rule.page().text().replace(ANY_TIME, &until).replace('\n', " ");
            for (at, _) in page.match_indices("until=") {
                let time = page[at..].split([' ', '`', '\'', '"']).next().unwrap();
                if ["until=…", "until=TIME"].contains(&time) {
                    continue;
                }
                let text = format!("{} {time} reason=new disks", rule.id);
                assert!(Override::read(&text, now).is_ok(), "{}: {time}", rule.id);
                shown += 1;
            }
        }
        assert!(shown > 10, "{shown}");
    }
}
