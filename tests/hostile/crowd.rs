//! Hostile connections, each of one kind, which come again whenever they are closed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gatera::act::answer::LARGEST_BODY;
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
enum Way {
    Silent,
    HalfHandshake,
    SlowHeaders,
    SlowBody,
    UnfinishedBody,
    HugeHeaders,
    Unfolding,
    Unread,
}

/// The pause between two requests for a long answer. Each costs an unoptimized program some milliseconds, so a few hundred per
/// second would take all its time.
const AT_LEISURE: Duration = Duration::from_millis(500);

/// The handshakes at a time. On a busy machine each of hundreds at once would take longer than the guard waits for it.
static HANDSHAKES: Semaphore = Semaphore::const_new(4);

/// How many of a hundred connections are of each kind. The first two take all places by themselves, as they cost nothing. Few are
/// of the kinds that cost the attacker as much as the guard.
const WAYS: [(Way, usize); 8] = [
    (Way::Silent, 45),
    (Way::HalfHandshake, 30),
    (Way::SlowHeaders, 8),
    (Way::SlowBody, 8),
    (Way::UnfinishedBody, 3),
    (Way::HugeHeaders, 3),
    (Way::Unfolding, 1),
    (Way::Unread, 2),
];

/// How often connections of each kind got far enough to do harm. A test whose connections are all turned away proves nothing.
#[derive(Default)]
pub struct Tally([AtomicUsize; WAYS.len()]);

impl Tally {
    fn count(&self, way: Way) {
        self.0[way as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether every kind got that far.
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Returns the counts by kind.
    pub fn reported(&self) -> Vec<(String, usize)> {
        let count = |(way, _): &(Way, usize)| self.0[*way as usize].load(Ordering::Relaxed);
        WAYS.iter().map(|it| (format!("{:?}", it.0), count(it))).collect()
    }
}

/// Raises the limit of open files, because each connection is one.
fn more_files() {
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
    more_files();
    let tally = Arc::<Tally>::default();
    let one = config(bundle, None);
    // One of each kind after the other, so that each does harm before all places are taken.
    let of_each = |turn| WAYS.iter().rev().filter(move |(_, percent)| turn < count * percent / 100);
    let ways: Vec<_> = (0..count).flat_map(of_each).map(|(way, _)| *way).collect();
    assert_eq!(ways.len(), count);
    let crowd = runtime();
    for (turn, way) in ways.into_iter().enumerate() {
        let (one, tally) = (Arc::clone(&one), Arc::clone(&tally));
        crowd.spawn(async move {
            sleep(Duration::from_millis(2 * turn as u64)).await;
            loop {
                // The connection expects to be closed, and comes again after a pause: TLS handshakes of an unoptimized program
                // would otherwise take a whole processor.
                let _ = act(way, to, &one, &tally).await;
                sleep(Duration::from_secs(2)).await;
            }
        });
    }
    (crowd, tally)
}

/// Sends bodies without their last byte; returns the connections on which everything else was accepted, as far as a client
/// can know.
pub async fn unfinished_bodies(count: usize, to: SocketAddr, bundle: &str) -> Vec<TlsStream<TcpStream>> {
    let one = config(bundle, None);
    let mut pouring = JoinSet::new();
    for _ in 0..count {
        let one = Arc::clone(&one);
        pouring.spawn(async move {
            let mut stream = introduced(to, &one).await?;
            stream.write_all(head(LARGEST_BODY).as_bytes()).await?;
            stream.write_all(&vec![b' '; LARGEST_BODY - 1]).await?;
            stream.flush().await?;
            io::Result::Ok(stream)
        });
    }
    pouring.join_all().await.into_iter().flatten().collect()
}

/// Requests long answers without reading them until each connection is closed, because the kernel buffers some answers.
pub async fn untaken_answers(count: usize, to: SocketAddr, bundle: String) -> Vec<io::Error> {
    let one = config(&bundle, None);
    let mut asking = JoinSet::new();
    for _ in 0..count {
        let one = Arc::clone(&one);
        asking.spawn(async move { without_end(to, &one).await.err() });
    }
    asking.join_all().await.into_iter().flatten().collect()
}

async fn without_end(to: SocketAddr, one: &Arc<ClientConfig>) -> io::Result<()> {
    let (mut stream, text) = (without_room(to, one).await?, verbose());
    loop {
        stream.write_all(head(text.len()).as_bytes()).await?;
        stream.write_all(&text).await?;
        stream.flush().await?;
        sleep(AT_LEISURE).await;
    }
}

async fn act(way: Way, to: SocketAddr, one: &Arc<ClientConfig>, tally: &Tally) -> io::Result<()> {
    match way {
        Way::Silent => {
            let mut stream = TcpStream::connect(to).await?;
            tally.count(way);
            stream.read_exact(&mut [0; 64]).await.map(drop)
        }
        Way::HalfHandshake => {
            let mut stream = TcpStream::connect(to).await?;
            stream.write_all(&[0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x00, 0x3f, 0xfc]).await?;
            stream.write_all(&[0; 0x3000]).await?;
            tally.count(way);
            drip(stream, &[0; 64]).await
        }
        Way::SlowHeaders => {
            let stream = in_turn(to, one).await?;
            tally.count(way);
            drip(stream, head(100).as_bytes()).await
        }
        Way::SlowBody => {
            let mut stream = introduced(to, one).await?;
            stream.write_all(head(LARGEST_BODY).as_bytes()).await?;
            tally.count(way);
            drip(stream, &[b'{'; 64]).await
        }
        Way::UnfinishedBody => {
            let mut stream = introduced(to, one).await?;
            stream.write_all(head(LARGEST_BODY).as_bytes()).await?;
            tally.count(way);
            pour(&mut stream, &vec![b' '; LARGEST_BODY - 1]).await?;
            drip(stream, b"").await
        }
        Way::Unfolding => {
            let mut stream = introduced(to, one).await?;
            let text = unfolding();
            stream.write_all(head(text.len()).as_bytes()).await?;
            tally.count(way);
            pour(&mut stream, &text).await?;
            drip(stream, b"").await
        }
        Way::HugeHeaders => {
            let mut stream = in_turn(to, one).await?;
            stream.write_all(b"POST /validate HTTP/1.1\r\n").await?;
            for turn in 0..2000 {
                stream.write_all(format!("x-{turn}: {}\r\n", "y".repeat(500)).as_bytes()).await?;
                if turn == 32 {
                    tally.count(way);
                }
            }
            drip(stream, b"").await
        }
        Way::Unread => {
            let mut stream = without_room(to, one).await?;
            let text = verbose();
            loop {
                stream.write_all(head(text.len()).as_bytes()).await?;
                stream.write_all(&text).await?;
                tally.count(way);
                sleep(AT_LEISURE).await;
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

/// Returns half a megabyte that would become some hundred megabytes of containers. A larger body would find no room beside the
/// other connections.
fn unfolding() -> Vec<u8> {
    let containers = "{},".repeat(170_000);
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"apps","version":"v1","kind":"StatefulSet"}},"operation":"CREATE","object":{{"spec":{{"template":{{"spec":{{"containers":[{containers}{{}}]}}}}}}}}}}}}"#
    )
    .into_bytes()
}

/// Returns the shortest request that is refused.
fn unreadable() -> &'static [u8] {
    br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"apps","version":"v1","kind":"StatefulSet"},"operation":"CREATE","name":"n","object":{"spec":{"replicas":"3"}}}}"#
}

/// Returns a request with a refusal of some 100 KiB: it lists a hundred passwords by their names, each of them three times.
fn verbose() -> Vec<u8> {
    let variable = |turn| format!(r#"{{"name":"{turn}_{}_PASSWORD","value":"x"}}"#, "V".repeat(230));
    let env = (0..100).map(variable).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"apps","version":"v1","kind":"StatefulSet"}},"operation":"CREATE","name":"n","namespace":"n","object":{{"spec":{{"template":{{"metadata":{{"labels":{{"gatera.dev/cluster":"n"}}}},"spec":{{"containers":[{{"name":"c","env":[{env}]}}]}}}}}}}}}}}}"#
    )
    .into_bytes()
}

/// Opens a connection when few others are being opened.
async fn in_turn(to: SocketAddr, one: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let _turn = HANDSHAKES.acquire().await;
    connect(to, one).await
}

/// Opens a connection and has one request answered, so that it looks like an API server's.
async fn introduced(to: SocketAddr, one: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let mut stream = in_turn(to, one).await?;
    let text = unreadable();
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
async fn without_room(to: SocketAddr, one: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let _turn = HANDSHAKES.acquire().await;
    encrypted(socket.connect(to).await?, to, one).await
}
