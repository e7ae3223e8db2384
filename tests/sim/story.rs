//! The story of a seed: one line per event that a person would want to read.
//!
//! Must not know: what is right. Nothing is kept while nobody listens, because most seeds end well: a seed that fails
//! is run again with somebody listening.

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

    /// Who did what. The words are made only if somebody listens.
    pub fn tell(&mut self, now: Millis, who: &str, what: impl FnOnce() -> String) {
        if self.listens {
            self.lines.push(format!("{} {who:<18} {}", face(now), what()));
        }
    }

    /// How the members are after it, where that differs from what was told last.
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
