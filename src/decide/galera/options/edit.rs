//! Changing one value in an option file. Every other byte stays: comments, order, spaces, line ends.

use super::last;

/// The text with another value for `key`, in the place where the server takes it from. `None`: there is no such place,
/// or the value cannot be written down.
pub fn with_value(text: &str, key: &str, value: &str) -> Option<String> {
    let setting = last(text, key)?;
    // `skip_wsrep_on` has no value that could be replaced.
    if setting.value.is_some() && setting.at.is_empty() && !setting.look().is_empty() {
        return None;
    }
    let written = written(value)?;
    let equals = if setting.value.is_none() { "=" } else { "" };
    let (before, after) = (text.get(..setting.at.start)?, text.get(setting.at.end..)?);
    Some(format!("{before}{equals}{written}{after}"))
}

/// A value so that it is read back as it is.
fn written(value: &str) -> Option<String> {
    let special = |c: char| c.is_control() || matches!(c, '#' | '"' | '\'' | '\\' | ' ');
    if !value.contains(special) {
        return Some(value.to_owned());
    }
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            '\u{8}' => text.push_str("\\b"),
            '"' | '\\' => text.extend(['\\', c]),
            '\0' => return None,
            other => text.push(other),
        }
    }
    text.push('"');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::{effective, read};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_value_changes() {
        let text = "# mine\r\n[mysqld]\r\n a-b =  'x' # why\r\nc=1\r\n[client]\na_b=2\n";
        assert_eq!(with_value(text, "a_b", "y").unwrap(), text.replace("'x'", "y"));
        assert_eq!(with_value(text, "a_b", "y#z").unwrap(), text.replace("'x'", "\"y#z\""));
        assert_eq!(with_value("[mysqld]\na\n", "a", "1").unwrap(), "[mysqld]\na=1\n");
        assert_eq!(with_value("[mysqld]\na =  # no\n", "a", "1").unwrap(), "[mysqld]\na =1  # no\n");
        for (text, key, value) in
            [("[client]\na=1", "a", "2"), ("[mysqld]\nskip-a", "a", "1"), ("[mysqld]\na=1", "a", "\0")]
        {
            assert_eq!(with_value(text, key, value), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_nothing_else_moves(
            before in "([#;a=\"' \t\r\\\\-]{0,12}\n){0,3}",
            value in any::<String>(),
            old in "[a-z\"'\\\\ ]{0,8}",
            after in "(\n[b=\"'# \r\\\\\\[\\]-]{0,12}){0,3}",
        ) {
            let text = format!("[server]\n{before}wsrep-x = {old}{after}");
            if let Some(edited) = with_value(&text, "wsrep_x", &value) {
                let at = text.find("wsrep-x").unwrap();
                prop_assert_eq!(&edited[..at], &text[..at]);
                prop_assert!(edited.ends_with(&after), "{:?}", edited);
                let back = effective(&edited, "wsrep_x").unwrap();
                prop_assert_eq!(back.look(), value);
            } else {
                prop_assert!(value.contains('\0') || effective(&text, "wsrep_x").is_none());
            }
        }

        #[test]
        fn no_text_is_a_panic(text in any::<String>(), more in "[\\[\\]#;!=\"'\\\\a\u{0}\u{feff}é\r\n -]{0,64}") {
            for text in [&text, &more, &format!("[mysqld]\n{more}")] {
                for setting in read(text) {
                    prop_assert!(text.get(setting.at.clone()).is_some());
                }
                let _ = with_value(text, "a", &more);
            }
        }
    }
}
