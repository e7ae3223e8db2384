//! A client that calls the guard as an API server does: over TLS, on a connection that is kept open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Returns the TLS configuration of a client that trusts this bundle and presents this certificate and key, if any.
pub fn config(bundle: &str, own: Option<(&str, &str)>) -> Arc<ClientConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(ca.unwrap()).unwrap();
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    // Like an API server, the client would also speak HTTP/2 if the guard did.
    config.alpn_protocols = ["h2", "http/1.1"].map(|it| it.as_bytes().to_vec()).to_vec();
    Arc::new(config)
}

/// Opens a connection and completes its TLS handshake.
pub async fn connect(to: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    encrypted(stream, to, config).await
}

/// Completes the TLS handshake on an open connection.
pub async fn encrypted(
    stream: TcpStream,
    to: SocketAddr,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    TlsConnector::from(Arc::clone(config)).connect(ServerName::IpAddress(to.ip().into()), stream).await
}

/// A client with one connection that is kept open.
pub struct Caller(http1::SendRequest<Full<Bytes>>);

/// The status, headers and text of an answer.
pub type Answered = (StatusCode, HeaderMap, String);

impl Caller {
    pub async fn open(to: SocketAddr, config: &Arc<ClientConfig>) -> Result<Self, String> {
        let stream = TokioIo::new(connect(to, config).await.map_err(|error| error.to_string())?);
        let (send, connection) = http1::handshake(stream).await.map_err(|error| format!("{error:?}"))?;
        tokio::spawn(connection);
        Ok(Self(send))
    }

    /// Waits until the guard has closed the connection.
    pub async fn closed(&mut self) {
        while !self.0.is_closed() {
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn ask(&mut self, path: &str, body: &Bytes) -> Result<Answered, String> {
        let request = Request::post(format!("https://guard{path}"))
            .header("host", "guard")
            .header("content-type", "application/json")
            .body(Full::new(body.clone()))
            .unwrap();
        self.0.ready().await.map_err(|error| format!("{error:?}"))?;
        let (head, body) =
            self.0.send_request(request).await.map_err(|error| format!("{error:?}"))?.into_parts();
        let text = body.collect().await.map_err(|error| format!("{error:?}"))?.to_bytes();
        Ok((head.status, head.headers, String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Returns an `AdmissionReview` of an update of this object, some 17 KiB long like real ones.
pub fn update(object: &Value) -> Bytes {
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!("db");
    object["metadata"]["annotations"]["example.com/notes"] = json!("x".repeat(4096));
    let kind = json!({ "group": "apps", "version": "v1", "kind": "StatefulSet" });
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-000000000000", "kind": kind, "operation": "UPDATE", "namespace": "db",
        "name": object["metadata"]["name"], "userInfo": { "username": "editor" }, "object": object, "oldObject": object,
    } });
    Bytes::from(review.to_string())
}
