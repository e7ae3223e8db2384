//! Options on a server's command line.

use super::{Value, one_spelling_and_switch};
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
    for (field, words) in [("command", &command), ("args", &args), ("env[MARIADB_EXTRA_FLAGS]", &extra)] {
        for (index, word) in words.iter().enumerate() {
            let Some(option) = word.strip_prefix("--") else { continue };
            let (key, value) = match option.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (option, words.get(index + 1).copied().filter(|next| !next.starts_with('-'))),
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
                (1, "binlog_format", Some("ROW")),
                (2, "wsrep_cluster_address", Some("gcomm://")),
                (4, "wsrep_on", Some("0")),
                (5, "a", None)
            ]
        );
    }
}
