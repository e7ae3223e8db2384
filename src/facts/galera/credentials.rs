//! Where a server finds the passwords of its accounts: keys of Secrets, as variables or as option files.
//!
//! Owns: the variables by which images take accounts, and a password's place in an option file. Must not know: how a
//! Secret is read; its values are handed in and never printed.

use std::collections::{BTreeMap, BTreeSet};

use objects::{Container, PodSpec, Volume};

use super::accounts::Password;
use super::options;

/// The variables of images that hold a password, each with the variable that holds its account, the account if that variable is
/// not set, and its role.
const VARIABLES: [(&str, &str, &str, Role); 5] = [
    ("MARIADB_ROOT_PASSWORD", "MARIADB_ROOT_USER", "root", Role::Root),
    ("MYSQL_ROOT_PASSWORD", "MYSQL_ROOT_USER", "root", Role::Root),
    ("MARIADB_PASSWORD", "MARIADB_USER", "", Role::Client),
    ("MYSQL_PASSWORD", "MYSQL_USER", "", Role::Client),
    ("MARIADB_GALERA_MARIABACKUP_PASSWORD", "MARIADB_GALERA_MARIABACKUP_USER", "mariabackup", Role::Transfer),
];

/// The purpose of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The account may do everything.
    Root,
    /// Donors take their backup with the account.
    Transfer,
    /// Clients use the account.
    Client,
}

impl Role {
    /// Returns the word that `--user` accepts for the account, because the account may have any name.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Root => Some("root"),
            Self::Transfer => Some("sst"),
            Self::Client => None,
        }
    }
}

/// Returns the account, or the word for it, whose password the server reads from this key as a variable, as far as that can be
/// determined without the values of Secrets.
pub fn account_of_key(server: &Container, secret: &str, key: &str) -> Option<String> {
    let has = |name: &str, variable: &str| (name, variable) == (secret, key);
    let reads = |row: &&(&str, _, _, _)| source(server, row.0, &has) == Some((secret, key));
    let (_, user, _, role) = VARIABLES.iter().find(reads)?;
    role.word().or(literal(server, user)).map(str::to_owned)
}

/// An account, and the key of a Secret that holds its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub account: String,
    pub role: Role,
    pub secret: String,
    pub key: String,
    /// The password; `None`: the value is empty, or not one line.
    pub password: Option<Password>,
}

/// The texts in Secrets, by the Secret's name and the key.
pub type Values = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the credentials of this server.
pub fn of(spec: &PodSpec, server: &Container, values: &Values) -> Vec<Credential> {
    let mut all: Vec<_> = VARIABLES.iter().filter_map(|row| in_variable(server, *row, values)).collect();
    let mounted = |volume: &&Volume| server.volume_mounts.iter().any(|mount| mount.name == volume.name);
    for source in spec.volumes.iter().filter(mounted).flat_map(Volume::secrets) {
        let named = |key: &str| source.items.is_empty() || source.items.iter().any(|it| it.key == key);
        for (key, text) in values.get(&source.name).into_iter().flatten().filter(|(key, _)| named(key)) {
            let Some((account, password)) = transfer(text) else { continue };
            let (role, secret, key) = (Role::Transfer, source.name.clone(), key.clone());
            all.push(Credential { account, role, secret, key, password });
        }
    }
    let mut known = BTreeSet::new();
    all.retain(|it| known.insert((it.secret.clone(), it.key.clone())));
    all
}

fn in_variable(
    server: &Container,
    (password, user, default, role): (&str, &str, &str, Role),
    values: &Values,
) -> Option<Credential> {
    let value = |(name, key): (&str, &str)| values.get(name)?.get(key).map(String::as_str);
    let has = |name: &str, key: &str| value((name, key)).is_some();
    let (secret, key) = source(server, password, &has)?;
    let password = Password::in_use(value((secret, key))?);
    let account = source(server, user, &has).and_then(value).or(literal(server, user));
    let account = account.into_iter().chain([default]).find(|it| !it.is_empty())?.to_owned();
    Some(Credential { account, role, secret: secret.to_owned(), key: key.to_owned(), password })
}

/// Returns the value of a variable, if the manifest contains it.
fn literal<'a>(server: &'a Container, variable: &str) -> Option<&'a str> {
    let text = server.env.iter().find(|it| it.name == variable)?.value.look();
    Some(text).filter(|it| !it.is_empty())
}

/// Returns the Secret and the key that a variable is read from. `has` returns whether a Secret that is read as a whole has this
/// key.
fn source<'a>(
    server: &'a Container,
    variable: &'a str,
    has: &dyn Fn(&str, &str) -> bool,
) -> Option<(&'a str, &'a str)> {
    if let Some(var) = server.env.iter().find(|it| it.name == variable) {
        let from = var.value_from.as_ref()?.secret_key_ref.as_ref()?;
        return Some((&from.name, &from.key));
    }
    let whole = server.env_from.iter().filter_map(|it| it.secret_ref.as_ref());
    whole.filter(|from| has(&from.name, variable)).last().map(|from| (&*from.name, variable))
}

/// Returns the value of a key with another password in it. The value is the password itself, or an option file that holds it.
/// `None`: it is neither, or the file holds the password of another account.
pub fn with_password(value: &str, account: &str, password: &Password) -> Option<String> {
    let Some((user, _)) = transfer(value) else {
        return (!value.contains('\n')).then(|| password.look().to_owned());
    };
    let at = options::last(value, TRANSFER_OPTION).filter(|_| user == account)?.at;
    let text = quoted(&format!("{account}:{}", password.look()));
    Some([&value[..at.start], &text, &value[at.end..]].concat())
}

/// Returns the text as a value in an option file.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

/// Returns the password of this account in the value of the key.
pub fn password_in(value: &str, account: &str) -> Option<Password> {
    match transfer(value) {
        Some((user, password)) => password.filter(|_| user == account),
        None => Password::in_use(value),
    }
}

/// The option that holds the account and the password of the state transfer.
const TRANSFER_OPTION: &str = "wsrep_sst_auth";

/// Returns the account and password of the state transfer in an option file.
fn transfer(file: &str) -> Option<(String, Option<Password>)> {
    let value = options::effective(file, TRANSFER_OPTION)?;
    let (user, password) = value.look().split_once(':')?;
    Some((user.to_owned(), Password::in_use(password)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(spec: &str, secrets: &[(&str, &str, &str)]) -> Vec<(String, String, String, Option<String>)> {
        let spec: PodSpec = serde_json::from_str(spec).unwrap();
        let mut values = Values::new();
        for (name, key, value) in secrets {
            values.entry((*name).to_owned()).or_default().insert((*key).to_owned(), (*value).to_owned());
        }
        let all = of(&spec, &spec.containers[0], &values);
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
            "MYSQL_PASSWORD belongs to no account, because MYSQL_USER is not set"
        );
        let written_out =
            r#"{"containers":[{"name":"mariadb","env":[{"name":"MARIADB_ROOT_PASSWORD","value":"a"}]}]}"#;
        assert_eq!(found(written_out, &[]), []);
    }

    #[test]
    fn only_the_password_in_an_option_file_changes() {
        let new = Password::new("new-1").unwrap();
        assert_eq!(with_password("old", "root", &new).as_deref(), Some("new-1"));
        let file = "[mariadbd]\n# the user\nwsrep-sst-auth=sst:old # of old\nmax_connections = 7\n";
        let after = with_password(file, "sst", &new).unwrap();
        assert_eq!(
            after,
            "[mariadbd]\n# the user\nwsrep-sst-auth=\"sst:new-1\" # of old\nmax_connections = 7\n"
        );
        assert_eq!(password_in(&after, "sst"), Some(new.clone()));
        let printable: String = (' '..='~').collect();
        let printable = Password::in_use(&printable).unwrap();
        let back = with_password(&after, "sst", &printable).unwrap();
        assert_eq!(password_in(&back, "sst"), Some(printable));
        assert_eq!(with_password(file, "other", &new), None);
        assert_eq!(password_in(file, "other"), None);
        assert_eq!(with_password("[mariadbd]\nport = 1\n", "sst", &new), None, "it has no account");
    }
}
