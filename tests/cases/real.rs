//! Every case through a real API server: its scene is written into etcd as it is, a guard that comes then lists it, and the request is
//! sent by whoever the case says. What comes back is compared word by word with what the router says of the same request.
//!
//! Nobody acts on the scenes: there are no controllers, and the guard may not lead. Each case has a namespace of its own; cases whose
//! nodes are other than usual have a guard of their own. Times of the scenes are moved to now. Every request is a dry run, so nothing
//! of one case is left for the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use facts::settings::Settings;
use gatera::act::connect::{self, Person};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::all;
use super::play::{KINDS, Play, Said};
use crate::guarded::{self, Guard, Start};
use crate::lab::{ControlPlane, User};
use crate::scene::{self, NAMESPACE};
use crate::wire::Balancer;

/// Custom resources that some of them are about.
const DEFINITIONS: [&str; 3] = [
    include_str!("../fixtures/wordpress-crd.yaml"),
    include_str!("../fixtures/kudo-crds.yaml"),
    include_str!("../fixtures/rds-crd.yaml"),
];

/// Its outcome changes while the others are played: what is said of it is compared all the same.
const ON_THE_SECOND: &str = "G01/glass-that-would-be-broken-later-releases-nothing-now";

/// How many reviews it has answered.
fn reviews(guard: &Guard) -> u64 {
    let (_, text) = guard.get("/metrics").unwrap();
    let counts = text.lines().filter(|line| line.starts_with("gatera_reviews_total{"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// What the API server answers.
async fn said(client: &Client, guard: &Guard, request: Request<Body>) -> Said {
    let before = reviews(guard);
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
    let asked = reviews(guard) > before;
    if head.status.is_success() {
        return if asked { Said::Passed(ours) } else { Said::Unasked };
    }
    let bytes = body.collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&bytes).unwrap();
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    match text("message").split_once(" denied the request: ") {
        Some((webhook, words)) if webhook.contains("gatera") => Said::Refused {
            code: status["code"].as_u64().unwrap(),
            reason: text("reason"),
            words: words.to_owned(),
        },
        // What it says after the guard has let it pass: there is one already, or a budget is in the way.
        _ if matches!(head.status.as_u16(), 409 | 429) && asked => Said::Passed(ours),
        _ => Said::Itself(text("message").lines().next().unwrap_or_default().to_owned()),
    }
}

/// Registers once, and leads nobody: the right to the Lease is taken away.
fn registered(plane: &ControlPlane, balancer: &Balancer) -> Start {
    guarded::install(plane);
    for definition in DEFINITIONS {
        plane.kubectl_stdin(User::Admin, &["apply", "--filename=-"], definition).succeeded();
    }
    plane
        .kubectl(User::Admin, &["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"])
        .succeeded();
    let start = Start {
        identity: "cases".into(),
        url: Some(format!("https://{}", balancer.address)),
        ..Start::default()
    };
    let first = Guard::start(plane, &guarded::program(), &start);
    balancer.lead_to(&[first.webhooks]);
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

/// What belongs to no namespace but its own.
fn nodes(objects: &[Value]) -> String {
    let nodes: Vec<_> = objects.iter().filter(|it| it["kind"] == "Node").map(Value::to_string).collect();
    nodes.join("\n")
}

/// Where they are played.
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
        // Whoever is refused for now is not asked for again.
        let kubeconfig = plane.kubeconfig(User::Admin);
        let client = runtime
            .block_on(connect::person(&Person { kubeconfig: Some(kubeconfig), ..Person::default() }))
            .unwrap();
        Self { plane, balancer, start, client, runtime }
    }

    /// Their scenes are there, and a guard has listed them; with each scene's version.
    fn set_for(&self, plays: &[Play]) -> (Guard, Vec<String>) {
        let Self { plane, balancer, start, .. } = self;
        for kind in KINDS {
            plane.wipe(kind, if kind == "Node" { "node-" } else { "db-" });
        }
        let versions = plays.iter().map(|play| plane.store(&play.stored())).collect();
        // A list of everything is as new as what was written before.
        plane
            .kubectl(User::Admin, &["get", &KINDS.join(","), "--all-namespaces", "--output=name"])
            .succeeded();
        let guard = Guard::start(plane, &guarded::program(), start);
        balancer.cut();
        balancer.lead_to(&[guard.webhooks]);
        guard.until_registered();
        (guard, versions)
    }

    /// What is said of it otherwise than by the router, if anything.
    fn differs(&self, play: &Play, request: Request<Body>, guard: &Guard) -> Option<String> {
        let expected = || self.runtime.block_on(play.expected(&Settings::default()));
        let before = expected();
        let another = matches!(before, Said::Refused { .. }) != play.is_refused;
        if another && play.name != ON_THE_SECOND {
            // Its view is late, and no guard that lists can be made to lack what is there.
            return Some(format!(
                "{}\n  another case here, where the view knows what is changed\n",
                play.name
            ));
        }
        let real = self.runtime.block_on(said(&self.client, guard, request));
        // An age may become another one while the request is under way.
        (real != before && real != expected()).then(|| difference(play, &before, &real))
    }
}

#[test]
fn a_real_api_server_says_of_every_case_what_the_router_says() {
    let stage = Stage::built();
    // To the second, as times are told.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    let by = now.duration_since(scene::now());
    let mut rounds = BTreeMap::<String, Vec<Play>>::new();
    // What another view would say no guard can be made to say.
    let current = all().iter().enumerate().filter(|(_, (_, case))| case.given.view == "current");
    for (number, (name, case)) in current {
        let play = Play::of(number, name.clone(), case, by);
        rounds.entry(nodes(&play.objects)).or_default().push(play);
    }
    let (mut same, mut page) = (0, String::new());
    for plays in rounds.values() {
        let (guard, versions) = stage.set_for(plays);
        for (play, version) in plays.iter().zip(&versions) {
            let request = play.request(version).expect("every case is of a kind that API servers know");
            match stage.differs(play, request, &guard) {
                None => same += 1,
                Some(difference) => page.push_str(&difference),
            }
        }
    }
    assert!(same > 690, "only {same} are the same:\n{page}");
    // The API server's own words are those of this release.
    if stage.plane.minor() == 36 {
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => ".", filters => [(r"\(\d+, seen now\)", "(SOME, seen now)"), (r"cluster db-\d+/([\w-]+)( and \d+ more)?", "cluster SOME/$1"), (r"20\d\d-\d\d-\d\dT[\d:]+Z", "TIME")] }, {
            insta::assert_snapshot!("real", page);
        });
    }
}

/// For a person, without what is other every time.
fn difference(play: &Play, router: &Said, real: &Said) -> String {
    let lines = |said: &Said| match said {
        Said::Refused { code, reason, words } => format!("{code} {reason}: {words}"),
        Said::Passed(warnings) if warnings.is_empty() => "passes".to_owned(),
        Said::Passed(warnings) => {
            format!("passes\n{}", warnings.iter().cloned().collect::<Vec<_>>().join("\n"))
        }
        Said::Unasked => "passes, and the guard is not asked".to_owned(),
        Said::Itself(words) => format!("the API server itself: {words}"),
    };
    let text = format!("{}\n  router: {}\n  real: {}\n", play.name, lines(router), lines(real));
    if play.namespace().is_empty() { text } else { text.replace(play.namespace(), NAMESPACE) }
}
