//! The known name that a misspelt one was meant to be.
//!
//! Owns: how many letters may be wrong. Must not know: what the names are for.

/// Returns the number of wrong, missing, surplus or swapped letters; `None` if that is too many for a name of this length.
fn slips(written: &str, known: &str) -> Option<usize> {
    let few = match known.len() {
        0..=3 => 0,
        4..=7 => 1,
        8..=15 => 2,
        _ => 3,
    };
    // The lengths are compared first, because that is cheap and lists of names are long.
    let wrong = (written.len().abs_diff(known.len()) <= few).then(|| strsim::osa_distance(written, known))?;
    (wrong <= few).then_some(wrong)
}

/// Returns the name that is meant: the one with the fewest wrong letters, else one that begins with the written text. Case does
/// not matter.
pub fn meant<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    /// The shortest beginning that identifies a name: a shorter one is common to many.
    const SHORTEST: usize = 3;
    let written = written.to_lowercase();
    let begins = |name: &str| written.len() >= SHORTEST && name.starts_with(&written);
    let rate = |name: &str| slips(&written, name).or_else(|| begins(name).then_some(usize::MAX));
    let rated = names.into_iter().filter_map(|name| Some((rate(&name.to_lowercase())?, name)));
    rated.min_by_key(|(wrong, _)| *wrong).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wrong_letters_or_a_missing_end_are_a_slip() {
        let names = ["max_connections", "max_connect_errors", "wsrep_sst_method", "port", "G01"];
        for (written, name) in [
            ("max_conections", Some("max_connections")),
            ("max_connectoins", Some("max_connections")),
            ("wsrep_sst_methd", Some("wsrep_sst_method")),
            ("WSREP_SST_Method", Some("wsrep_sst_method")),
            ("prot", Some("port")),
            ("wsrep_sst", Some("wsrep_sst_method")),
            ("G02", None),
            ("po", None),
            ("ports_of_call", None),
            ("wsrep_sst_donor", None),
            ("", None),
        ] {
            assert_eq!(meant(written, names), name, "{written}");
        }
    }
}
