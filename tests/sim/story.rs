//! The story of a seed: one line per event that a person would want to read.
//!
//! Must not know: what is right. Nothing is recorded at first, because most seeds end well; a seed that fails is run again with
//! recording on.

use super::clock::{Millis, face};

#[derive(Default)]
pub struct Story {
    listens: bool,
    lines: Vec<String>,
}

impl Story {
    pub fn heard(listens: bool) -> Self {
        Self { listens, lines: Vec::new() }
    }

    /// Records an event. The text is only built while recording is on.
    pub fn tell(&mut self, now: Millis, who: &str, what: impl FnOnce() -> String) {
        if self.listens {
            self.lines.push(format!("{} {who:<18} {}", face(now), what()));
        }
    }

    /// Records the state of the members after an event, if it differs from the last one recorded.
    pub fn members(&mut self, members: impl FnOnce() -> String) {
        if self.listens {
            let line = format!("{:31}{}", "", members());
            if self.lines.iter().rev().find(|it| it.starts_with("      ")) != Some(&line) {
                self.lines.push(line);
            }
        }
    }

    pub fn whole(&self) -> String {
        self.lines.join("\n")
    }
}
