//! Three replicas of the guard receive requests for the removal of different members at the same moment: one member may leave,
//! never two.
//!
//! The test sends the reviews as an API server does, each to one of the replicas and all at once. An allowed removal is then
//! carried out as the control plane does it, and the next round begins when all members are back. `GATERA_ROUNDS` sets the number
//! of rounds.

use std::collections::BTreeSet;
use std::thread;

use axum::http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::cluster::STATEFUL_SET;
use crate::guarded::{Guard, Start, program};
use crate::lab::{User, eventually};
use crate::living_cluster::Alive;
use crate::stall::Link;

/// A replica of the guard, with a client that calls it directly.
struct Replica {
    _guard: Guard,
    client: Client,
}

impl Replica {
    fn start(alive: &Alive, runtime: &Runtime, name: &str) -> Self {
        Self::start_with(alive, runtime, name, Start::default())
    }

    fn start_with(alive: &Alive, runtime: &Runtime, name: &str, start: Start) -> Self {
        // The webhook entries still point to the shared guard, whose Lease and reservations the replicas share.
        let arguments = vec!["--configuration=other".into()];
        let start = Start { identity: name.to_owned(), arguments, ..start };
        let guard = Guard::start(alive.plane, &program(), &start);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Config::new(format!("https://{}", guard.webhooks).parse().unwrap());
        config.accept_invalid_certs = true;
        let client = runtime.block_on(async { Client::try_from(config).unwrap() });
        eventually("the replica to answer", || guard.get("/readyz").filter(|(status, _)| *status == 200));
        Self { _guard: guard, client }
    }

    fn allows(&self, runtime: &Runtime, review: &Value) -> Result<(), String> {
        let request = Request::post("/validate").header("content-type", "application/json");
        let request = request.body(review.to_string().into_bytes()).unwrap();
        let answer: Value = runtime.block_on(self.client.request(request)).unwrap();
        let response = &answer["response"];
        if response["allowed"] == true { Ok(()) } else { Err(response["status"]["message"].to_string()) }
    }
}

/// Lists all ways to remove a member, each as the name of the member and the review.
fn removal_reviews(alive: &Alive) -> Vec<(String, Value)> {
    let review = |kind: Value, resource: Value, rest: Value| {
        let mut request = json!({ "uid": "u", "kind": kind, "resource": resource, "namespace": alive.ns, "userInfo": { "username": "editor" } });
        for (key, value) in rest.as_object().unwrap() {
            request[key] = value.clone();
        }
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
    };
    let pods = json!({ "group": "", "version": "v1", "resource": "pods" });
    let sets = json!({ "group": "apps", "version": "v1", "resource": "statefulsets" });
    let mut removal_reviews = Vec::new();
    for ordinal in 0..3 {
        let name = format!("{STATEFUL_SET}-{ordinal}");
        let pod = alive.plane.get(&alive.ns, &format!("pod/{name}"));
        let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
        let delete = json!({ "name": name, "operation": "DELETE", "oldObject": pod });
        removal_reviews.push((name.clone(), review(kind, pods.clone(), delete)));
        let kind = json!({ "group": "policy", "version": "v1", "kind": "Eviction" });
        let evict = json!({ "name": name, "operation": "CREATE", "subResource": "eviction", "object": { "metadata": { "name": name } } });
        removal_reviews.push((name.clone(), review(kind, pods.clone(), evict)));
        let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
        let with_memory = |memory: &str| {
            let mut pod = pod.clone();
            let server = &mut pod["spec"]["containers"][0];
            server["resizePolicy"] =
                json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
            server["resources"] = json!({ "requests": { "memory": memory } });
            pod
        };
        let resize = json!({ "name": name, "operation": "UPDATE", "subResource": "resize", "oldObject": with_memory("1Gi"), "object": with_memory("2Gi") });
        removal_reviews.push((name, review(kind, pods.clone(), resize)));
    }
    let last = format!("{STATEFUL_SET}-2");
    let set = alive.plane.get(&alive.ns, &format!("statefulset/{STATEFUL_SET}"));
    let scale = |replicas| json!({ "metadata": { "name": STATEFUL_SET, "uid": set["metadata"]["uid"] }, "spec": { "replicas": replicas } });
    let kind = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    let down = json!({ "name": STATEFUL_SET, "operation": "UPDATE", "subResource": "scale", "object": scale(2), "oldObject": scale(3) });
    removal_reviews.push((last.clone(), review(kind, sets.clone(), down)));
    let mut rolled = set.clone();
    rolled["spec"]["template"]["metadata"]["annotations"]["restarted"] = json!("now");
    let kind = json!({ "group": "apps", "version": "v1", "kind": "StatefulSet" });
    let roll = json!({ "name": STATEFUL_SET, "operation": "UPDATE", "object": rolled, "oldObject": set });
    removal_reviews.push((last, review(kind, sets, roll)));
    removal_reviews
}

#[test]
fn simultaneous_removals_at_three_replicas_let_one_member_leave() {
    let rounds = std::env::var("GATERA_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let alive = Alive::cluster("reserve");
    alive.until_ready(3);
    let runtime = Runtime::new().unwrap();
    let replicas: Vec<_> =
        ["left", "middle", "right"].map(|name| Replica::start(&alive, &runtime, name)).into();
    let (mut allowed, mut refusals) = (0, BTreeSet::new());
    for round in 0..rounds {
        let removal_reviews = removal_reviews(&alive);
        let outcomes: Vec<_> = thread::scope(|scope| {
            let asked: Vec<_> = removal_reviews
                .iter()
                .enumerate()
                .map(|(index, (member, review))| {
                    let (replica, runtime) = (&replicas[(index + round) % replicas.len()], &runtime);
                    scope.spawn(move || (member, replica.allows(runtime, review)))
                })
                .collect();
            asked.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let removed: BTreeSet<_> =
            outcomes.iter().filter(|(_, it)| it.is_ok()).map(|(member, _)| *member).collect();
        assert!(removed.len() <= 1, "round {round}: {removed:?} may leave together: {outcomes:#?}");
        refusals.extend(outcomes.iter().filter_map(|(_, it)| it.clone().err()));
        let Some(member) = removed.first() else { continue };
        allowed += 1;
        let before = alive.members();
        let controller = "--as=system:serviceaccount:kube-system:statefulset-controller";
        alive.admin(&["delete", "pod", member, controller, "--as-group=system:masters"]).succeeded();
        eventually("the member to be replaced", || {
            Some(alive.members()).filter(|after| after.len() == 3 && *after != before)
        });
        alive.until_ready(3);
        let probe = &removal_reviews.iter().find(|(other, _)| other != *member).unwrap().0;
        let pod = alive.plane.get(&alive.ns, &format!("pod/{probe}"));
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "resource": { "group": "", "version": "v1", "resource": "pods" },
            "namespace": alive.ns, "name": probe, "operation": "DELETE", "oldObject": pod, "dryRun": true,
        } });
        for replica in &replicas {
            eventually("the replica to see all members back", || replica.allows(&runtime, &review).ok());
        }
    }
    assert_eq!(allowed, rounds, "in some rounds no member was allowed to leave: {refusals:#?}");
    assert!(
        refusals.iter().any(|it| it.contains("was allowed to leave")),
        "no refusal names the member that was allowed to leave: {refusals:#?}"
    );
}

/// Returns the review of the deletion of a member's pod.
fn deletion(alive: &Alive, ordinal: usize) -> Value {
    let name = format!("{STATEFUL_SET}-{ordinal}");
    let deletes =
        |(member, review): &(String, Value)| *member == name && review["request"]["operation"] == "DELETE";
    removal_reviews(alive).into_iter().find(deletes).expect("each member can be deleted").1
}

/// Every replica respects the reservations of the others, even if it has just started.
#[test]
fn a_replica_that_has_just_started_knows_earlier_reservations() {
    let alive = Alive::cluster("reserved");
    alive.until_ready(3);
    let runtime = Runtime::new().unwrap();
    let before = Replica::start(&alive, &runtime, "before");
    before.allows(&runtime, &deletion(&alive, 0)).unwrap();
    before
        .allows(&runtime, &deletion(&alive, 0))
        .expect("the removal of the same member may be requested again");
    drop(before);
    let get = ["--namespace=gatera", "get", "leases", "--output=json"];
    let leases: Value = serde_json::from_str(&alive.plane.kubectl(User::Admin, &get).succeeded()).unwrap();
    let reservations = leases["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["metadata"]["annotations"]["gatera.dev/let-go"].as_str());
    let reservations: Vec<Value> =
        reservations.flat_map(|it| serde_json::from_str::<Vec<Value>>(it).unwrap()).collect();
    let reservation = reservations.iter().find(|it| it["namespace"] == *alive.ns).expect("a reservation");
    let at: Timestamp = reservation["at"].as_str().expect("the time of the API server").parse().unwrap();
    assert!(at.duration_since(Timestamp::now()).abs() < SignedDuration::from_secs(60), "{reservation}");
    let after = Replica::start(&alive, &runtime, "after");
    let words = after.allows(&runtime, &deletion(&alive, 1)).unwrap_err();
    assert!(
        words.contains(&format!(
            "[G02] Pod {}/{STATEFUL_SET}-1: {STATEFUL_SET}-0 was allowed to leave ",
            alive.ns
        )),
        "{words}"
    );
}

/// Without an answer of the API server no member may leave, and the message gives the reason.
#[test]
fn without_an_answer_of_the_api_server_no_member_may_leave() {
    let alive = Alive::cluster("unreserved");
    alive.until_ready(3);
    let runtime = Runtime::new().unwrap();
    let link = Link::start(alive.plane);
    let replica = Replica::start_with(
        &alive,
        &runtime,
        "unreserved",
        Start { api_server: Some(link.url()), ..Start::default() },
    );
    link.hold("/leases/gatera-let-go-");
    let words = replica.allows(&runtime, &deletion(&alive, 0)).unwrap_err();
    let says = format!(
        "[G02] Pod {}/{STATEFUL_SET}-0: gatera could not reserve {STATEFUL_SET}-0 at the API server: the API server did not \
         answer in time",
        alive.ns
    );
    assert!(words.contains(&says), "{words}");
    let mut dry = deletion(&alive, 0);
    dry["request"]["dryRun"] = json!(true);
    replica.allows(&runtime, &dry).expect("a dry run writes nothing, so it needs no answer");
    link.release();
    replica.allows(&runtime, &deletion(&alive, 0)).unwrap();
}
