//! A field of a custom resource whose schema lets anything through, or that no schema describes.
//!
//! A value of a wrong type is for a rule to say, not a reason to hold up whoever writes the whole object. Its `Debug` hides it: it may
//! be a password.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What stands there.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Nothing, or null.
    #[default]
    Absent,
    /// A text.
    Text(String),
    /// A number, or true or false, as a text.
    Plain(String),
    /// A list or a map, by that word: what is in it nobody looks at.
    Odd(&'static str),
}

impl Scalar {
    /// As a text, if it can be one; empty if nothing is there.
    pub fn look(&self) -> &str {
        match self {
            Self::Text(text) | Self::Plain(text) => text,
            Self::Absent | Self::Odd(_) => "",
        }
    }

    /// "a list" or "a map", if it is one.
    pub fn odd(&self) -> Option<&'static str> {
        if let Self::Odd(word) = self { Some(word) } else { None }
    }

    /// As a whole number, if it is one.
    pub fn number(&self) -> Option<i64> {
        self.look().parse().ok()
    }

    /// They say the same: nothing and an empty text do, and so do 3306 and "3306".
    pub fn same_text(&self, other: &Self) -> bool {
        self.look() == other.look() && self.odd() == other.odd()
    }

    /// It says nothing.
    pub fn is_empty(&self) -> bool {
        self.look().is_empty() && self.odd().is_none()
    }

    /// Something is there.
    pub fn given(&self) -> bool {
        !matches!(self, Self::Absent)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(input)? {
            Value::Null => Self::Absent,
            Value::String(text) => Self::Text(text),
            Value::Bool(it) => Self::Plain(it.to_string()),
            Value::Number(it) => Self::Plain(it.to_string()),
            Value::Array(_) => Self::Odd("a list"),
            Value::Object(_) => Self::Odd("a map"),
        })
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing"),
            Self::Odd(word) => f.write_str(word),
            Self::Text(text) | Self::Plain(text) => write!(f, "({} hidden bytes)", text.len()),
        }
    }
}

/// Reads a map; anything else is as if it were empty.
pub fn map<'de, D: Deserializer<'de>, T: Default + serde::de::DeserializeOwned>(
    input: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(input)?;
    Ok(if value.is_object() { T::deserialize(value).unwrap_or_default() } else { T::default() })
}

/// A list, of which each is read as far as it can be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Listed<T> {
    /// Nothing, or null.
    #[default]
    Absent,
    /// A list.
    These(Vec<T>),
    /// No list.
    Odd,
}

impl<T> Listed<T> {
    /// What is in it.
    pub fn all(&self) -> &[T] {
        match self {
            Self::These(all) => all,
            Self::Absent | Self::Odd => &[],
        }
    }
}

impl<'de, T: Default + serde::de::DeserializeOwned> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(input)? {
            Value::Null => Self::Absent,
            Value::Array(all) => {
                Self::These(all.into_iter().map(|it| T::deserialize(it).unwrap_or_default()).collect())
            }
            _ => Self::Odd,
        })
    }
}

/// About as many bytes as it takes in memory. All that is derived from its fields comes by here, so none can be forgotten.
pub fn weight(it: &impl Hash) -> usize {
    struct Weight(usize);
    impl Hasher for Weight {
        fn write(&mut self, bytes: &[u8]) {
            // A list of a million empty entries is short in JSON, and not here.
            self.0 += bytes.len() + size_of::<Scalar>();
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut weight = Weight(0);
    it.hash(&mut weight);
    weight.0
}
