//! Connections that mean harm, each in its own way, again and again until they are dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;

use crate::caller::{Http, config, connect};

const BODY: usize = 8 * 1024 * 1024;

/// The worst that each does.
#[derive(Clone, Copy, Debug)]
enum Way {
    Silent,
    HalfHandshake,
    SlowHeaders,
    SlowBody,
    UnfinishedBody,
    ManyStreams,
    HugeHeaders,
    ResetStorm,
    Unfolding,
    Unread,
}

/// One of each hundred does what costs the attacker as much as us.
const WAYS: [(Way, usize); 10] = [
    (Way::Silent, 25),
    (Way::HalfHandshake, 15),
    (Way::SlowHeaders, 15),
    (Way::SlowBody, 15),
    (Way::UnfinishedBody, 4),
    (Way::ManyStreams, 12),
    (Way::HugeHeaders, 4),
    (Way::ResetStorm, 4),
    (Way::Unfolding, 2),
    (Way::Unread, 4),
];

/// So many of them, until the runtime ends. They have a machine of their own, so they get of ours what nobody else wants.
pub fn gather(count: usize, to: SocketAddr, bundle: &str) -> Runtime {
    let (one, two) = (config(Http::One, bundle, None), config(Http::Two, bundle, None));
    let ways: Vec<_> =
        WAYS.iter().flat_map(|(way, percent)| std::iter::repeat_n(*way, count * percent / 100)).collect();
    assert_eq!(ways.len(), count);
    let last = || rustix::process::setpriority_process(None, 19).map(drop).unwrap_or_default();
    let crowd =
        Builder::new_multi_thread().worker_threads(2).on_thread_start(last).enable_all().build().unwrap();
    for (turn, way) in ways.into_iter().enumerate() {
        let (one, two) = (Arc::clone(&one), Arc::clone(&two));
        crowd.spawn(async move {
            sleep(Duration::from_millis(2 * turn as u64)).await;
            loop {
                // Being thrown out is what it expects; it comes again. Handshakes of a program that is not optimized
                // would take a whole processor if it came at once.
                let _ = act(way, to, &one, &two).await;
                sleep(Duration::from_secs(2)).await;
            }
        });
    }
    crowd
}

/// Bodies that lack their last byte; returns the connections on which all the rest was taken.
pub async fn unfinished_bodies(count: usize, to: SocketAddr, bundle: &str) -> Vec<TlsStream<TcpStream>> {
    let one = config(Http::One, bundle, None);
    let mut pouring = JoinSet::new();
    for _ in 0..count {
        let one = Arc::clone(&one);
        pouring.spawn(async move {
            let mut stream = introduced(to, &one).await?;
            stream.write_all(head(BODY).as_bytes()).await?;
            stream.write_all(&vec![b' '; BODY - 1]).await?;
            stream.flush().await?;
            io::Result::Ok(stream)
        });
    }
    pouring.join_all().await.into_iter().flatten().collect()
}

async fn act(way: Way, to: SocketAddr, one: &Arc<ClientConfig>, two: &Arc<ClientConfig>) -> io::Result<()> {
    match way {
        Way::Silent => TcpStream::connect(to).await?.read_exact(&mut [0; 64]).await.map(drop),
        Way::HalfHandshake => {
            let mut stream = TcpStream::connect(to).await?;
            stream.write_all(&[0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x00, 0x3f, 0xfc]).await?;
            stream.write_all(&[0; 0x3000]).await?;
            drip(stream, &[0; 64]).await
        }
        Way::SlowHeaders => drip(connect(to, one).await?, head(100).as_bytes()).await,
        Way::SlowBody => {
            let mut stream = introduced(to, one).await?;
            stream.write_all(head(BODY).as_bytes()).await?;
            drip(stream, &[b'{'; 64]).await
        }
        Way::UnfinishedBody => {
            let mut stream = introduced(to, one).await?;
            stream.write_all(head(BODY).as_bytes()).await?;
            pour(&mut stream, &vec![b' '; BODY - 1]).await?;
            drip(stream, b"").await
        }
        Way::Unfolding => {
            let mut stream = introduced(to, one).await?;
            let text = unfolding();
            stream.write_all(head(text.len()).as_bytes()).await?;
            pour(&mut stream, &text).await?;
            drip(stream, b"").await
        }
        Way::HugeHeaders => {
            let mut stream = connect(to, one).await?;
            stream.write_all(b"POST /validate HTTP/1.1\r\n").await?;
            for turn in 0..2000 {
                stream.write_all(format!("x-{turn}: {}\r\n", "y".repeat(500)).as_bytes()).await?;
            }
            drip(stream, b"").await
        }
        Way::Unread => {
            let mut stream = connect(to, one).await?;
            let text = nameless(60_000);
            loop {
                stream.write_all(head(text.len()).as_bytes()).await?;
                stream.write_all(&text).await?;
                sleep(Duration::from_millis(100)).await;
            }
        }
        Way::ManyStreams => {
            let mut stream = begin_two(to, two).await?;
            for id in (1..4001).step_by(2) {
                stream.write_all(&headers(id)).await?;
                stream.write_all(&frame(0, 0, id, &[b'['; 1000])).await?;
            }
            drip(stream, b"").await
        }
        Way::ResetStorm => {
            let mut stream = begin_two(to, two).await?;
            for id in (1..20_001).step_by(2) {
                stream.write_all(&headers(id)).await?;
                stream.write_all(&frame(3, 0, id, &8_u32.to_be_bytes())).await?;
            }
            drip(stream, b"").await
        }
    }
}

fn head(length: usize) -> String {
    format!(
        "POST /validate HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// A byte a second, and then nothing, until it is thrown out.
async fn drip(mut stream: impl AsyncWrite + Unpin, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}

/// All of it, within a few seconds: whoever is faster mostly keeps its own processor busy, and ours is the same one.
async fn pour(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(64 * 1024) {
        stream.write_all(piece).await?;
        sleep(Duration::from_millis(5)).await;
    }
    stream.flush().await
}

/// Eight megabytes that would be some gigabytes of containers.
fn unfolding() -> Vec<u8> {
    let containers = "{},".repeat(BODY / 3 - 1000);
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"apps","version":"v1","kind":"StatefulSet"}},"operation":"CREATE","object":{{"spec":{{"template":{{"spec":{{"containers":[{containers}{{}}]}}}}}}}}}}}}"#
    )
    .into_bytes()
}

/// A refusal repeats the name.
fn nameless(length: usize) -> Vec<u8> {
    let name = "n".repeat(length);
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"apps","version":"v1","kind":"StatefulSet"}},"operation":"CREATE","name":"{name}","object":{{"spec":{{"replicas":"3"}}}}}}}}"#
    )
    .into_bytes()
}

/// A connection that was answered once looks like an API server's.
async fn introduced(to: SocketAddr, one: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let mut stream = connect(to, one).await?;
    let text = nameless(10);
    stream.write_all(head(text.len()).as_bytes()).await?;
    stream.write_all(&text).await?;
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).await?;
    assert!(answer[..length].starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&answer));
    Ok(stream)
}

async fn begin_two(to: SocketAddr, two: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let mut stream = connect(to, two).await?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    stream.write_all(&frame(4, 0, 0, &[])).await?;
    Ok(stream)
}

/// POST /validate, without an end.
fn headers(id: u32) -> Vec<u8> {
    let mut block = vec![0x83, 0x87];
    for (name, value) in [(4_u8, "/validate"), (1, "g")] {
        block.extend([name, u8::try_from(value.len()).unwrap()]);
        block.extend(value.as_bytes());
    }
    block.extend([0x0f, 0x10, 16]);
    block.extend(b"application/json");
    frame(1, 4, id, &block)
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(id.to_be_bytes());
    bytes.extend(payload);
    bytes
}
