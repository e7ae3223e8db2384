//! Modes: how strictly a rule's findings count.

/// The mode of a rule. The mildest comes first, so that the milder of two is their `min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The rule is not applied.
    Off,
    /// Findings are only recorded, in an audit annotation and a metric.
    Audit,
    Warn,
    Enforce,
}

impl Mode {
    /// All modes, for texts that list them.
    pub const ALL: [Mode; 4] = [Mode::Enforce, Mode::Warn, Mode::Audit, Mode::Off];

    /// Returns the name, as the settings file and the namespace label write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Audit => "audit",
            Self::Warn => "warn",
            Self::Enforce => "enforce",
        }
    }

    /// Reads a mode; `None` for any other word.
    pub fn read(text: &str) -> Option<Mode> {
        Self::ALL.into_iter().find(|mode| mode.name() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in Mode::ALL {
            assert_eq!(Mode::read(mode.name()), Some(mode));
        }
        assert_eq!(Mode::read("Enforce"), None);
    }
}
