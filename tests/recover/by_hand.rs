//! Servers that the step script does not start: in no state of the pods does `gatera recover` create one; it prints what a person
//! has to do. Also: the node of the pod that starts a cluster, and the pod of the manual procedure.

use facts::settings::Settings;
use facts::view::View;
use jiff::SignedDuration;
use leader::recovery::{self, RecoveryOptions, RecoveryStep};
use objects::{Kind, Object};
use serde_json::{Value, json};

use super::{printed, reported_at};
use crate::scene::{self, ID, NAMESPACE, STATEFUL_SET, Scene};

/// Returns a cluster that is down, with members in these states and this change to the template.
fn scene_with(members: [&str; 3], template: &Value) -> Scene {
    let members = members.map(str::to_owned).to_vec();
    Scene { members, stateful_set: json!({ "spec": { "template": template } }), ..Scene::default() }
}

fn next(scene: &Scene, want: &RecoveryOptions) -> RecoveryStep {
    let settings = Settings::default();
    let world = scene.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    recovery::next(view.cluster(NAMESPACE, STATEFUL_SET).unwrap(), &view, want, SignedDuration::from_mins(10))
}

#[test]
fn no_pod_is_created_for_a_server_that_the_step_script_does_not_start() {
    let server = |more: Value| {
        let mut server = json!({ "name": "mariadb", "image": "mariadb:10.11", "ports": [{ "containerPort": 3306 }, { "containerPort": 4567 }],
            "volumeMounts": [{ "name": "datadir", "mountPath": "/var/lib/mysql" }] });
        json_patch::merge(&mut server, &more);
        json!({ "spec": { "containers": [server] } })
    };
    let keep = json!({ "metadata": { "annotations": { "gatera.dev/start": "keep" } } });
    let bitnamis = server(json!({
        "image": "bitnami/mariadb-galera:12.0.2", "volumeMounts": [{ "name": "datadir", "mountPath": "/bitnami/mariadb" }],
        "env": [{ "name": "BASH_ENV", "value": "/own" }],
    }));
    let reported = reported_at(ID, 351);
    let asked = format!("{STATEFUL_SET}-1 at {ID}:363 until=2026-12-01T10:00:00Z");
    let granted = json!({ "gatera.dev/recover": asked, "gatera.dev/recovery": asked });
    for (what, template) in [
        ("a custom BASH_ENV in Bitnami's image", bitnamis.clone()),
        (
            "a custom command",
            server(json!({ "command": ["sh", "-c", "exec docker-entrypoint.sh mariadbd"] })),
        ),
        ("an unknown image", server(json!({ "image": "our/db:1" }))),
        ("a command that looks for the position itself", server(json!({ "command": ["mysqld_safe"] }))),
        ("annotation gatera.dev/start: keep", keep),
    ] {
        for members in [["absent"; 3], ["starting", "absent", "absent"], [&*reported, "stuck", "absent"]] {
            for all in [false, true] {
                let mut scene = scene_with(members, &template);
                let want = RecoveryOptions { all, ..RecoveryOptions::default() };
                assert!(
                    matches!(next(&scene, &want), RecoveryStep::ByHand(_)),
                    "{what} {members:?}: {:?}",
                    next(&scene, &want)
                );
                // The right to start was granted before the template was changed.
                scene.stateful_set["metadata"]["annotations"] = granted.clone();
                assert!(
                    matches!(next(&scene, &want), RecoveryStep::TakeBack(_)),
                    "{what} {members:?}, granted: {:?}",
                    next(&scene, &want)
                );
            }
        }
    }
    // It makes no difference that the members were stopped in order.
    let stopped =
        Scene { replicas: Some(0), ended: vec![363, 360, 351], ..scene_with(["absent"; 3], &bitnamis) };
    assert!(matches!(
        next(&stopped, &RecoveryOptions { all: true, ..RecoveryOptions::default() }),
        RecoveryStep::ByHand(_)
    ));
    // Deleting the pods by scaling would delete their claims.
    let mut deletes = scene_with(["starting", "absent", "absent"], &bitnamis);
    deletes.stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Delete" });
    let RecoveryStep::Cannot(why) = next(&deletes, &RecoveryOptions::default()) else {
        panic!("{:?}", next(&deletes, &RecoveryOptions::default()))
    };
    assert!(why.contains("whenScaled is Delete"), "{why}");
    // If a member serves, or no member ever held data, nothing has to be done by hand.
    assert_eq!(
        next(&scene_with(["ready", "absent", "absent"], &bitnamis), &RecoveryOptions::default()),
        RecoveryStep::Serves
    );
    let new = Scene {
        data: "none".into(),
        claims: false,
        ..scene_with(["starting", "absent", "absent"], &bitnamis)
    };
    assert!(matches!(next(&new, &RecoveryOptions::default()), RecoveryStep::Cannot(_)));
    let text =
        printed(&scene_with(["starting", "absent", "absent"], &bitnamis), &RecoveryOptions::default(), 0);
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => ".." }, {
        insta::assert_snapshot!("by_hand", text);
    });
}

/// This pod was created while no guard ran: the other members would form a cluster with a member that does not know its position.
#[test]
fn no_pod_is_created_beside_one_without_the_step_script() {
    let mut scene =
        Scene { members: ["starting", "absent", "absent"].map(str::to_owned).to_vec(), ..Scene::default() };
    let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-0"));
    pod["spec"]["containers"][0]["command"] = json!(["docker-entrypoint.sh"]);
    scene.also.push(pod);
    let text = printed(&scene, &RecoveryOptions::default(), 600);
    assert!(
        text.contains(&format!("kubectl -n {NAMESPACE} delete pod {STATEFUL_SET}-0, then run this again")),
        "{text}"
    );
}

/// Another member's pod waits for a node, so the new pod of the member that starts the cluster goes back to the node of its old
/// pod, if that node accepts pods.
#[test]
fn the_member_that_starts_the_cluster_keeps_its_node() {
    let says = "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules";
    let add_unscheduled_pod = |scene: &mut Scene| {
        let (_, mut pod) = scene.object(&format!("Pod/{STATEFUL_SET}-2"));
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        pod["status"] = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": says, "lastTransitionTime": "2026-12-01T09:25:00Z" },
        ] });
        scene.also.push(pod);
    };
    let mut down = Scene {
        members: vec![reported_at(ID, 363), reported_at(ID, 351), "pending".into()],
        ..Scene::default()
    };
    add_unscheduled_pod(&mut down);
    let accepts_loss = RecoveryOptions {
        from: Some("0".to_owned()),
        loss: Some("unknown".to_owned()),
        unreadable: vec!["pod-2".to_owned()],
        ..RecoveryOptions::default()
    };
    let RecoveryStep::Ask { node, .. } = next(&down, &accepts_loss) else {
        panic!("{:?}", next(&down, &accepts_loss))
    };
    assert_eq!(node.as_deref(), Some("node-0"));
    let text = printed(&down, &RecoveryOptions::default(), 0);
    assert_eq!(text, format!("waiting: {STATEFUL_SET}-2: its pod does not run: {says}"));

    let asked =
        format!("{STATEFUL_SET}-0 at {ID}:363 on node-0 until=2026-12-01T10:00:00Z accept-loss=unknown");
    let marks = json!({ "metadata": { "annotations": { "gatera.dev/recover": asked, "gatera.dev/recovery": asked } } });
    let mut gone = Scene {
        members: vec!["absent".into(), reported_at(ID, 351), "pending".into()],
        stateful_set: marks,
        ..Scene::default()
    };
    add_unscheduled_pod(&mut gone);
    let node = |change: Value| {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-0" },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        json_patch::merge(&mut node, &change);
        node
    };
    let away = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    for (what, also, ordinal, place) in [
        ("as it was", node(json!({})), 0, Some("node-0")),
        ("the pod of another member", node(json!({})), 1, None),
        ("its node is cordoned", node(json!({ "spec": { "unschedulable": true } })), 0, None),
        ("its node does not answer", node(away), 0, None),
    ] {
        let mut scene = gone.clone();
        scene.also.push(also);
        let settings = Settings::default();
        let world = scene.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        let pod = json!({ "metadata": { "name": format!("{STATEFUL_SET}-{ordinal}") } }).to_string();
        let Ok(Object::Pod(pod)) = Object::read(Kind::Pod, &pod) else { panic!("a pod") };
        assert_eq!(engine::grant::node_to_start_on(cluster, &pod, &view), place, "{what}");
    }
    // A request for another node is refused.
    let elsewhere = asked.replace("node-0", "node-1");
    let elsewhere = facts::marks::recovery::Recovery::of(&elsewhere).unwrap();
    let settings = Settings::default();
    let world = down.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let why = engine::grant::refusal(&elsewhere, view.cluster(NAMESPACE, STATEFUL_SET).unwrap(), &view);
    assert_eq!(why, Some(format!("the pod of {STATEFUL_SET}-0 is not on node node-1")));
}

/// The manual procedure of G20 creates a pod that reads a volume, and the namespace may be restricted by Pod Security.
#[test]
fn a_restricted_namespace_accepts_the_pod_that_reads_a_volume() {
    let page = include_str!("../../docs/rules/G20.md");
    let manifest = page.split_once("<<EOF\n").unwrap().1.split_once("\nEOF").unwrap().0;
    let pod: Value = serde_saphyr::from_str(manifest).unwrap();
    let (pod, container) =
        (&pod["spec"]["securityContext"], &pod["spec"]["containers"][0]["securityContext"]);
    assert_eq!(
        (&pod["runAsNonRoot"], &pod["seccompProfile"]["type"]),
        (&json!(true), &json!("RuntimeDefault"))
    );
    assert_eq!(container, &json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } }));
}
