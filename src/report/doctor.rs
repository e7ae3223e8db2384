//! What `gatera doctor` found, as text and as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use facts::way_out::WayOut;
use inspect::doctor::{AnswerState, DoctorRow};
use objects::visible;

use super::json::VERSION;
use super::paint::{BAD, CALM, GOOD, NOTABLE, Paint};

/// Returns a line for each answer, with what to do below it.
pub fn text(rows: &[DoctorRow], colour: bool) -> String {
    let lines = lines(&rows.iter().collect::<Vec<_>>(), Paint(colour));
    let [well, remarks, not_asked, wrong] = counts(rows);
    let remarks = super::count(remarks, "remark");
    format!("{lines}\n{wrong} wrong, {remarks}, {not_asked} not asked, {well} well\n")
}

/// Returns only the lines that need attention.
pub fn needing_attention(rows: &[DoctorRow], colour: bool) -> String {
    lines(&rows.iter().filter(|row| row.state != AnswerState::Well).collect::<Vec<_>>(), Paint(colour))
}

fn lines(rows: &[&DoctorRow], paint: Paint) -> String {
    let widest = rows.iter().map(|row| row.about.len()).max().unwrap_or_default();
    let line = |DoctorRow { about, state, says, instead }: &&DoctorRow| {
        let head = format!("{} {about:<widest$}  {}\n", state_word(*state, paint), visible(says));
        if instead.is_empty() {
            return head;
        }
        let indent = " ".repeat(6 + 1 + widest + 2);
        head + &format!("{indent}do: {}\n", visible(&instead.to_string()))
    };
    rows.iter().map(line).collect()
}

/// Returns an answer and what to do, on one line.
pub(super) fn one_line(DoctorRow { says, instead, .. }: &DoctorRow) -> String {
    if instead.is_empty() { says.clone() } else { format!("{says}; do: {instead}") }
}

fn state_word(state: AnswerState, paint: Paint) -> String {
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

/// One answer: what was asked, and what was found.
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
    pub(crate) fn all(rows: &'a [DoctorRow]) -> Vec<Self> {
        let item = |DoctorRow { about, state, says, instead }: &'a DoctorRow| Self {
            about,
            state: state.name(),
            says,
            instead,
        };
        rows.iter().map(item).collect()
    }
}

/// Returns the answers as JSON.
pub fn json(rows: &[DoctorRow]) -> Value {
    let [well, remarks, not_asked, wrong] = counts(rows);
    let summary = Summary { well, remarks, not_asked, wrong };
    crate::json::value(Document { version: VERSION, rows: AnswerItem::all(rows), summary })
}

/// Returns how many answers are well, remarks, not asked, and wrong.
fn counts(rows: &[DoctorRow]) -> [usize; 4] {
    [AnswerState::Well, AnswerState::Remark, AnswerState::NotAsked, AnswerState::Wrong]
        .map(|state| rows.iter().filter(|row| row.state == state).count())
}
