//! Every case through a real API server: its scene is written into etcd unchanged, a guard that is started afterwards lists it,
//! and the request is sent as the case's user. The answer is compared word by word with the router's answer to the same request.
//!
//! The scenes do not change: no controllers run, and the guard may not lead. Each case has a namespace of its own; cases with
//! unusual nodes have a guard of their own. Times in the scenes are moved to the present. A request is a dry run, except for a
//! deletion: API servers ignore the `dryRun` of a query if there are options. The commands that are printed in a refusal of a
//! pack are run, too (`followed.rs`).

mod followed;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use facts::settings::Settings;
use gatera::act::connect::{self, ClientOptions};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::all;
use super::play::{Answer, KINDS, Play};
use crate::guarded::{self, Guard, Start};
use crate::lab::{ControlPlane, User};
use crate::scene::{self, NAMESPACE};
use crate::wire::Balancer;

/// The definitions of the custom resources in some scenes.
const DEFINITIONS: [&str; 4] = [
    include_str!("../fixtures/wordpress-crd.yaml"),
    include_str!("../fixtures/kudo-crds.yaml"),
    include_str!("../fixtures/rds-crd.yaml"),
    include_str!("../fixtures/mariadb-crd.yaml"),
];

/// A case whose outcome changes while the others are played. Its answers are compared, too.
const TIME_DEPENDENT: &str = "G01/break-glass-that-begins-later-has-no-effect-yet";

/// A guard, and the number of requests that it had answered at the last look. Its page of metrics is large, because it names
/// every cluster, so it is read once for each request.
struct CountedGuard {
    guard: Guard,
    reviews: Cell<u64>,
}

impl CountedGuard {
    /// Returns whether the guard has answered a request since the last call.
    fn was_asked(&self) -> bool {
        let (_, text) = self.guard.get("/metrics").unwrap();
        let counts = text.lines().filter(|line| line.starts_with("gatera_reviews_total{"));
        let now = counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        self.reviews.replace(now) < now
    }
}

/// Sends the request and returns the API server's answer.
async fn send(client: &Client, guard: &CountedGuard, request: Request<Body>) -> Answer {
    let (head, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let request = Request::from_parts(head, kube::client::Body::from(bytes.to_vec()));
    let response = client.send(request).await.unwrap();
    let (head, body) = response.into_parts();
    let warning = |it: &axum::http::HeaderValue| {
        let text = std::str::from_utf8(it.as_bytes()).unwrap();
        // 299 - "words"
        let quoted = text.split_once('"').unwrap().1.strip_suffix('"').unwrap();
        quoted.replace("\\\"", "\"").replace("\\\\", "\\")
    };
    let warnings: BTreeSet<_> = head.headers.get_all("warning").iter().map(warning).collect();
    let ours = warnings.into_iter().filter(|it| it.starts_with('[') || it.contains("gatera")).collect();
    let asked = guard.was_asked();
    if head.status.is_success() {
        return if asked { Answer::Allowed(ours) } else { Answer::NotAsked };
    }
    let bytes = body.collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&bytes).unwrap();
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    match text("message").split_once(" denied the request: ") {
        Some((webhook, words)) if webhook.contains("gatera") => Answer::Refused {
            code: status["code"].as_u64().unwrap(),
            reason: text("reason"),
            words: words.to_owned(),
        },
        // The API server refuses after the guard has allowed: the object exists already, or a disruption budget forbids it.
        _ if matches!(head.status.as_u16(), 409 | 429) && asked => Answer::Allowed(ours),
        _ => Answer::ApiServerRefused(text("message").lines().next().unwrap_or_default().to_owned()),
    }
}

/// Registers the webhooks once with a guard, then takes away the right to the Lease, so that no later guard leads.
fn registered(plane: &ControlPlane, balancer: &Balancer) -> Start {
    guarded::install(plane);
    for definition in DEFINITIONS {
        plane.kubectl_stdin(User::Admin, &["apply", "--filename=-"], definition).succeeded();
    }
    plane.until_defined();
    let start = Start {
        identity: "cases".into(),
        url: Some(format!("https://{}", balancer.address)),
        ..Start::default()
    };
    let first = Guard::start(plane, &guarded::program(), &start);
    balancer.set_backends(&[first.webhooks]);
    first.until_registered();
    let mut role = plane.get("gatera", "role/gatera");
    for rule in role["rules"].as_array_mut().unwrap() {
        if let Some(names) =
            rule["resourceNames"].as_array_mut().filter(|it| it.contains(&json!("gatera-let-go-0")))
        {
            names.retain(|name| name != "gatera");
        }
    }
    role["metadata"].as_object_mut().unwrap().remove("managedFields");
    first.terminate();
    let (status, log) = first.until_ended(Duration::from_secs(60));
    assert!(status.success(), "{log}");
    plane.kubectl_stdin(User::Admin, &["replace", "--filename=-"], &role.to_string()).succeeded();
    start
}

/// Returns the scene's Nodes, the only objects that are not in the case's own namespace.
fn nodes(objects: &[Value]) -> String {
    let nodes: Vec<_> = objects.iter().filter(|it| it["kind"] == "Node").map(Value::to_string).collect();
    nodes.join("\n")
}

/// The control plane on which the cases are played.
struct Stage {
    plane: ControlPlane,
    balancer: Balancer,
    start: Start,
    client: Client,
    runtime: Runtime,
}

impl Stage {
    fn built() -> Self {
        let plane = ControlPlane::start_without_controllers();
        let balancer = Balancer::start();
        let start = registered(&plane, &balancer);
        let runtime = Runtime::new().unwrap();
        // This client does not repeat a request that is refused temporarily.
        let kubeconfig = plane.kubeconfig(User::Admin);
        let client = runtime
            .block_on(connect::person(&ClientOptions {
                kubeconfig: Some(kubeconfig),
                ..ClientOptions::default()
            }))
            .unwrap();
        Self { plane, balancer, start, client, runtime }
    }

    /// Stores the scenes and starts a guard, which lists them; also returns the version of each scene.
    fn prepared_for(&self, plays: &[Play]) -> (CountedGuard, Vec<String>) {
        let Self { plane, balancer, start, .. } = self;
        for kind in KINDS {
            plane.wipe(kind, if kind == "Node" { "node-" } else { "db-" });
        }
        let versions = plays.iter().map(|play| plane.store(&play.stored())).collect();
        // A list of all objects is at least as new as everything written before.
        plane
            .kubectl(User::Admin, &["get", &KINDS.join(","), "--all-namespaces", "--output=name"])
            .succeeded();
        let guard = Guard::start(plane, &guarded::program(), start);
        balancer.cut();
        balancer.set_backends(&[guard.webhooks]);
        guard.until_registered();
        let guard = CountedGuard { guard, reviews: Cell::new(0) };
        guard.was_asked();
        (guard, versions)
    }

    /// Sends the case's request. On a busy machine the API server may stand still for longer than a request or a reservation may
    /// take, or than the guard counts its view as current; the answer says so, and the request is sent again for a minute.
    fn answer(&self, play: &Play, version: &str, guard: &CountedGuard) -> Answer {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let request = play.request(version).expect("every case is of a kind that API servers know");
            let said = self.runtime.block_on(send(&self.client, guard, request));
            if !is_late(&text_of(&said)) || Instant::now() > end {
                return said;
            }
        }
    }

    /// Returns how the API server's answer differs from the router's, if it does.
    fn differs(&self, play: &Play, version: &str, guard: &CountedGuard) -> Option<String> {
        let expected = || self.runtime.block_on(play.expected(&Settings::default()));
        let before = expected();
        let another = matches!(before, Answer::Refused { .. }) != play.is_refused;
        if another && play.name != TIME_DEPENDENT {
            // The case needs a late view, but a guard that lists sees every object.
            return Some(format!(
                "{}\n  another case here, where the view knows what is changed\n",
                play.name
            ));
        }
        let real = self.answer(play, version, guard);
        let after = expected();
        let is_same = real == before || real == after || is_between(&before, &real, &after);
        (!is_same).then(|| difference(play, &before, &real))
    }
}

#[test]
fn a_real_api_server_answers_every_case_as_the_router_does() {
    let stage = Stage::built();
    // Truncated to whole seconds, the precision of Kubernetes timestamps.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    let by = now.duration_since(scene::now());
    let mut rounds = BTreeMap::<String, Vec<Play>>::new();
    // A real guard cannot be given a view other than the current one.
    let current = all().iter().enumerate().filter(|(_, (_, case))| case.given.view == "current");
    for (number, (name, case)) in current {
        let play = Play::of(number, name.clone(), case, by);
        rounds.entry(nodes(&play.objects)).or_default().push(play);
    }
    let (mut same, mut page) = (0, String::new());
    let (mut followed, mut failed) = (0, Vec::new());
    for plays in rounds.values() {
        let (guard, versions) = stage.prepared_for(plays);
        for (play, version) in plays.iter().zip(&versions) {
            match stage.differs(play, version, &guard) {
                None => same += 1,
                Some(difference) => page.push_str(&difference),
            }
            followed += stage.follow(play, &guard, &mut failed);
        }
    }
    assert!(same > 690, "only {same} answers are the same as the router's:\n{page}");
    assert!(failed.is_empty(), "{} printed commands do not work: {failed:#?}", failed.len());
    assert!(followed > 40, "only {followed} printed commands of packs were run");
    // The API server's own messages differ between releases; the snapshot is of this one.
    if stage.plane.minor() == 36 {
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => ".", filters => [(r"\(\d+, seen now\)", "(SOME, seen now)"), (r"cluster db-\d+/([\w-]+)( and \d+ more)?", "cluster SOME/$1"), (r"20\d\d-\d\d-\d\dT[\d:]+Z", "TIME")] }, {
            insta::assert_snapshot!("real", page);
        });
    }
}

#[test]
fn an_answer_may_name_a_time_between_two_others() {
    let said = |text: &str| Answer::Allowed([text.to_owned()].into());
    let [first, last] = ["9s ago, until 10:00:59Z", "12s ago, until 10:01:02Z"].map(said);
    assert!(is_between(&first, &said("10s ago, until 10:01:00Z"), &last));
    assert!(!is_between(&first, &said("13s ago, until 10:01:00Z"), &last));
    assert!(!is_between(&first, &said("10s ago, and until 10:01:00Z"), &last));
    assert!(!is_between(&first, &said("10s ago, until 11:01:00Z"), &last));
    assert!(!is_between(&first, &said("8s ago, before 10:01:00Z"), &last));
}

/// Returns whether an answer differs from an earlier and a later one only in times and ages between theirs. A request may take
/// some seconds, and most answers name a time.
fn is_between(earlier: &Answer, said: &Answer, later: &Answer) -> bool {
    let texts = [earlier, said, later].map(text_of);
    let [earlier, said, later] = texts.each_ref().map(|it| it.split_whitespace().collect::<Vec<_>>());
    let order = |word: &str| (word.len(), word.to_owned());
    let is_in =
        |((first, word), last): ((&&str, &&str), &&str)| (order(first)..=order(last)).contains(&order(word));
    [earlier.len(), later.len()] == [said.len(); 2] && earlier.iter().zip(&said).zip(&later).all(is_in)
}

/// Returns whether the API server stood still meanwhile. No case that is played here has a view that is not current.
fn is_late(text: &str) -> bool {
    let mut ages = text.match_indices("seen ").map(|(at, it)| &text[at + it.len()..]);
    text.contains(": the API server did not answer in time\n")
        || text
            .starts_with("the API server itself: Timeout: request did not complete within requested timeout")
        || ages.any(|it| it.starts_with(|c: char| c.is_ascii_digit()))
}

fn text_of(said: &Answer) -> String {
    match said {
        Answer::Refused { code, reason, words } => format!("{code} {reason}: {words}"),
        Answer::Allowed(warnings) if warnings.is_empty() => "passes".to_owned(),
        Answer::Allowed(warnings) => {
            format!("passes\n{}", warnings.iter().cloned().collect::<Vec<_>>().join("\n"))
        }
        Answer::NotAsked => "passes, and the guard is not asked".to_owned(),
        Answer::ApiServerRefused(words) => format!("the API server itself: {words}"),
    }
}

/// Returns both answers for a person to compare.
fn difference(play: &Play, router: &Answer, real: &Answer) -> String {
    let text = format!("{}\n  router: {}\n  real: {}\n", play.name, text_of(router), text_of(real));
    if play.namespace().is_empty() { text } else { text.replace(play.namespace(), NAMESPACE) }
}
