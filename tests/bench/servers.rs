//! The servers that are compared. Each runs in its own process: this program, started again.
//!
//! All have the same runtime, accept loop, TLS and certificate; only the handlers of `/validate` and `/mutate` differ. A
//! server prints its address on stdout and exits when its stdin is closed, so none can outlive the benchmark.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, post};
use axum::{Json, Router};
use facts::settings::Settings;
use facts::view::{Freshness, World};
use gatera::act::answer::{self, MAX_BODY_BYTES};
use gatera::act::certs::{Leaf, Lifetimes, Material};
use gatera::act::guard::Guard;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::{fleet, packs};

/// What a server prints when it is ready.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    pub address: SocketAddr,
    /// The CA certificates that clients trust.
    pub bundle: String,
    /// The time it took to build the world.
    pub build: Duration,
    /// The time from a built world to a listening socket; most of it is for certificates.
    pub ready: Duration,
}

/// Serves the guard as `gatera serve` puts it together, with a world made of the fleet.
pub fn guard(clusters: usize) {
    gatera::act::telemetry::init_logging();
    let settings = Settings::default();
    let mut facts = fleet::facts(clusters, &settings);
    if clusters > 0 {
        packs::put_instances(&mut facts);
    }
    let started = Instant::now();
    let world = World::build(facts, Freshness::Current);
    let build = started.elapsed();
    let guard = Arc::new(Guard::new(Arc::new(ArcSwap::from_pointee(world)), settings, Timestamp::now));
    run(answer::admission(Arc::clone(&guard)), guard, build);
}

/// Serves a webhook that decodes each review and allows it, as simple webhooks do.
pub fn nothing() {
    let allow = async |Json(review): Json<Value>| {
        let response = json!({ "uid": review["request"]["uid"], "allowed": true });
        Json(json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response }))
    };
    serve_without_guard(post(allow));
}

/// Serves a webhook that reads only the uid of each review, and allows it: the least that a webhook can do.
pub fn uid() {
    #[derive(Deserialize)]
    struct Review<'a> {
        #[serde(borrow)]
        request: Request<'a>,
    }
    #[derive(Deserialize)]
    struct Request<'a> {
        uid: &'a str,
    }
    let allow = async |body: Bytes| {
        let Review { request } = serde_json::from_slice(&body).expect("the benchmark sends reviews");
        let response = json!({ "uid": request.uid, "allowed": true });
        Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
    };
    serve_without_guard(post(allow));
}

/// Serves a webhook that answers every review with `handler`.
fn serve_without_guard(handler: MethodRouter) {
    let router = Router::new()
        .route("/validate", handler.clone())
        .route("/mutate", handler)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    let world = Arc::new(ArcSwap::from_pointee(World::default()));
    // The accept loop counts its connections in this guard; nothing else uses it.
    let guard = Arc::new(Guard::new(world, Settings::default(), Timestamp::now));
    run(router, guard, Duration::ZERO);
}

fn run(router: Router, guard: Arc<Guard>, build: Duration) {
    let started = Instant::now();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("starting the runtime");
    runtime.block_on(async {
        let names = [Ipv4Addr::LOCALHOST.to_string()];
        let material =
            Material::new(&names, Lifetimes::default(), Timestamp::now()).expect("making certificates");
        let leaf = Leaf::default();
        leaf.swap(material.leaf.certified_key().expect("the leaf is ours"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let hello = Hello { address, bundle: material.bundle(), build, ready: started.elapsed() };
        let line = serde_json::to_string(&hello).expect("a greeting is JSON");
        writeln!(io::stdout(), "{line}").expect("the benchmark reads the line");
        std::thread::spawn(end_with_stdin);
        // No other stage is ever sent: the process ends when its stdin is closed.
        let (_close, closing) = watch::channel(answer::ShutdownStage::Serving);
        let tls = answer::Tls::new(leaf, None).expect("there is no file to read");
        let port = answer::ServingPort::webhooks(listener, tls, router);
        answer::accept(port, guard, closing, Duration::ZERO).await;
    });
}

fn end_with_stdin() {
    let _ = io::stdin().read(&mut [0]);
    std::process::exit(0);
}
