//! Whether a value can be a password, by its name and by the value itself.
//!
//! Must not know: where the value was found.

/// Returns whether the name of a variable or key means a password, and the value can be one.
pub fn is_secret(name: &str, value: &str) -> bool {
    let plain = value.trim().trim_matches(['"', '\'']);
    is_secret_name(name)
        && is_written_out(value)
        && !is_hash(plain)
        && (ends_as_a_password(name) || !is_setting(plain))
}

/// Returns whether the name of a variable or key means a password, and not a reference to one.
pub(in crate::rules) fn is_secret_name(name: &str) -> bool {
    // Every such name has this letter, and most names do not.
    if !name.contains(['p', 'P']) {
        return false;
    }
    let name = one_case(name);
    let meant = ["PASSWORD", "PASSWD", "MYSQL_PWD", "WSREP_SST_AUTH"].iter().any(|word| name.contains(word));
    let about =
        ["_FILE", "_FILES", "_PATH", "_DIR", "_KEY", "_NAME", "_REF"].iter().any(|end| name.ends_with(end))
            || ["ALLOW_EMPTY", "RANDOM", "EXPIRE", "ONETIME", "PASSWORD_POLICY"]
                .iter()
                .any(|word| name.contains(word));
    (meant || is_abbreviated(&name)) && !about
}

/// Returns whether the last word ends in an abbreviation of "password" or "passphrase": `DB_PASS`, `LDAP_BINDPW`, `X_PSW`. The
/// shell's own `PWD` is a folder.
fn is_abbreviated(name: &str) -> bool {
    let word = name.rsplit('_').next().unwrap_or_default();
    let abbreviates = |short: &str, long: &str| {
        let mut rest = long.chars();
        short.chars().all(|c| rest.any(|it| it == c))
    };
    let is_one = |short: &str| {
        let is_distinct = short.contains("SS") || short.contains('W');
        is_distinct
            && short.len() > 1
            && ["PASSWORD", "PASSPHRASE"].iter().any(|long| abbreviates(short, long))
    };
    !["PWD", "OLDPWD"].contains(&name) && word.match_indices('P').any(|(at, _)| is_one(&word[at..]))
}

/// Returns whether any value under this name is a password.
fn ends_as_a_password(name: &str) -> bool {
    let name = one_case(name);
    ["PASSWORD", "PASSWD", "MYSQL_PWD", "AUTH"].iter().any(|end| name.ends_with(end))
        && !is_switch_name(&name)
}

/// Returns whether the name is a switch: `USE_PASSWORD`, `SKIP_PASSWORD`.
fn is_switch_name(name: &str) -> bool {
    let words =
        ["USE", "SKIP", "CHECK", "REQUIRE", "REQUIRED", "ENABLE", "GENERATE", "FORCE", "VERIFY", "NO"];
    name.split('_').any(|word| words.contains(&word))
}

fn one_case(name: &str) -> String {
    name.to_ascii_uppercase().replace(['-', '.'], "_")
}

/// Returns whether the value is a switch, a number, a duration or a path: `yes`, `12`, `90d`, `/run/secrets/root`.
fn is_setting(value: &str) -> bool {
    let number = value.trim_end_matches(['s', 'm', 'h', 'd']);
    let path = value.starts_with('/')
        && value.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c));
    let switches = ["true", "false", "yes", "no", "on", "off", "enabled", "disabled"];
    switches.iter().any(|it| value.eq_ignore_ascii_case(it))
        || value.len() <= 6 && !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())
        || path
}

/// Returns whether the value is a hash made by `PASSWORD()`, which cannot be used to log in.
fn is_hash(value: &str) -> bool {
    value.strip_prefix('*').is_some_and(|it| it.len() == 40 && it.bytes().all(|it| it.is_ascii_hexdigit()))
}

/// Returns whether a key of a ConfigMap is a file by its name or is a script: `simple-password-check.cnf`.
pub(super) fn is_file(key: &str, text: &str) -> bool {
    let known = [".cnf", ".conf", ".ini", ".sh", ".sql", ".py", ".yaml", ".yml", ".json"];
    text.starts_with("#!") || known.iter().any(|end| key.ends_with(end))
}

/// Returns whether the text has a statement with a password in it.
pub(super) fn in_sql(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    let quoted = |rest: &'_ str| {
        let rest = rest.trim_start();
        let quote = rest.chars().next().filter(|it| ['\'', '"'].contains(it))?;
        rest[1..].split(quote).next().map(str::to_owned)
    };
    let words = ["IDENTIFIED BY ", "PASSWORD("].into_iter();
    let behind = words.flat_map(|word| upper.match_indices(word)).map(|(at, word)| &text[at + word.len()..]);
    // `SET PASSWORD FOR app = '…'`
    let set = upper.match_indices("SET PASSWORD").filter_map(|(at, _)| Some(text[at..].split_once('=')?.1));
    behind.chain(set).filter_map(quoted).any(|it| is_written_out(&it) && !is_hash(&it))
}

/// Returns whether the value is not empty, and not only a reference that is filled in later.
pub(super) fn is_written_out(value: &str) -> bool {
    let value = value.trim().trim_matches(['"', '\'', '\\']);
    let reference = value.starts_with(['$', '`']) || value.starts_with("{{") && value.ends_with("}}");
    !value.is_empty() && !reference && !is_filled_in(value)
}

/// Returns whether a program fills in the value: `{0}`, `{password}`, `%s`, `%(password)s`, `<password>`, `@PASSWORD@`,
/// `__PASSWORD__`.
fn is_filled_in(value: &str) -> bool {
    let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let braced = |open: &str, close: &str| {
        let inside = value.strip_prefix(open).and_then(|rest| rest.split_once(close));
        inside.is_some_and(|(name, _)| plain(name))
    };
    let framed = |open: &str, close: &str| {
        let inside = value.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        inside.is_some_and(|name| !name.is_empty() && plain(name))
    };
    value == "%s"
        || braced("%(", ")s")
        || braced("{", "}")
        || framed("<", ">")
        || framed("@", "@")
        || framed("__", "__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_recognised_by_name_and_value() {
        let hash = "*2470C0C06DEE42FD1618BBB99005ADCA2EC9D1E1";
        for (name, value) in [
            ("MARIADB_ROOT_PASSWORD", "hunter2"),
            ("MARIADB_ROOT_PASSWORD", "12345"),
            ("MARIADB_ROOT_PASSWORD", "true"),
            ("MARIADB_PASSWORD_HASH", "hunter2"),
            ("ROOT_PASSWORD_OLD", "hunter2"),
            ("mariadb-password", "/x"),
        ] {
            assert!(is_secret(name, value), "{name}");
        }
        for (name, value) in [
            ("MARIADB_DEFAULT_PASSWORD_LIFETIME", "0"),
            ("PASSWORD_LIFETIME", "90d"),
            ("PASSWORD_MIN_LENGTH", "12"),
            ("MARIADB_PASSWORD_CHECK", "yes"),
            ("USE_PASSWORD", "true"),
            ("MARIADB_ROOT_PASSWORD_HASH", hash),
            ("MARIADB_PASSWORD_LOCATION", "/run/secrets/root"),
            ("ROOT_PASSWORD_KEY", "root-password"),
            ("MARIADB_ROOT_PASSWORD", "`cat /run/secrets/root`"),
            ("MARIADB_ROOT_PASSWORD", "__ROOT_PASSWORD__"),
            ("BACKUP_PWD", "/var/backup"),
            ("TESTS_PASS", "12"),
            ("BYPASS", "true"),
        ] {
            assert!(!is_secret(name, value), "{name}");
        }
    }

    #[test]
    fn names_that_mean_a_password() {
        for name in [
            "MYSQL_ROOT_PASSWORD",
            "mariadb-password",
            "MYSQL_PWD",
            "DB_PASSWD",
            "MARIADB_GALERA_MARIABACKUP_PASSWORD",
            "LDAP_BINDPW",
            "DB_PASS",
            "ROOT_PASS",
            "BACKUP_PWD",
            "KEY_PASSPHRASE",
            "X_PSW",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "MARIADB_ROOT_PASSWORD_FILE",
            "MARIADB_ALLOW_EMPTY_ROOT_PASSWORD",
            "MYSQL_RANDOM_ROOT_PASSWORD",
            "PWD",
            "HOME",
            "POD",
            "MYSQL_PORT",
            "PROXY",
            "HTTP",
            "DB_PASS_FILE",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
