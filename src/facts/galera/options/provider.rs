//! `wsrep_provider_options`: one option that contains the options of the Galera library.

/// Reads names and values from `a=b; c=d`, in order. The last option with the same name counts.
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
    fn options_are_separated_by_semicolons() {
        let all = |text| provider_options(text).collect::<Vec<_>>();
        assert_eq!(
            all("gcache.size=1G; pc.ignore_sb = true ;"),
            [("gcache.size", "1G"), ("pc.ignore_sb", "true")]
        );
        assert_eq!(all("; =x ;a; b=c=d"), [("b", "c=d")]);
    }
}
