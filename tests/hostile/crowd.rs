//! Hostile connections, each of one kind, which are opened again when they are closed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gatera::act::answer::MAX_BODY_BYTES;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;

use crate::caller::{config, connect, encrypted};

/// The kind of a hostile connection.
#[derive(Clone, Copy, Debug)]
enum Attack {
    Silent,
    HalfHandshake,
    SlowHeaders,
    SlowBody,
    UnfinishedBody,
    HugeHeaders,
    ExpandingBody,
    Unread,
}

/// The pause between two requests for a long answer. Each costs an unoptimized program some milliseconds, so a few hundred per
/// second would take all its time.
const PAUSE: Duration = Duration::from_millis(500);

/// Limits the number of handshakes at a time. On a busy machine each of hundreds at once would take longer than the guard waits
/// for it.
static HANDSHAKES: Semaphore = Semaphore::const_new(4);

/// How many of a hundred connections are of each kind. The first two kinds cost the attacker nothing and alone take all of the
/// guard's places for connections. Few connections are of the kinds that cost the attacker as much as the guard.
const ATTACKS: [(Attack, usize); 8] = [
    (Attack::Silent, 45),
    (Attack::HalfHandshake, 30),
    (Attack::SlowHeaders, 8),
    (Attack::SlowBody, 8),
    (Attack::UnfinishedBody, 3),
    (Attack::HugeHeaders, 3),
    (Attack::ExpandingBody, 1),
    (Attack::Unread, 2),
];

/// How often connections of each kind got far enough to do harm. A test whose connections are all turned away proves nothing.
#[derive(Default)]
pub struct Tally([AtomicUsize; ATTACKS.len()]);

impl Tally {
    fn count(&self, attack: Attack) {
        self.0[attack as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether connections of every kind got that far.
    pub fn every_kind_did_harm(&self) -> bool {
        self.0.iter().all(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Returns the counts by kind.
    pub fn counts(&self) -> Vec<(String, usize)> {
        let count = |(attack, _): &(Attack, usize)| self.0[*attack as usize].load(Ordering::Relaxed);
        ATTACKS.iter().map(|it| (format!("{:?}", it.0), count(it))).collect()
    }
}

/// Raises the limit of open files, because each connection is one.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(8192, |most| most.min(8192));
    if limit.current.is_some_and(|now| now < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).unwrap();
    }
}

/// Returns a runtime for hostile connections. Real attackers have a machine of their own, so these get a tenth of the CPU time
/// that others get.
pub fn runtime() -> Runtime {
    let lower = || rustix::process::setpriority_process(None, 10).map(drop).unwrap_or_default();
    Builder::new_multi_thread().worker_threads(2).on_thread_start(lower).enable_all().build().unwrap()
}

/// Starts this many hostile connections, which act until the runtime is dropped.
pub fn gather(count: usize, to: SocketAddr, bundle: &str) -> (Runtime, Arc<Tally>) {
    raise_file_limit();
    let tally = Arc::<Tally>::default();
    let tls = config(bundle, None);
    // Kinds alternate, so that each does harm before the guard's places for connections are taken.
    let of_each = |turn| ATTACKS.iter().rev().filter(move |(_, percent)| turn < count * percent / 100);
    let attacks: Vec<_> = (0..count).flat_map(of_each).map(|(attack, _)| *attack).collect();
    assert_eq!(attacks.len(), count);
    let crowd = runtime();
    for (turn, attack) in attacks.into_iter().enumerate() {
        let (tls, tally) = (Arc::clone(&tls), Arc::clone(&tally));
        crowd.spawn(async move {
            sleep(Duration::from_millis(2 * turn as u64)).await;
            loop {
                // The guard closes the connection. It is opened again only after a pause, because TLS handshakes of an
                // unoptimized program would otherwise take a whole processor.
                let _ = act(attack, to, &tls, &tally).await;
                sleep(Duration::from_secs(2)).await;
            }
        });
    }
    (crowd, tally)
}

/// Sends bodies without their last byte; returns the connections on which everything else was accepted, as far as a client
/// can know.
pub async fn unfinished_bodies(count: usize, to: SocketAddr, bundle: &str) -> Vec<TlsStream<TcpStream>> {
    let tls = config(bundle, None);
    let mut pouring = JoinSet::new();
    for _ in 0..count {
        let tls = Arc::clone(&tls);
        pouring.spawn(async move {
            let mut stream = connect_and_ask_once(to, &tls).await?;
            stream.write_all(head(MAX_BODY_BYTES).as_bytes()).await?;
            stream.write_all(&vec![b' '; MAX_BODY_BYTES - 1]).await?;
            stream.flush().await?;
            io::Result::Ok(stream)
        });
    }
    pouring.join_all().await.into_iter().flatten().collect()
}

/// Requests long answers on each connection, without reading any, until the guard closes it; returns the errors that this causes.
/// One answer would not be enough, because the kernel buffers some.
pub async fn unread_answers(count: usize, to: SocketAddr, bundle: String) -> Vec<io::Error> {
    let tls = config(&bundle, None);
    let mut asking = JoinSet::new();
    for _ in 0..count {
        let tls = Arc::clone(&tls);
        asking.spawn(async move { ask_without_reading(to, &tls).await.err() });
    }
    asking.join_all().await.into_iter().flatten().collect()
}

async fn ask_without_reading(to: SocketAddr, tls: &Arc<ClientConfig>) -> io::Result<()> {
    let (mut stream, text) = (connect_with_small_buffer(to, tls).await?, request_with_long_refusal());
    loop {
        stream.write_all(head(text.len()).as_bytes()).await?;
        stream.write_all(&text).await?;
        stream.flush().await?;
        sleep(PAUSE).await;
    }
}

async fn act(attack: Attack, to: SocketAddr, tls: &Arc<ClientConfig>, tally: &Tally) -> io::Result<()> {
    match attack {
        Attack::Silent => {
            let mut stream = TcpStream::connect(to).await?;
            tally.count(attack);
            stream.read_exact(&mut [0; 64]).await.map(drop)
        }
        Attack::HalfHandshake => {
            let mut stream = TcpStream::connect(to).await?;
            stream.write_all(&[0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x00, 0x3f, 0xfc]).await?;
            stream.write_all(&[0; 0x3000]).await?;
            tally.count(attack);
            drip(stream, &[0; 64]).await
        }
        Attack::SlowHeaders => {
            let stream = connect_in_turn(to, tls).await?;
            tally.count(attack);
            drip(stream, head(100).as_bytes()).await
        }
        Attack::SlowBody => {
            let mut stream = connect_and_ask_once(to, tls).await?;
            stream.write_all(head(MAX_BODY_BYTES).as_bytes()).await?;
            tally.count(attack);
            drip(stream, &[b'{'; 64]).await
        }
        Attack::UnfinishedBody => {
            let mut stream = connect_and_ask_once(to, tls).await?;
            stream.write_all(head(MAX_BODY_BYTES).as_bytes()).await?;
            tally.count(attack);
            pour(&mut stream, &vec![b' '; MAX_BODY_BYTES - 1]).await?;
            drip(stream, b"").await
        }
        Attack::ExpandingBody => {
            let mut stream = connect_and_ask_once(to, tls).await?;
            let text = expanding_body();
            stream.write_all(head(text.len()).as_bytes()).await?;
            tally.count(attack);
            pour(&mut stream, &text).await?;
            drip(stream, b"").await
        }
        Attack::HugeHeaders => {
            let mut stream = connect_in_turn(to, tls).await?;
            stream.write_all(b"POST /validate HTTP/1.1\r\n").await?;
            for turn in 0..2000 {
                stream.write_all(format!("x-{turn}: {}\r\n", "y".repeat(500)).as_bytes()).await?;
                if turn == 32 {
                    tally.count(attack);
                }
            }
            drip(stream, b"").await
        }
        Attack::Unread => {
            let mut stream = connect_with_small_buffer(to, tls).await?;
            let text = request_with_long_refusal();
            loop {
                stream.write_all(head(text.len()).as_bytes()).await?;
                stream.write_all(&text).await?;
                tally.count(attack);
                sleep(PAUSE).await;
            }
        }
    }
}

fn head(length: usize) -> String {
    format!(
        "POST /validate HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Sends one byte per second, and then nothing until the connection is closed.
async fn drip(mut stream: impl AsyncWrite + Unpin, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}

/// Sends everything within a few seconds. A faster client would mainly use CPU time, which it shares with the guard.
async fn pour(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(64 * 1024) {
        stream.write_all(piece).await?;
        sleep(Duration::from_millis(5)).await;
    }
    stream.flush().await
}

/// Returns half a megabyte of JSON that would become some hundred megabytes of containers. A larger body would exceed the budget
/// that the other connections leave.
fn expanding_body() -> Vec<u8> {
    let containers = "{},".repeat(170_000);
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"apps","version":"v1","kind":"StatefulSet"}},"operation":"CREATE","object":{{"spec":{{"template":{{"spec":{{"containers":[{containers}{{}}]}}}}}}}}}}}}"#
    )
    .into_bytes()
}

/// Returns the shortest request that is refused.
fn unreadable_request() -> &'static [u8] {
    br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"apps","version":"v1","kind":"StatefulSet"},"operation":"CREATE","name":"n","object":{"spec":{"replicas":"3"}}}}"#
}

/// Returns a request with a refusal of some 100 KiB: it lists a hundred passwords by their names, each of them three times.
fn request_with_long_refusal() -> Vec<u8> {
    let variable = |turn| format!(r#"{{"name":"{turn}_{}_PASSWORD","value":"x"}}"#, "V".repeat(200));
    let env = (0..100).map(variable).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"apps","version":"v1","kind":"StatefulSet"}},"operation":"CREATE","name":"n","namespace":"n","object":{{"spec":{{"template":{{"metadata":{{"labels":{{"gatera.dev/cluster":"n"}}}},"spec":{{"containers":[{{"name":"c","env":[{env}]}}]}}}}}}}}}}}}"#
    )
    .into_bytes()
}

/// Opens a connection as soon as few others are being opened.
async fn connect_in_turn(to: SocketAddr, tls: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let _turn = HANDSHAKES.acquire().await;
    connect(to, tls).await
}

/// Opens a connection and has one request answered, so that it looks like an API server's.
async fn connect_and_ask_once(to: SocketAddr, tls: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let mut stream = connect_in_turn(to, tls).await?;
    let text = unreadable_request();
    stream.write_all(head(text.len()).as_bytes()).await?;
    stream.write_all(text).await?;
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).await?;
    if !answer[..length].starts_with(b"HTTP/1.1 200 OK") {
        return Err(io::Error::other(String::from_utf8_lossy(&answer[..length]).into_owned()));
    }
    Ok(stream)
}

/// Opens a connection whose receive buffer holds a few KiB, but no answer of 100 KiB.
async fn connect_with_small_buffer(
    to: SocketAddr,
    tls: &Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let _turn = HANDSHAKES.acquire().await;
    encrypted(socket.connect(to).await?, to, tls).await
}
