//! Clusters that mariadb-operator drives: what its account may do that people may not, and what injection leaves to it.

use facts::settings::{KnownNames, Settings};
use facts::view::View;
use jiff::SignedDuration;
use leader::password;
use leader::plan::rollout::{self, RolloutStage};
use leader::recovery::{self, RecoveryOptions};
use leader::stop;
use serde_json::{Value, json};

use crate::cases::asked::{Action, body};
use crate::router::{ask, guard_with};
use crate::scene::{self, NAMESPACE, STATEFUL_SET, Scene};

const OPERATOR: &str = "system:serviceaccount:mariadb-system:mariadb-operator";

fn settings() -> Settings {
    let yaml = format!("mariadb: {{operators: ['{OPERATOR}']}}");
    Settings::read(&yaml, &KnownNames::default()).unwrap()
}

/// Returns a cluster whose StatefulSet belongs to a MariaDB, and whose template has our label.
fn driven(members: &[&str]) -> Scene {
    let owner = json!({ "apiVersion": "k8s.mariadb.com/v1alpha1", "kind": "MariaDB", "name": "ours", "uid": "5f0c7a52", "controller": true });
    let mut scene = without_operator(members);
    scene.stateful_set["metadata"] = json!({ "ownerReferences": [owner] });
    scene
}

/// Returns the same cluster without an operator.
fn without_operator(members: &[&str]) -> Scene {
    let server = json!({ "name": "mariadb", "image": "mariadb:11.8.8", "volumeMounts": [{ "name": "config", "mountPath": "/etc/mysql/conf.d" }] });
    let template = json!({ "metadata": { "labels": { "gatera.dev/cluster": "galera-instance" } }, "spec": { "containers": [server] } });
    Scene {
        members: members.iter().map(|it| (*it).to_owned()).collect(),
        parallel: true,
        stateful_set: json!({ "spec": { "template": template } }),
        ..Scene::default()
    }
}

/// Two of three members serve.
const SERVES: [&str; 3] = ["ready", "ready", "starting"];
const DOWN: [&str; 3] = ["starting"; 3];

/// Returns the guard's answer: its HTTP status, 200 if the request is allowed, and its warnings and message.
async fn answer(scene: &Scene, user: &str, action: &str) -> (u64, String) {
    let action: Action = serde_saphyr::from_str(action).unwrap();
    let settings = settings();
    let guard = guard_with(scene.world(&settings), settings);
    let response = ask(&guard, "/validate", &body(&action.asked(scene), user)).await["response"].take();
    let code =
        response["status"]["code"].as_u64().unwrap_or(if response["allowed"] == true { 200 } else { 0 });
    let words = response["warnings"].as_array().into_iter().flatten().chain([&response["status"]["message"]]);
    (code, words.filter_map(Value::as_str).collect::<Vec<_>>().join("\n"))
}

#[tokio::test]
async fn the_operator_may_do_its_work_and_people_may_not_do_it_by_mistake() {
    let stop = "{change: {spec: {replicas: 0}}}";
    let start = "{change: {spec: {replicas: 3}}}";
    let [first, third] = [0, 2].map(|it| format!("{{delete: {{what: Pod/{STATEFUL_SET}-{it}}}}}"));
    let orphan = format!("{{delete: {{what: StatefulSet/{STATEFUL_SET}, propagation: Orphan}}}}");
    let whole = format!("{{delete: {{what: StatefulSet/{STATEFUL_SET}}}}}");
    let claim = format!("{{delete: {{what: PersistentVolumeClaim/datadir-{STATEFUL_SET}-0}}}}");
    // A request, and the statuses of its answers while two of three members serve and while none does: if the operator sends it,
    // and if a person does.
    for (action, operator, person) in [
        (stop, [403, 200], [403, 403]),
        (&*first, [403, 200], [403, 403]),
        (&*third, [200, 200], [200, 403]),
        (&*orphan, [200, 200], [403, 403]),
        (&*whole, [403, 403], [403, 403]),
        (&*claim, [403, 403], [403, 403]),
        (
            "{change: {spec: {template: {metadata: {annotations: {k8s.mariadb.com/config: x}}}}}}",
            [200, 200],
            [403, 200],
        ),
    ] {
        for (user, expected) in [(OPERATOR, operator), ("editor", person)] {
            for (members, expected) in [(SERVES, expected[0]), (DOWN, expected[1])] {
                let (code, words) = answer(&driven(&members), user, action).await;
                assert_eq!(code, expected, "{user} {action} with {members:?}: {words}");
                assert!(
                    user != OPERATOR || code != 200 || words.is_empty(),
                    "the operator gets warnings: {words}"
                );
            }
        }
    }
    // The operator's recovery goes on even if all members are Ready by then, because it has no other end. The refusal before
    // says so.
    let all = driven(&["ready"; 3]);
    assert_eq!(answer(&all, OPERATOR, stop).await, (200, String::new()));
    assert_eq!(answer(&all, "editor", stop).await.0, 403);
    let (_, words) = answer(&driven(&SERVES), OPERATOR, stop).await;
    assert!(words.contains("only while no member or every member is Ready"), "{words}");
    // The operator is judged like a person in clusters that it does not drive, and while it is unknown which members are Ready;
    // then only the orphaning deletion is allowed.
    for action in [stop, &*first, &*orphan] {
        let (code, words) = answer(&without_operator(&SERVES), OPERATOR, action).await;
        assert_eq!(code, 403, "{action}: {words}");
        let stale = Scene { view: "stale".to_owned(), ..driven(&DOWN) };
        let code = answer(&stale, OPERATOR, action).await.0;
        assert_eq!(code == 200, action == &*orphan, "{action}: {code}");
    }
    // The operator may scale five members to three but not to one, and may not stop members whose claims are deleted with them.
    let five = driven(&["ready"; 5]);
    assert_eq!(answer(&five, OPERATOR, start).await.0, 200);
    assert_eq!(answer(&five, OPERATOR, "{change: {spec: {replicas: 1}}}").await.0, 403);
    let policy = "{spec: {replicas: 0, persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}}}";
    assert_eq!(answer(&driven(&DOWN), OPERATOR, &format!("{{change: {policy}}}")).await.0, 403);
    let empty = Scene { replicas: Some(0), ..driven(&[]) };
    assert_eq!(answer(&empty, OPERATOR, start).await, (200, String::new()));
}

/// Returns the pod of a member as its StatefulSet creates it, or that of a Job of the operator.
fn pod(owner: &str, name: &str, command: &Value) -> Value {
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": 5566 }, "initialDelaySeconds": 20, "timeoutSeconds": 5, "periodSeconds": 10 });
    let mounts = json!([{ "name": "storage", "mountPath": "/var/lib/mysql" }, { "name": "galera", "mountPath": "/etc/mysql/mariadb.conf.d" }]);
    let (version, name_of_owner) =
        if owner == "Job" { ("batch/v1", name) } else { ("apps/v1", STATEFUL_SET) };
    let mut server = json!({ "name": "mariadb", "image": "docker-registry1.mariadb.com/library/mariadb:11.8.8", "volumeMounts": mounts,
        "startupProbe": probe("/liveness"), "livenessProbe": probe("/liveness"), "readinessProbe": probe("/readiness") });
    json_patch::merge(&mut server, command);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": { "app": "galera", "instance": "galera-instance", "gatera.dev/cluster": "galera-instance" },
            "ownerReferences": [{ "apiVersion": version, "kind": owner, "name": name_of_owner, "uid": "1", "controller": true }],
        },
        "spec": {
            "securityContext": { "runAsUser": 999, "runAsNonRoot": true },
            "containers": [server, { "name": "agent", "image": "ghcr.io/mariadb-operator/mariadb-operator:26.6.0", "args": ["agent", "galera"], "volumeMounts": mounts }],
            "volumes": [
                { "name": "storage", "persistentVolumeClaim": { "claimName": format!("storage-{name}") } },
                { "name": "galera", "persistentVolumeClaim": { "claimName": format!("galera-{name}") } },
            ],
        },
    })
}

fn injected(pod: &Value, scene: &Scene) -> Value {
    crate::inject::injected_with(pod, scene, &settings())
}

#[test]
fn a_member_gets_its_position_and_probes_and_keeps_what_its_operator_writes() {
    let bare = pod("StatefulSet", &format!("{STATEFUL_SET}-0"), &json!({}));
    for (members, may) in [(SERVES, "join"), (DOWN, "resume 20261201094000")] {
        let after = injected(&bare, &driven(&members));
        let server = &after["spec"]["containers"][0];
        assert_eq!(server["command"], json!(["sh", "/etc/gatera/start-member.sh", "docker-entrypoint.sh"]));
        assert_eq!(server["args"], json!(["mariadbd"]));
        // The permission to resume ends in ten minutes.
        let founding = json!({ "name": "GATERA_FOUNDING_FILE", "value": may });
        assert!(server["env"].as_array().unwrap().contains(&founding), "{}", server["env"]);
        // Probes that log in, or that kill a member during a state transfer, are replaced.
        assert_eq!(server["livenessProbe"]["tcpSocket"]["port"], 3306);
        for (probe, asks) in [("startupProbe", "started"), ("readinessProbe", "ready")] {
            assert_eq!(server[probe]["exec"]["command"], json!(["/etc/gatera/wait-for-sync.sh", asks]));
        }
        // The operator writes the addresses and restarts members for a new configuration, so the guard does neither.
        let options = after["metadata"]["annotations"]["gatera.dev/my-cnf"].as_str().unwrap();
        assert!(!options.contains("wsrep_cluster_address"), "{options}");
        assert_eq!(after["metadata"]["annotations"]["gatera.dev/revision"], Value::Null);
        // No anti-affinity: if a member has no node, the operator scales the whole cluster to 0, again and again.
        assert_eq!(after["spec"]["affinity"], Value::Null);
        assert_eq!(after["spec"]["containers"][1], bare["spec"]["containers"][1], "the agent stays as it is");
    }
    let after = injected(&bare, &without_operator(&SERVES));
    let server = after["spec"]["containers"][0]["env"].to_string();
    assert!(!server.contains("GATERA_FOUNDING_FILE") && after["spec"]["affinity"].is_object(), "{after}");
}

#[test]
fn pods_of_the_operators_recovery_are_left_alone() {
    let asks = json!({ "command": ["mariadbd"], "args": ["--log-error=/dev/stderr", "--wsrep-recover"] });
    let job = pod("Job", &format!("{STATEFUL_SET}-0-recovery-x7k2p"), &asks);
    assert_eq!(injected(&job, &driven(&DOWN)), job);
}

#[test]
fn the_leader_leaves_rollouts_and_recovery_to_the_operator() {
    let settings = settings();
    for (scene, is_ours) in [
        (driven(&SERVES), false),
        (driven(&DOWN), false),
        (without_operator(&SERVES), true),
        (without_operator(&DOWN), true),
    ] {
        let world = scene.world(&settings);
        let view = View::new(&world, scene::now(), &settings);
        let cluster = view.cluster(NAMESPACE, STATEFUL_SET).unwrap();
        assert_eq!(rollout::stage(cluster, &view) != RolloutStage::Absent, is_ours);
        let step = stop::next(cluster, &view);
        assert_eq!(
            !format!("{step:?}").contains("MariaDB ours drives it, and its operator would start it again"),
            is_ours
        );
        let password = password::state_obstacle(cluster, &view).unwrap_or_default();
        assert_eq!(
            !password.contains("MariaDB ours drives it, and its operator applies what a Secret holds"),
            is_ours
        );
        for all in [false, true] {
            let want = RecoveryOptions { from: None, loss: None, all, before: vec![], unreadable: vec![] };
            let step = recovery::next(cluster, &view, &want, SignedDuration::ZERO);
            assert_eq!(
                !format!("{step:?}").contains("MariaDB ours drives it, and its operator recovers it"),
                is_ours,
                "{step:?}"
            );
        }
    }
}
