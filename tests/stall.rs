//! A link to the API server that stalls without closing: what the guard then reports about its view, and which replica leads. All
//! requests and answers go through a proxy that can hold them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header;
use axum::response::Response;
use futures_util::stream;
use http_body_util::BodyExt as _;
use kube::Client;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::guarded::{Guard, Start, install, program, shared};
use crate::lab::{ControlPlane, eventually};
use crate::wire::client_without_credentials;

/// The proxy. It parses HTTP, so it can hold a single watch.
pub struct Link {
    address: SocketAddr,
    held: watch::Sender<Held>,
    _runtime: Runtime,
}

/// A text that the path and query of every held request contain; `None` if no requests are held.
type Held = Option<String>;

impl Link {
    pub fn start(plane: &ControlPlane) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (held, holds) = watch::channel(None);
        let api_server = runtime.block_on(client_without_credentials(plane));
        let address = runtime.block_on(async move {
            let app =
                Router::new().fallback(move |request| forward(api_server.clone(), request, holds.clone()));
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move { axum::serve(listener, app).await });
            address
        });
        Self { address, held, _runtime: runtime }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Holds matching requests and answers from now on, including those under way. An empty text matches everything.
    pub fn hold(&self, path: &str) {
        self.held.send_replace(Some(path.to_owned()));
    }

    /// Forwards everything that is held, and holds nothing more.
    pub fn release(&self) {
        self.held.send_replace(None);
    }
}

/// Waits while requests with this path and query are held.
async fn until_released(path: &str, holds: &mut watch::Receiver<Held>) {
    let _ = holds.wait_for(|held| held.as_ref().is_none_or(|part| !path.contains(part.as_str()))).await;
}

async fn forward(api_server: Client, request: Request, mut holds: watch::Receiver<Held>) -> Response {
    let path = request.uri().to_string();
    until_released(&path, &mut holds).await;
    let (mut head, body) = request.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    head.headers.remove(header::HOST);
    let request = axum::http::Request::from_parts(head, kube::client::Body::from(bytes.to_vec()));
    let Ok(response) = api_server.send(request).await else {
        return Response::builder().status(502).body(Body::empty()).unwrap();
    };
    until_released(&path, &mut holds).await;
    let (mut head, body) = response.into_parts();
    for hop in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        head.headers.remove(hop);
    }
    let frames = stream::unfold((Box::pin(body), path, holds), async |(mut body, path, mut holds)| {
        let frame = body.frame().await;
        until_released(&path, &mut holds).await;
        let data = frame?.map(|frame| frame.into_data().unwrap_or_default());
        Some((data, (body, path, holds)))
    });
    Response::from_parts(head, Body::from_stream(frames))
}

/// Starts a guard behind this link, with entries, certificates and a lease of its own.
fn guard_behind(plane: &ControlPlane, link: &Link, identity: &str) -> Guard {
    let start = Start {
        identity: identity.to_owned(),
        namespace: Some("default".into()),
        arguments: vec![format!("--configuration={identity}")],
        api_server: Some(link.url()),
        ..Start::default()
    };
    Guard::start(plane, &program(), &start)
}

/// Returns whether the view is current, and the line of `/readyz` about it.
fn view_of(guard: &Guard) -> Option<(bool, String)> {
    let text = guard.get("/readyz")?.1;
    let line = text.lines().find(|line| line.contains("view: "))?;
    Some((line.contains("view: current"), line.to_owned()))
}

/// Each watch stalls alone, and then all of them together: what a single watch misses is missing in the view.
#[test]
fn a_stalled_watch_makes_the_view_stale_within_15_seconds() {
    let (plane, _) = shared();
    let watches = [
        "/apis/apps/v1/statefulsets",
        "/apis/apps/v1/deployments",
        "labelSelector=gatera.dev%2Fcluster",
        "labelSelector=app+in",
        "labelSelector=app.kubernetes.io",
        "/api/v1/persistentvolumeclaims",
        "/api/v1/services",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/autoscaling/v1/horizontalpodautoscalers",
        "/api/v1/nodes",
        "/api/v1/namespaces?",
        "/api/v1/configmaps",
        "",
    ];
    let start = |index: usize, path: &'static str| {
        let link = Link::start(plane);
        let guard = guard_behind(plane, &link, &format!("stalled-{index}"));
        (path, link, guard)
    };
    let mut guards = Vec::new();
    let numbered: Vec<_> = watches.into_iter().enumerate().collect();
    for some in numbered.chunks(3) {
        guards.extend(thread::scope(|scope| {
            let starts = some.iter().map(|(index, path)| scope.spawn(|| start(*index, path)));
            let starts: Vec<_> = starts.collect();
            starts.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
        }));
    }
    for (path, _, guard) in &guards {
        eventually(&format!("the first lists of the guard whose {path} will stall"), || {
            view_of(guard).filter(|(current, _)| *current)
        });
    }
    for (path, link, _) in &guards {
        link.hold(path);
    }
    let held = Instant::now();
    // All guards are polled throughout, because one whose watch was silent for some seconds before the stall is stale earlier.
    let mut silent: Vec<_> = guards.iter().collect();
    eventually("all guards to report a stale view", || {
        silent.retain(|(path, _, guard)| {
            let Some((_, line)) = view_of(guard).filter(|(current, _)| !*current) else { return true };
            // The limit allows for a busy machine.
            assert!(held.elapsed() < Duration::from_secs(17), "{path}: {:?}", held.elapsed());
            assert!(line.contains("stale for 15s") || line.contains("stale for 16s"), "{path}: {line}");
            false
        });
        silent.is_empty().then_some(())
    });
    for (_, link, _) in &guards {
        link.release();
    }
    let released = Instant::now();
    for (path, _, guard) in &guards {
        eventually(&format!("the guard whose {path} stalled to be current again"), || {
            view_of(guard).filter(|(current, _)| *current)
        });
    }
    assert!(
        released.elapsed() < Duration::from_secs(15),
        "current again only after {:?}",
        released.elapsed()
    );
}

/// The leader's link stalls and recovers repeatedly: at no moment do both replicas report that they lead.
#[test]
fn a_leader_whose_link_stalls_steps_down_before_the_next_one_leads() {
    let plane = ControlPlane::start();
    install(&plane);
    let replicas: Vec<_> = ["one", "two"]
        .into_iter()
        .map(|identity| {
            let link = Link::start(&plane);
            let start = Start { identity: identity.into(), api_server: Some(link.url()), ..Start::default() };
            (Guard::start(&plane, &program(), &start), link)
        })
        .collect();
    let leads =
        |guard: &Guard| guard.get("/metrics").is_some_and(|(_, text)| text.contains("gatera_leader 1\n"));
    let leader = || {
        let lead: Vec<_> = replicas.iter().map(|(guard, _)| leads(guard)).collect();
        assert!(lead != [true, true], "both replicas report that they lead");
        lead.iter().position(|leads| *leads)
    };
    let mut now = eventually("a first leader", leader);
    for _ in 0..2 {
        replicas[now].1.hold("");
        let next = eventually("another leader", || leader().filter(|next| *next != now));
        replicas[now].1.release();
        now = next;
    }
}
