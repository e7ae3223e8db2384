//! Accounts of MariaDB and the passwords that they accept, as `mysql.global_priv` holds them.
//!
//! Owns: [`Password`], which cannot be printed, its hash, and the clause that lets an account accept certain passwords and
//! leaves its other methods as they are. Statements hold hashes only, so that no log of a server has a password. Must not
//! know: where a password is kept.

use std::fmt;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde::Deserialize;

/// The authentication plugin for passwords whose hash can be computed here.
const NATIVE: &str = "mysql_native_password";
/// Authentication plugins that use no password of MariaDB: such methods stay as they are.
const WITHOUT_PASSWORD: [&str; 4] = ["unix_socket", "pam", "gssapi", "named_pipe"];
/// The text that `mariadb-install-db` writes in place of a hash, with which no client can log in.
const INVALID: &str = "invalid";

/// A password. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password {
    text: String,
    /// The hash, as MariaDB's `PASSWORD()` returns it.
    hash: String,
}

/// The largest length of a new password, in bytes.
const LONGEST_PASSWORD: usize = 64;

impl Password {
    /// Reads a password that is in use; `None`: the text is empty, or not one line.
    pub fn in_use(text: &str) -> Option<Self> {
        let one_line = !text.is_empty() && !text.contains(['\n', '\r', '\0']);
        one_line.then(|| Self::of(text))
    }

    /// Reads a new password. It may have only characters that every option file, URL and shell takes literally.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        match text {
            "" => Err("it is empty"),
            _ if text.len() > LONGEST_PASSWORD => Err("it has more than 64 characters"),
            _ if !text.chars().all(|it| it.is_ascii_alphanumeric() || "-._~".contains(it)) => Err(
                "it may hold letters, digits and - . _ ~ only: other characters have a meaning in option files, URLs or shells",
            ),
            _ => Ok(Self::of(text)),
        }
    }

    /// Returns the text, to write it where it belongs. Never use it in a message or in a command line.
    pub fn look(&self) -> &str {
        &self.text
    }

    fn of(text: &str) -> Self {
        let once = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let twice = digest(&SHA1_FOR_LEGACY_USE_ONLY, once.as_ref());
        Self { text: text.to_owned(), hash: format!("*{}", hexed(twice.as_ref())) }
    }

    /// Returns the hash, as MariaDB stores it.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// An account at one host, with its authentication methods. A client may log in by any of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    pub host: String,
    /// The row that [`query`] printed. Its privileges also contain the time of the last change.
    row: String,
    methods: Vec<Method>,
}

/// The output hides the hashes, because a password can be guessed from its hash.
impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account at {} with {} methods", self.host, self.methods.len())
    }
}

#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Method {
    plugin: String,
    authentication_string: String,
}

impl Account {
    /// Reads a line that [`query`] prints.
    pub fn read(row: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Privileges {
            #[serde(flatten)]
            first: Method,
            /// All methods; an empty one stands for the method in `first`.
            #[serde(default)]
            auth_or: Vec<Method>,
        }
        let (host, privileges) = row.split_once(':')?;
        let Privileges { first, auth_or } = serde_json::from_str(&unhexed(privileges)?).ok()?;
        let or_first = |it: Method| if it.plugin.is_empty() { first.clone() } else { it };
        let mut methods: Vec<_> = auth_or.into_iter().map(or_first).collect();
        if methods.is_empty() {
            methods.push(first);
        }
        Some(Self { host: unhexed(host)?, row: row.to_owned(), methods })
    }

    /// Returns whether it accepts this password.
    pub fn accepts(&self, password: &Password) -> bool {
        self.methods.iter().any(|it| it.accepts(password))
    }

    /// Returns a description of a method by which the account accepts, or may accept, a password other than these.
    pub fn accepts_besides(&self, known: [&Password; 2]) -> Option<String> {
        self.methods.iter().find_map(|it| match &*it.plugin {
            plugin if WITHOUT_PASSWORD.contains(&plugin) => None,
            NATIVE if it.authentication_string == INVALID => None,
            NATIVE if known.iter().any(|password| it.accepts(password)) => None,
            NATIVE if it.authentication_string.is_empty() => Some("no password at all".to_owned()),
            NATIVE => Some("another password".to_owned()),
            "" => Some("a method that gatera does not know".to_owned()),
            plugin => Some(format!("plugin {plugin}")),
        })
    }

    /// Returns the `ALTER USER` clause with which the account accepts these passwords, no other of `known`, and every other
    /// method that it already has.
    pub fn accepting(&self, user: &str, passwords: &[&Password], known: [&Password; 2]) -> String {
        let native_method =
            |it: &&Password| Method { plugin: NATIVE.to_owned(), authentication_string: it.hash.clone() };
        let kept =
            self.methods.iter().filter(|it| !known.iter().any(|password| it.accepts(password))).cloned();
        let methods =
            passwords.iter().map(native_method).chain(kept).map(|it| match &*it.authentication_string {
                "" => it.plugin,
                hash => format!("{} USING {}", it.plugin, literal(hash)),
            });
        let methods: Vec<_> = methods.collect();
        format!("{}@{} IDENTIFIED VIA {}", literal(user), literal(&self.host), methods.join(" OR "))
    }
}

/// The text that the statements of [`change`] print if they have changed the account.
pub const CHANGED: &str = "changed";
/// A row of `mysql.global_priv`, in characters that every client and every mode of the server prints unchanged.
const ROW: &str = "CONCAT(HEX(Host), ':', HEX(Priv))";

/// Returns the query for the host and the privileges of this account's rows, in hexadecimal digits.
pub fn query(user: &str) -> String {
    format!("SELECT {ROW} {}", rows(user))
}

/// Returns the statements, with `//` between them, that change this account by these clauses if its rows are still as they were
/// read. A statement may be executed minutes after it was sent, when another run has already changed the account: then it changes
/// nothing. The lock prevents a second statement from running between the comparison and the change.
pub fn change(user: &str, read: &[Account], clauses: &[String]) -> String {
    let known_rows: Vec<_> = read.iter().map(|it| literal(&it.row)).collect();
    let (rows, known, clauses) = (rows(user), known_rows.join(", "), clauses.join(", "));
    // TOI, because no member may change its copy alone; an empty `sql_mode`, because it decides how the rest is parsed.
    format!(
        "SET SESSION sql_mode = '', SESSION wsrep_OSU_method = 'TOI'// \
         BEGIN NOT ATOMIC \
         IF GET_LOCK('gatera passwd', 0) AND NOT EXISTS (SELECT 1 {rows} AND {ROW} NOT IN ({known})) \
         THEN ALTER USER {clauses}; SELECT '{CHANGED}'; \
         ELSE SELECT 'overtaken'; END IF; END"
    )
}

fn rows(user: &str) -> String {
    format!("FROM mysql.global_priv WHERE CAST(User AS BINARY) = X'{}'", hexed(user))
}

/// Returns a text in hexadecimal digits.
pub fn hexed(text: impl AsRef<[u8]>) -> String {
    text.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

fn unhexed(digits: &str) -> Option<String> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    String::from_utf8(digits.as_bytes().chunks(2).map(byte).collect::<Option<_>>()?).ok()
}

impl Method {
    fn accepts(&self, password: &Password) -> bool {
        self.plugin == NATIVE && self.authentication_string.eq_ignore_ascii_case(&password.hash)
    }
}

/// Returns a text as a literal of a statement, for a session with an empty `sql_mode`.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `SELECT PASSWORD('password')` returns.
    const HASH: &str = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19";
    const OTHER: &str = "*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9";

    #[test]
    fn a_hash_is_mariadbs_and_a_password_is_not_printed() {
        let password = Password::new("password").unwrap();
        assert_eq!(password.hash(), HASH);
        assert_eq!(format!("{password:?}"), "(hidden)");
        assert_eq!(Password::in_use("123456").unwrap().hash(), OTHER);
    }

    #[test]
    fn a_new_password_is_plain_and_one_in_use_is_one_line() {
        for text in ["", "a b", "it's", "a:b", "p\u{e4}ss", "a\n", &"a".repeat(65)] {
            assert!(Password::new(text).is_err(), "{text:?}");
        }
        assert!(Password::new("aZ09-._~").is_ok());
        assert!(Password::in_use("it's \\ \"any\" #thing:").is_some());
        assert!(Password::in_use("two\nlines").is_none() && Password::in_use("").is_none());
    }

    #[test]
    fn a_change_compares_the_rows_with_what_was_read() {
        let read = Account::read("25:7B7D").unwrap();
        assert_eq!(
            change("r", &[read.clone(), read], &["one".to_owned(), "two".to_owned()]),
            "SET SESSION sql_mode = '', SESSION wsrep_OSU_method = 'TOI'// BEGIN NOT ATOMIC IF GET_LOCK('gatera passwd', 0) AND NOT EXISTS \
             (SELECT 1 FROM mysql.global_priv WHERE CAST(User AS BINARY) = X'72' AND CONCAT(HEX(Host), ':', HEX(Priv)) \
             NOT IN ('25:7B7D', '25:7B7D')) THEN ALTER USER one, two; SELECT 'changed'; ELSE SELECT 'overtaken'; END IF; END"
        );
    }

    #[test]
    fn other_methods_stay_and_other_passwords_are_reported() {
        let [password, other] = [Password::new("password").unwrap(), Password::new("123456").unwrap()];
        let both = [&password, &other];
        let read = |privileges: &str| {
            Account::read(&format!("{}:{}", hexed("local'host"), hexed(privileges))).unwrap()
        };
        let one = read(&format!(r#"{{"access":1,"plugin":"{NATIVE}","authentication_string":"{HASH}"}}"#));
        assert!(one.accepts(&password) && !one.accepts(&other) && one.accepts_besides(both).is_none());
        assert_eq!(
            one.accepting("ro\\ot", &[&other, &password], both),
            format!(
                r"'ro\\ot'@'local\'host' IDENTIFIED VIA {NATIVE} USING '{OTHER}' OR {NATIVE} USING '{HASH}'"
            )
        );
        let several = read(&format!(
            r#"{{"plugin":"{NATIVE}","authentication_string":"{HASH}","auth_or":[{{"plugin":"unix_socket"}},{{"plugin":"{NATIVE}","authentication_string":"invalid"}},{{}}]}}"#
        ));
        assert!(several.accepts(&password) && several.accepts_besides(both).is_none());
        assert_eq!(
            several.accepting("root", &[&other], both),
            format!(
                r"'root'@'local\'host' IDENTIFIED VIA {NATIVE} USING '{OTHER}' OR unix_socket OR {NATIVE} USING 'invalid'"
            )
        );
        for (privileges, besides) in [
            (
                format!(r#"{{"plugin":"{NATIVE}","authentication_string":"*{}"}}"#, "0".repeat(40)),
                "another password",
            ),
            (format!(r#"{{"plugin":"{NATIVE}","authentication_string":""}}"#), "no password at all"),
            (r#"{"plugin":"ed25519","authentication_string":"x"}"#.to_owned(), "plugin ed25519"),
            ("{}".to_owned(), "a method that gatera does not know"),
        ] {
            assert_eq!(read(&privileges).accepts_besides(both).as_deref(), Some(besides));
        }
        assert_eq!(Account::read("68:5B5D"), None);
        assert!(!format!("{one:?}").contains(HASH));
    }
}
