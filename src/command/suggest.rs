//! "Did you mean": the known name that is closest to what was written.

/// Names that share less are no slip of the fingers. clap has the same limit for subcommands.
const CLOSE: f64 = 0.7;

/// Returns what follows the words that there is no such name: the closest of these names, or only the end of the clause.
pub(super) fn did_you_mean<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let written = written.to_lowercase();
    let alike = |name: &str| match name.to_lowercase() {
        // An id is meant or not: G19 is not almost G99.
        id if number(&id).is_some() => f64::from(number(&id) == number(&written)),
        name => strsim::jaro_winkler(&written, &name),
    };
    let rated = names.into_iter().map(|name| (alike(name), name)).filter(|(rate, _)| *rate > CLOSE);
    let best = rated.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.map_or_else(|| ";".to_owned(), |(_, name)| format!(", did you mean {name}?"))
}

/// The letter and the number of a rule's id.
fn number(id: &str) -> Option<(char, u32)> {
    let mut rest = id.chars();
    Some((rest.next()?, rest.as_str().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_meant_and_a_strange_one_none() {
        let names = ["G01", "G10", "scale-order", "anti-affinity"];
        for (written, meant) in [("g1", "G01"), ("scale", "scale-order"), ("antiaffinity", "anti-affinity")] {
            assert_eq!(did_you_mean(written, names), format!(", did you mean {meant}?"));
        }
        for strange in ["wordpress", "G99"] {
            assert_eq!(did_you_mean(strange, names), ";");
        }
    }
}
