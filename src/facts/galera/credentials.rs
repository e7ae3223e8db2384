//! Where a server finds the passwords of its accounts: keys of Secrets, as variables or as option files.
//!
//! Owns: the variables by which images take accounts, and a password's place in an option file. Must not know: how a
//! Secret is read; its values are handed in and never printed.

use objects::{Container, PodSpec, Volume};

use super::accounts::Password;

/// A variable of an image that holds a password.
struct Variable {
    password: &'static str,
    /// The variable that holds the account.
    user: &'static str,
    /// The account without that.
    default: &'static str,
    role: Role,
}

const fn variable(password: &'static str, user: &'static str, default: &'static str, role: Role) -> Variable {
    Variable { password, user, default, role }
}

const VARIABLES: [Variable; 5] = [
    variable("MARIADB_ROOT_PASSWORD", "MARIADB_ROOT_USER", "root", Role::Root),
    variable("MYSQL_ROOT_PASSWORD", "MYSQL_ROOT_USER", "root", Role::Root),
    variable("MARIADB_PASSWORD", "MARIADB_USER", "", Role::Client),
    variable("MYSQL_PASSWORD", "MYSQL_USER", "", Role::Client),
    variable(
        "MARIADB_GALERA_MARIABACKUP_PASSWORD",
        "MARIADB_GALERA_MARIABACKUP_USER",
        "mariabackup",
        Role::Transfer,
    ),
];

/// What an account is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It may do everything.
    Root,
    /// Donors take their backup by it.
    Transfer,
    /// Clients use it.
    Client,
}

impl Role {
    /// Returns the word that `--user` takes for its account, which may have any name.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Root => Some("root"),
            Self::Transfer => Some("sst"),
            Self::Client => None,
        }
    }
}

/// Returns the account, or the word for it, whose password the server reads from this key as a variable, as far as that
/// shows without any value.
pub fn reader_of(server: &Container, secret: &str, key: &str) -> Option<String> {
    let reads = |row: &&Variable| match server.env.iter().find(|it| it.name == row.password) {
        Some(var) => {
            let from = var.value_from.as_ref().and_then(|it| it.secret_key_ref.as_ref());
            from.is_some_and(|it| it.name == secret && it.key == key)
        }
        None => {
            let mut whole = server.env_from.iter().filter_map(|it| it.secret_ref.as_ref());
            key == row.password && whole.any(|it| it.name == secret)
        }
    };
    let row = VARIABLES.iter().find(reads)?;
    let user = server.env.iter().find(|it| it.name == row.user).map(|it| it.value.look());
    row.role.word().or(user.filter(|it| !it.is_empty())).map(str::to_owned)
}

/// An account, and the key of a Secret that holds its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub account: String,
    pub role: Role,
    pub secret: String,
    pub key: String,
    /// `None`: the value is not one line.
    pub password: Option<Password>,
}

/// Returns the credentials of this server. `value` returns the value of a Secret's key, `keys` its keys.
pub fn of(
    spec: &PodSpec,
    server: &Container,
    value: &dyn Fn(&str, &str) -> Option<String>,
    keys: &dyn Fn(&str) -> Vec<String>,
) -> Vec<Credential> {
    let mut all: Vec<Credential> =
        VARIABLES.iter().filter_map(|row| in_variable(server, row, value)).collect();
    let mounted = |volume: &&Volume| server.volume_mounts.iter().any(|mount| mount.name == volume.name);
    for source in spec.volumes.iter().filter(mounted).flat_map(Volume::secrets) {
        let named = source.items.iter().map(|it| it.key.clone());
        let keys: Vec<_> = if source.items.is_empty() { keys(&source.name) } else { named.collect() };
        for key in keys {
            let Some((account, password)) = value(&source.name, &key).and_then(|text| transfer(&text)) else {
                continue;
            };
            let (role, secret) = (Role::Transfer, source.name.clone());
            all.push(Credential { account, role, secret, key, password });
        }
    }
    let mut once: Vec<Credential> = Vec::new();
    for it in all {
        let same = |other: &Credential| (&other.secret, &other.key) == (&it.secret, &it.key);
        if !once.iter().any(same) {
            once.push(it);
        }
    }
    once
}

fn in_variable(
    server: &Container,
    row: &Variable,
    value: &dyn Fn(&str, &str) -> Option<String>,
) -> Option<Credential> {
    let Variable { password, user, default, role } = *row;
    let (secret, key) = source(server, password, value)?;
    let password = Password::in_use(&value(&secret, &key)?);
    let literal = || server.env.iter().find(|it| it.name == user).map(|it| it.value.look().to_owned());
    let from_secret = || source(server, user, value).and_then(|(secret, key)| value(&secret, &key));
    let account = from_secret().or_else(literal).filter(|it| !it.is_empty());
    let account = account.or_else(|| Some(default.to_owned()).filter(|it| !it.is_empty()))?;
    Some(Credential { account, role, secret, key, password })
}

/// The Secret and the key of a variable.
fn source(
    server: &Container,
    variable: &str,
    value: &dyn Fn(&str, &str) -> Option<String>,
) -> Option<(String, String)> {
    if let Some(var) = server.env.iter().find(|it| it.name == variable) {
        let from = var.value_from.as_ref()?.secret_key_ref.as_ref()?;
        return Some((from.name.clone(), from.key.clone()));
    }
    let whole = server.env_from.iter().filter_map(|it| it.secret_ref.as_ref());
    let named = whole.filter(|from| value(&from.name, variable).is_some()).last()?;
    Some((named.name.clone(), variable.to_owned()))
}

/// Returns the value of the key with another password in it: the password itself, or an option file. `None`: it is
/// neither, or the file has another account.
pub fn replaced(value: &str, account: &str, password: &Password) -> Option<String> {
    let Some((user, _)) = transfer(value) else {
        return (!value.contains('\n')).then(|| password.look().to_owned());
    };
    let text = quoted(&format!("{account}:{}", password.look()));
    let with = |line: &str| match auth(line).and_then(|it| line.split_once('=').filter(|_| it.contains(':')))
    {
        Some((name, _)) => format!("{name}= {text}{}", if line.ends_with('\n') { "\n" } else { "" }),
        None => line.to_owned(),
    };
    (user == account).then(|| value.split_inclusive('\n').map(with).collect())
}

/// Returns the text as a value in an option file.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

/// Returns the password of this account in the value of the key.
pub fn held(value: &str, account: &str) -> Option<Password> {
    match transfer(value) {
        Some((user, password)) => password.filter(|_| user == account),
        None => Password::in_use(value),
    }
}

/// Returns the account and password of the state transfer in an option file: the last one counts.
fn transfer(file: &str) -> Option<(String, Option<Password>)> {
    let is_file = file.lines().any(|line| line.trim_start().starts_with('['));
    let last = file.lines().filter_map(auth).next_back().filter(|_| is_file)?;
    let (user, password) = last.split_once(':')?;
    Some((user.to_owned(), Password::in_use(password)))
}

/// The value of `wsrep_sst_auth`, if this line sets it, as a server reads it.
fn auth(line: &str) -> Option<String> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim().trim_start_matches("loose").trim_start_matches(['-', '_']).replace('-', "_");
    if name != "wsrep_sst_auth" {
        return None;
    }
    let value = value.trim();
    let within = |quote: char| value.strip_prefix(quote)?.rsplit_once(quote).map(|(text, _)| text);
    let quoted = within('"').or_else(|| within('\''));
    Some(unescaped(quoted.unwrap_or_else(|| value.split('#').next().unwrap_or_default().trim_end())))
}

/// An unknown escape keeps its backslash.
fn unescaped(value: &str) -> String {
    let (mut text, mut all) = (String::new(), value.chars());
    while let Some(c) = all.next() {
        match (c, all.as_str().chars().next()) {
            ('\\', Some(it @ ('\\' | '"' | '\'' | 's'))) => {
                text.push(if it == 's' { ' ' } else { it });
                all.next();
            }
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn found(spec: &str, secrets: &[(&str, &str, &str)]) -> Vec<(String, String, String, Option<String>)> {
        let spec: PodSpec = serde_json::from_str(spec).unwrap();
        let values: BTreeMap<_, _> =
            secrets.iter().map(|(name, key, value)| ((*name, *key), *value)).collect();
        let value = |name: &str, key: &str| values.get(&(name, key)).map(|it| (*it).to_owned());
        let keys = |name: &str| {
            values.keys().filter(|(of, _)| *of == name).map(|(_, key)| (*key).to_owned()).collect()
        };
        let all = of(&spec, &spec.containers[0], &value, &keys);
        all.into_iter()
            .map(|it| (it.account, it.secret, it.key, it.password.map(|it| it.look().to_owned())))
            .collect()
    }

    #[test]
    fn accounts_are_found_by_their_variables_and_in_option_files() {
        let chart = r#"{"containers":[{"name":"mariadb",
            "env":[{"name":"MARIADB_ROOT_PASSWORD","valueFrom":{"secretKeyRef":{"name":"s","key":"root"}}},
                   {"name":"MYSQL_USER","value":"shop"},
                   {"name":"MYSQL_PASSWORD","valueFrom":{"secretKeyRef":{"name":"s","key":"app"}}}],
            "volumeMounts":[{"name":"config","mountPath":"/etc/mysql/conf.d"}]}],
            "volumes":[{"name":"config","projected":{"sources":[{"secret":{"name":"s","items":[{"key":"sst.cnf","path":"sst.cnf"}]}}]}},
                       {"name":"other","secret":{"secretName":"t"}}]}"#;
        let file = "[mariadbd]\nwsrep_sst_auth = \"sst:it's \\\\ \\\"#\\\"\"\n";
        let own = |account: &str, key: &str, password: &str| {
            (account.to_owned(), "s".to_owned(), key.to_owned(), Some(password.to_owned()))
        };
        let secrets = [
            ("s", "root", "a"),
            ("s", "app", "b"),
            ("s", "sst.cnf", file),
            ("t", "x", "[x]\nwsrep_sst_auth=u:p"),
        ];
        assert_eq!(
            found(chart, &secrets),
            [own("root", "root", "a"), own("shop", "app", "b"), own("sst", "sst.cnf", "it's \\ \"#\"")]
        );
        let whole = r#"{"containers":[{"name":"mariadb","envFrom":[{"secretRef":{"name":"s"}}]}]}"#;
        let secrets = [
            ("s", "MYSQL_ROOT_PASSWORD", "a"),
            ("s", "MARIADB_GALERA_MARIABACKUP_PASSWORD", "b"),
            ("s", "MYSQL_PASSWORD", "c"),
        ];
        assert_eq!(
            found(whole, &secrets),
            [
                own("root", "MYSQL_ROOT_PASSWORD", "a"),
                own("mariabackup", "MARIADB_GALERA_MARIABACKUP_PASSWORD", "b")
            ],
            "an account without a name is none"
        );
        let written_out =
            r#"{"containers":[{"name":"mariadb","env":[{"name":"MARIADB_ROOT_PASSWORD","value":"a"}]}]}"#;
        assert_eq!(found(written_out, &[]), []);
    }

    #[test]
    fn a_file_keeps_all_but_the_password() {
        let new = Password::new("new-1").unwrap();
        assert_eq!(replaced("old", "root", &new).as_deref(), Some("new-1"));
        let file = "[mariadbd]\n# the user\nwsrep-sst-auth=sst:old # of old\nmax_connections = 7\n";
        let after = replaced(file, "sst", &new).unwrap();
        assert_eq!(after, "[mariadbd]\n# the user\nwsrep-sst-auth= \"sst:new-1\"\nmax_connections = 7\n");
        assert_eq!(held(&after, "sst"), Some(new.clone()));
        let printable: String = (' '..='~').collect();
        let printable = Password::in_use(&printable).unwrap();
        let back = replaced(&after, "sst", &printable).unwrap();
        assert_eq!(held(&back, "sst"), Some(printable));
        assert_eq!(replaced(file, "other", &new), None);
        assert_eq!(held(file, "other"), None);
        assert_eq!(replaced("[mariadbd]\nport = 1\n", "sst", &new), None, "it has no account");
    }
}
