//! Stand-ins for the missing parts of a cluster: the scheduler, which binds pods; the kubelet, which reports on them and
//! finishes their deletion; and a provisioner of volumes (`volumes.rs`). They use the same subresources as the real ones,
//! so the objects pass admission like real ones and look to every reader like those of a live cluster.

use std::sync::PoisonError;

use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::eventually;
use super::pod_status::running;
use super::requests::{JSON, Request};

impl ControlPlane {
    /// Runs a StatefulSet as a cluster would: pod after pod gets its volumes and becomes ready.
    pub(crate) fn run_stateful_set(&self, namespace: &str, name: &str) {
        let replicas = self.get(namespace, &format!("statefulset/{name}"))["spec"]["replicas"].as_u64();
        let replicas = replicas.unwrap_or(1);
        for ordinal in 0..replicas {
            self.make_pod_ready(namespace, &format!("{name}-{ordinal}"));
        }
        eventually("the StatefulSet counts its ready pods", || {
            let status = &self.get(namespace, &format!("statefulset/{name}"))["status"];
            (status["readyReplicas"].as_u64() == Some(replicas)).then_some(())
        });
    }

    /// Waits until the pod exists, then does what scheduler, provisioner and kubelet do: `member-2` runs on `node-2`.
    pub(crate) fn make_pod_ready(&self, namespace: &str, pod: &str) {
        self.report(namespace, pod, true);
    }

    /// Reports that the readiness probes of the pod fail while its containers still run.
    pub(crate) fn make_pod_unready(&self, namespace: &str, pod: &str) {
        self.report(namespace, pod, false);
    }

    fn report(&self, namespace: &str, pod: &str, ready: bool) {
        let object = eventually(&format!("pod {namespace}/{pod} is created"), || {
            self.find(namespace, &format!("pod/{pod}")).ok()
        });
        if object["spec"]["nodeName"].is_null() {
            self.bind_claims(namespace);
            let ordinal = pod.rsplit('-').next().and_then(|ordinal| ordinal.parse::<u32>().ok());
            let node = format!("node-{}", ordinal.unwrap_or(0));
            self.ensure_node(&node);
            self.bind_pod(namespace, pod, &node);
        }
        let patch = json!({ "status": running(&object, ready) });
        self.merge(&format!("/api/v1/namespaces/{namespace}/pods/{pod}/status"), &patch);
    }

    fn bind_pod(&self, namespace: &str, pod: &str, node: &str) {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": pod, "namespace": namespace },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let path = &format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding");
        self.must_send(Request { method: "POST", path, headers: JSON, body: &binding.to_string() });
    }

    fn merge(&self, path: &str, change: &Value) {
        let headers = "Content-Type: application/merge-patch+json\r\n";
        self.must_send(Request { method: "PATCH", path, headers, body: &change.to_string() });
    }

    /// Creates a Node that is Ready, unless the plane already has it.
    pub(crate) fn ensure_node(&self, name: &str) {
        // Held throughout, because two tests may need the same node at the same time.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.contains(name) {
            return;
        }
        let resources = json!({ "cpu": "8", "memory": "32Gi", "pods": "110" });
        self.create(&json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" } },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
            },
        }));
        // Admission gives every new node this taint; the controller that would remove it is switched off here.
        self.merge(&format!("/api/v1/nodes/{name}"), &json!({ "spec": { "taints": null } }));
        nodes.insert(name.to_owned());
    }

    /// Removes the pods that are being deleted, with the request that their kubelet sends once the containers have stopped:
    /// without grace, and only for this pod, not for a successor with the same name. Returns their names.
    pub(crate) fn finish_deletes(&self, namespace: &str) -> Vec<String> {
        let mut leaving = items(&self.get(namespace, "pods"));
        leaving.retain(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
        let finish = |pod: &Value| {
            let (name, uid) = (text(&pod["metadata"]["name"]), &pod["metadata"]["uid"]);
            let options = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "gracePeriodSeconds": 0,
                "preconditions": { "uid": uid },
            });
            let path = &format!("/api/v1/namespaces/{namespace}/pods/{name}");
            // Sent as the kubelet, because guards look at the user of a request.
            let headers =
                &format!("{JSON}Impersonate-User: system:node:lab\r\nImpersonate-Group: system:masters\r\n");
            self.must_send(Request { method: "DELETE", path, headers, body: &options.to_string() });
            name
        };
        leaving.iter().map(finish).collect()
    }
}

pub(super) fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
