//! The story of a seed: a line for each event that helps a reader to understand the run.
//!
//! Must not know: what is right. Recording is off in the first run of a seed, because most seeds break no law; a seed that breaks
//! one is run again with recording on.

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

    /// Records an event, if recording is on; otherwise its text is not built.
    pub fn record(&mut self, now: Millis, source: &str, what: impl FnOnce() -> String) {
        if self.records {
            self.lines.push(format!("{} {source:<18} {}", clock_text(now), what()));
        }
    }

    /// Records the state of the members after an event, if it differs from the last state that was recorded.
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
