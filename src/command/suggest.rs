//! "Did you mean": a suggestion for a name that is not known.

use facts::alike;

/// Returns how a message "there is no …" continues: with the known name that was probably meant, or only with a semicolon.
pub(super) fn did_you_mean<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    // An id is suggested only if its letter and number are those that were written: G19 is not a misspelling of G99.
    let id = |text: &str| letter_and_number(&text.to_lowercase());
    let names = names.into_iter().filter(|name| id(name).is_none() || id(name) == id(written));
    let (ids, names): (Vec<_>, Vec<_>) = names.partition(|name| id(name).is_some());
    let meant = ids.first().copied().or_else(|| alike::closest(written, names));
    meant.map_or_else(|| ";".to_owned(), |name| format!(", did you mean {name}?"))
}

/// Returns the letter and the number of a rule's id.
fn letter_and_number(id: &str) -> Option<(char, u32)> {
    let mut rest = id.chars();
    Some((rest.next()?, rest.as_str().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_suggested_if_one_is_close() {
        let names = ["G01", "G10", "scale-order", "anti-affinity"];
        for (written, meant) in [("g1", "G01"), ("scale", "scale-order"), ("antiaffinity", "anti-affinity")] {
            assert_eq!(did_you_mean(written, names), format!(", did you mean {meant}?"));
        }
        for strange in ["wordpress", "G99"] {
            assert_eq!(did_you_mean(strange, names), ";");
        }
    }
}
