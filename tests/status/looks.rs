//! What starts a cluster again if no member serves and each looks for the others.

use super::*;

/// Returns the output of `gatera status` about a cluster whose members all look for others.
fn status_of_looking(mut scene: Scene) -> String {
    let settings = Settings::default();
    let pods = scene.objects().into_iter().filter(|(kind, _)| *kind == Kind::Pod).map(|(_, pod)| pod);
    let pods: Vec<_> = pods.map(with_a_server_that_joins).collect();
    scene.also.extend(pods.iter().cloned());
    let mut facts = scene.facts(&settings);
    for pod in &pods {
        let [name, uid] = ["name", "uid"].map(|field| pod["metadata"][field].as_str().unwrap());
        let words = format!("position {ID}:363, recovered after a crash, safe_to_bootstrap 0");
        let line = format!("the server is DISCONNECTED; start of 2026-12-01T09:20:01Z: {words}");
        let message = format!("Startup probe failed: {line}\n");
        assert!(facts.add_report(&Id::new(NAMESPACE, name), uid, scene::now(), &message), "{name}");
    }
    let world = World::build(facts, Freshness::Current);
    let view = View::new(&world, scene::now(), &settings);
    status::text(&ClusterStatus::all(&view), false)
}

/// Returns the pod with a server that has not joined.
fn with_a_server_that_joins(mut pod: Value) -> Value {
    pod["status"] = member(0, "")["status"].clone();
    pod
}

#[test]
fn what_starts_a_cluster_again_depends_on_what_drives_it() {
    let all = ["galera-instance-galera-0", "galera-instance-galera-1", "galera-instance-galera-2"].join(", ");
    let looking = Scene { members: vec!["starting".to_owned(); 3], ..Scene::default() };
    let owner = json!({ "apiVersion": "k8s.mariadb.com/v1alpha1", "kind": "MariaDB", "name": "ours", "uid": "8", "controller": true });
    let labels = json!({ "gatera.dev/cluster": "galera-instance" });
    let driven = json!({ "metadata": { "ownerReferences": [owner] }, "spec": { "template": { "metadata": { "labels": labels } } } });
    for (scene, says) in [
        (
            Scene { stateful_set: driven, ..looking.clone() },
            format!("LOOKS {all}: wait: its operator starts the cluster again\n"),
        ),
        (
            Scene { exists: false, ..looking.clone() },
            format!("LOOKS {all}: apply the StatefulSet again as it was: it takes over its pods\n"),
        ),
        (
            Scene { data: "none".to_owned(), claims: false, ..looking },
            format!("LOOKS {all}: the bootstrap node has to be Ready first\n"),
        ),
    ] {
        let text = status_of_looking(scene);
        assert!(text.contains(&says), "the output does not contain {says}{text}");
    }
}

/// Without its StatefulSet nothing creates a member that is missing.
#[test]
fn a_missing_member_whose_stateful_set_is_gone_says_so() {
    let members = ["ready", "absent", "ready"].map(str::to_owned).to_vec();
    let settings = Settings::default();
    let world = Scene { exists: false, members, ..Scene::default() }.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let text = status::text(&ClusterStatus::all(&view), false);
    let says = "MISSING galera-instance-galera-1: its StatefulSet is gone, so nothing creates it\n";
    assert!(text.contains(says), "{text}");
}
