//! Values: quotes, escapes, numbers with suffixes, switches.

use std::borrow::Cow;

use objects::Hidden;

/// The value of an option, borrowed unless it had to be unescaped. Use it in a message only if its key holds no secret.
pub type OptionValue<'a> = Hidden<Cow<'a, str>>;

/// Reads a value as it is written in a file: one pair of quotes around it is left out, and escapes such as `\n` are resolved.
pub(super) fn unquoted(raw: &str) -> OptionValue<'_> {
    let inside = |quote: char| raw.strip_prefix(quote)?.strip_suffix(quote);
    let inner = inside('"').or_else(|| inside('\'')).unwrap_or(raw);
    if inner.contains('\\') { unescaped(inner).into() } else { inner.into() }
}

/// Resolves the escapes in a text. A backslash that begins no known escape stays, and so does a backslash at the end.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => plain.push('\n'),
            ('\\', Some('t')) => plain.push('\t'),
            ('\\', Some('r')) => plain.push('\r'),
            ('\\', Some('b')) => plain.push('\u{8}'),
            ('\\', Some('s')) => plain.push(' '),
            ('\\', Some(same @ ('"' | '\'' | '\\'))) => plain.push(same),
            ('\\', Some(unknown)) => plain.extend(['\\', unknown]),
            (other, _) => plain.push(other),
        }
    }
    plain
}

/// Reads a switch: `ON`, `1` and `true` mean the same, and so do `yes` and `y`, which Galera's own options accept. `None`:
/// the text is not a switch.
pub fn switch(text: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match () {
        () if is(&["on", "1", "true", "yes", "y"]) => Some(true),
        () if is(&["off", "0", "false", "no", "n"]) => Some(false),
        () => None,
    }
}

/// Returns whether both are the same value, such as `16K` and `16384`, or `ON` and `1`. Case matters only in paths.
pub fn same(one: &str, other: &str) -> bool {
    one == other
        || !one.contains('/') && one.eq_ignore_ascii_case(other)
        || number(one).is_some_and(|it| Some(it) == number(other))
        || switch(one).is_some_and(|it| Some(it) == switch(other))
}

/// Reads a number, with or without a suffix: K, M, G, T, P, E.
pub fn number(text: &str) -> Option<u128> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        suffix => 1 + ["k", "m", "g", "t", "p", "e"].iter().position(|known| *known == suffix)?,
    };
    digits.parse::<u128>().ok()?.checked_mul(1024_u128.pow(u32::try_from(power).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes() {
        for (raw, value) in [
            ("plain", "plain"),
            ("\"quoted\"", "quoted"),
            ("'quoted'", "quoted"),
            ("\"one", "\"one"),
            ("\"", "\""),
            ("\"\"", ""),
            ("\"a'b\"", "a'b"),
            (r"a\nb\tc\rd\be\sf", "a\nb\tc\rd\u{8}e f"),
            (r"C:\dir\\x\", "C:\\dir\\x\\"),
            (r#""a\"b\'c""#, "a\"b'c"),
            (r"\é", r"\é"),
        ] {
            assert_eq!(unquoted(raw).look(), value, "{raw}");
        }
    }

    #[test]
    fn two_spellings_of_one_value_are_the_same() {
        for (one, other) in
            [("16K", "16384"), ("16k", "16K"), ("on", "1"), ("TRUE", "ON"), ("rsync", "RSYNC"), ("0", "off")]
        {
            assert!(same(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("16K", "16M"),
            ("1", "2"),
            ("on", "off"),
            ("1Q", "1"),
            ("", "0"),
            ("K", "0"),
            ("99999999999999999999999999999999999999E", "1"),
        ] {
            assert!(!same(one, other), "{one} {other}");
        }
    }

    #[test]
    fn a_value_is_never_printed_by_accident() {
        assert_eq!(format!("{:?}", OptionValue::from("root:hunter2")), "(12 hidden bytes)");
    }
}
