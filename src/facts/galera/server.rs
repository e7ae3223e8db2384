//! Which container of a pod is the database server, and whether that server would found a new cluster.

use super::address::{self, Address, AddressSource, PlacedAddress};
use super::options::{OptionValue, flags, last, switch};
use super::programs;
use super::reading::ConfigMapFile;
use super::runs::{self, Runs};
use objects::{Container, Meta, PodSpec, Shared, Template};

/// The annotation that names the server container if it cannot be recognised.
pub const CONTAINER: &str = "container";

/// The directories in which images keep their data; a container with a mount there may be a server.
pub const DATA_DIRECTORIES: [&str; 2] = ["/var/lib/mysql", "/bitnami/mariadb"];
/// The default port for group communication.
pub const GALERA_PORT: i64 = 4567;

/// Returns the server container of a template.
pub fn of(template: &Shared<Template>) -> Option<&Container> {
    let index = template.cached_index(|it| server_index(&it.spec, it.metadata.mark(CONTAINER)));
    template.spec.containers.get(index?)
}

/// Returns the server container of a pod or pod template. A pod of a Job has none, because it ends by itself.
pub fn in_pod<'a>(metadata: &Meta, spec: &'a PodSpec) -> Option<&'a Container> {
    let of_a_job = metadata.controller().is_some_and(|owner| owner.is_of("batch", "Job"));
    if of_a_job { None } else { container(spec, metadata.mark(CONTAINER)) }
}

/// Returns the server container: the one that `gatera.dev/container` names; else one that runs a server, preferably
/// where the data is mounted; else, of those that run unknown programs, one that mounts the data, declares the group
/// communication port, or has a server's image and a claim; else one with a server's image that mounts the data.
/// `None`: it is a workload of another kind with the same labels.
pub fn container<'a>(spec: &'a PodSpec, named: Option<&str>) -> Option<&'a Container> {
    spec.containers.get(server_index(spec, named)?)
}

fn server_index(spec: &PodSpec, named: Option<&str>) -> Option<usize> {
    let all = &spec.containers;
    if let Some(name) = named {
        return all.iter().position(|it| it.name == name);
    }
    let holds_data = |it: &Container| {
        it.volume_mounts.iter().any(|m| DATA_DIRECTORIES.contains(&m.mount_path.trim_end_matches('/')))
    };
    let listens = |it: &Container| it.ports.iter().any(|port| port.container_port == GALERA_PORT);
    let rank = |it: &Container| match Runs::of(it) {
        Runs::Server if holds_data(it) => Some(0),
        Runs::Server => Some(1),
        Runs::Unknown if holds_data(it) && runs::has_a_servers_image(it) => Some(2),
        Runs::Unknown if holds_data(it) => Some(3),
        Runs::Unknown if listens(it) => Some(4),
        Runs::Unknown if runs::has_a_servers_image(it) && mounts_a_claim(spec, it) => Some(5),
        // The script that it runs may have been misread.
        Runs::Other if holds_data(it) && runs::has_a_servers_image(it) => Some(6),
        Runs::Unknown | Runs::Arbitrator | Runs::Other => None,
    };
    let ranked = all.iter().enumerate().filter_map(|(index, it)| Some((rank(it)?, index)));
    ranked.min().map(|(_, index)| index)
}

/// Returns whether the container mounts a volume that outlives the pod: a claim, or one from the StatefulSet's templates.
fn mounts_a_claim(spec: &PodSpec, container: &Container) -> bool {
    let outlives_pod = |name: &str| {
        let volume = spec.volumes.iter().find(|volume| volume.name == name);
        volume.is_none_or(|volume| volume.persistent_volume_claim.is_some())
    };
    container.volume_mounts.iter().any(|mount| outlives_pod(&mount.name))
}

/// Returns the setting that makes this server found a new cluster, with the place where a user finds it; `None` if
/// nothing visible makes it do so. The command line wins over the environment, the environment over the files.
pub fn founds_new_cluster<'a>(container: &'a Container, files: &[ConfigMapFile<'a>]) -> Option<String> {
    let flags = flags(container);
    let new_cluster = flags.iter().find(|flag| flag.key == NEW_CLUSTER && switched_on(flag.value.as_ref()));
    if let Some(flag) = new_cluster {
        return Some(format!("{}[{}] --wsrep-new-cluster", flag.field, flag.index));
    }
    let address = address::of_container(container, files);
    let by_command = matches!(address, Some(PlacedAddress { source: AddressSource::Word(..), .. }));
    let bootstraps = container.env.iter().any(|var| var.name == BOOTSTRAP && ON.contains(&var.value.look()));
    if bootstraps && !by_command {
        return Some(format!("env {BOOTSTRAP}"));
    }
    // Bitnami's chart sets the variable in the script that starts the server, for one member of its choice.
    if programs::sets(&runs::started(container), BOOTSTRAP, &ON) && !by_command {
        return Some(format!("command {BOOTSTRAP}"));
    }
    if let Some(ConfigMapFile { map, key, .. }) = files.iter().find(|file| founds_by_file(file.text)) {
        return Some(format!("ConfigMap {map} key {key} {NEW_CLUSTER}"));
    }
    let PlacedAddress { source, text } = address?;
    let place = match source {
        AddressSource::File { map, key } => format!("ConfigMap {map} key {key}"),
        AddressSource::Variable(name) => format!("env {name}"),
        AddressSource::Word(field, index) => format!("{field}[{index}]"),
    };
    (Address::read(&text) == Some(Address::NewCluster))
        .then(|| format!("{place} wsrep_cluster_address=gcomm://"))
}

const NEW_CLUSTER: &str = "wsrep_new_cluster";
const BOOTSTRAP: &str = "MARIADB_GALERA_CLUSTER_BOOTSTRAP";
const ON: [&str; 3] = ["yes", "true", "1"];

/// Returns whether an option file has the switch that founds a new cluster, and switches it on.
pub fn founds_by_file(text: &str) -> bool {
    let option = || last(text, NEW_CLUSTER);
    text.contains("new") && option().is_some_and(|it| switched_on(it.value.as_ref()))
}

fn switched_on(value: Option<&OptionValue<'_>>) -> bool {
    value.is_none_or(|value| switch(value.look()) != Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use objects::Literal;

    fn container_of(json: &str) -> Container {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_server_is_the_container_that_runs_one() {
        let mount = r#""volumeMounts":[{"name":"data","mountPath":"/var/lib/mysql"}]"#;
        let server = format!(r#"{{"name":"db","image":"mariadb:10.11",{mount}}}"#);
        let backup = format!(
            r#"{{"name":"backup","image":"our/backup","command":["mariabackup","--backup"],{mount}}}"#
        );
        let agent = format!(r#"{{"name":"agent","image":"our/agent",{mount}}}"#);
        let exporter = r#"{"name":"exporter","image":"prom/mysqld-exporter"}"#.to_owned();
        let garbd = r#"{"name":"arbitrator","image":"our/garb","command":["garbd"],"ports":[{"containerPort":4567}]}"#.to_owned();
        let dump = r#"{"name":"dump","image":"mariadb:10.11","args":["mariadb-dump"]}"#.to_owned();
        for (containers, expected) in [
            (vec![&backup, &server], Some("db")),
            (vec![&agent, &exporter, &server], Some("db")),
            (vec![&agent], Some("agent")),
            (vec![&backup], None),
            (vec![&garbd], None),
            (vec![&dump], None),
            (vec![&exporter], None),
        ] {
            let containers = containers.iter().map(|json| container_of(json)).collect();
            let spec = PodSpec { containers, ..PodSpec::default() };
            assert_eq!(container(&spec, None).map(|it| &*it.name), expected, "{spec:?}");
        }
        let spec = PodSpec { containers: vec![container_of(&server)], ..PodSpec::default() };
        let owned = |kind: &str| {
            let owner = format!(
                r#"{{"ownerReferences":[{{"apiVersion":"batch/v1","kind":"{kind}","name":"x","uid":"1","controller":true}}]}}"#
            );
            serde_json::from_str::<Meta>(&owner).unwrap()
        };
        assert!(in_pod(&owned("Job"), &spec).is_none() && in_pod(&Meta::default(), &spec).is_some());
    }

    #[test]
    fn a_setting_that_founds_a_cluster_is_named_unless_the_command_line_overrides_it() {
        let words = |words: &[&str]| words.iter().map(|word| Literal::from(*word)).collect::<Vec<_>>();
        let file = |text| [ConfigMapFile { map: "conf", key: "g.cnf", text }];
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
