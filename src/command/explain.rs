//! `gatera explain` and `gatera rules`: the manual.

use std::io::Write;

use anyhow::Context as _;
use decide::rules;

/// The page of one rule.
pub fn page(rule: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let known = || rules::RULES.iter().map(|rule| rule.id).collect::<Vec<_>>().join(", ");
    let found =
        rules::find(rule).with_context(|| format!("there is no rule {rule}; there are {}", known()))?;
    Ok(writeln!(out, "{}", found.manual())?)
}

/// A line for each.
pub fn list(out: &mut impl Write) -> anyhow::Result<()> {
    for rule in rules::RULES {
        writeln!(out, "{}  {:<18} {}", rule.id, rule.name, rule.summary())?;
    }
    Ok(())
}
