//! The files a member gets: the script and an option file, in a volume made of the pod's own annotations, so that no
//! ConfigMap has to exist in the namespace; and a place for the status file that the server writes.

use serde_json::{Value, json};

use super::Patient;
use super::profile::{FOLDER, Profile};
use crate::object::Container;
use crate::view::{Cluster, View};
use crate::{edit, marks};

/// Where the server keeps its status file. It is renamed into place, so this must be no sticky directory.
const RUN: &str = "/run/gatera";
/// The volume there.
const RUN_VOLUME: &str = "gatera-run";
/// By this the cluster autoscaler knows volumes that may go with a node.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
/// The script, as a command.
pub(super) const SCRIPT: &str = "/etc/gatera/wait-for-sync.sh";
const SCRIPT_TEXT: &str = include_str!("wait-for-sync.sh");
const STATUS_FILE: &str = "/run/gatera/wsrep_status.json";

/// A mount of the user's at, above or below ours would hide one of the two.
pub(super) fn conflict(server: &Container) -> Option<String> {
    let mounts = server.volume_mounts.iter().filter(|mount| !matches!(&*mount.name, "gatera" | RUN_VOLUME));
    mounts.into_iter().find_map(|mount| {
        let path = mount.mount_path.trim_end_matches('/');
        let ours = [FOLDER, RUN].into_iter().find(|ours| within(ours, path) || within(path, ours))?;
        Some(format!("volume {} is mounted at {}, where gatera needs {ours}", mount.name, mount.mount_path))
    })
}

fn within(inner: &str, outer: &str) -> bool {
    inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

/// The texts, as annotations, and the volumes that show them.
pub(super) fn add_volumes(pod: &mut Value, patient: &Patient<'_>) {
    edit::annotate(pod, marks::SCRIPT, SCRIPT_TEXT);
    edit::annotate(pod, marks::MY_CNF, &option_file(patient));
    let item = |annotation: &str, path: &str, mode: u32| json!({ "path": path, "mode": mode, "fieldRef": { "apiVersion": "v1", "fieldPath": format!("metadata.annotations['{}{annotation}']", marks::PREFIX) } });
    let items = [item(marks::SCRIPT, "wait-for-sync.sh", 0o755), item(marks::MY_CNF, "my.cnf", 0o644)];
    edit::put_named(
        pod,
        &["spec", "volumes"],
        json!({ "name": "gatera", "downwardAPI": { "items": items } }),
    );
    edit::put_named(pod, &["spec", "volumes"], json!({ "name": RUN_VOLUME, "emptyDir": {} }));
    // Nothing in it is worth keeping a node for.
    if let Some(place @ Value::Null) = edit::at(pod, &["metadata", "annotations", SAFE_TO_EVICT]) {
        *place = RUN_VOLUME.into();
    }
}

/// Both folders in the server container, and the way its server finds the option file.
pub(super) fn add_mounts(container: &mut Value, patient: &Patient<'_>) {
    edit::put_named(
        container,
        &["volumeMounts"],
        json!({ "name": "gatera", "mountPath": FOLDER, "readOnly": true }),
    );
    edit::put_named(container, &["volumeMounts"], json!({ "name": RUN_VOLUME, "mountPath": RUN }));
    match patient.profile {
        Profile::Official => {
            edit::put_named(container, &["env"], json!({ "name": "MYSQL_HOME", "value": FOLDER }));
        }
        Profile::Bitnami => add_flag(container),
        Profile::Unknown | Profile::Replaced => {}
    }
}

/// Bitnami's extra flags are one variable; a user's flags stay in front of ours. Flags from a reference stay as they
/// are: then the script falls back to the client.
fn add_flag(container: &mut Value) {
    const NAME: &str = "MARIADB_EXTRA_FLAGS";
    let flag = format!("--loose-wsrep-status-file={STATUS_FILE}");
    let existing = container["env"].as_array().into_iter().flatten().find(|var| var["name"] == NAME);
    let value = match existing {
        None => flag,
        Some(var) if var["valueFrom"].is_object() => return,
        Some(var) => match var["value"].as_str().unwrap_or_default().trim() {
            "" => flag,
            own if own.contains(&flag) => return,
            own => format!("{own} {flag}"),
        },
    };
    edit::put_named(container, &["env"], json!({ "name": NAME, "value": value }));
}

/// Read after the user's own files, so it wins, and nobody's ConfigMap has to be edited.
fn option_file(patient: &Patient<'_>) -> String {
    let text = format!("# written by gatera\n[mysqld]\nloose-wsrep_status_file = {STATUS_FILE}\n");
    match address(patient) {
        Some(address) => with_address(&text, &address),
        None => text,
    }
}

/// The address a member starts with. Never for the bootstrap node itself, which founds the cluster; and not where
/// `gatera.dev/address: keep` asks to leave it alone.
fn address(patient: &Patient<'_>) -> Option<String> {
    let Patient { read, view, namespace, .. } = patient;
    let cluster =
        patient.cluster.filter(|_| patient.member && patient.mark(marks::ADDRESS) != Some("keep"))?;
    // Somebody starts a cluster that is down from this member, with an override. The list would keep it from founding.
    let named = patient.mark(marks::CONTAINER);
    let founds = view.founds_new_cluster(namespace, &read.metadata.labels, &read.spec, named).is_some();
    if founds { None } else { members(cluster, view) }
}

/// The members by their stable names, and the bootstrap node's Service while it is needed.
pub(super) fn members(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let service = &cluster.workload.spec.service_name;
    let bootstrap = view.bootstrap_service(cluster);
    if service.is_empty() || bootstrap.is_none() && !cluster.has_data() {
        // A first install joins its bootstrap node by the user's own address. We do not see that node's Service (yet),
        // and a list without it would win and lead nowhere.
        return None;
    }
    let members = cluster.members.iter().map(|member| format!("{}.{service}", member.name));
    let hosts: Vec<_> = bootstrap.into_iter().map(str::to_owned).chain(members).collect();
    // No host at all would found a new cluster.
    (!hosts.is_empty()).then(|| format!("gcomm://{}", hosts.join(",")))
}

/// This option file with this address; everything else in it stays.
pub(super) fn with_address(text: &str, address: &str) -> String {
    const KEY: &str = "wsrep_cluster_address";
    let others = text.lines().filter(|line| !line.starts_with(KEY));
    let line = format!("{KEY} = {address}");
    others.chain([&*line]).fold(String::new(), |text, line| text + line + "\n")
}
