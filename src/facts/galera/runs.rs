//! What a container runs, as far as its image and its command line show.
//!
//! Owns: the names of programs and images. Must not know: pods. `server.rs` finds the server among a pod's containers.

use super::image::Image;
use super::{programs, start};
use objects::{Container, Literal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    Server,
    /// Galera's arbitrator, which votes like a member and has no data.
    Arbitrator,
    /// A client, a backup, a proxy or an exporter.
    Other,
    /// A script, or a program that is not in the tables here.
    Unknown,
}

/// The paths and names of the scripts with which images prepare and start the server.
const ENTRY_POINTS: [&str; 4] = [
    "docker-entrypoint.sh",
    "/usr/local/bin/docker-entrypoint.sh",
    "/docker-entrypoint.sh",
    "/opt/bitnami/scripts/mariadb-galera/entrypoint.sh",
];
/// Images whose entry point starts a server.
const IMAGES: [&str; 5] = ["mariadb", "galera", "mariadb-galera", "mysql", "percona-xtradb-cluster"];
pub(super) const SERVERS: [&str; 4] = ["mariadbd", "mysqld", "mariadbd-safe", "mysqld_safe"];
/// The programs that are arbitrators, and the images that start them.
const ARBITRATORS: [&str; 4] = ["garbd", "garb", "galera-arbitrator", "galera-arbitrator-4"];
const OTHERS: [&str; 17] = [
    "fluent-bit",
    "fluentd",
    "haproxy",
    "mariabackup",
    "mariadb-backup",
    "maxscale",
    "mbstream",
    "mydumper",
    "mysqld-exporter",
    "mysqld_exporter",
    "proxysql",
    "restic",
    "rsync",
    "tail",
    "vector",
    "xbstream",
    "xtrabackup",
];

/// Returns the names of all known programs that are neither a server nor an arbitrator.
fn others() -> impl Iterator<Item = &'static str> {
    programs::clients().chain(OTHERS)
}

/// Programs that may start others, which the command line does not show.
const OPAQUE: [&str; 12] = [
    ".",
    "source",
    "eval",
    "sh",
    "bash",
    "dash",
    "ash",
    "su",
    "runuser",
    "setpriv",
    "s6-setuidgid",
    "chroot",
];

impl Runs {
    /// Returns what this container runs.
    pub fn of(container: &Container) -> Self {
        let image = Image::read(&container.image).name();
        let by_default = container.command.is_empty()
            && container.args.first().is_none_or(|word| word.look().starts_with('-'));
        match () {
            () if by_default && IMAGES.contains(&image) => Self::Server,
            () if by_default && ARBITRATORS.contains(&image) => Self::Arbitrator,
            () if by_default && others().any(|it| it == image) => Self::Other,
            () if by_default => Self::Unknown,
            () => Self::by_words(&started(container)),
        }
    }

    /// Returns what these words run. A server counts even if other programs are started, too. A script may start a server
    /// that is not visible, so it counts as unknown.
    fn by_words(words: &[Literal]) -> Self {
        let runs = |what| programs::runs(words, |path, arguments| of_program(path, arguments) == what);
        let hides =
            |path: &str| path.contains(['/', '$']) || OPAQUE.contains(&path) || ENTRY_POINTS.contains(&path);
        let hidden =
            |path: &str, arguments: &[String]| hides(path) && of_program(path, arguments) == Self::Unknown;
        match () {
            () if runs(Self::Server) => Self::Server,
            () if runs(Self::Arbitrator) => Self::Arbitrator,
            () if programs::runs(words, hidden) => Self::Unknown,
            () if runs(Self::Other) => Self::Other,
            () => Self::Unknown,
        }
    }
}

/// Returns what this program is, with its arguments.
fn of_program(path: &str, arguments: &[String]) -> Runs {
    if ENTRY_POINTS.contains(&path) {
        return match arguments.split_first() {
            Some((word, rest)) if !word.starts_with('-') => of_program(word, rest),
            _ => Runs::Server,
        };
    }
    match programs::name(path) {
        name if SERVERS.contains(&name) => Runs::Server,
        name if ARBITRATORS.contains(&name) => Runs::Arbitrator,
        name if others().any(|it| it == name) => Runs::Other,
        _ => Runs::Unknown,
    }
}

/// Programs that start no server in any image, and words of a shell.
const IDLE: [&str; 10] = ["cat", "done", "echo", "false", "fi", "pause", "sleep", "trap", "true", "wait"];

/// Returns the first program that this container runs, if all its programs are known not to be a server and not to start one.
pub fn no_server(container: &Container) -> Option<String> {
    let (words, mut first) = (started(container), None);
    let other = programs::runs(&words, |path, _| {
        let name = programs::name(path);
        let known = others().chain(IDLE).find(|it| *it == name);
        first = first.or(known);
        known.is_none()
    });
    first.filter(|_| !other).map(str::to_owned)
}

/// Returns whether the container has an image whose entry point starts a server.
pub fn has_a_servers_image(container: &Container) -> bool {
    IMAGES.contains(&Image::read(&container.image).name())
}

/// Returns whether the image's own entry point starts the server: no command replaces it, or the command runs it.
pub fn starts_as_the_image_does(container: &Container) -> bool {
    container.command.is_empty()
        || programs::runs(&started(container), |path, _| ENTRY_POINTS.contains(&path))
}

/// Returns whether a user's script starts the server, which may pass options that are not visible.
pub fn starts_by_a_script(container: &Container) -> bool {
    let a_server = |path: &str, _: &[String]| SERVERS.contains(&programs::name(path));
    !starts_as_the_image_does(container) && !programs::runs(&started(container), a_server)
}

/// Returns the words of the command and of the arguments, without the step script.
pub(super) fn started(container: &Container) -> Vec<Literal> {
    let words: Vec<_> = container.command.iter().chain(&container.args).collect();
    let begin = words.iter().position(|word| start::is_step(word)).map_or(0, |step| step + 1);
    words.into_iter().skip(begin).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a line into words as a shell does, some of them in single quotes.
    fn words(line: &str) -> Vec<Literal> {
        let quoted = line.split('\'').enumerate();
        let words = quoted.flat_map(|(index, text)| match index % 2 {
            1 => vec![text],
            _ => text.split_whitespace().collect(),
        });
        words.map(Literal::from).collect()
    }

    /// The examples in docs/members.md: image, command line (a command and then arguments), what it runs.
    #[test]
    fn examples_in_the_documentation_are_recognised() {
        let page = include_str!("../../../docs/members.md").replace("\\|", "\0");
        let (_, table) = page.split_once("| image | command line | what it runs |\n|---|---|---|\n").unwrap();
        let rows: Vec<_> = table.lines().take_while(|row| row.starts_with('|')).collect();
        assert!(rows.len() > 30, "{rows:?}");
        for row in rows {
            let cells: Vec<_> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let [_, image, line, expected, _] = cells[..] else { panic!("{row}") };
            let runs = match expected {
                "a server" => Runs::Server,
                "an arbitrator" => Runs::Arbitrator,
                "something else" => Runs::Other,
                "not known" => Runs::Unknown,
                _ => panic!("{row}"),
            };
            let words = words(&line.replace('\0', "|"));
            // The result is the same for a command as for arguments, which follow the image's entry point.
            let as_arguments = Container { image: image.into(), args: words.clone(), ..Container::default() };
            assert_eq!(Runs::of(&as_arguments), runs, "{row}, as arguments");
            if !line.is_empty() && !line.starts_with('-') {
                let as_command = Container { image: image.into(), command: words, ..Container::default() };
                assert_eq!(Runs::of(&as_command), runs, "{row}, as command");
            }
        }
    }

    #[test]
    fn a_container_that_runs_no_server_is_recognised() {
        for (line, runs) in [
            ("sleep infinity", Some("sleep")),
            ("/bin/sleep 1d", Some("sleep")),
            ("sh -c 'sleep infinity'", Some("sleep")),
            ("bash -c 'while true; do sleep 30; done'", Some("true")),
            ("tail -f /dev/null", Some("tail")),
            ("docker-entrypoint.sh sleep infinity", None),
            ("sh -c 'sleep 5; exec docker-entrypoint.sh mariadbd'", None),
            ("sleep.sh", None),
            ("bash", None),
            ("", None),
            ("--wsrep-on=ON", None),
        ] {
            let container =
                Container { image: "mariadb:10.11".into(), command: words(line), ..Container::default() };
            assert_eq!(no_server(&container).as_deref(), runs, "{line}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_no_name_is_in_two_tables() {
        assert!(OTHERS.is_sorted());
        let all = || SERVERS.into_iter().chain(ARBITRATORS).chain(others()).chain(OPAQUE);
        let names: std::collections::BTreeSet<_> = all().collect();
        assert_eq!(names.len(), all().count());
    }
}
