//! A parser for one SQL GRANT: the privileges, the database and the user.
//!
//! Not a rule. Must not know: how grants are judged. It accepts only one plain grant, without comments, escapes and options.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

/// One grant, as in `GRANT SELECT, INSERT ON shop.* TO 'app1'@'%' WITH GRANT OPTION`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grant {
    /// The privileges in capitals, without columns.
    pub(super) privileges: BTreeSet<String>,
    /// The database, as in `shop.*`; `*`: every database; empty: no database is named.
    pub(super) database: String,
    /// The table or routine; `*`: all of the database.
    object: String,
    pub(super) user: String,
    /// The host; `None` means `%`.
    pub(super) host: Option<String>,
    /// Whether the grant has `WITH GRANT OPTION`.
    pub(super) with_grant_option: bool,
}

enum Token {
    Word(String),
    Quoted(String),
    Sign(char),
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '%')
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut chars = text.chars().peekable();
    let mut found = Vec::new();
    while let Some(c) = chars.next() {
        let mut name = String::new();
        match c {
            '\'' | '"' | '`' => loop {
                match chars.next()? {
                    '\\' => return None,
                    it if it == c => break found.push(Token::Quoted(name)),
                    it => name.push(it),
                }
            },
            '.' | ',' | '*' | '@' | '(' | ')' => found.push(Token::Sign(c)),
            c if is_word(c) => {
                name.push(c);
                while let Some(it) = chars.next_if(|it| is_word(*it)) {
                    name.push(it);
                }
                found.push(Token::Word(name));
            }
            c if c.is_whitespace() => {}
            _ => return None,
        }
    }
    Some(found)
}

struct GrantReader(Peekable<IntoIter<Token>>);

impl GrantReader {
    fn keyword(&mut self, word: &str) -> bool {
        self.0.next_if(|it| matches!(it, Token::Word(text) if text.eq_ignore_ascii_case(word))).is_some()
    }

    fn sign(&mut self, sign: char) -> bool {
        self.0.next_if(|it| matches!(it, Token::Sign(c) if *c == sign)).is_some()
    }

    fn name(&mut self) -> Option<String> {
        match self.0.next()? {
            Token::Word(name) | Token::Quoted(name) => Some(name),
            Token::Sign(_) => None,
        }
    }

    fn place(&mut self) -> Option<String> {
        if self.sign('*') { Some("*".to_owned()) } else { self.name() }
    }

    /// Reads a privilege (`CREATE TEMPORARY TABLES`) without its columns, and the comma or `ON` that follows. Returns the privilege,
    /// and whether `ON` followed.
    fn privilege(&mut self) -> Option<(String, bool)> {
        let mut words = Vec::new();
        let is_last = loop {
            if self.keyword("ON") {
                break true;
            }
            if self.sign(',') {
                break false;
            }
            if self.sign('(') {
                while !self.sign(')') {
                    self.0.next()?;
                }
                continue;
            }
            let Token::Word(word) = self.0.next()? else { return None };
            words.push(word.to_ascii_uppercase());
        };
        let words = words.join(" ");
        let words = if words == "ALL PRIVILEGES" { "ALL".to_owned() } else { words };
        (!words.is_empty()).then_some((words, is_last))
    }
}

impl Grant {
    /// Reads a statement; `None`: it is not one plain grant to one user.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut reader = GrantReader(tokens(text)?.into_iter().peekable());
        if !reader.keyword("GRANT") {
            return None;
        }
        let mut privileges = BTreeSet::new();
        loop {
            let (privilege, is_last) = reader.privilege()?;
            privileges.insert(privilege);
            if is_last {
                break;
            }
        }
        for kind in ["TABLE", "FUNCTION", "PROCEDURE"] {
            reader.keyword(kind);
        }
        let first = reader.place()?;
        let (database, object) =
            if reader.sign('.') { (first, reader.place()?) } else { (String::new(), first) };
        // PROXY is granted on an account.
        if reader.sign('@') {
            reader.name()?;
        }
        if !reader.keyword("TO") {
            return None;
        }
        let user = reader.name()?;
        let host = if reader.sign('@') { Some(reader.name()?) } else { None };
        let with_grant_option = reader.keyword("WITH");
        if with_grant_option && !(reader.keyword("GRANT") && reader.keyword("OPTION")) {
            return None;
        }
        let is_whole = reader.0.next().is_none();
        is_whole.then_some(Self { privileges, database, object, user, host, with_grant_option })
    }

    /// Returns whether the database, or its pattern (`%`, `_`), matches one of the server's own databases.
    pub(super) fn is_on_own_database_of_server(&self) -> bool {
        let own = ["mysql", "sys", "performance_schema", "information_schema"];
        let pattern = self.database.to_ascii_lowercase();
        own.iter().any(|name| matches_pattern(pattern.as_bytes(), name.as_bytes()))
    }
}

/// Returns whether the pattern matches as LIKE does. After a mismatch only the last `%` is extended, so long patterns are cheap.
fn matches_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read, mut last) = (0, 0, None);
    while read < name.len() {
        match (pattern.get(at), last) {
            (Some(b'%'), _) => {
                at += 1;
                last = Some((at, read));
            }
            (Some(c), _) if *c == b'_' || *c == name[read] => (at, read) = (at + 1, read + 1),
            (_, Some((after, from))) => {
                (at, read) = (after, from + 1);
                last = Some((after, from + 1));
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|c| *c == b'%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_quotes_and_case_do_not_change_a_grant() {
        let plain = Grant::read("GRANT SELECT, INSERT ON shop.* TO 'app1'@'%'");
        assert!(plain.as_ref().is_some_and(|it| it.database == "shop" && it.user == "app1"));
        for same in [
            "grant insert,select on `shop` . * to app1@'%'",
            "GRANT\tSELECT ( a, b ) , INSERT\nON TABLE shop.* TO \"app1\"@%",
        ] {
            assert_eq!(Grant::read(same), plain, "{same}");
        }
        let all = |text: &str| Grant::read(text).map(|it| it.privileges.into_iter().collect::<Vec<_>>());
        assert_eq!(all("GRANT ALL PRIVILEGES ON a.* TO b"), Some(vec!["ALL".to_owned()]));
        assert_eq!(all("GRANT PROXY ON 'root'@'%' TO b"), Some(vec!["PROXY".to_owned()]));
        for none in [
            "",
            "GRANT",
            "GRANT ON a.* TO b",
            "GRANT SELECT",
            "GRANT admin TO b",
            "GRANT SELECT ON a.* TO b, c",
            "GRANT SELECT ON a.* TO 'b",
            "GRANT SELECT ON a.* TO 'b\\'' ",
            "GRANT SELECT ON a.* TO 'b''c'",
            "GRANT SELECT ON a.* TO b /*! , c */",
            "GRANT SELECT ON a.* TO b -- ",
            "GRANT SELECT ON a.* TO b IDENTIFIED BY 'c'",
            "GRANT SELECT (a ON a.* TO b",
            "DROP DATABASE shop",
        ] {
            assert_eq!(Grant::read(none), None, "{none}");
        }
    }

    #[test]
    fn patterns_that_match_a_database_of_the_server_are_found() {
        for (database, own) in [
            ("mysql", true),
            ("MySQL", true),
            ("%", true),
            ("mysq_", true),
            ("s%", true),
            ("%a%schema", true),
            ("s%z", false),
            ("shop%", false),
            ("a_b", false),
        ] {
            let grant = Grant::read(&format!("GRANT SELECT ON `{database}`.* TO b")).unwrap();
            assert_eq!(grant.is_on_own_database_of_server(), own, "{database}");
        }
        let long = format!("GRANT SELECT ON `{}x`.* TO b", "%a".repeat(100_000));
        assert!(!Grant::read(&long).unwrap().is_on_own_database_of_server());
    }
}
