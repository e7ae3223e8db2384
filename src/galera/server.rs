//! Which container of a pod is the database server, and whether that server would found a new cluster.

use std::collections::BTreeMap;

use super::address::Address;
use super::image::Image;
use super::options::{effective, one_spelling};
use crate::object::{Container, Literal, PodSpec};

/// Where images keep their data; a mount there makes a container a server.
pub const DATA_DIRECTORIES: [&str; 2] = ["/var/lib/mysql", "/bitnami/mariadb"];
/// Group communication.
pub const GALERA_PORT: i64 = 4567;
const IMAGES: [&str; 3] = ["mariadb", "galera", "percona-xtradb-cluster"];

/// The server container: the one `gatera.dev/container` names, else the one that mounts the data, declares the group
/// communication port, or runs a server's image. `None`: a stranger that merely shares a label.
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
        .or_else(|| by(&|container| IMAGES.contains(&Image::read(&container.image).name()))),
    }
}

/// The switch that makes this server found a new cluster, as a person would look for it; `None` if nothing visible
/// does. The command line wins over the environment, the environment over the files.
pub fn founds_new_cluster<'a>(
    container: &Container,
    files: impl Iterator<Item = (&'a str, &'a BTreeMap<String, Literal>)>,
) -> Option<String> {
    let mut address = None;
    for (field, words) in [("command", &container.command), ("args", &container.args)] {
        for (index, word) in words.iter().enumerate() {
            let (key, value) = word.look().split_once('=').unwrap_or((word.look(), ""));
            match one_spelling(key.trim_start_matches('-')).as_str() {
                "wsrep_new_cluster" => return Some(format!("{field}[{index}] --wsrep-new-cluster")),
                "wsrep_cluster_address" => {
                    let following = words.get(index + 1).map_or("", Literal::look);
                    address = Some((
                        format!("{field}[{index}]"),
                        if value.is_empty() { following } else { value }.to_owned(),
                    ));
                }
                _ => {}
            }
        }
    }
    if address.is_none() {
        for var in &container.env {
            match (&*var.name, var.value.look()) {
                ("MARIADB_GALERA_CLUSTER_BOOTSTRAP", "yes" | "true" | "1") => {
                    return Some(format!("env {}", var.name));
                }
                ("MARIADB_GALERA_CLUSTER_ADDRESS" | "WSREP_CLUSTER_ADDRESS", value) if !value.is_empty() => {
                    address = Some((format!("env {}", var.name), value.to_owned()));
                }
                _ => {}
            }
        }
    }
    if address.is_none() {
        for (name, data) in files {
            for (key, text) in data {
                if let Some(value) = effective(text.look(), "wsrep_cluster_address") {
                    address = Some((format!("ConfigMap {name} key {key}"), value.look().to_owned()));
                }
            }
        }
    }
    let (place, value) = address?;
    (Address::read(&value) == Some(Address::NewCluster))
        .then(|| format!("{place} wsrep_cluster_address=gcomm://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_wins_over_the_environment_and_that_over_files() {
        let words = |words: &[&str]| words.iter().map(|word| Literal::from(*word)).collect::<Vec<_>>();
        let founding = BTreeMap::from([(
            "g.cnf".to_owned(),
            Literal::from("[galera]\nwsrep_cluster_address=gcomm://\n"),
        )]);
        let file = || std::iter::once(("conf", &founding));
        let mut container = Container::default();
        assert_eq!(
            founds_new_cluster(&container, file()).unwrap(),
            "ConfigMap conf key g.cnf wsrep_cluster_address=gcomm://"
        );
        container.args = words(&["--wsrep-cluster-address=gcomm://a,b"]);
        assert_eq!(founds_new_cluster(&container, file()), None);
        container.args = words(&["--wsrep_cluster_address", "gcomm://"]);
        assert_eq!(
            founds_new_cluster(&container, std::iter::empty()).unwrap(),
            "args[0] wsrep_cluster_address=gcomm://"
        );
        container.args = words(&["mariadbd", "--wsrep-new-cluster"]);
        assert_eq!(founds_new_cluster(&container, file()).unwrap(), "args[1] --wsrep-new-cluster");
    }
}
