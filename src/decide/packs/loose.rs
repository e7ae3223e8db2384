//! A field of a custom resource whose schema lets anything through, or that no schema describes.
//!
//! A value of a wrong type is for a rule to say, not a reason to hold up whoever writes the whole object. Its `Debug` hides it: it may
//! be a password.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What stands there.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) enum Loose {
    /// Nothing, or null.
    #[default]
    Absent,
    /// A text.
    Text(String),
    /// A number, or true or false, as a text.
    Plain(String),
    /// A list or a map.
    Odd,
}

impl Loose {
    /// As a text, if it can be one; empty if nothing is there.
    pub(super) fn look(&self) -> &str {
        match self {
            Self::Text(text) | Self::Plain(text) => text,
            Self::Absent | Self::Odd => "",
        }
    }

    /// Something is there.
    pub(super) fn given(&self) -> bool {
        !matches!(self, Self::Absent)
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(input)? {
            Value::Null => Self::Absent,
            Value::String(text) => Self::Text(text),
            Value::Bool(it) => Self::Plain(it.to_string()),
            Value::Number(it) => Self::Plain(it.to_string()),
            Value::Array(_) | Value::Object(_) => Self::Odd,
        })
    }
}

impl fmt::Debug for Loose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing"),
            Self::Odd => f.write_str("neither a text nor a number"),
            Self::Text(text) | Self::Plain(text) => write!(f, "({} hidden bytes)", text.len()),
        }
    }
}

/// Reads a list; what is none is as if it were empty, and so is what in it cannot be read.
pub(super) fn list<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    let Value::Array(items) = Value::deserialize(input)? else { return Ok(Vec::new()) };
    Ok(items.into_iter().filter_map(|item| T::deserialize(item).ok()).collect())
}

/// Reads a map; anything else is as if it were empty.
pub(super) fn map<'de, D: Deserializer<'de>, T: Default + serde::de::DeserializeOwned>(
    input: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(input)?;
    Ok(if value.is_object() { T::deserialize(value).unwrap_or_default() } else { T::default() })
}
