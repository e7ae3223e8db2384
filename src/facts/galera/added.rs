//! The names of the parts that injection adds to a pod, so that they are recognised. The injection itself is in `inject.rs`.

use super::bitnami;
use objects::{Container, EnvVar};

/// The volume with the scripts and the option file.
pub const VOLUME: &str = "gatera";
/// The path at which that volume is mounted.
pub const FOLDER: &str = "/etc/gatera";
/// The volume to which the server writes its status file.
pub const RUN_VOLUME: &str = "gatera-run";
/// Both volumes.
pub const VOLUMES: [&str; 2] = [VOLUME, RUN_VOLUME];
/// The path of the step script in front of the server.
pub const START_SCRIPT: &str = "/etc/gatera/start-member.sh";
/// The path of the server's status file.
pub const STATUS_FILE: &str = "/run/gatera/wsrep_status.json";

/// Removes from a server container the variables and the step script that injection added to it.
pub fn remove_from(server: &mut Container) {
    let is_added = |it: &EnvVar| {
        it.name.starts_with("GATERA_")
            || it.name == "MYSQL_HOME" && it.value.look() == FOLDER
            || bitnami::is_script(it)
    };
    server.env.retain(|variable| !is_added(variable));
    if server.command.get(1).is_some_and(|word| word.look() == START_SCRIPT) {
        server.command.drain(..2);
    }
}
