//! A cheap client: one HTTP/1.1 connection over TLS that is kept open, as API servers keep connections to webhooks. It uses
//! blocking reads and writes, so each client needs a thread. The client trusts the server's CA and verifies every certificate.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The limit for connecting and for each read: a benchmark must end, and nothing on loopback takes this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open connection.
pub struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    answer: Vec<u8>,
}

/// Returns a configuration that trusts only this CA and offers HTTP/1.1, as API servers do to a Service.
pub fn trusting(bundle: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(ca.expect("the bundle is PEM")).expect("the bundle holds CAs");
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

impl Connection {
    /// Connects; the TLS handshake happens with the first request.
    pub fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let name = ServerName::IpAddress(address.ip().into());
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Self { stream: StreamOwned::new(tls, socket), answer: Vec::with_capacity(16 * 1024) })
    }

    /// Sends a request and reads the answer. Returns its status line and its body.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<(&str, &str)> {
        self.stream.write_all(request)?;
        self.stream.flush()?;
        self.answer.clear();
        let head = loop {
            self.read_more()?;
            if let Some(end) = self.answer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let length = length(text(&self.answer[..head])?)?;
        while self.answer.len() < head + length {
            self.read_more()?;
        }
        let status = text(&self.answer[..head])?.lines().next().unwrap_or_default();
        Ok((status, text(&self.answer[head..])?))
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.answer.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }
}

fn text(bytes: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(bytes).map_err(io::Error::other)
}

fn length(head: &str) -> io::Result<usize> {
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    value.ok_or_else(|| io::Error::other(format!("an answer without Content-Length:\n{head}")))
}
