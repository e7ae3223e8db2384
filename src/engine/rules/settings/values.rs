//! Findings about the value of an option, or a change of it.

use super::RULE;
use super::changing::ChangingCluster;
use super::together::is_numbered;
use crate::verdict::{Finding, Findings, Verdict};
use facts::galera::image::Series;
use facts::galera::options::keys::{self, Class, Key};
use facts::galera::options::{Effective, PlacedValue, UnknownOption, same};

/// The place where options are written.
pub(super) struct OptionPlace<'a> {
    /// The container on whose command line they are; otherwise they are in files of a ConfigMap.
    pub(super) container: Option<&'a str>,
    /// The settings are for one member only.
    pub(super) for_one: bool,
}

impl OptionPlace<'_> {
    fn field(&self, key: &str, file: &str) -> String {
        let key = if key.contains('.') { format!("wsrep_provider_options[{key}]") } else { key.to_owned() };
        match self.container {
            None => format!("data[{file}].{key}"),
            Some(name) => format!("spec.template.spec.containers[{name}].{file}.{key}"),
        }
    }

    fn says(&self, file: &str, line: usize, what: &str) -> String {
        match self.container {
            None => format!("{file} line {line} {what}"),
            Some(name) => format!("container {name} {what} in {file}"),
        }
    }

    /// Returns findings about a value alone.
    pub(super) fn judge(&self, key: &str, placed: &PlacedValue<'_>) -> Findings {
        let value = placed.value.as_ref().map(|_| placed.look());
        let judge = |row: &Key| {
            let (verdict, whom) = match &row.class {
                Class::Deny(bad) if bad.is(value) => (Verdict::Deny, ""),
                Class::Warn(bad) if bad.is(value) => (Verdict::Warn, ""),
                Class::Node if !self.for_one && belongs_to_one(placed) => (Verdict::Deny, " for all members"),
                _ => return None,
            };
            let says = self.says(
                placed.file,
                placed.line,
                &format!("sets {}{whom}{}", shown(key, value), earlier_places(placed)),
            );
            Some(RULE.finding(verdict, self.field(key, placed.file), says, row.why, row.way_out("CLUSTER")))
        };
        keys::rows(key).iter().filter_map(judge).collect()
    }

    /// Returns the finding about an option that a server of this series does not know.
    pub(super) fn unknown(
        &self,
        key: &str,
        (file, line): (&str, usize),
        why: UnknownOption,
        series: Option<Series>,
    ) -> Finding {
        let by =
            series.map_or("no MariaDB server knows".to_owned(), |it| format!("MariaDB {it} does not know"));
        let (more, instead) = match why {
            UnknownOption::Nowhere(Some(meant)) => (format!(" (probably {meant})"), format!("write {meant}")),
            UnknownOption::Nowhere(None) => {
                (String::new(), format!("remove it; or, if a plugin adds it, write loose_{key}"))
            }
            UnknownOption::Since(first) => (format!("; {first} and later do"), "remove it".to_owned()),
            UnknownOption::Until(last) => (format!("; {last} was the last that did"), "remove it".to_owned()),
        };
        let says = format!("{}, which {by}{more}", self.says(file, line, &format!("sets {key}")));
        let why = "a server does not start with an option that it does not know, so a member fails at its next start";
        RULE.warn(self.field(key, file), says, why, instead)
    }

    /// Returns findings about changes that this cluster with data does not allow.
    pub(super) fn changes(
        &self,
        old: &Effective<'_>,
        new: &Effective<'_>,
        cluster: &ChangingCluster<'_>,
    ) -> Findings {
        let gone =
            old.iter().filter(|(key, _)| new.get(key).is_none()).map(|(key, was)| (key, Some(was), None));
        let there = new.iter().map(|(key, now)| (key, old.get(key), Some(now)));
        let all = there.chain(gone);
        all.flat_map(|(key, was, now)| self.change(key, was, now, cluster)).collect()
    }

    fn change(
        &self,
        key: &str,
        was: Option<&PlacedValue<'_>>,
        now: Option<&PlacedValue<'_>>,
        cluster: &ChangingCluster<'_>,
    ) -> Findings {
        let Some(placed) = now.or(was) else { return Findings::new() };
        // The option may still be set in another place.
        let (description, elsewhere) = (&cluster.description, cluster.after.get(key));
        let judge = |row: &Key| {
            let (verdict, default, of) = match row.class {
                Class::Format(default) => {
                    (Verdict::Deny, default, format!(", but there is data of {description}"))
                }
                Class::Cluster { .. } if cluster.stopped || cluster.can_connect(key) => return None,
                Class::Cluster { default, fatal: true } => {
                    (Verdict::Deny, default, format!(" under {description}"))
                }
                // `judge` reports a value that is bad by itself.
                Class::Cluster { fatal: false, .. } if now.is_some_and(|now| is_bad(key, now)) => {
                    return None;
                }
                Class::Cluster { default, fatal: false } => (Verdict::Warn, default, String::new()),
                Class::Kept(default)
                    if now.is_none() && !differ(elsewhere.map(PlacedValue::look), None, default) =>
                {
                    (Verdict::Deny, default, format!(" under {description}"))
                }
                Class::Kept(_) | Class::Deny(_) | Class::Warn(_) | Class::Node => return None,
            };
            let changes =
                differ(was.map(PlacedValue::look), now.or(elsewhere).map(PlacedValue::look), default);
            let says = format!("{}{of}", self.says(placed.file, placed.line, &changed(key, was, now)));
            let instead = row.way_out(&cluster.arguments);
            changes.then(|| RULE.finding(verdict, self.field(key, placed.file), says, row.why, instead))
        };
        keys::rows(key).iter().filter_map(judge).collect()
    }
}

fn is_bad(key: &str, placed: &PlacedValue<'_>) -> bool {
    let value = placed.value.as_ref().map(|_| placed.look());
    let bad = |row: &Key| matches!(&row.class, Class::Deny(bad) | Class::Warn(bad) if bad.is(value));
    keys::rows(key).iter().any(bad)
}

/// Returns whether the server would behave differently, as far as is known. Without a setting, its default counts.
fn differ(was: Option<&str>, now: Option<&str>, default: &[&str]) -> bool {
    match (was, now) {
        (Some(was), Some(now)) => !same(was, now),
        (Some(set), None) | (None, Some(set)) => {
            !default.is_empty() && !default.iter().any(|default| same(set, default))
        }
        (None, None) => false,
    }
}

/// Returns whether the setting is a literal value in a file for several members. A value that is filled in per pod or chosen by
/// the server is not, and neither is one in a file whose name has the number of a member.
fn belongs_to_one(placed: &PlacedValue<'_>) -> bool {
    let value = placed.look().trim();
    let open = ["", "auto", "0.0.0.0", "::"].iter().any(|word| value.eq_ignore_ascii_case(word));
    let filled_in = value.contains(['$', '{', '%', '@', '<']);
    !open && !filled_in && !is_numbered(placed.file)
}

fn changed(key: &str, was: Option<&PlacedValue<'_>>, now: Option<&PlacedValue<'_>>) -> String {
    let text = |placed: &PlacedValue<'_>| shortened(placed.look());
    match (was, now) {
        _ if !keys::may_be_shown(key) => format!("changes {key}"),
        (Some(was), Some(now)) => format!("changes {key} from {} to {}", text(was), text(now)),
        (Some(was), None) => format!("no longer sets {key} = {}", text(was)),
        (None, now) => format!("newly sets {}", shown(key, now.map(PlacedValue::look))),
    }
}

/// Returns the earlier places of the same setting, which have to change as well.
fn earlier_places(placed: &PlacedValue<'_>) -> String {
    let before = placed.also.iter().map(|(file, line)| format!("{file} line {line}")).collect::<Vec<_>>();
    if before.is_empty() { String::new() } else { format!(", as {} did before", before.join(" and ")) }
}

fn shown(key: &str, value: Option<&str>) -> String {
    match value.filter(|_| keys::may_be_shown(key)) {
        Some(value) => format!("{key} = {}", shortened(value)),
        None => key.to_owned(),
    }
}

/// Returns the value, shortened and on one line.
pub(super) fn shortened(value: &str) -> String {
    let mut text: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).take(60).collect();
    if value.chars().count() > 60 {
        text.push('…');
    }
    if text.is_empty() { "\"\"".to_owned() } else { text }
}
