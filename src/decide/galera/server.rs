//! Which container of a pod is the database server, and whether that server would found a new cluster.

use super::address::{self, Address, Placed, Source};
use super::image::Image;
use super::options::{Value, flags, last, switch};
use super::reading::File;
use super::{programs, start};
use crate::marks;
use crate::object::{Container, Literal, Meta, PodSpec, Template};

/// Where images keep their data; a mount there makes a container a server.
pub const DATA_DIRECTORIES: [&str; 2] = ["/var/lib/mysql", "/bitnami/mariadb"];
/// Group communication.
pub const GALERA_PORT: i64 = 4567;
/// Where images keep the script that prepares and starts the server.
const ENTRY_POINTS: [&str; 4] = [
    "docker-entrypoint.sh",
    "/usr/local/bin/docker-entrypoint.sh",
    "/docker-entrypoint.sh",
    "/opt/bitnami/scripts/mariadb-galera/entrypoint.sh",
];
const IMAGES: [&str; 3] = ["mariadb", "galera", "percona-xtradb-cluster"];

/// The server container of a template.
pub fn of(template: &Template) -> Option<&Container> {
    in_pod(&template.metadata, &template.spec)
}

/// The server container of a pod, or of what pods are made from.
pub fn in_pod<'a>(metadata: &Meta, spec: &'a PodSpec) -> Option<&'a Container> {
    container(spec, metadata.mark(marks::CONTAINER))
}

/// The server container: the one `gatera.dev/container` names, else the one that mounts the data, declares the group
/// communication port, or runs a server's image as a server. `None`: a stranger that merely shares a label.
pub fn container<'a>(spec: &'a PodSpec, named: Option<&str>) -> Option<&'a Container> {
    let by = |is_it: &dyn Fn(&Container) -> bool| spec.containers.iter().find(|container| is_it(container));
    match named {
        Some(name) => by(&|container| container.name == name),
        None => by(&|container| {
            container
                .volume_mounts
                .iter()
                .any(|m| DATA_DIRECTORIES.contains(&m.mount_path.trim_end_matches('/')))
        })
        .or_else(|| by(&|container| container.ports.iter().any(|port| port.container_port == GALERA_PORT)))
        .or_else(|| {
            // The image is also used for its client: by a backup, or by a controller of somebody's.
            let serves = |it: &Container| !starts_by_a_script(it) || mounts_a_claim(spec, it);
            by(&|container| IMAGES.contains(&Image::read(&container.image).name()) && serves(container))
        }),
    }
}

/// The image's own entry point still starts the server: no command replaces it, or one that ends in it.
pub fn starts_as_the_image_does(container: &Container) -> bool {
    container.command.is_empty() || programs::runs(&started(container), |path| ENTRY_POINTS.contains(&path))
}

/// A script of somebody's starts the server, so it may hand it options that nobody sees.
pub fn starts_by_a_script(container: &Container) -> bool {
    let servers = ["mariadbd", "mysqld", "mariadbd-safe", "mysqld_safe"];
    let a_server = |path: &str| servers.contains(&path.rsplit('/').next().unwrap_or_default());
    !starts_as_the_image_does(container) && !programs::runs(&started(container), a_server)
}

/// What runs where a command replaces the entry point: a script may stand in the arguments.
fn started(container: &Container) -> Vec<Literal> {
    let words: Vec<_> = container.command.iter().chain(&container.args).collect();
    // What the step in front starts.
    let begin = words.iter().position(|word| start::is_step(word)).map_or(0, |step| step + 1);
    words.into_iter().skip(begin).cloned().collect()
}

/// A volume that outlives the pod: a claim, or one made from the StatefulSet's templates.
fn mounts_a_claim(spec: &PodSpec, container: &Container) -> bool {
    let lasts = |name: &str| {
        let volume = spec.volumes.iter().find(|volume| volume.name == name);
        volume.is_none_or(|volume| volume.persistent_volume_claim.is_some())
    };
    container.volume_mounts.iter().any(|mount| lasts(&mount.name))
}

/// The switch that makes this server found a new cluster, as a person would look for it; `None` if nothing visible
/// does. The command line wins over the environment, the environment over the files.
pub fn founds_new_cluster<'a>(container: &'a Container, files: &[File<'a>]) -> Option<String> {
    let flags = flags(container);
    let new_cluster = flags.iter().find(|flag| flag.key == NEW_CLUSTER && switched_on(flag.value.as_ref()));
    if let Some(flag) = new_cluster {
        return Some(format!("{}[{}] --wsrep-new-cluster", flag.field, flag.index));
    }
    let address = address::of_container(container, files);
    let by_command = matches!(address, Some(Placed { source: Source::Word(..), .. }));
    let bootstraps = container.env.iter().any(|var| var.name == BOOTSTRAP && ON.contains(&var.value.look()));
    if bootstraps && !by_command {
        return Some(format!("env {BOOTSTRAP}"));
    }
    // Bitnami's chart sets it in the script that starts the server, for one member of its choice.
    if programs::sets(&started(container), BOOTSTRAP, &ON) && !by_command {
        return Some(format!("command {BOOTSTRAP}"));
    }
    if let Some(File { map, key, .. }) = files.iter().find(|file| founds_by_file(file.text)) {
        return Some(format!("ConfigMap {map} key {key} {NEW_CLUSTER}"));
    }
    let Placed { source, text } = address?;
    let place = match source {
        Source::File { map, key } => format!("ConfigMap {map} key {key}"),
        Source::Variable(name) => format!("env {name}"),
        Source::Word(field, index) => format!("{field}[{index}]"),
    };
    (Address::read(&text) == Some(Address::NewCluster))
        .then(|| format!("{place} wsrep_cluster_address=gcomm://"))
}

const NEW_CLUSTER: &str = "wsrep_new_cluster";
const BOOTSTRAP: &str = "MARIADB_GALERA_CLUSTER_BOOTSTRAP";
const ON: [&str; 3] = ["yes", "true", "1"];

/// The switch for a new cluster also works in a file.
pub fn founds_by_file(text: &str) -> bool {
    let said = || last(text, NEW_CLUSTER);
    text.contains("new") && said().is_some_and(|it| switched_on(it.value.as_ref()))
}

fn switched_on(value: Option<&Value<'_>>) -> bool {
    value.is_none_or(|value| switch(value.look()) != Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_wins_over_the_environment_and_that_over_files() {
        let words = |words: &[&str]| words.iter().map(|word| Literal::from(*word)).collect::<Vec<_>>();
        let file = |text| [File { map: "conf", key: "g.cnf", text }];
        let founding = file("[galera]\nwsrep_cluster_address=gcomm://\n");
        let mut container = Container::default();
        assert_eq!(
            founds_new_cluster(&container, &founding).unwrap(),
            "ConfigMap conf key g.cnf wsrep_cluster_address=gcomm://"
        );
        container.args = words(&["--wsrep-cluster-address=gcomm://a,b"]);
        assert_eq!(founds_new_cluster(&container, &founding), None);
        container.args = words(&["--wsrep_cluster_address", "gcomm://"]);
        assert_eq!(founds_new_cluster(&container, &[]).unwrap(), "args[0] wsrep_cluster_address=gcomm://");
        container.args = words(&["mariadbd", "--wsrep-new-cluster"]);
        assert_eq!(founds_new_cluster(&container, &founding).unwrap(), "args[1] --wsrep-new-cluster");
        container.args = words(&["--wsrep_cluster_address=gcomm://a"]);
        assert_eq!(
            founds_new_cluster(&container, &file("[galera]\nwsrep-new-cluster\n")).unwrap(),
            "ConfigMap conf key g.cnf wsrep_new_cluster"
        );
    }
}
