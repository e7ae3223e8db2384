//! Terminal colours for words that name a state. Must not know: whether the terminal shows them.

use facts::view::State;

/// Colours text, if colours are wanted.
#[derive(Clone, Copy)]
pub(super) struct Paint(pub(super) bool);

pub(super) const BAD: &str = "1;31";
pub(super) const NOTABLE: &str = "1;33";
pub(super) const GOOD: &str = "32";
pub(super) const CALM: &str = "36";

impl Paint {
    pub(super) fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Returns the name of a cluster's state, padded to this width.
    pub(super) fn state(self, state: State, width: usize) -> String {
        let code = match state {
            State::Healthy => GOOD,
            State::Degraded | State::Joining | State::Transfer | State::Unknown => NOTABLE,
            State::Down => BAD,
            State::Forming | State::Stopped => CALM,
        };
        self.with(code, &format!("{:width$}", state.name()))
    }
}
