//! The list of rules, for people, as Markdown and as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json::VERSION;
use engine::rule::Rule;

/// Returns a line for each rule.
pub fn text(rules: &[&Rule]) -> String {
    rules.iter().map(|it| format!("{}  {:<18} {}\n", it.id, it.name, it.page().summary())).collect()
}

/// Returns the rules as a table.
pub fn markdown(rules: &[&Rule]) -> String {
    let row = |it: &&Rule| format!("| {} | {} | {} |\n", it.id, it.name, it.page().summary());
    "| id | name | in short |\n|---|---|---|\n".to_owned() + &rules.iter().map(row).collect::<String>()
}

/// All rules, as `gatera explain --output=json` prints them.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    version: u32,
    rules: Vec<RuleItem<'a>>,
}

/// A rule.
#[derive(Serialize, JsonSchema)]
struct RuleItem<'a> {
    id: &'a str,
    name: &'a str,
    summary: String,
    touches: Vec<Touched>,
    /// Its manual page, as Markdown.
    page: String,
}

/// A kind of object that the rule judges, and the operations on it that are judged.
#[derive(Serialize, JsonSchema)]
struct Touched {
    kind: &'static str,
    verbs: Vec<&'static str>,
}

/// Returns the rules as JSON.
pub fn json(rules: &[&Rule]) -> Value {
    let item = |it: &&Rule| RuleItem {
        id: it.id,
        name: it.name,
        summary: it.page().summary(),
        touches: touches(it),
        page: it.page().text(),
    };
    super::json::value(Document { version: VERSION, rules: rules.iter().map(item).collect() })
}

fn touches(rule: &Rule) -> Vec<Touched> {
    let mut all: Vec<Touched> = Vec::new();
    for (kind, verbs, _) in rule.judges {
        let verbs = verbs.iter().map(|verb| verb.name());
        match all.iter_mut().find(|it| it.kind == kind.name()) {
            Some(it) => it.verbs.extend(verbs),
            None => all.push(Touched { kind: kind.name(), verbs: verbs.collect() }),
        }
    }
    all
}
