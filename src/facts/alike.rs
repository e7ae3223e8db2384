//! The known name that a misspelt one was meant to be.
//!
//! Owns: how many letters may be wrong. Must not know: what the names are for.

/// Returns the number of wrong, missing, surplus or swapped letters; `None`: too many for a name of this length.
fn wrong_letters(written: &str, known: &str) -> Option<usize> {
    let most = match known.len() {
        0..=3 => 0,
        4..=7 => 1,
        8..=15 => 2,
        _ => 3,
    };
    // The lengths are compared first, because that is cheap and lists of names are long.
    let wrong =
        (written.len().abs_diff(known.len()) <= most).then(|| strsim::osa_distance(written, known))?;
    (wrong <= most).then_some(wrong)
}

/// Returns the name that a user probably meant: the one with the fewest wrong letters, or else one that begins with the written
/// text. Case does not matter.
pub fn closest<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    /// The least number of letters that identify a name by its beginning.
    const SHORTEST_BEGINNING: usize = 3;
    let written = written.to_lowercase();
    let begins = |name: &str| written.len() >= SHORTEST_BEGINNING && name.starts_with(&written);
    let rate = |name: &str| wrong_letters(&written, name).or_else(|| begins(name).then_some(usize::MAX));
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
            assert_eq!(closest(written, names), name, "{written}");
        }
    }
}
