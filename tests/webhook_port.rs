//! The webhook port, in the process of the test: which callers are answered, how long a connection is kept, and how it is closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use facts::settings::Settings;
use gatera::act::answer::{self, ServingPort, ShutdownStage, Tls};
use gatera::act::certs::{Leaf, Lifetimes, Material};
use gatera::act::guard::Guard;
use hyper::StatusCode;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::caller::{Answered, Caller, config, connect, update};
use crate::router;
use crate::scene::{self, Scene};

/// The longest wait for an answer or for the end of a connection.
const DEADLINE: Duration = Duration::from_secs(20);

struct Served {
    address: SocketAddr,
    guard: Arc<Guard>,
    material: Material,
    stage: watch::Sender<ShutdownStage>,
    ended: tokio::task::JoinHandle<()>,
    folder: tempfile::TempDir,
}

fn material() -> Material {
    Material::new(&["127.0.0.1".to_owned()], Lifetimes::default(), jiff::Timestamp::now()).unwrap()
}

/// Serves the port as `gatera serve` does, with client CAs if they are given.
async fn served(clients: Option<&str>) -> Served {
    served_by(answer::admission, clients, clients).await
}

/// Serves the port with this router, and replaces the client CAs as soon as the first ones have been read.
async fn served_by(
    router: impl FnOnce(Arc<Guard>) -> Router,
    clients: Option<&str>,
    later: Option<&str>,
) -> Served {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (material, leaf, folder) = (material(), Leaf::default(), tempfile::tempdir().unwrap());
    leaf.swap(material.leaf.certified_key().unwrap());
    let file = folder.path().join("clients.crt");
    let write = |pem: Option<&str>| pem.map(|pem| std::fs::write(&file, pem).unwrap());
    let tls = Tls::new(leaf, write(clients).map(|()| file.clone())).unwrap();
    write(later);
    tokio::spawn(Arc::clone(&tls).follow());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let guard = router::guard(Scene::default().world(&Settings::default()));
    let (stage, stages) = watch::channel(ShutdownStage::Serving);
    let port = ServingPort::webhooks(listener, tls, router(Arc::clone(&guard)));
    let ended = tokio::spawn(answer::accept(port, Arc::clone(&guard), stages, Duration::from_secs(5)));
    Served { address, guard, material, stage, ended, folder }
}

fn review() -> Bytes {
    let (_, object) = Scene::default().object(&format!("StatefulSet/{}", scene::STATEFUL_SET));
    update(&object)
}

impl Served {
    async fn open(&self, own: Option<(&str, &str)>) -> Result<Caller, String> {
        Caller::open(self.address, &config(&self.material.bundle(), own)).await
    }

    /// Waits until a caller with this client certificate is answered.
    async fn until_proven(&self, own: (&str, &str)) {
        let known = async {
            loop {
                if let Ok(mut caller) = self.open(Some(own)).await
                    && let Ok(answer) = caller.ask("/validate", &review()).await
                {
                    break answer;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        assert!(allowed(&timeout(DEADLINE, known).await.expect("the new client CA is in use")));
    }
}

fn allowed(answer: &Answered) -> bool {
    let (status, headers, text) = answer;
    assert_eq!(
        headers["content-length"],
        text.len().to_string(),
        "the length is known although the body comes in pieces"
    );
    *status == StatusCode::OK && serde_json::from_str::<Value>(text).unwrap()["response"]["allowed"] == true
}

/// Returns a CA, and the certificate and key of a client that it signed.
fn client() -> [String; 3] {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(params, ca_key);
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    [ca, params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem()]
}

#[tokio::test]
async fn with_client_cas_only_a_proven_caller_is_answered() {
    let ([ours, certificate, key], [theirs, strange, strange_key]) = (client(), client());
    let served = served(Some(&ours)).await;
    let mut unproven = served.open(None).await.unwrap();
    let (status, _, text) = unproven.ask("/validate", &review()).await.unwrap();
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(
        text.starts_with("gatera answers API servers only (--client-ca): no client certificate"),
        "{text}"
    );
    let mut known = served.open(Some((&certificate, &key))).await.unwrap();
    assert!(allowed(&known.ask("/validate", &review()).await.unwrap()));
    let answer = match served.open(Some((&strange, &strange_key))).await {
        Ok(mut stranger) => stranger.ask("/validate", &review()).await.map(drop),
        Err(words) => Err(words),
    };
    assert!(answer.is_err(), "a certificate of another CA is not accepted");
    // The CA is replaced without a restart.
    std::fs::write(served.folder.path().join("clients.crt"), &theirs).unwrap();
    served.until_proven((&strange, &strange_key)).await;
    // The CA can also be replaced while the guard starts.
    let served = served_by(answer::admission, Some(&ours), Some(&theirs)).await;
    served.until_proven((&strange, &strange_key)).await;
}

/// A handler that panics ends the connection of its request.
#[tokio::test]
async fn a_connection_that_a_panic_ended_is_not_counted_as_open() {
    let breaks = |_| Router::new().route("/validate", post(async || -> &str { panic!("a handler breaks") }));
    let served = served_by(breaks, None, None).await;
    let mut caller = served.open(None).await.unwrap();
    assert_eq!(served.guard.metrics.connections.get(), 1);
    assert!(caller.ask("/validate", &review()).await.is_err());
    let closed = async {
        while served.guard.metrics.connections.get() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, closed).await.expect("the connection is not counted as open any more");
}

/// API servers keep idle connections for 90 seconds; the deadline for the first headers is 10 seconds.
#[tokio::test]
async fn an_idle_connection_is_kept_and_slow_headers_are_not() {
    let served = served(None).await;
    let mut idle = served.open(None).await.unwrap();
    assert!(allowed(&idle.ask("/validate", &review()).await.unwrap()));
    let config = config(&served.material.bundle(), None);
    let mut slow = connect(served.address, &config).await.unwrap();
    slow.write_all(b"POST /validate HTTP/1.1\r\nhost:").await.unwrap();
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let gone = async {
        let read = slow.read(&mut [0; 64]).await.unwrap_or_default();
        (read, silent.read(&mut [0; 64]).await.unwrap_or_default())
    };
    assert_eq!(timeout(DEADLINE, gone).await.expect("both connections are closed"), (0, 0));
    assert!(
        allowed(&idle.ask("/validate", &review()).await.unwrap()),
        "a connection that was idle for longer than the slow one was open is kept"
    );
}

/// In the lame-duck phase every request is still answered, and every answer asks the caller to close the connection.
#[tokio::test]
async fn a_leaving_guard_asks_to_close_the_connection_with_every_answer() {
    let served = served(None).await;
    let mut one = served.open(None).await.unwrap();
    let answer = one.ask("/validate", &review()).await.unwrap();
    assert!(allowed(&answer) && answer.1.get("connection").is_none());
    served.stage.send_replace(ShutdownStage::Leaving);
    let answer = one.ask("/validate", &review()).await.unwrap();
    assert!(allowed(&answer));
    assert_eq!(answer.1["connection"], "close");
    timeout(DEADLINE, one.closed()).await.expect("the guard closes the connection");
    let mut late = served.open(None).await.unwrap();
    assert!(allowed(&late.ask("/validate", &review()).await.unwrap()), "still served");
    timeout(DEADLINE, late.closed()).await.expect("the guard closes the connection");
    served.stage.send_replace(ShutdownStage::Closing);
    timeout(DEADLINE, served.ended).await.expect("no request is under way").unwrap();
}

/// New connections are refused, and a request that is under way is answered.
#[tokio::test]
async fn a_request_that_is_under_way_is_answered_to_the_end() {
    let served = served(None).await;
    let config = config(&served.material.bundle(), None);
    let mut stream = connect(served.address, &config).await.unwrap();
    let body = review();
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body[..100]).await.unwrap();
    stream.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    served.stage.send_replace(ShutdownStage::Closing);
    let refused = async {
        while TcpStream::connect(served.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, refused).await.expect("no further connection is accepted");
    stream.write_all(&body[100..]).await.unwrap();
    let mut text = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut text)).await.unwrap().ok();
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("\"allowed\":true"), "{text}");
    timeout(DEADLINE, served.ended).await.expect("that was the last request").unwrap();
}
