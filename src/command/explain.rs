//! `gatera explain` and `gatera rules`: the manual.

use std::io::Write;

use anyhow::Context as _;
use decide::marks::overrides;
use decide::report::pages;
use decide::rules::{self, Rule};
use jiff::Timestamp;

/// What the pages write for the end of an override. A person who copies it needs one that is not over.
const ANY_TIME: &str = "until=2026-12-01T10:00:00Z";

/// The page of one rule.
pub fn page(rule: &str, now: Timestamp, out: &mut impl Write) -> anyhow::Result<()> {
    let known = || rules::RULES.iter().map(|rule| rule.id).collect::<Vec<_>>().join(", ");
    let found =
        rules::find(rule).with_context(|| format!("there is no rule {rule}; there are {}", known()))?;
    let until = format!("until={}", overrides::example_end(now));
    Ok(writeln!(out, "{}", found.manual().replace(ANY_TIME, &until))?)
}

/// The same for a place where it stays, beside the others and without the program: the time is to be filled in.
pub fn lasting_page(rule: &Rule) -> String {
    let page = pages::without_program(rule.manual().replace(ANY_TIME, "until=TIME"));
    format!("{page}\n(Other pages lie beside this one, each under its id: `'jsonpath={{.data.G04}}'`.)\n")
}

/// A line for each.
pub fn list(out: &mut impl Write) -> anyhow::Result<()> {
    for rule in rules::RULES {
        writeln!(out, "{}  {:<18} {}", rule.id, rule.name, rule.summary())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use decide::marks::overrides::Override;

    use super::*;

    /// Every page that shows an override shows one that would be read, but for its reason.
    #[test]
    fn a_time_on_a_page_is_not_over() {
        let now: Timestamp = "2027-03-01T09:00:00Z".parse().unwrap();
        let mut shown = 0;
        for rule in rules::RULES {
            let mut page = Vec::new();
            self::page(rule.id, now, &mut page).unwrap();
            let page = String::from_utf8(page).unwrap().replace('\n', " ");
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
