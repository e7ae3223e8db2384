//! The story of a seed: one line per event that a person would want to read.
//!
//! Must not know: what is right. Recording is off at first, because most seeds break no law; a seed that does is run again with
//! recording on.

use super::clock::{Millis, clock_text};

#[derive(Default)]
pub struct Story {
    records: bool,
    lines: Vec<String>,
}

impl Story {
    pub fn new(records: bool) -> Self {
        Self { records, lines: Vec::new() }
    }

    /// Records an event. The text is only built while recording is on.
    pub fn record(&mut self, now: Millis, source: &str, what: impl FnOnce() -> String) {
        if self.records {
            self.lines.push(format!("{} {source:<18} {}", clock_text(now), what()));
        }
    }

    /// Records the state of the members after an event, if it differs from the last one recorded.
    pub fn members(&mut self, members: impl FnOnce() -> String) {
        if self.records {
            let line = format!("{:31}{}", "", members());
            if self.lines.iter().rev().find(|it| it.starts_with("      ")) != Some(&line) {
                self.lines.push(line);
            }
        }
    }

    pub fn text(&self) -> String {
        self.lines.join("\n")
    }
}
