//! What `gatera doctor` found, as text and as JSON.
//!
//! The JSON is a contract; fields are added, never renamed:
//!
//! ```text
//! { "rows": [{ "about", "state": "well|remark|not asked|wrong", "says", "instead" }],
//!   "summary": { "well", "remarks", "notAsked", "wrong" } }
//! ```

use serde_json::{Value, json};

use inspect::doctor::{Row, State};
use objects::visible;

/// Returns a line for each answer, with what to do below it.
pub fn text(rows: &[Row]) -> String {
    let lines = lines(&rows.iter().collect::<Vec<_>>());
    let [well, remarks, not_asked, wrong] = counts(rows);
    let remarks = format!("{remarks} remark{}", if remarks == 1 { "" } else { "s" });
    format!("{lines}\n{wrong} wrong, {remarks}, {not_asked} not asked, {well} well\n")
}

/// Returns only the lines that need attention.
pub fn not_well(rows: &[Row]) -> String {
    lines(&rows.iter().filter(|row| row.state != State::Well).collect::<Vec<_>>())
}

fn lines(rows: &[&Row]) -> String {
    let widest = rows.iter().map(|row| row.about.len()).max().unwrap_or_default();
    let line = |Row { about, state, says, instead }: &&Row| {
        let head = format!("{:<6} {about:<widest$}  {}\n", word(*state), visible(says));
        if instead.is_empty() {
            return head;
        }
        let indent = " ".repeat(6 + 1 + widest + 2);
        head + &format!("{indent}do: {}\n", visible(&instead.to_string()))
    };
    rows.iter().map(line).collect()
}

fn word(state: State) -> &'static str {
    match state {
        State::Well => "well",
        State::Remark => "note",
        State::NotAsked => "?",
        State::Wrong => "WRONG",
    }
}

/// Returns the answers as JSON.
pub fn json(rows: &[Row]) -> Value {
    let row = |Row { about, state, says, instead }: &Row| json!({ "about": about, "state": state.name(), "says": says, "instead": instead });
    let [well, remarks, not_asked, wrong] = counts(rows);
    json!({
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "summary": { "well": well, "remarks": remarks, "notAsked": not_asked, "wrong": wrong },
    })
}

fn counts(rows: &[Row]) -> [usize; 4] {
    [State::Well, State::Remark, State::NotAsked, State::Wrong]
        .map(|state| rows.iter().filter(|row| row.state == state).count())
}
