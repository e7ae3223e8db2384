//! A field of a custom resource whose schema allows any value, or that no schema describes.
//!
//! A value of a wrong type is reported by a rule; it does not make the whole object unreadable. Its `Debug` hides it:
//! it may be a password.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The value of a field that may have any type.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub enum Scalar {
    #[default]
    Absent,
    Text(String),
    /// A number or a boolean, as text.
    Plain(String),
    /// "a list" or "a map"; its content is not read.
    Composite(&'static str),
}

impl Scalar {
    /// Returns the value as text; empty for a list, a map or no value.
    pub fn look(&self) -> &str {
        match self {
            Self::Text(text) | Self::Plain(text) => text,
            Self::Absent | Self::Composite(_) => "",
        }
    }

    /// Returns "a list" or "a map", if the value is one.
    pub fn composite(&self) -> Option<&'static str> {
        if let Self::Composite(word) = self { Some(word) } else { None }
    }

    /// Returns the value as a whole number, if it is one.
    pub fn number(&self) -> Option<i64> {
        self.look().parse().ok()
    }

    /// Returns whether both mean the same: no value and an empty text do, and so do 3306 and "3306".
    pub fn same_text(&self, other: &Self) -> bool {
        self.look() == other.look() && self.composite() == other.composite()
    }

    pub fn is_empty(&self) -> bool {
        self.look().is_empty() && self.composite().is_none()
    }

    /// Returns whether the field has a value. An empty text is one.
    pub fn is_present(&self) -> bool {
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
            Value::Array(_) => Self::Composite("a list"),
            Value::Object(_) => Self::Composite("a map"),
        })
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing"),
            Self::Composite(word) => f.write_str(word),
            Self::Text(text) | Self::Plain(text) => write!(f, "({} hidden bytes)", text.len()),
        }
    }
}

/// Reads a map; any other value, or a map that cannot be read, becomes the default.
pub fn map<'de, D: Deserializer<'de>, T: Default + serde::de::DeserializeOwned>(
    input: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(input)?;
    Ok(if value.is_object() { T::deserialize(value).unwrap_or_default() } else { T::default() })
}

/// A list whose items are read one by one. An item that cannot be read becomes the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Listed<T> {
    #[default]
    Absent,
    Items(Vec<T>),
    /// A value of another type; its content is not read.
    NotAList,
}

impl<T> Listed<T> {
    /// Returns the items; none if there is no list.
    pub fn all(&self) -> &[T] {
        match self {
            Self::Items(all) => all,
            Self::Absent | Self::NotAList => &[],
        }
    }
}

impl<'de, T: Default + serde::de::DeserializeOwned> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(input)? {
            Value::Null => Self::Absent,
            Value::Array(all) => {
                Self::Items(all.into_iter().map(|it| T::deserialize(it).unwrap_or_default()).collect())
            }
            _ => Self::NotAList,
        })
    }
}

/// A type whose size in memory can be estimated: every type with a hash.
pub trait Weigh {
    /// Returns the approximate size in memory, in bytes. A derived hash visits every field, so no field can be forgotten.
    fn weight(&self) -> usize;
}

impl<T: Hash> Weigh for T {
    fn weight(&self) -> usize {
        // A list of a million empty entries is short in JSON, but not in memory.
        weigh(self, |bytes| bytes + size_of::<Scalar>())
    }
}

/// Returns the approximate size of a value in memory, in bytes. `part` turns the number of bytes of each hashed part
/// into its size.
pub fn weigh<P: Fn(usize) -> usize>(value: &impl Hash, part: P) -> usize {
    struct Weight<P>(usize, P);
    impl<P: Fn(usize) -> usize> Hasher for Weight<P> {
        fn write(&mut self, bytes: &[u8]) {
            self.0 += (self.1)(bytes.len());
        }

        fn finish(&self) -> u64 {
            0
        }
    }
    let mut weight = Weight(0, part);
    value.hash(&mut weight);
    weight.0
}
