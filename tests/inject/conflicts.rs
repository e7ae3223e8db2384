//! Injection into pods in which a user's volume has a name or a mount path of gatera's: no volume or mount of the user is
//! overwritten.

use serde_json::json;

use super::{injected, member, planned_injection, with_server};
use crate::scene::Scene;

#[test]
fn a_conflicting_mount_prevents_injection() {
    for path in ["/etc/gatera", "/etc", "/etc/gatera/x", "/run", "/"] {
        let pod = with_server(
            &json!({ "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }, { "name": "own", "mountPath": path }] }),
        );
        let after = injected(&pod, &Scene::default());
        assert_eq!(after, pod, "{path}");
        let kept = planned_injection(&pod).keeps_probes.unwrap();
        assert!(kept.contains(&format!("volume own is mounted at {path}, where gatera needs")), "{kept}");
    }
    let pod = with_server(
        &json!({ "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }, { "name": "own", "mountPath": "/etc/galera" }] }),
    );
    assert_ne!(injected(&pod, &Scene::default()), pod, "a mount at /etc/galera does not prevent injection");
}

/// A user's volume with one of gatera's names is not replaced: the database would write into the container instead of the volume.
#[test]
fn volumes_of_the_user_are_not_replaced() {
    let claim = json!({ "persistentVolumeClaim": { "claimName": "x" } });
    let other = json!({ "downwardAPI": { "items": [{ "path": "a", "fieldRef": { "fieldPath": "metadata.annotations['own']" } }] } });
    for (name, path, volume) in [
        ("gatera", "/var/lib/mysql", &claim),
        ("gatera", "/etc/gatera", &json!({ "emptyDir": {} })),
        ("gatera", "/own", &other),
        ("gatera-run", "/var/lib/mysql", &claim),
        ("gatera-run", "/run/gatera", &claim),
        ("gatera-run", "/scratch", &json!({ "emptyDir": {} })),
    ] {
        let mut volume = volume.clone();
        volume["name"] = json!(name);
        let mut pod = with_server(
            &json!({ "volumeMounts": [{ "name": name, "mountPath": path }], "ports": [{ "containerPort": 4567 }] }),
        );
        pod["spec"]["volumes"] = json!([volume]);
        let kept = planned_injection(&pod).keeps_probes.unwrap();
        assert_eq!(injected(&pod, &Scene::default()), pod, "{name} at {path}");
        assert!(kept.contains(&format!("volume {name} is not gatera's own")), "{kept}");
    }
    // Gatera's own volumes: one has a size limit, the other the layout of another version.
    let mut pod = injected(&member(&json!({})), &Scene::default());
    for volume in pod["spec"]["volumes"].as_array_mut().unwrap() {
        match volume["name"].as_str() {
            Some("gatera-run") => volume["emptyDir"] = json!({ "sizeLimit": "1Mi" }),
            Some("gatera") => drop(volume["downwardAPI"]["items"].as_array_mut().unwrap().pop()),
            _ => {}
        }
    }
    let after = injected(&pod, &Scene::default());
    assert_eq!(after["spec"]["volumes"][2], pod["spec"]["volumes"][2]);
    assert_eq!(after["spec"]["volumes"][1]["downwardAPI"]["items"].as_array().unwrap().len(), 5);

    let own = json!([{ "name": "MYSQL_HOME", "value": "/own" }]);
    let mut pod = with_server(&json!({ "env": own, "startupProbe": { "tcpSocket": { "port": 1 } } }));
    pod["metadata"]["annotations"] = json!({ "gatera.dev/profile": "official" });
    let after = injected(&pod, &Scene::default());
    assert_eq!(after["spec"]["containers"][0]["env"], own);
}

#[test]
fn an_impatient_startup_probe_is_replaced() {
    let pod = with_server(&json!({ "startupProbe": { "tcpSocket": { "port": 1 } } }));
    let after = injected(&pod, &Scene::default());
    assert_eq!(after["spec"]["containers"][0]["startupProbe"]["exec"]["command"][1], "started");
}

/// A cluster autoscaler keeps a node for each emptyDir that this annotation does not list.
#[test]
fn an_autoscaler_may_remove_a_node_in_spite_of_the_injected_volume() {
    const KEY: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
    for (listed, becomes) in [
        (json!(null), "gatera-run"),
        (json!(""), "gatera-run"),
        (json!("cache"), "cache,gatera-run"),
        (json!("cache, gatera-run"), "cache, gatera-run"),
    ] {
        let mut pod = member(&json!({}));
        if !listed.is_null() {
            pod["metadata"]["annotations"] = json!({ KEY: listed });
        }
        let after = injected(&pod, &Scene::default());
        assert_eq!(after["metadata"]["annotations"][KEY], becomes, "{listed}");
        let again = injected(&after, &Scene::default());
        assert_eq!(again["metadata"]["annotations"][KEY], becomes, "{listed}, injected twice");
    }
}
