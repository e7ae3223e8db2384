//! What `gatera doctor` found, as text and as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use facts::way_out::WayOut;
use inspect::doctor::{AnswerState, Row};
use objects::visible;

use super::json::VERSION;
use super::paint::{BAD, CALM, GOOD, NOTABLE, Paint};

/// Returns a line for each answer, with what to do below it.
pub fn text(rows: &[Row], colour: bool) -> String {
    let lines = lines(&rows.iter().collect::<Vec<_>>(), Paint(colour));
    let [well, remarks, not_asked, wrong] = counts(rows);
    let remarks = super::count(remarks, "remark");
    format!("{lines}\n{wrong} wrong, {remarks}, {not_asked} not asked, {well} well\n")
}

/// Returns only the lines that need attention.
pub fn not_well(rows: &[Row], colour: bool) -> String {
    lines(&rows.iter().filter(|row| row.state != AnswerState::Well).collect::<Vec<_>>(), Paint(colour))
}

fn lines(rows: &[&Row], paint: Paint) -> String {
    let widest = rows.iter().map(|row| row.about.len()).max().unwrap_or_default();
    let line = |Row { about, state, says, instead }: &&Row| {
        let head = format!("{} {about:<widest$}  {}\n", word(*state, paint), visible(says));
        if instead.is_empty() {
            return head;
        }
        let indent = " ".repeat(6 + 1 + widest + 2);
        head + &format!("{indent}do: {}\n", visible(&instead.to_string()))
    };
    rows.iter().map(line).collect()
}

/// Returns an answer with its way out.
pub(super) fn one_line(Row { says, instead, .. }: &Row) -> String {
    if instead.is_empty() { says.clone() } else { format!("{says}; do: {instead}") }
}

fn word(state: AnswerState, paint: Paint) -> String {
    let (code, word) = match state {
        AnswerState::Well => (GOOD, "well"),
        AnswerState::Remark => (CALM, "note"),
        AnswerState::NotAsked => (NOTABLE, "?"),
        AnswerState::Wrong => (BAD, "WRONG"),
    };
    paint.with(code, &format!("{word:<6}"))
}

/// The answers of `gatera doctor`.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    version: u32,
    rows: Vec<AnswerItem<'a>>,
    summary: Summary,
}

/// One answer: what was asked, and what is so.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AnswerItem<'a> {
    about: &'static str,
    /// well, remark, not asked or wrong.
    state: &'static str,
    says: &'a str,
    /// What to do; empty: nothing.
    #[schemars(with = "String")]
    instead: &'a WayOut,
}

/// How many answers there are of each state.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Summary {
    well: usize,
    remarks: usize,
    not_asked: usize,
    wrong: usize,
}

impl<'a> AnswerItem<'a> {
    pub(crate) fn all(rows: &'a [Row]) -> Vec<Self> {
        let item =
            |Row { about, state, says, instead }: &'a Row| Self { about, state: state.name(), says, instead };
        rows.iter().map(item).collect()
    }
}

/// Returns the answers as JSON.
pub fn json(rows: &[Row]) -> Value {
    let [well, remarks, not_asked, wrong] = counts(rows);
    let summary = Summary { well, remarks, not_asked, wrong };
    crate::json::value(Document { version: VERSION, rows: AnswerItem::all(rows), summary })
}

fn counts(rows: &[Row]) -> [usize; 4] {
    [AnswerState::Well, AnswerState::Remark, AnswerState::NotAsked, AnswerState::Wrong]
        .map(|state| rows.iter().filter(|row| row.state == state).count())
}
