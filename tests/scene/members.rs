//! The pods of a scene's members, each in the state that a word names (the words are explained at [`super::Scene::members`]).

use engine::inject;
use facts::revision::{Contents, Keys};
use facts::view::View;
use objects::{Kind, Object};
use serde_json::{Value, json};

use super::{NAMESPACE, STATEFUL_SET, member_labels};

/// Returns a member in the state that this word names; `None` if it is absent.
pub fn pod(ordinal: usize, word: &str) -> Option<Value> {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{STATEFUL_SET}-{ordinal}"),
            "namespace": NAMESPACE,
            "uid": format!("pod-{ordinal}"),
            "labels": member_labels(),
            "annotations": { "gatera.dev/injected": "0.1.0" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": STATEFUL_SET, "uid": "1", "controller": true }],
        },
        "spec": {
            "nodeName": format!("node-{ordinal}"),
            "terminationGracePeriodSeconds": 600,
            "containers": [{
                "name": "mariadb",
                "image": "mariadb:10.11",
                "command": ["sh", "/etc/gatera/start-member.sh", "docker-entrypoint.sh"],
                "args": ["mariadbd"],
            }],
        },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "name": "mariadb", "state": { "running": { "startedAt": "2026-12-01T08:00:00Z" } } }],
        },
    });
    let not_ready = json!([{ "type": "Ready", "status": "False" }]);
    match word {
        "ready" => {}
        "unverified" => pod["metadata"]["annotations"] = json!({}),
        "starting" => pod["status"]["conditions"] = not_ready,
        "gives" => {
            pod["status"]["conditions"] = not_ready;
            pod["status"]["containerStatuses"][0]["started"] = json!(true);
        }
        "pending" => pod["status"] = json!({ "phase": "Pending" }),
        "stuck" => {
            pod["status"]["conditions"] = not_ready;
            pod["status"]["containerStatuses"] =
                json!([{ "name": "mariadb", "state": { "waiting": { "reason": "CrashLoopBackOff" } } }]);
        }
        "preparing" => {
            pod["status"] = json!({ "phase": "Pending", "initContainerStatuses": [{ "name": "init", "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] });
        }
        "unpulled" => {
            pod["spec"]["containers"][0]["image"] = json!("mariadb:11.4.88");
            pod["status"] = json!({ "phase": "Pending", "containerStatuses": [{ "name": "mariadb", "state": { "waiting": { "reason": "ImagePullBackOff" } } }] });
        }
        "going" => pod["metadata"]["deletionTimestamp"] = json!("2026-12-01T09:29:50Z"),
        "absent" => return None,
        reported if reported.starts_with("reported ") => {
            set_failed_start(
                &mut pod,
                &format!("start of 2026-12-01T09:29:00Z: {}", &reported["reported ".len()..]),
            );
        }
        refused if refused.starts_with("refused ") || refused.starts_with("ended ") => {
            let words = match refused.split_once(' ') {
                Some(("refused", why)) => format!("gatera did not start the server: {why}"),
                _ => format!(
                    "start of 2026-12-01T09:29:00Z: position {ENDED}; the server ended: {}",
                    &refused["ended ".len()..]
                ),
            };
            set_failed_start(&mut pod, &words);
            pod["status"]["containerStatuses"][0]["state"] =
                json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        }
        other => panic!("{other:?} is not a state of a member: see Scene::members"),
    }
    Some(pod)
}

/// The position at which the data of a member in the state "ended" was stopped.
const ENDED: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1:363, stopped in order, safe_to_bootstrap 0";

/// Returns the member as its StatefulSet creates it from the template and, if it is marked as injected, as injection changes it.
pub fn created_from(stateful_set: &Value, member: &Value, view: &View<'_>) -> Value {
    let template = &stateful_set["spec"]["template"];
    let mut pod = member.clone();
    let is_injected = pod["metadata"]["annotations"].as_object().is_some_and(|it| !it.is_empty());
    pod["metadata"]["annotations"] = json!({});
    json_patch::merge(&mut pod["metadata"], &template["metadata"]);
    pod["spec"] = template["spec"].clone();
    pod["spec"]["nodeName"] = member["spec"]["nodeName"].clone();
    pod["spec"]["subdomain"] = stateful_set["spec"]["serviceName"].clone();
    let name = member["metadata"]["name"].as_str().unwrap_or_default();
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    let templates = stateful_set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    let claims = templates.map(|it| it["metadata"]["name"].as_str().unwrap_or_default());
    let claims = claims
        .map(|it| json!({ "name": it, "persistentVolumeClaim": { "claimName": format!("{it}-{name}") } }));
    let own = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    // The controller adds claims in no particular order.
    let claims = claims.collect::<Vec<_>>().into_iter().rev();
    pod["spec"]["volumes"] = own.into_iter().chain(claims).collect();
    if let (true, Ok(Object::Pod(read))) = (is_injected, Object::read(Kind::Pod, &pod.to_string())) {
        inject::into_pod(&mut pod, &read, NAMESPACE, view);
    }
    pod
}

/// Returns the revision of an option file, as a pod's annotation names it, and the ConfigMap that is its snapshot.
pub fn snapshot(text: &str) -> (String, Value) {
    const SOURCE: &str = "galera-instance-nodeconfig";
    let data = json!({ "galera.cnf": text });
    let map = json!({ "metadata": { "name": SOURCE }, "data": data }).to_string();
    let Ok(Object::ConfigMap(map)) = Object::read(Kind::ConfigMap, &map) else {
        panic!("the snapshot's source is a ConfigMap")
    };
    let digest = Contents::of(&map).digest(SOURCE, &Keys::ALL).unwrap().expect("an option file");
    let (name, keeps) = (digest.snapshot_name(SOURCE), json!({ "gatera.dev/keeps": SOURCE }));
    let metadata = json!({ "name": name, "namespace": NAMESPACE, "annotations": keeps });
    let snapshot = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
    (format!("{SOURCE}={digest}"), snapshot)
}

/// Sets the status of a member that failed to start with this message and is being restarted.
fn set_failed_start(pod: &mut Value, words: &str) {
    let message = format!("{words}\n");
    let ended =
        json!({ "terminated": { "exitCode": 1, "startedAt": "2026-12-01T09:29:00Z", "message": message } });
    pod["spec"]["containers"][0]["startupProbe"] =
        json!({ "exec": { "command": ["sh", "/etc/gatera/wait-for-sync.sh", "started"] } });
    pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]);
    pod["status"]["containerStatuses"] = json!([{
        "name": "mariadb",
        "restartCount": 1,
        "lastState": ended,
        "state": { "running": { "startedAt": "2026-12-01T09:29:40Z" } },
    }]);
}
