//! Command lines: which programs they run, also inside `sh -c`, and what those programs need from the server.
//!
//! Shell syntax is understood only as far as it separates a program from its arguments. A command line may contain a
//! password, so only names from the tables here leave this file.

use objects::Literal;

/// Clients by their old names, and their current names.
const CLIENTS: [(&str, &str); 9] = [
    ("mysql", "mariadb"),
    ("mysqladmin", "mariadb-admin"),
    ("mysqldump", "mariadb-dump"),
    ("mysqlcheck", "mariadb-check"),
    ("mysqlimport", "mariadb-import"),
    ("mysqlshow", "mariadb-show"),
    ("mysqlslap", "mariadb-slap"),
    ("mysqlbinlog", "mariadb-binlog"),
    ("mysql_upgrade", "mariadb-upgrade"),
];

/// Servers by their old names, and their current names.
const SERVERS: [(&str, &str); 2] = [("mysqld_safe", "mariadbd-safe"), ("mysqld", "mariadbd")];

/// Returns the names of all clients, old and current.
pub(super) fn clients() -> impl Iterator<Item = &'static str> {
    CLIENTS.into_iter().flat_map(|(old, new)| [old, new])
}

/// Returns the old and the current name of the first program that has an old name.
pub fn old_name(words: &[Literal]) -> Option<(&'static str, &'static str)> {
    commands(words).iter().find_map(|command| {
        let (program, _) = program(command)?;
        CLIENTS.into_iter().chain(SERVERS).find(|(old, _)| *old == program)
    })
}

/// Returns what a probe needs besides a server that runs: a login or a certain state of Galera.
pub fn demand(words: &[Literal]) -> Option<&'static str> {
    if words.iter().any(|word| ["wsrep", "galera_"].iter().any(|known| word.look().contains(known))) {
        return Some("Galera's state");
    }
    let logs_in = commands(words).iter().any(|command| match program(command) {
        Some(("mysql" | "mariadb" | "healthcheck.sh", _)) => true,
        Some(("mysqladmin" | "mariadb-admin", arguments)) => {
            let password = |word: &String| word.starts_with("-p") || word.starts_with("--password");
            // A ping without a password succeeds even if the login is refused.
            arguments.iter().any(password) || !arguments.iter().any(|word| word == "ping")
        }
        _ => false,
    });
    logs_in.then_some("a login")
}

/// Returns whether the command line runs a program that `selects` accepts, alone or among others. `selects` receives the
/// path of the program and its arguments.
pub fn runs(words: &[Literal], mut selects: impl FnMut(&str, &[String]) -> bool) -> bool {
    let is_selected =
        |command: &Vec<String>| program_path(command).is_some_and(|(path, rest)| selects(path, rest));
    commands(words).iter().any(is_selected)
}

/// Returns whether the command line sets this variable to one of these values, with or without `export`.
pub fn sets(words: &[Literal], variable: &str, values: &[&str]) -> bool {
    let sets = |word: &String| {
        word.split_once('=').is_some_and(|(name, value)| name == variable && values.contains(&value))
    };
    commands(words).iter().flatten().any(sets)
}

/// Returns a program's name without its path.
pub fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns the name of a command's program without its path, and its arguments.
fn program(command: &[String]) -> Option<(&str, &[String])> {
    let (path, arguments) = program_path(command)?;
    Some((name(path), arguments))
}

/// Returns the path of a command's program, and its arguments. Assignments, keywords and wrappers before it are skipped.
fn program_path(command: &[String]) -> Option<(&str, &[String])> {
    const BEFORE: [&str; 24] = [
        "if",
        "then",
        "elif",
        "else",
        "do",
        "while",
        "until",
        "!",
        "time",
        "exec",
        "env",
        "nohup",
        "command",
        "sudo",
        "timeout",
        "tini",
        "dumb-init",
        "catatonit",
        "nice",
        "ionice",
        "numactl",
        "stdbuf",
        "gosu",
        "su-exec",
    ];
    // A user name follows these words.
    const AS_USER: [&str; 3] = ["gosu", "su-exec", "-u"];
    let (mut wrapped, mut user) = (false, false);
    let index = command.iter().position(|word| {
        let name = name(word);
        let assignment = word
            .split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let before = BEFORE.contains(&name);
        let of_wrapper = wrapped && word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let skipped = assignment || before || of_wrapper || user;
        wrapped |= before;
        user = wrapped && AS_USER.contains(&name) && !user;
        !skipped
    })?;
    let (program, arguments) = command.get(index..)?.split_first()?;
    Some((program, arguments))
}

/// Returns the simple commands of a command line: the line itself, or the commands of the script that a shell runs.
fn commands(words: &[Literal]) -> Vec<Vec<String>> {
    let is_shell = |word: &Literal| ["sh", "bash", "dash", "ash"].contains(&name(word.look()));
    let is_flag = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let flag = words.iter().position(|word| is_flag(word.look()));
    let script = flag.filter(|_| words.first().is_some_and(is_shell)).and_then(|at| words.get(at + 1));
    match script {
        Some(script) => split(script.look()),
        None => vec![words.iter().map(|word| word.look().to_owned()).collect()],
    }
}

/// Splits a shell script into its simple commands, each as its words.
fn split(script: &str) -> Vec<Vec<String>> {
    let (mut commands, mut command, mut word) = (Vec::new(), Vec::new(), String::new());
    let mut quote = None;
    let mut outer = Vec::new();
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        let substitution = c == '$' && chars.peek() == Some(&'(') && quote != Some('\'');
        match (quote, c) {
            (_, '\\') if quote != Some('\'') => word.extend(chars.next()),
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            _ if substitution => {
                outer.push(quote.take());
                chars.next();
                end_command(&mut commands, &mut command, &mut word);
            }
            (None, ')') => {
                end_command(&mut commands, &mut command, &mut word);
                quote = outer.pop().flatten();
            }
            (None, ';' | '\n' | '|' | '&' | '(' | '{' | '}') | (None | Some('"'), '`') => {
                end_command(&mut commands, &mut command, &mut word);
            }
            (None, c) if c.is_whitespace() => end_word(&mut command, &mut word),
            (_, c) => word.push(c),
        }
    }
    end_command(&mut commands, &mut command, &mut word);
    commands
}

fn end_word(command: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() {
        command.push(std::mem::take(word));
    }
}

fn end_command(commands: &mut Vec<Vec<String>>, command: &mut Vec<String>, word: &mut String) {
    end_word(command, word);
    if !command.is_empty() {
        commands.push(std::mem::take(command));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<Literal> {
        line.iter().map(|word| Literal::from(*word)).collect()
    }

    #[test]
    fn the_demand_of_a_probe_is_recognised() {
        for (line, demanded) in [
            (&["mysqladmin", "ping"][..], None),
            (&["/usr/bin/mariadb-admin", "ping"], None),
            (&["test", "-S", "/run/mysqld/mysqld.sock"], None),
            (&["pgrep", "mariadbd"], None),
            (&["/scripts/live.sh"], None),
            (&["sh", "-c", "true # it's"], None),
            (&["mysqladmin", "-padmin", "ping"], Some("a login")),
            (&["mysqladmin", "status"], Some("a login")),
            (&["mysql", "-e", "SELECT 1"], Some("a login")),
            (&["bash", "-ec", "password=\"$P\"\nexec mysqladmin status -p\"$password\""], Some("a login")),
            (&["sh", "-c", "timeout -k 1 5 /usr/bin/mariadb -e 'SELECT 1'"], Some("a login")),
            (&["sh", "-c", "test \"$(mysql -Ne 'SELECT 1')\" = 1"], Some("a login")),
            (&["healthcheck.sh", "--connect"], Some("a login")),
            (&["healthcheck.sh", "--galera_online"], Some("Galera's state")),
            (
                &["sh", "-c", "mysql -e \"SHOW STATUS LIKE 'wsrep_local_state'\" | grep 4"],
                Some("Galera's state"),
            ),
            (&[], None),
        ] {
            assert_eq!(demand(&words(line)), demanded, "{line:?}");
        }
    }

    #[test]
    fn programs_and_variables_of_a_script_are_found() {
        let starts = |line: &[&str]| runs(&words(line), |path, _| path == "/opt/scripts/entrypoint.sh");
        assert!(starts(&["bash", "-ec", "exec /opt/scripts/entrypoint.sh /opt/scripts/run.sh"]));
        assert!(starts(&["/opt/scripts/entrypoint.sh"]));
        assert!(!starts(&["sleep", "infinity"]));
        assert!(!starts(&["bash", "-ec", "echo /opt/scripts/entrypoint.sh"]));
        assert!(!starts(&["bash", "/opt/scripts/entrypoint.sh"]), "that is a user's script");
        let set = |line: &[&str]| sets(&words(line), "FOUND", &["yes"]);
        assert!(set(&[
            "bash",
            "-ec",
            "if [[ \"$N\" -eq \"1\" ]]; then\n  export FOUND=yes\nelse\n  export FOUND=no\nfi"
        ]));
        assert!(set(&["sh", "-c", "FOUND=yes entrypoint.sh"]));
        assert!(!set(&["sh", "-c", "export FOUND=no; echo 'FOUND=yes or no'"]));
    }

    #[test]
    fn old_names_of_programs_are_found() {
        for (line, old) in [
            (&["mysqladmin", "ping"][..], Some("mysqladmin")),
            (&["/usr/bin/mysql", "-e", "x"], Some("mysql")),
            (&["sh", "-c", "until mysql -e x; do sleep 1; done"], Some("mysql")),
            (&["sh", "-c", "A=b mysqldump x | gzip > y"], Some("mysqldump")),
            (&["sh", "-c", "echo `mysql -e x`"], Some("mysql")),
            (&["sh", "-c", "(mysql -e x)"], Some("mysql")),
            (&["mariadb", "-u", "root", "mysql"], None),
            (&["mkdir", "/var/lib/mysql"], None),
            (&["sh", "-c", "echo 'not; mysql' \"nor (mysql)\" nor \\; mysql"], None),
            (&["--datadir=/x"], None),
            (&["sh", "-c"], None),
            (&["sh", "-c", "\"'$(`\\"], None),
        ] {
            assert_eq!(old_name(&words(line)).map(|(old, _)| old), old, "{line:?}");
        }
    }
}
