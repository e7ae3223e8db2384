//! The status that a kubelet would report for a pod whose containers run. Input is the current pod, output its new status;
//! a pure function except for the clock and the next free address.

use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

pub(super) fn running(pod: &Value, ready: bool) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let old = &pod["status"];
    let started = old["startTime"].as_str().unwrap_or(&now);
    let address = old["podIP"].as_str().map_or_else(next_pod_address, str::to_owned);
    json!({
        "phase": "Running",
        "startTime": started,
        "hostIP": "192.0.2.1",
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "initContainerStatuses": each(&pod["spec"]["initContainers"], |container| {
            // An init container that always restarts is a sidecar, which does not end.
            if container["restartPolicy"] == "Always" {
                container_status(container, true, &json!({ "running": { "startedAt": started } }))
            } else {
                let end = json!({ "exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": started });
                container_status(container, true, &json!({ "terminated": end }))
            }
        }),
        "containerStatuses": each(&pod["spec"]["containers"], |container| {
            container_status(container, ready, &json!({ "running": { "startedAt": started } }))
        }),
        "conditions": [
            condition(old, "PodScheduled", true, &now),
            condition(old, "Initialized", true, &now),
            condition(old, "ContainersReady", ready, &now),
            condition(old, "Ready", ready, &now),
        ],
    })
}

fn each(containers: &Value, status: impl Fn(&Value) -> Value) -> Vec<Value> {
    containers.as_array().into_iter().flatten().map(status).collect()
}

fn container_status(container: &Value, ready: bool, state: &Value) -> Value {
    json!({
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "containerID": format!("lab://{}", container["name"].as_str().unwrap_or_default()),
        "ready": ready,
        "started": true,
        "restartCount": 0,
        "state": state,
    })
}

/// Returns a condition; one whose status does not change keeps its time of transition.
fn condition(old: &Value, name: &str, holds: bool, now: &str) -> Value {
    let status = if holds { "True" } else { "False" };
    let same = |condition: &&Value| condition["type"] == name && condition["status"] == status;
    let since = old["conditions"].as_array().into_iter().flatten().find(same);
    let since = since.and_then(|condition| condition["lastTransitionTime"].as_str()).unwrap_or(now);
    json!({ "type": name, "status": status, "lastTransitionTime": since })
}

/// Returns an unused address. Nothing listens there; endpoints only need different addresses.
fn next_pod_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    format!("10.244.{high}.{low}")
}
