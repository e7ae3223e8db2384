//! What a container starts before its server, and whether that recovers the server's position after a crash.
//!
//! The script itself is `inject/start-member.sh`; here it is only recognised.

use super::bitnami;
use super::image::Image;
use super::programs::{self, name};
use objects::{Container, Literal};

/// The name of the step script, which recovers the position. Templates may use any path.
pub const STEP_SCRIPT: &str = "start-member.sh";

/// How the position of a server that crashed is recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// The step script precedes the server.
    Step,
    /// The image, or mysqld_safe, recovers the position itself.
    Itself,
    /// A plain command of the server, which the step script can precede.
    Bare,
    /// Another command, such as a user's script. What it does is not known.
    Unknown,
}

impl EntryPoint {
    /// Returns how the server of this container starts.
    pub fn of(container: &Container) -> Self {
        let words = || container.command.iter().chain(&container.args);
        let image = Image::read(&container.image);
        // In the official image bash reads this file, too, but the file changes only scripts of Bitnami's image.
        let by_bash = || !image.is_official() && container.env.iter().any(bitnami::is_script);
        if words().any(is_step) || by_bash() {
            return Self::Step;
        }
        let whole: Vec<_> = words().cloned().collect();
        let safe = |path: &str, _: &[String]| matches!(name(path), "mysqld_safe" | "mariadbd-safe");
        if image.name().contains("pxc") || image.name().contains("xtradb") || programs::runs(&whole, safe) {
            return Self::Itself;
        }
        if starts_a_server(&started(container)) { Self::Bare } else { Self::Unknown }
    }

    /// Returns whether a server recovers its position after a crash.
    pub fn recovers(self) -> bool {
        matches!(self, Self::Step | Self::Itself)
    }
}

/// Returns the words that injection puts after the step script. They include the entry point and the arguments of the
/// image, which Kubernetes does not use for a container with a command of its own.
pub fn started(container: &Container) -> Vec<&str> {
    let entry_point = container.command.is_empty().then_some("docker-entrypoint.sh");
    let server = (container.command.is_empty() && container.args.is_empty()).then_some("mariadbd");
    let words = container.command.iter().chain(&container.args).map(Literal::look);
    entry_point.into_iter().chain(words).chain(server).collect()
}

/// Returns whether these words start a server. A wrapper that runs its arguments may come first, and so may the entry point,
/// which runs the server if only options follow. The step script recognises the same wrappers (`split_command`).
fn starts_a_server(words: &[&str]) -> bool {
    let (mut wrapped, mut prepared, mut sets) = (false, false, false);
    for word in words {
        match name(word) {
            _ if word.starts_with('-') && wrapped => {}
            _ if word.starts_with('-') => return prepared,
            _ if word.contains('=') && sets => {}
            _ if word.contains('=') => return false,
            "tini" | "dumb-init" => (wrapped, prepared, sets) = (true, false, false),
            "env" => (wrapped, prepared, sets) = (false, false, true),
            "docker-entrypoint.sh" => (wrapped, prepared, sets) = (false, true, false),
            server => return matches!(server, "mariadbd" | "mysqld"),
        }
    }
    false
}

/// Returns whether this word is the step script.
pub(super) fn is_step(word: &Literal) -> bool {
    name(word.look()) == STEP_SCRIPT
}

/// Returns the part of a command that the step starts; `None`: the step does not precede it.
pub fn after_step<'a>(words: &'a [&'a str]) -> Option<&'a [&'a str]> {
    let step = words.iter().position(|word| name(word) == STEP_SCRIPT)?;
    Some(&words[step + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_are_recognised() {
        for (image, command, expected) in [
            ("mariadb:10.11", &[][..], EntryPoint::Bare),
            ("mariadb:10.11", &["docker-entrypoint.sh", "mariadbd"], EntryPoint::Bare),
            ("mariadb:10.11", &["/usr/local/bin/docker-entrypoint.sh"], EntryPoint::Unknown), // it would start nothing
            ("our/db:1", &["mysqld", "--wsrep-on=ON"], EntryPoint::Bare),
            ("our/db:1", &["tini", "--", "docker-entrypoint.sh", "mariadbd"], EntryPoint::Bare),
            (
                "mariadb:10.11",
                &["sh", "/etc/gatera/start-member.sh", "docker-entrypoint.sh"],
                EntryPoint::Step,
            ),
            (
                "mariadb:10.11",
                &["sh", "/etc/galera/start-member.sh", "docker-entrypoint.sh"],
                EntryPoint::Step,
            ),
            ("our/db:1", &["tini", "-g", "--", "mariadbd"], EntryPoint::Bare),
            ("our/db:1", &["env", "TZ=UTC", "docker-entrypoint.sh", "mariadbd"], EntryPoint::Bare),
            ("our/db:1", &["tini", "--", "/scripts/start.sh"], EntryPoint::Unknown),
            ("our/db:1", &["docker-entrypoint.sh", "--wsrep-on=ON"], EntryPoint::Bare),
            ("our/db:1", &["docker-entrypoint.sh", "bash", "-c", "exec mariadbd"], EntryPoint::Unknown),
            ("our/db:1", &["bash"], EntryPoint::Unknown),
            ("mariadb:10.11", &["mariadbd-safe"], EntryPoint::Itself),
            ("mariadb:10.11", &["sh", "-c", "exec mysqld_safe"], EntryPoint::Itself),
            ("percona/percona-xtradb-cluster:8.0", &[], EntryPoint::Itself),
            ("our/pxc:8.0", &["sh", "-c", "exec /entrypoint.sh mysqld"], EntryPoint::Itself),
            ("mariadb:10.11", &["sh", "-c", "exec docker-entrypoint.sh mariadbd"], EntryPoint::Unknown),
            ("mariadb:10.11", &["/scripts/start.sh"], EntryPoint::Unknown),
        ] {
            let command = command.iter().map(|word| Literal::from(*word)).collect();
            let container = Container { image: image.into(), command, ..Container::default() };
            assert_eq!(EntryPoint::of(&container), expected, "{image} {:?}", container.command);
        }
    }
}
