//! A pod that only reads what a member has, and tells it: for a member whose own pod does not run, because no node takes it or
//! nothing can be started in it.
//!
//! It is the member's pod as it was prepared, without what may keep it from running, and with the step alone, which ends when it
//! has told. It brings the step's text along, so that whoever prepares pods need not be there.

use serde_json::{Value, json};

use crate::amend::inject::START_SCRIPT_TEXT;
use crate::galera::adopt::READER;
use crate::galera::start::{STEP, behind_the_step};

/// It is never Ready: nobody sets this condition.
const NEVER: &str = "gatera.dev/never";
/// A crash that takes longer to recover from than this has to be looked at by a person.
const LONGEST: i64 = 3600;
/// What it keeps of the container: where its data and its options are, and as whom it reads them.
const KEPT: [&str; 9] = [
    "name",
    "image",
    "imagePullPolicy",
    "env",
    "envFrom",
    "volumeMounts",
    "securityContext",
    "terminationMessagePath",
    "workingDir",
];
/// What it leaves of the pod: where it may not run, and what makes it a member.
const LEFT: [&str; 12] = [
    "affinity",
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

/// What it is called.
pub fn name(member: &str) -> String {
    format!("{member}-reader")
}

/// Of the pod of a member as the API server holds it, and the container of its server. `image` takes the place of one that
/// cannot be had. `None`: its server does not start by the step.
pub fn reader_pod(own: &Value, container: &str, image: Option<&str>) -> Option<Value> {
    let (member, uid) = (own["metadata"]["name"].as_str()?, own["metadata"]["uid"].as_str()?);
    let server = own["spec"]["containers"].as_array()?.iter().find(|it| it["name"] == container)?;
    let words = ["command", "args"].into_iter().filter_map(|field| server[field].as_array()).flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    // Kubernetes makes one of two dollars, and puts variables in place of some that stand alone.
    let step = START_SCRIPT_TEXT.replace('$', "$$");
    let command = ["sh", "-c", &step, STEP].into_iter().chain(behind_the_step(&words)?.iter().copied());
    let command: Vec<&str> = command.collect();
    let mut reads: serde_json::Map<_, _> = server.as_object()?.clone();
    reads.retain(|field, _| KEPT.contains(&&**field));
    reads.insert("command".to_owned(), json!(command));
    if let Some(image) = image {
        reads.insert("image".to_owned(), json!(image));
    }
    let told = json!({ "name": "GATERA_ONLY_TELLS", "value": "yes" });
    let env = server["env"].as_array().into_iter().flatten().cloned().chain([told]);
    reads.insert("env".to_owned(), env.collect());
    let mut spec = own["spec"].as_object()?.clone();
    spec.retain(|field, _| !LEFT.contains(&&**field));
    let others = json!({
        "containers": [reads],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "activeDeadlineSeconds": LONGEST,
        "readinessGates": [{ "conditionType": NEVER }],
    });
    spec.extend(others.as_object().cloned()?);
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(member),
            "namespace": own["metadata"]["namespace"],
            "labels": { READER: member },
            "annotations": { format!("{}{}", crate::marks::PREFIX, crate::marks::CONTAINER): container },
            // It goes with the pod that it stands beside.
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": member, "uid": uid }],
        },
        "spec": spec,
    }))
}
