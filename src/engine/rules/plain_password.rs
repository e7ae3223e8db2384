//! G11: passwords belong in Secrets, not in manifests.
//!
//! Refuses a password in plain text in an environment variable, a command line, a probe, a hook, or a ConfigMap
//! that a cluster reads or that configures Galera. No output ever contains the value.
//!
//! # Why
//!
//! A manifest is copied into version control, into `kubectl.kubernetes.io/last-applied-configuration`, into every
//! backup of etcd and every `kubectl describe`; an argument of a probe is visible in the process list of the node,
//! every ten seconds. The same password usually opens the state transfer, which is a copy of the whole database.
//!
//! # Example
//!
//! ```text
//! env:
//! - name: MYSQL_ROOT_PASSWORD
//!   value: …                                     # refused
//! - name: MYSQL_ROOT_PASSWORD
//!   valueFrom: {secretKeyRef: {name: galera, key: root-password}}
//! ```
//!
//! # What to do instead
//!
//! Put the password into a Secret and refer to it: `valueFrom.secretKeyRef` for the environment, a file mounted from
//! the Secret for `wsrep_sst_auth` and for clients (`--defaults-extra-file`). Probes need no password at all: the ones
//! gatera injects read the server's status file. Then choose a new password; the old one has been published.
//!
//! # Exceptions
//!
//! `gatera.dev/mode: warn` on the namespace, or `modes: {G11: warn}` in the settings, while you migrate; for one
//! object and an hour, `gatera.dev/override: "G11 until=2026-12-01T10:00:00Z reason=…"`.

mod value;

use super::{newly_read, template};
use crate::rule::{All, Change, Finding, Findings, OfTemplates, Review, Rule, Verb, View, WRITTEN};
use facts::galera::options;
use objects::{ConfigMap, Container, Kind, Literal, Pod, PodSpec};

pub use value::is_secret;
pub(super) use value::is_secret_name;
use value::{in_sql, is_file, is_written_out};

pub(super) const RULE: Rule = Rule {
    id: "G11",
    name: "plain-password",
    judges: &[
        (Kind::StatefulSet, WRITTEN, OfTemplates(in_workload)),
        (Kind::Deployment, WRITTEN, OfTemplates(in_workload)),
        (Kind::Pod, &[Verb::Create], All(in_bare_pod)),
        (Kind::ConfigMap, WRITTEN, All(config_map)),
    ],
    depends_on_state: false,
    source: include_str!("plain_password.rs"),
};

fn in_workload(review: &Review, view: &View<'_>) -> Findings {
    let Some(new) = template::adopted(review.new.as_ref(), view) else { return Findings::new() };
    let mut found = in_pod("spec.template.spec.", &new.spec.template.spec);
    found.extend(newly_read::judged(review, view, |map, _| in_config(map)));
    found
}

/// Returns findings about a new pod without a controller: with one, it is a copy of a template that was judged.
fn in_bare_pod(review: &Review, view: &View<'_>) -> Findings {
    match review.change::<Pod>() {
        Change { old: None, new: Some(it) }
            if view.adoption().adopts(&it.metadata.labels) && it.metadata.controller().is_none() =>
        {
            in_pod("spec.", &it.spec)
        }
        _ => Findings::new(),
    }
}

fn config_map(review: &Review, view: &View<'_>) -> Findings {
    let new = review.change::<ConfigMap>().new.filter(|it| view.is_galeras(&review.namespace, it));
    new.map_or_else(Findings::new, in_config)
}

fn in_pod(prefix: &str, spec: &PodSpec) -> Findings {
    let mut found = Vec::new();
    for (list, container) in spec.all_containers() {
        let place = format!("{prefix}{list}[{}].", container.name);
        found.extend(in_environment(&place, container));
        for (field, words) in container.command_lines() {
            if let Some(what) = in_words(words) {
                let says = format!("container {} has {what} in plain text in its {field}", container.name);
                found.push(finding(format!("{place}{field}"), says, "read it from a file mounted from a Secret, or from a variable with valueFrom.secretKeyRef"));
            }
        }
    }
    found
}

fn in_environment(place: &str, container: &Container) -> Findings {
    let written_out = container.env.iter().filter(|var| {
        let (name, value) = (&*var.name, var.value.look());
        is_secret(name, value) || names_a_source(name) && has_login(value)
    });
    let finding = |var: &objects::EnvVar| {
        let says = format!("container {} has the value of {} in plain text", container.name, var.name);
        finding(
            format!("{place}env[{}].value", var.name),
            says,
            "use valueFrom.secretKeyRef instead of value",
        )
    };
    written_out.map(finding).collect()
}

/// The largest number of findings for one ConfigMap, because the answer about a hostile text could otherwise be too large for
/// the API server.
const MOST_FINDINGS: usize = 100;
/// The longest group name that is shown; `mariabackup-10.11` has 17 characters.
const LONGEST_GROUP: usize = 40;

fn in_config(map: &ConfigMap) -> Findings {
    map.data.iter().flat_map(|(key, text)| in_text(key, text.look())).take(MOST_FINDINGS).collect()
}

fn in_text<'a>(key: &'a str, text: &'a str) -> impl Iterator<Item = Finding> + 'a {
    let in_plain_text = |field: String, place: &str, what: &str| {
        let says = format!("{place} contains {what} in plain text");
        finding(
            field,
            says,
            "keep it in a Secret, and mount that beside this ConfigMap (a projected volume puts both into one folder)",
        )
    };
    // A key that is named like a file is judged line by line.
    let is_password =
        if is_file(key, text) { is_secret_name(key) && in_sql(text) } else { is_secret(key, text) };
    let whole = is_password.then(|| in_plain_text(format!("data[{key}]"), key, "a password"));
    let secrets = options::read_with(text, &["pass", "auth"])
        .filter(move |it| !is_password && is_secret_option(&it.key, it.look()));
    let settings = secrets.map(move |it| {
        let what = if it.key == "wsrep_sst_auth" { "the password of wsrep_sst_auth" } else { "a password" };
        // Every finding repeats the group, so a long one is cut.
        let group: String = it.group.chars().take(LONGEST_GROUP).collect();
        in_plain_text(format!("data[{key}][{group}].{}", it.key), &format!("{key} line {}", it.line), what)
    });
    let sql = !is_password && STATEMENT_SIGNS.iter().any(|sign| text.contains(sign));
    let script = !is_password && PASSWORD_SIGNS.iter().any(|sign| text.contains(sign));
    let lines =
        text.lines().enumerate().take_while(move |_| script || sql).filter_map(move |(index, line)| {
            let in_statement =
                || (sql && !is_comment(line) && in_sql(line)).then_some("a password (in a statement)");
            let what = in_shell(line).filter(|_| script).or_else(in_statement)?;
            let place = format!("{key} line {}", index + 1);
            Some(in_plain_text(format!("data[{place}]"), &place, what))
        });
    whole.into_iter().chain(settings).chain(lines)
}

/// Signs of a password on a command line; a text without any of them is not searched.
const PASSWORD_SIGNS: [&str; 6] = ["-p", "--", "PASS", "PSW", "PW", "WSREP"];
/// Signs of a statement that sets a password; a text without any of them is not searched.
const STATEMENT_SIGNS: [&str; 6] =
    ["IDENTIFIED", "Identified", "identified", "PASSWORD", "Password", "password"];

fn is_comment(line: &str) -> bool {
    ["--", "#", "/*"].iter().any(|begin| line.trim_start().starts_with(begin))
}

/// Returns whether a variable's name means a data source: an address that can contain a login, as exporters use it.
fn names_a_source(name: &str) -> bool {
    ["DATA_SOURCE_NAME", "DSN", "URL", "URI"].iter().any(|end| name.ends_with(end))
}

/// Returns whether the value is `user:password@host`, with or without `mysql://`.
fn has_login(value: &str) -> bool {
    let rest = value.split_once("://").map_or(value, |(_, rest)| rest);
    let login = rest.rsplit_once('@').map(|(login, _)| login);
    login.and_then(|login| login.split_once(':')).is_some_and(|(_, password)| is_written_out(password))
}

fn is_secret_option(key: &str, value: &str) -> bool {
    match key {
        // user:password; a user alone is not a secret.
        "wsrep_sst_auth" => value.split_once(':').is_some_and(|(_, password)| is_written_out(password)),
        "password" | "master_password" | "ssl_passphrase" | "tls_passphrase" => is_written_out(value),
        _ => false,
    }
}

/// Returns a description of the password in a program's arguments. The word after `sh -c` is a script of its own.
fn in_words(words: &[Literal]) -> Option<&'static str> {
    let mut words = words.iter().map(Literal::look);
    let script = words.clone().find_map(|word| word.lines().find_map(in_shell));
    let client = words.clone().next().is_some_and(is_client);
    script.or_else(|| words.find_map(|word| in_argument(word, client)))
}

/// Returns a description of the password in one line of a shell script; commands end at `;`, `|` and `&`.
fn in_shell(line: &str) -> Option<&'static str> {
    if line.trim_start().starts_with('#') {
        return None;
    }
    line.split([';', '|', '&']).find_map(|command| {
        let words = || command.split_whitespace().map(|word| word.trim_start_matches(['(', '`', '"', '\'']));
        let client = words().any(is_client);
        words().find_map(|word| in_assignment(word).or_else(|| in_argument(word, client)))
    })
}

fn in_assignment(word: &str) -> Option<&'static str> {
    let (name, value) = word.split_once('=')?;
    let plain = name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
    // A function call in another language: `PASSWORD=open("/run/secrets/root").read()`.
    let call = value.find(['(', '[']).is_some_and(|at| {
        at > 0 && value[..at].chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c))
    });
    (plain && !call && is_secret(name, value)).then_some("a password")
}

fn in_argument(word: &str, client: bool) -> Option<&'static str> {
    let word = word.trim_matches(['"', '\'']);
    if let Some((key, value)) = word.strip_prefix("--").and_then(|option| option.split_once('=')) {
        let key = options::one_spelling(key);
        return match &*key {
            "wsrep_sst_auth" => is_secret_option(&key, value).then_some("the password of wsrep_sst_auth"),
            "password" => is_written_out(value).then_some("a password (--password=)"),
            _ => None,
        };
    }
    let short = word.strip_prefix("-p").filter(|_| client && !word.starts_with("-p="))?;
    is_written_out(short).then_some("a password (-p)")
}

/// Returns whether the word is a MariaDB or MySQL program: for these `-p…` is a password, for most others a port or a path.
fn is_client(word: &str) -> bool {
    let program = word.trim_matches(['"', '\'']).rsplit('/').next().unwrap_or_default();
    ["mysql", "mariadb"].iter().any(|prefix| program.starts_with(prefix)) && !program.contains('=')
}

const WHY: &str = "every user who may read the object can read the password, and so can readers of version control; it gives \
    access to a copy of the whole database";

fn finding(field: String, says: String, instead: &str) -> Finding {
    RULE.deny(field, says, WHY, instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_with_a_password() {
        for line in [
            "mysqladmin -padmin ping",
            "mysql -u root -phunter2 -e 'SELECT 1'",
            "until mysql -u root -px -e \"SHOW STATUS\" | grep -q Synced",
            "/usr/bin/mariadb --password=x",
            "MYSQL_PWD=x mariadb -e 'SELECT 1'",
            "export MARIADB_ROOT_PASSWORD='x'",
            "exec mariadbd --wsrep-sst-auth=root:x",
            "true && (mysql -px)",
        ] {
            assert!(in_shell(line).is_some(), "{line}");
        }
    }

    #[test]
    fn command_lines_without_a_password() {
        for line in [
            "mkdir -p /var/lib/mysql",
            "mysql -u root -p -h cs",
            "mysql -p\"$MYSQL_ROOT_PASSWORD\" -e 'SELECT 1'",
            "mysql --password=$(cat /run/secrets/root)",
            "MYSQL_PWD=`cat /run/secrets/root` mysql -e 'SELECT 1'",
            "PASSWORD=open('/run/secrets/root').read()",
            "export PASSWORD_MIN_LENGTH=12",
            "mysql --password=\"${MARIADB_ROOT_PASSWORD}\"",
            "MYSQL_PWD=\"$MARIADB_ROOT_PASSWORD\" mysql -e 'SELECT 1'",
            "mariadbd --wsrep-sst-auth=root:$(SST_PASSWORD)",
            "mariadbd --wsrep-sst-auth=mariabackup",
            "ssh -p2222 host",
            "mysql -e \"CHANGE MASTER TO MASTER_USER=\\\"${U}\\\", MASTER_PASSWORD=\\\"${P}\\\"\"",
            "    cmd = ['mariadb-upgrade', \"--password={0}\".format(password)]",
            "    cmd = 'mariadb --password=%(root)s' % secrets",
            "# mysql -psecret",
            "",
        ] {
            assert_eq!(in_shell(line), None, "{line}");
        }
    }

    #[test]
    fn keys_named_like_files_are_judged_line_by_line() {
        for (key, text, found) in [
            ("simple-password-check.cnf", "[mysqld]\nplugin_load_add = simple_password_check\n", 0),
            ("password.sh", "MYSQL_PWD=\"$(cat /run/secrets/root)\" mariadb -e 'SELECT 1'\n", 0),
            ("password.sh", "MYSQL_PWD=hunter2 mariadb -e 'SELECT 1'\n", 1),
            ("set-password.sql", "ALTER USER root IDENTIFIED BY 'hunter2';\n", 1),
            ("set-password.sql", "ALTER USER root IDENTIFIED BY '${PASSWORD}';\n", 0),
            ("root-password", "hunter2", 1),
            ("users.sql", "CREATE USER app@'%' IDENTIFIED BY 'hunter2';\n-- IDENTIFIED BY 'x'\n", 1),
            ("users.sql", "create user app identified by \"hunter2\";\n", 1),
            ("users.sql", "SET PASSWORD FOR app = 'hunter2';\nSET PASSWORD = PASSWORD('hunter2');\n", 2),
            (
                "users.sql",
                "CREATE USER app IDENTIFIED BY PASSWORD '*2470C0C06DEE42FD1618BBB99005ADCA2EC9D1E1';\n",
                0,
            ),
            ("init.sh", "mariadb -e \"CREATE USER app IDENTIFIED BY '$APP'\"\n", 0),
            ("init.sh", "mariadb -e \"CREATE USER app IDENTIFIED BY 'hunter2'\"\n", 1),
        ] {
            assert_eq!(in_text(key, text).count(), found, "{key}: {text}");
        }
    }

    #[test]
    fn sources_with_a_login() {
        for value in ["exporter:x@tcp(127.0.0.1:3306)/", "mysql://app:x@db/app", "a:b@c@d"] {
            assert!(has_login(value), "{value}");
        }
        for value in
            ["exporter:$(PASSWORD)@tcp(db:3306)/", "mysql://db:3306/app", "app@tcp(db:3306)/", "http://a:1/"]
        {
            assert!(!has_login(value), "{value}");
        }
    }
}
