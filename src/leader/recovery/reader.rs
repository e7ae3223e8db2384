//! A pod that only reads a member's data and reports its position: for a member whose own pod does not run, because no
//! node takes it or nothing can be started in it.
//!
//! It is the member's pod after injection, without what may keep it from running, and with the step script alone, which
//! ends when it has reported. It carries the text of the step script, so that it works where pods are not injected.

use serde_json::{Value, json};

use engine::inject::START_SCRIPT_TEXT;
use facts::galera::adopt::READER_LABEL;
use facts::galera::bitnami;
use facts::galera::start::{STEP_SCRIPT, after_step};
use facts::marks::{CONTAINER, PREFIX};

/// The readiness gate of the pod, which is never Ready: nothing sets this condition.
const NEVER_READY: &str = "gatera.dev/never";
/// The deadline of the pod in seconds: a crash recovery that takes longer needs a person.
const DEADLINE_SECONDS: i64 = 3600;
/// Fields of the container that are kept: they determine where its data and its options are, and which user reads them.
const KEPT_FIELDS: [&str; 8] = [
    "name",
    "image",
    "imagePullPolicy",
    "envFrom",
    "volumeMounts",
    "securityContext",
    "terminationMessagePath",
    "workingDir",
];
/// Fields of the pod that are dropped: those that restrict where it runs, and those that make it a member.
const DROPPED_FIELDS: [&str; 13] = [
    "affinity",
    "nodeSelector",
    "topologySpreadConstraints",
    "initContainers",
    "ephemeralContainers",
    "hostname",
    "subdomain",
    "nodeName",
    "schedulingGates",
    "readinessGates",
    "overhead",
    "resources",
    "resourceClaims",
];

/// The reason why there can be no reader pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReader {
    /// The pod has no container with this name.
    #[error("its pod has no server")]
    NoServer,
    /// The server does not start by the step script.
    #[error("its server does not start by gatera's step script, so no other pod can read its data")]
    NoStep,
    /// The server would be started with other options than its own.
    #[error(
        "an init container makes files for its server, perhaps its options, so no other pod can read its data"
    )]
    Prepared,
}

/// Returns the reader pod for a member's pod as the API server holds it, and for its server's container. `image`
/// replaces an image that cannot be pulled.
pub fn reader_pod(member_pod: &Value, container: &str, image: Option<&str>) -> Result<Value, NoReader> {
    let spec = member_pod["spec"].as_object().ok_or(NoReader::NoServer)?;
    let [member, uid] =
        ["name", "uid"].map(|field| member_pod["metadata"][field].as_str().unwrap_or_default());
    let server = list(&member_pod["spec"]["containers"]).find(|it| it["name"] == container);
    let server = server.ok_or(NoReader::NoServer)?;
    // Bitnami's image finds its data without any file.
    if !is_bitnami(server) && has_prepared_files(&member_pod["spec"], &server["volumeMounts"]) {
        return Err(NoReader::Prepared);
    }
    let mut container_spec = server.as_object().cloned().unwrap_or_default();
    container_spec.retain(|field, _| KEPT_FIELDS.contains(&&**field));
    container_spec.insert("command".to_owned(), command(server).ok_or(NoReader::NoStep)?);
    container_spec.insert("env".to_owned(), environment(server));
    container_spec.insert("resources".to_owned(), resources(server));
    if let Some(image) = image {
        container_spec.insert("image".to_owned(), json!(image));
    }
    for source in container_spec.get_mut("envFrom").and_then(Value::as_array_mut).into_iter().flatten() {
        make_optional(source);
    }
    let mut pod = spec.clone();
    pod.retain(|field, _| !DROPPED_FIELDS.contains(&&**field));
    pod.extend([
        ("containers".to_owned(), json!([container_spec])),
        ("restartPolicy".to_owned(), json!("Never")),
        ("terminationGracePeriodSeconds".to_owned(), json!(10)),
        ("activeDeadlineSeconds".to_owned(), json!(DEADLINE_SECONDS)),
        ("readinessGates".to_owned(), json!([{ "conditionType": NEVER_READY }])),
    ]);
    // The volume is attached to that node already.
    if let Some(node) = member_pod["spec"]["nodeName"].as_str() {
        let node_terms =
            json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] }]);
        let required =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": node_terms } });
        pod.insert("affinity".to_owned(), json!({ "nodeAffinity": required }));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{member}-reader"),
            "namespace": member_pod["metadata"]["namespace"],
            "labels": { READER_LABEL: member },
            "annotations": { format!("{PREFIX}{CONTAINER}"): container },
            // The reader is deleted with the pod that it stands in for.
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": member, "uid": uid }],
        },
        "spec": pod,
    }))
}

/// Returns the command: the step script, and what it would start. The setup of Bitnami's image is left out.
fn command(server: &Value) -> Option<Value> {
    let command_line = ["command", "args"].into_iter().flat_map(|field| list(&server[field]));
    let command_line: Vec<&str> = command_line.filter_map(Value::as_str).collect();
    let mounts = list(&server["volumeMounts"]).filter_map(|it| it["mountPath"].as_str());
    let extra_flags = list(&server["env"]).find(|it| it["name"] == bitnami::EXTRA_FLAGS);
    let extra_flags = extra_flags.and_then(|it| it["value"].as_str()).unwrap_or_default();
    let bitnami_command =
        is_bitnami(server).then(|| bitnami::server(&mounts.collect::<Vec<_>>(), extra_flags));
    let bitnami_command = bitnami_command.as_ref().map(|it| it.iter().map(String::as_str).collect());
    let server_command: Vec<_> = after_step(&command_line).map(<[_]>::to_vec).or(bitnami_command)?;
    // Kubernetes turns two dollars into one, and expands some variables.
    let step = START_SCRIPT_TEXT.replace('$', "$$");
    Some(["sh", "-c", &step, STEP_SCRIPT].into_iter().chain(server_command).collect())
}

/// Returns whether the server starts by the step in Bitnami's way.
fn is_bitnami(server: &Value) -> bool {
    list(&server["env"]).any(|it| it["name"] == bitnami::BASH_ENV && it["value"] == bitnami::SCRIPT)
}

fn list(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

/// Returns the server's variables. Their Secrets and ConfigMaps become optional: the step script needs no password.
fn environment(server: &Value) -> Value {
    let variables = list(&server["env"]).cloned().map(|mut variable| {
        if let Some(source) = variable.get_mut("valueFrom") {
            make_optional(source);
        }
        variable
    });
    variables.chain([json!({ "name": "GATERA_ONLY_TELLS", "value": "yes" })]).collect()
}

fn make_optional(source: &mut Value) {
    for kind in ["secretKeyRef", "configMapKeyRef", "secretRef", "configMapRef"] {
        if let Some(it) = source.get_mut(kind) {
            it["optional"] = json!(true);
        }
    }
}

/// Returns small resource requests, so that a node has room, and the server's own limits: a quota may require requests and
/// limits.
fn resources(server: &Value) -> Value {
    let mut limits = server["resources"]["limits"].as_object().cloned().unwrap_or_default();
    limits.retain(|name, _| matches!(&**name, "cpu" | "memory"));
    json!({ "requests": { "cpu": "10m", "memory": "64Mi" }, "limits": limits })
}

/// Returns whether an init container shares an `emptyDir` volume with the server: it may write options there, without
/// which the server may look elsewhere for its data.
fn has_prepared_files(spec: &Value, server: &Value) -> bool {
    let mounts = |of: &Value, volume: &Value| list(of).any(|it| it["name"] == volume["name"]);
    let written = |volume: &Value| {
        volume["emptyDir"].is_object()
            && mounts(server, volume)
            && list(&spec["initContainers"]).any(|init| mounts(&init["volumeMounts"], volume))
    };
    list(&spec["volumes"]).any(written)
}
