//! A value that may be written as a number or as text: `2`, `"2"`, `"50%"`, `10Gi`.

use serde::{Deserialize, Deserializer, de};

/// As it was written, without quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantity(String);

impl Quantity {
    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The number of bytes of `10Gi` or `500M`. `None`: it cannot be told.
    pub fn bytes(&self) -> Option<u64> {
        const UNITS: [(&str, u64); 9] = [
            ("Ki", 1 << 10),
            ("Mi", 1 << 20),
            ("Gi", 1 << 30),
            ("Ti", 1 << 40),
            ("Pi", 1 << 50),
            ("k", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
            ("T", 1_000_000_000_000),
        ];
        let unit = UNITS.iter().find_map(|(unit, factor)| Some((self.0.strip_suffix(unit)?, *factor)));
        let (number, factor) = unit.unwrap_or((&self.0, 1));
        // Whole units are enough for what is judged; a fraction of one is rounded down.
        let whole: u64 = number.split(['.', 'e', 'E']).next()?.parse().ok()?;
        if number.contains(['e', 'E']) { None } else { whole.checked_mul(factor) }
    }

    /// How many of `total` it means: a number, or a percentage rounded up. `None`: neither.
    pub fn of(&self, total: i64) -> Option<i64> {
        match self.0.strip_suffix('%') {
            None => self.0.parse().ok(),
            Some(percent) => {
                let percent: i64 = percent.parse().ok()?;
                total.checked_mul(percent)?.checked_add(99)?.checked_div(100)
            }
        }
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Either;
        impl de::Visitor<'_> for Either {
            type Value = Quantity;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number or text")
            }
            fn visit_str<E>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(text.to_owned()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }
        input.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_percentages() {
        let of = |json: &str| serde_json::from_str::<Quantity>(json).unwrap().of(3);
        assert_eq!((of("2"), of("\"2\""), of("\"50%\""), of("\"10Gi\"")), (Some(2), Some(2), Some(2), None));
        let bytes = |text: &str| Quantity(text.to_owned()).bytes();
        assert_eq!((bytes("10M"), bytes("1.5Gi"), bytes("7")), (Some(10_000_000), Some(1 << 30), Some(7)));
        assert_eq!((bytes("1e9"), bytes("x"), bytes("99999999999Ti")), (None, None, None));
        assert_eq!(of("\"9223372036854775807%\""), None, "too much is no panic");
    }
}
