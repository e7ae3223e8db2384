//! The files that a member gets: scripts and an option file, in a volume that shows the pod's own annotations, so
//! that no ConfigMap has to exist in the namespace; and a volume for the status file that the server writes.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::profile::Profile;
use super::{InjectTarget, VERSION, edit};
use facts::galera::added::{FOLDER, RUN_VOLUME, STATUS_FILE, VOLUME};
use facts::marks;
use facts::view::{Cluster, View};
use objects::{Container, Mount, PodSpec, Volume};

/// The folder of the server's status file. The server renames that file into place, so the folder must not be sticky.
const RUN_FOLDER: &str = "/run/gatera";
/// The annotation that lists, for the cluster autoscaler, the volumes that may be lost with a node.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
/// The path of the script that probes and hooks run.
pub(super) const SCRIPT: &str = "/etc/gatera/wait-for-sync.sh";
/// The text of the script that probes and hooks run.
pub static SCRIPT_TEXT: LazyLock<String> =
    LazyLock::new(|| without_comments("wait-for-sync.sh", include_str!("wait-for-sync.sh")));
/// The text of the step script.
pub static START_SCRIPT_TEXT: LazyLock<String> =
    LazyLock::new(|| without_comments("start-member.sh", include_str!("start-member.sh")));
/// The text of the script that puts the step script in front of Bitnami's server.
pub static BITNAMI_SCRIPT_TEXT: LazyLock<String> =
    LazyLock::new(|| without_comments("bitnami.bash", include_str!("bitnami.bash")));

/// Returns a script without its comment lines, which are more than a quarter of it: each pod carries the script, and so does
/// every answer, watch event and list with that pod.
fn without_comments(name: &str, text: &str) -> String {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let first = if first.starts_with("#!") { format!("{first}\n") } else { String::new() };
    let kept = rest.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty());
    let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
    format!("{first}# {name} of gatera {VERSION}, without its comments\n{kept}")
}

/// The files of the volume [`VOLUME`]: path, the mark that holds the text, and permissions.
const FILES: [(&str, &str, u32); 5] = [
    ("wait-for-sync.sh", marks::SCRIPT, 0o755),
    ("start-member.sh", marks::START_SCRIPT, 0o755),
    ("bitnami.bash", marks::BITNAMI_SCRIPT, 0o644),
    ("my.cnf", marks::MY_CNF, 0o644),
    ("identity", marks::IDENTITY, 0o644),
];

/// The volumes, and where the server container mounts them.
const MOUNTS: [(&str, &str); 2] = [(VOLUME, FOLDER), (RUN_VOLUME, RUN_FOLDER)];

fn field_path(mark: &str) -> String {
    format!("metadata.annotations['{}{mark}']", marks::PREFIX)
}

/// Returns the conflict with a volume or mount of the user that has a name or path which injection needs: one of the two would
/// be hidden or overwritten. `claims` are the volumes that a StatefulSet creates from its own templates.
pub(super) fn conflict<'a>(
    server: &Container,
    spec: &PodSpec,
    claims: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let conflict = |name: &str| format!("volume {name} is not gatera's own");
    let claimed = claims.into_iter().find(|name| matches!(*name, VOLUME | RUN_VOLUME));
    let foreign = |volume: &&Volume| match &*volume.name {
        VOLUME => !shows_marks(volume),
        RUN_VOLUME => volume.empty_dir.is_none() || !mounts(server, RUN_VOLUME, RUN_FOLDER),
        _ => false,
    };
    let volume = claimed.or_else(|| spec.volumes.iter().find(foreign).map(|volume| &*volume.name));
    volume.map(conflict).or_else(|| mount_conflict(server))
}

/// Returns whether the guard, possibly of another version, added this volume: it holds only the guard's annotations.
fn shows_marks(volume: &Volume) -> bool {
    let ours = format!("metadata.annotations['{}", marks::PREFIX);
    let files = volume.downward_api.as_ref().map_or(&[][..], |it| &it.items);
    !files.is_empty() && files.iter().all(|file| file.field_ref.field_path.starts_with(&ours))
}

fn mounts(server: &Container, volume: &str, path: &str) -> bool {
    let is_wanted =
        |mount: &Mount| mount.name == volume && mount.mount_path == path && mount.sub_path.is_empty();
    server.volume_mounts.iter().any(is_wanted)
}

/// Returns whether both volumes are as this guard injects them, and the server container mounts them at their paths.
pub(super) fn are_mounted(server: &Container, spec: &PodSpec) -> bool {
    let volume_named = |name: &str| spec.volumes.iter().find(|volume| volume.name == name);
    let files =
        volume_named(VOLUME).and_then(|volume| volume.downward_api.as_ref()).map_or(&[][..], |it| &it.items);
    let is_shown = |(path, mark, _): &(&str, &str, u32)| {
        files.iter().any(|file| file.path == *path && file.field_ref.field_path == field_path(mark))
    };
    files.len() == FILES.len()
        && FILES.iter().all(is_shown)
        && volume_named(RUN_VOLUME).is_some_and(|volume| volume.empty_dir.is_some())
        && MOUNTS.iter().all(|(volume, path)| mounts(server, volume, path))
}

/// Returns the conflict with a mount of the user at, above or below one of gatera's: one of the two would be hidden.
fn mount_conflict(server: &Container) -> Option<String> {
    let is_ours = |mount: &Mount| MOUNTS.contains(&(&*mount.name, &*mount.mount_path));
    let mut user_mounts = server.volume_mounts.iter().filter(|mount| !is_ours(mount));
    user_mounts.find_map(|mount| {
        let path = mount.mount_path.trim_end_matches('/');
        let (_, ours) = MOUNTS.iter().find(|(_, ours)| is_within(ours, path) || is_within(path, ours))?;
        Some(format!("volume {} is mounted at {}, where gatera needs {ours}", mount.name, mount.mount_path))
    })
}

fn is_within(inner: &str, outer: &str) -> bool {
    inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

/// Adds the texts as annotations, and the volumes.
pub(super) fn add_volumes(pod: &mut Value, target: &InjectTarget<'_>, identity: &str) {
    edit::annotate(pod, marks::SCRIPT, &SCRIPT_TEXT);
    edit::annotate(pod, marks::START_SCRIPT, &START_SCRIPT_TEXT);
    edit::annotate(pod, marks::BITNAMI_SCRIPT, &BITNAMI_SCRIPT_TEXT);
    edit::annotate(pod, marks::MY_CNF, &option_file(target));
    edit::annotate(pod, marks::IDENTITY, identity);
    let item = |(path, mark, mode)| {
        let field = json!({ "apiVersion": "v1", "fieldPath": field_path(mark) });
        json!({ "path": path, "mode": mode, "fieldRef": field })
    };
    let volume = json!({ "name": VOLUME, "downwardAPI": { "items": FILES.map(item) } });
    edit::put_named(pod, &["spec", "volumes"], volume);
    if target.typed.spec.volumes.iter().all(|volume| volume.name != RUN_VOLUME) {
        edit::put_named(pod, &["spec", "volumes"], json!({ "name": RUN_VOLUME, "emptyDir": {} }));
    }
    // An autoscaler keeps a node for each local volume that is not listed, but this volume holds nothing that must be kept.
    let annotation = edit::at(pod, &["metadata", "annotations", SAFE_TO_EVICT]);
    if let Some(annotation) = annotation.filter(|value| value.is_null() || value.is_string()) {
        let listed = annotation.as_str().unwrap_or_default();
        if listed.split(',').all(|name| name.trim() != RUN_VOLUME) {
            let both = [listed.trim(), RUN_VOLUME];
            *annotation =
                both.into_iter().filter(|list| !list.is_empty()).collect::<Vec<_>>().join(",").into();
        }
    }
}

/// Adds both mounts to the server container, and the variable by which the server finds the option file.
pub(super) fn add_mounts(container: &mut Value, target: &InjectTarget<'_>) {
    edit::put_mount(container, json!({ "name": VOLUME, "mountPath": FOLDER, "readOnly": true }));
    edit::put_mount(container, json!({ "name": RUN_VOLUME, "mountPath": RUN_FOLDER }));
    if target.profile == Profile::Official {
        edit::put_named(container, &["env"], json!({ "name": "MYSQL_HOME", "value": FOLDER }));
    }
}

/// Returns the text of the option file. The server reads it after the user's files, so it wins, and no ConfigMap has to be
/// edited.
fn option_file(target: &InjectTarget<'_>) -> String {
    let text = bare_option_file();
    match address(target) {
        Some(address) => with_address(&text, &address),
        None => text,
    }
}

fn bare_option_file() -> String {
    format!("# written by gatera\n[mysqld]\nloose-wsrep_status_file = {STATUS_FILE}\n")
}

/// Returns whether the text is an option file of this guard, for any members: the view may have changed since it was written.
pub(super) fn is_option_file(text: &str) -> bool {
    let bare = bare_option_file();
    let address =
        text.lines().last().and_then(|line| line.strip_prefix(ADDRESS_OPTION)?.strip_prefix(" = gcomm://"));
    match address {
        Some(hosts) => !hosts.is_empty() && text == with_address(&bare, &format!("gcomm://{hosts}")),
        None => text == bare,
    }
}

const ADDRESS_OPTION: &str = "wsrep_cluster_address";

/// Returns the address that a member starts with. `None` for the bootstrap node itself, which creates the cluster; with
/// `gatera.dev/address: keep`; during a bootstrap by hand; and where an operator writes the address.
fn address(target: &InjectTarget<'_>) -> Option<String> {
    let InjectTarget { typed, view, namespace, .. } = target;
    let kept = target.mark(marks::ADDRESS) == Some("keep") || target.is_driven();
    let cluster = target.cluster.filter(|_| target.member && !kept)?;
    // During a bootstrap by hand from this member, the list would prevent it.
    let bootstraps_by_hand = view.founds_new_cluster(namespace, &typed.metadata, &typed.spec).is_some();
    if bootstraps_by_hand { None } else { cluster_address(cluster, view) }
}

/// Returns the address with the stable names of the members, and with the bootstrap node's Service while it is needed.
pub(super) fn cluster_address(cluster: &Cluster, view: &View<'_>) -> Option<String> {
    let service = &cluster.workload.spec.service_name;
    let bootstrap = view.bootstrap_service(cluster);
    if service.is_empty() || bootstrap.is_none() && !cluster.has_data() {
        // In a first installation members join the bootstrap node through the user's own address. The Service of that node is not
        // known yet. A list without it would override the user's address, but name no running server.
        return None;
    }
    let members = cluster.members.iter().map(|member| format!("{}.{service}", member.name));
    let hosts: Vec<_> = bootstrap.into_iter().map(str::to_owned).chain(members).collect();
    // An empty list would create a new cluster.
    (!hosts.is_empty()).then(|| format!("gcomm://{}{}", hosts.join(","), connection_options(cluster, view)))
}

/// Returns the provider options in the user's own address: `?gmcast.segment=1`.
fn connection_options(cluster: &Cluster, view: &View<'_>) -> String {
    let user_address = view.cluster_address(&cluster.id.namespace, &cluster.workload);
    let (_, options) =
        user_address.as_ref().and_then(|address| address.text.trim().split_once('?')).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._=:-".contains(c);
    // Only options of the connection are passed on; the others belong in option files.
    let is_of_connection =
        |option: &&str| ["gmcast.", "evs.", "socket."].iter().any(|prefix| option.starts_with(prefix));
    let kept: Vec<_> =
        options.split('&').filter(is_of_connection).filter(|option| option.chars().all(is_plain)).collect();
    if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) }
}

/// Returns the option file with this address, and otherwise unchanged.
pub(super) fn with_address(text: &str, address: &str) -> String {
    let others = text.lines().filter(|line| !line.starts_with(ADDRESS_OPTION));
    let line = format!("{ADDRESS_OPTION} = {address}");
    others.chain([&*line]).fold(String::new(), |text, line| text + line + "\n")
}
