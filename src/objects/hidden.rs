//! Text that may hold a password.

use std::fmt;

/// Text that may hold a password. It can be read, but not printed by accident: its `Debug` hides it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Hidden<T>(T);

impl<T: AsRef<str>> Hidden<T> {
    /// Returns the text, to judge it. Do not use it in a message, unless it is known to hold no secret.
    pub fn look(&self) -> &str {
        self.0.as_ref()
    }
}

impl<'a, T: From<&'a str>> From<&'a str> for Hidden<T> {
    fn from(text: &'a str) -> Self {
        Self(text.into())
    }
}

impl<T: From<String>> From<String> for Hidden<T> {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl<T: AsRef<str>> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} hidden bytes)", self.look().len())
    }
}
