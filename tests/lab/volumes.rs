//! The volume provisioner that the lab lacks: creates a volume for each pending claim. The real controller binds the two.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::eventually;
use super::standins::{items, text};

impl ControlPlane {
    /// Creates a volume for every pending claim and waits until the real controller has bound them.
    pub(crate) fn bind_claims(&self, namespace: &str) {
        let claims = || -> Vec<Value> { items(&self.get(namespace, "persistentvolumeclaims")) };
        let is_pending = |claim: &Value| claim["status"]["phase"] != "Bound";
        let volumes: Vec<Value> = claims().iter().filter(|claim| is_pending(claim)).map(volume_for).collect();
        if volumes.is_empty() {
            return;
        }
        let served: BTreeSet<String> =
            volumes.iter().map(|volume| text(&volume["spec"]["claimRef"]["uid"])).collect();
        self.create(&json!({ "apiVersion": "v1", "kind": "List", "items": volumes }));
        eventually("claims are bound to their volumes", || {
            let waiting = claims()
                .iter()
                .any(|claim| is_pending(claim) && served.contains(&text(&claim["metadata"]["uid"])));
            (!waiting).then_some(())
        });
    }
}

/// Returns a volume named after the claim's uid, as provisioners do, so a claim that is created again gets a new volume.
fn volume_for(claim: &Value) -> Value {
    let (wanted, named) = (&claim["spec"], &claim["metadata"]);
    let uid = text(&named["uid"]);
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": format!("pvc-{uid}") },
        "spec": {
            "capacity": wanted["resources"]["requests"],
            "accessModes": wanted["accessModes"],
            "storageClassName": wanted["storageClassName"],
            "volumeMode": wanted["volumeMode"],
            // With Delete, the controller would remove the path from the machine that runs the test.
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": { "path": format!("/nonexistent/{uid}") },
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": named["namespace"], "name": named["name"], "uid": named["uid"],
            },
        },
    })
}
