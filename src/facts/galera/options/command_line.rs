//! Options that a container passes to its server.

use super::{OptionValue, one_spelling_and_switch};
use crate::galera::bitnami::EXTRA_FLAGS;
use crate::galera::programs;
use crate::galera::runs::SERVERS;
use objects::{Container, EnvVar, Literal};
use std::borrow::Cow;

/// One option for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag<'a> {
    /// The field of the container that holds it.
    pub field: &'static str,
    /// The index of its word in the field.
    pub index: usize,
    /// The key in its canonical spelling.
    pub key: Cow<'a, str>,
    /// Whether a server that does not know the option only warns.
    pub loose: bool,
    /// The value; `None` for a bare option.
    pub value: Option<OptionValue<'a>>,
}

/// The variable from which Bitnami's images take `wsrep_cluster_name`.
const CLUSTER_NAME: &str = "MARIADB_GALERA_CLUSTER_NAME";

/// Returns every option that a container passes to its server as `--key=value`, `--key value` or `--key`: in its command
/// line, in a script there, or in variables of Bitnami's image. The last one of a key counts.
pub fn flags<'c>(container: &'c Container) -> Vec<Flag<'c>> {
    let command = container.command.iter().map(Literal::look).collect::<Vec<_>>();
    let args = container.args.iter().map(Literal::look).collect::<Vec<_>>();
    let extra = container.env.iter().filter(|var| var.name == EXTRA_FLAGS);
    let extra = extra.flat_map(|var| var.value.look().split_whitespace()).collect::<Vec<_>>();
    let name = container.env.iter().find(|var| var.name == CLUSTER_NAME && !var.value.look().is_empty());
    let of_name = |var: &'c EnvVar| Flag {
        field: "env[MARIADB_GALERA_CLUSTER_NAME]",
        index: 0,
        key: "wsrep_cluster_name".into(),
        loose: false,
        value: Some(var.value.look().into()),
    };
    let mut found: Vec<_> = name.map(of_name).into_iter().collect();
    for (field, words) in [("command", &command), ("args", &args), ("env[MARIADB_EXTRA_FLAGS]", &extra)] {
        for (index, word) in words.iter().enumerate() {
            if let Some((key, value)) = read(word, words.get(index + 1).copied()) {
                found.push(Flag {
                    field,
                    index,
                    key,
                    loose: is_loose(word),
                    value: value.map(OptionValue::from),
                });
            }
        }
    }
    if command.iter().chain(&args).any(|word| word.contains(' ') && word.contains(" --")) {
        found.extend(of_script(container));
    }
    found
}

/// Returns the options that a script passes to its server. There are none if they are not certain: the script has a
/// condition, starts several servers, or lets the shell fill in a value.
fn of_script(container: &Container) -> Vec<Flag<'_>> {
    let words: Vec<_> = container.command.iter().chain(&container.args).cloned().collect();
    let mut servers = Vec::new();
    let mut has_condition =
        words.iter().any(|it| ["if ", "case ", "||"].iter().any(|word| it.look().contains(word)));
    programs::runs(&words, |path, arguments| {
        let name = programs::name(path);
        has_condition |= ["[", "test", "case", "for"].contains(&name);
        if SERVERS.contains(&name) || name == "docker-entrypoint.sh" {
            servers.push(arguments.to_vec());
        }
        false
    });
    let [arguments] = &*servers else { return Vec::new() };
    if has_condition || arguments.iter().any(|it| it.contains(['$', '`'])) {
        return Vec::new();
    }
    let index = container.command.iter().chain(&container.args).position(|it| it.look().contains("--"));
    let read = arguments.iter().enumerate().filter_map(|(at, word)| {
        let (key, value) = read(word, arguments.get(at + 1).map(|next| &**next))?;
        let (key, value) = (Cow::Owned(key.into_owned()), value.map(|it| OptionValue::from(it.to_owned())));
        Some(Flag { field: "command", index: index.unwrap_or_default(), key, loose: is_loose(word), value })
    });
    read.collect()
}

fn is_loose(word: &str) -> bool {
    word.trim_start_matches('-').get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case("loose"))
}

/// Reads `--key=value`, `--key value` or `--key`.
fn read<'w>(word: &'w str, next: Option<&'w str>) -> Option<(Cow<'w, str>, Option<&'w str>)> {
    let option = word.strip_prefix("--").filter(|it| !it.is_empty())?;
    let (key, value) = match option.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (option, next.filter(|next| !next.starts_with('-'))),
    };
    let (key, switch) = one_spelling_and_switch(key);
    let value = match switch {
        Some(on) => Some(if on == (value != Some("0")) { "1" } else { "0" }),
        None => value,
    };
    Some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_every_form() {
        let words = |words: &[&str]| words.iter().map(|word| Literal::from(*word)).collect();
        let container = Container {
            command: words(&["sh", "-c", "exec mariadbd --wsrep-on=OFF"]),
            args: words(&[
                "mariadbd",
                "--Binlog-Format=ROW",
                "--wsrep_cluster_address",
                "gcomm://",
                "--skip-wsrep-on",
                "--a",
            ]),
            ..Container::default()
        };
        let found = flags(&container);
        let read: Vec<_> = found
            .iter()
            .map(|flag| (flag.index, &*flag.key, flag.value.as_ref().map(OptionValue::look)))
            .collect();
        assert_eq!(
            read,
            [
                (1, "binlog_format", Some("ROW")),
                (2, "wsrep_cluster_address", Some("gcomm://")),
                (4, "wsrep_on", Some("0")),
                (5, "a", None),
                (2, "wsrep_on", Some("OFF")),
            ]
        );
    }

    #[test]
    fn options_of_a_server_that_a_script_starts_are_found() {
        for (script, read) in [
            ("exec mariadbd --a=1 \\\n  --b; echo --c", "a=1 b="),
            ("exec mariadbd --a=1\necho --c", "a=1"),
            ("mkdir -p /run/mysqld && exec /usr/sbin/mysqld --a='c d'", "a=c d"),
            ("exec mysqld --a=$A --b", ""),
            ("[ -f x ] && exec mysqld --a", ""),
            ("if x; then exec mysqld --a; else exec mysqld --b; fi", ""),
            ("# mysqld takes --a\nexec mysqld", ""),
            ("echo mysqld --a", ""),
        ] {
            let command = ["bash", "-c", script].map(Literal::from).to_vec();
            let container = Container { command, ..Container::default() };
            let found: Vec<_> = flags(&container)
                .iter()
                .map(|flag| format!("{}={}", flag.key, flag.value.as_ref().map_or("", OptionValue::look)))
                .collect();
            assert_eq!(found.join(" "), read, "{script}");
        }
    }
}
