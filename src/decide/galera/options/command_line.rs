//! Options on a server's command line.

use super::{Value, one_spelling_and_switch};
use crate::galera::runs::SERVERS;
use crate::object::{Container, Literal};
use std::borrow::Cow;

/// One option on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag<'a> {
    /// The field of the container it stands in.
    pub field: &'static str,
    /// Which word of the field.
    pub index: usize,
    /// The key in its one spelling.
    pub key: Cow<'a, str>,
    /// The value; `None` for a bare option.
    pub value: Option<Value<'a>>,
}

/// Bitnami's images take further options for the server from here.
const EXTRA_FLAGS: &str = "MARIADB_EXTRA_FLAGS";

/// Every option that a container hands its server: `--key=value`, `--key value`, `--key`. Later wins.
pub fn flags(container: &Container) -> Vec<Flag<'_>> {
    let command = container.command.iter().map(Literal::look).collect::<Vec<_>>();
    let args = container.args.iter().map(Literal::look).collect::<Vec<_>>();
    let extra = container.env.iter().filter(|var| var.name == EXTRA_FLAGS);
    let extra = extra.flat_map(|var| var.value.look().split_whitespace()).collect::<Vec<_>>();
    let mut found = Vec::new();
    let [command, args] = [command, args].map(|words| {
        let numbered = words.into_iter().enumerate();
        numbered
            .flat_map(|(index, word)| of_word(word).into_iter().map(move |it| (index, it)))
            .collect::<Vec<_>>()
    });
    let extra = extra.into_iter().enumerate().collect();
    for (field, words) in [("command", &command), ("args", &args), ("env[MARIADB_EXTRA_FLAGS]", &extra)] {
        for (at, &(index, word)) in words.iter().enumerate() {
            let Some(option) = word.strip_prefix("--") else { continue };
            let (key, value) = match option.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => {
                    let next = words.get(at + 1).map(|(_, next)| *next);
                    (option, next.filter(|next| !next.starts_with('-')))
                }
            };
            let (key, switch) = one_spelling_and_switch(key);
            let value = match switch {
                Some(on) => Some(if on == (value != Some("0")) { "1" } else { "0" }),
                None => value,
            };
            found.push(Flag { field, index, key, value: value.map(Value::from) });
        }
    }
    found
}

/// A word; of a script that starts a server the words that it hands over. What depends on a condition, or is filled in by the shell,
/// is not known.
fn of_word(word: &str) -> Vec<&str> {
    let serves = |it: &str| SERVERS.contains(&it.rsplit('/').next().unwrap_or_default());
    let decides = |it: &str| ["if", "case", "while", "until", "for", "&&", "||"].contains(&it);
    let mut words = word.split_whitespace();
    if word.starts_with("--")
        || words.clone().any(decides)
        || words.clone().nth(1).is_none()
        || !words.any(serves)
    {
        return vec![word];
    }
    let line = word.lines().skip_while(|line| !line.split_whitespace().any(serves));
    let mut goes_on = true;
    let lines = line.take_while(|line| std::mem::replace(&mut goes_on, line.trim_end().ends_with('\\')));
    let words = lines.flat_map(str::split_whitespace).skip_while(|it| !serves(it)).skip(1);
    let words = words.take_while(|it| !it.contains([';', '|', '&', '>', '<', '#']));
    words.filter(|it| !it.contains(['$', '`', '"', '\'', '\\', '(', ')'])).collect()
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
        let read: Vec<_> =
            found.iter().map(|flag| (flag.index, &*flag.key, flag.value.as_ref().map(Value::look))).collect();
        assert_eq!(
            read,
            [
                (2, "wsrep_on", Some("OFF")),
                (1, "binlog_format", Some("ROW")),
                (2, "wsrep_cluster_address", Some("gcomm://")),
                (4, "wsrep_on", Some("0")),
                (5, "a", None)
            ]
        );
    }

    #[test]
    fn of_a_script_what_its_server_gets() {
        for (script, words) in [
            ("exec mariadbd --a=1 \\\n  --b; echo --c", &["--a=1"][..]),
            ("exec mariadbd --a=1 \\\n  --b\necho --c", &["--a=1", "--b"]),
            ("exec /usr/sbin/mysqld --a=$A --b='c' --d", &["--d"]),
            ("if true; then mysqld --a; fi", &["if true; then mysqld --a; fi"]),
            ("SET NAMES utf8", &["SET NAMES utf8"]),
            ("mariadbd", &["mariadbd"]),
        ] {
            assert_eq!(of_word(script), words);
        }
    }
}
