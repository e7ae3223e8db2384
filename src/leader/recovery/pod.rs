//! The pod of a member, as its StatefulSet would create it. With OrderedReady the StatefulSet creates no pod before
//! those of lower ordinals are Ready, which they will not be; it accepts a pod that has the right name, labels and
//! owner.

use facts::view::{POD_NAME_LABEL, TEMPLATE_LABEL};
use serde_json::{Value, json};

/// Returns the member's pod for the StatefulSet as the API server holds it; `None`: it is not a StatefulSet.
pub fn member_pod(set: &Value, ordinal: i64) -> Option<Value> {
    let (meta, spec) = (&set["metadata"], &set["spec"]);
    let (set_name, uid) = (meta["name"].as_str()?, meta["uid"].as_str()?);
    let name = format!("{set_name}-{ordinal}");
    let template = &spec["template"];
    let mut labels = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(POD_NAME_LABEL.to_owned(), json!(name));
    labels.insert("apps.kubernetes.io/pod-index".to_owned(), json!(ordinal.to_string()));
    if let Some(revision) = set["status"]["updateRevision"].as_str() {
        labels.insert(TEMPLATE_LABEL.to_owned(), json!(revision));
    }
    let mut pod = template["spec"].as_object()?.clone();
    pod.insert("hostname".to_owned(), json!(name));
    pod.insert("subdomain".to_owned(), spec["serviceName"].clone());
    let claims: Vec<&str> = spec["volumeClaimTemplates"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|claim| claim["metadata"]["name"].as_str())
        .collect();
    // A claim replaces a volume of the same name.
    let own = template["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let own = own.into_iter().filter(|volume| !claims.iter().any(|claim| volume["name"] == *claim));
    let claimed = claims.iter().map(
        |claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": format!("{claim}-{name}") } }),
    );
    pod.insert("volumes".to_owned(), own.chain(claimed).collect());
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": format!("{set_name}-"),
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": template["metadata"]["annotations"],
            "finalizers": template["metadata"]["finalizers"],
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": set_name,
                "uid": uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": pod,
    }))
}

/// Returns the StatefulSet as it was at the kept revision of this name: in the middle of a rollout it creates the pods
/// of members that are not reached yet from that revision. `None`: there is no template in the revision.
pub fn at_revision(mut set: Value, name: &str, kept: &Value) -> Option<Value> {
    let mut template = kept["spec"]["template"].as_object()?.clone();
    // The revision is kept as a patch.
    template.remove("$patch");
    set["spec"]["template"] = Value::Object(template);
    set["status"]["updateRevision"] = json!(name);
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_what_its_stateful_set_makes() {
        let set = json!({
            "metadata": { "name": "g", "namespace": "db", "uid": "u-1" },
            "spec": {
                "serviceName": "g-hs",
                "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
                "template": {
                    "metadata": { "labels": { "app": "galera" }, "annotations": { "a": "b" } },
                    "spec": { "containers": [{ "name": "mariadb" }], "volumes": [{ "name": "conf" }, { "name": "data", "emptyDir": {} }] },
                },
            },
            "status": { "updateRevision": "g-6d4" },
        });
        let pod = member_pod(&set, 2).unwrap();
        assert_eq!(pod["metadata"]["name"], "g-2");
        let labels = json!({
            "app": "galera",
            "statefulset.kubernetes.io/pod-name": "g-2",
            "apps.kubernetes.io/pod-index": "2",
            "controller-revision-hash": "g-6d4",
        });
        assert_eq!(pod["metadata"]["labels"], labels);
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("g-2"), &json!("g-hs")));
        let volumes = json!([{ "name": "conf" }, { "name": "data", "persistentVolumeClaim": { "claimName": "data-g-2" } }]);
        assert_eq!(pod["spec"]["volumes"], volumes);
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(member_pod(&json!({ "metadata": {} }), 0), None);
        let before = json!({ "spec": { "template": { "$patch": "replace", "spec": { "containers": [{ "name": "older" }] } } } });
        let pod = member_pod(&at_revision(set.clone(), "g-1a2", &before).unwrap(), 2).unwrap();
        assert_eq!(pod["spec"]["containers"][0]["name"], "older");
        assert_eq!(pod["metadata"]["labels"]["controller-revision-hash"], "g-1a2");
        assert_eq!(pod["spec"]["volumes"].as_array().unwrap().len(), 1);
        assert_eq!(at_revision(set, "g-1a2", &json!({})), None);
    }
}
