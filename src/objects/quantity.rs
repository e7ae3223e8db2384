//! A value that may be written as a number or as text: `2`, `"2"`, `"50%"`, `10Gi`.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, de};

/// The value as it was written, without quotes. API servers write it in their own form, so `1024Mi` and `1Gi` are the
/// same.
#[derive(Clone, Debug, Default)]
pub struct Quantity(String);

/// The hash ignores the text, because equal amounts may be written in several forms.
impl Hash for Quantity {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.billionths().is_some_and(|it| other.billionths() == Some(it))
    }
}

impl Eq for Quantity {}

/// Each unit, and the number of billionths in one of it.
const UNITS: [(&str, i128); 16] = [
    ("Ki", (1 << 10) * ONE),
    ("Mi", (1 << 20) * ONE),
    ("Gi", (1 << 30) * ONE),
    ("Ti", (1 << 40) * ONE),
    ("Pi", (1 << 50) * ONE),
    ("Ei", (1 << 60) * ONE),
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("k", 1_000 * ONE),
    ("M", 1_000_000 * ONE),
    ("G", 1_000_000_000 * ONE),
    ("T", 1_000_000_000_000 * ONE),
    ("P", 1_000_000_000_000_000 * ONE),
    ("E", 1_000_000_000_000_000_000 * ONE),
    ("", ONE),
];
const ONE: i128 = 1_000_000_000;
/// The largest length of a value, in bytes: API servers accept a percentage with any number of leading zeros.
const LONGEST_QUANTITY: usize = 64;

impl Quantity {
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns an amount such as `10Gi` or `500M` in bytes, rounded up. `None`: it is not an amount, or out of range.
    pub fn bytes(&self) -> Option<u64> {
        u64::try_from(self.billionths()?.checked_add(ONE - 1)?.div_euclid(ONE)).ok()
    }

    /// Returns the value in billionths. As in API servers, a part that is smaller than a billionth counts as one.
    fn billionths(&self) -> Option<i128> {
        let (number, unit) = match self.0.split_once(['e', 'E']).filter(|(_, power)| !power.is_empty()) {
            Some((number, power)) => (number, ONE.checked_mul(10_i128.checked_pow(power.parse().ok()?)?)?),
            None => UNITS.iter().find_map(|(unit, one)| Some((self.0.strip_suffix(unit)?, *one)))?,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if !part.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        let digits: i128 = format!("{whole}{part}").parse().ok()?;
        let below = 10_i128.checked_pow(part.len().try_into().ok()?)?;
        digits.checked_mul(unit)?.checked_add(below - 1).map(|it| it.div_euclid(below))
    }

    /// Returns how many of `total` it means: a number, or a percentage rounded up. `None`: neither.
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
                f.write_str("a number or a string")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                if text.len() > LONGEST_QUANTITY {
                    return Err(E::custom(format!("a quantity is longer than {LONGEST_QUANTITY} bytes")));
                }
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
    fn a_quantity_is_a_number_a_percentage_or_an_amount() {
        let of = |json: &str| serde_json::from_str::<Quantity>(json).unwrap().of(3);
        assert_eq!((of("2"), of("\"2\""), of("\"50%\""), of("\"10Gi\"")), (Some(2), Some(2), Some(2), None));
        let bytes = |text: &str| Quantity(text.to_owned()).bytes();
        let gi = 1_u64 << 30;
        for (text, expected) in [
            ("10M", Some(10_000_000)),
            ("1.5Gi", Some(gi + gi / 2)),
            ("7", Some(7)),
            ("1e9", Some(1_000_000_000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("1500m", Some(2)),
            ("0.0000000001", Some(1)),
            ("x", None),
            ("1.-5", None),
            ("-1", None),
            ("1e400", None),
            ("", None),
            ("99999999999Ti", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        let is = |one: &str, other: &str| Quantity(one.into()) == Quantity(other.into());
        assert!(is("1Gi", "1024Mi") && is("1.5Gi", "1536Mi") && is("1", "1000m") && is("x", "x"));
        assert!(!is("1Gi", "1G") && !is("x", "y") && !is("50%", "50"));
        assert_eq!(of("\"9223372036854775807%\""), None, "an overflow gives no number");
    }
}
