//! `wsrep_provider_options`: options in an option, for the Galera library.

/// Reads `a=b; c=d`, in order. The last option of a name counts.
pub fn provider_options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(';').filter_map(|option| {
        let (key, value) = option.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then(|| (key, value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_in_a_line() {
        let all = |text| provider_options(text).collect::<Vec<_>>();
        assert_eq!(
            all("gcache.size=1G; pc.ignore_sb = true ;"),
            [("gcache.size", "1G"), ("pc.ignore_sb", "true")]
        );
        assert_eq!(all("; =x ;a; b=c=d"), [("b", "c=d")]);
    }
}
