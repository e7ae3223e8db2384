//! TLS: the leaf that new handshakes get, and whose client certificates prove an API server.
//!
//! Owns: the [`ServerConfig`], swapped whole when the file of client CAs changes. Must not know: connections, HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tracing::{info, warn};

use crate::act::certs::Leaf;
use crate::act::reload;
use crate::act::telemetry::chain;

/// Why a file of client CAs is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there, or not for us.
    #[error("reading the client CAs in {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It holds no certificate, or something else.
    #[error("the client CAs in {0} are not PEM certificates of CAs: {1}")]
    Form(PathBuf, String),
}

/// What every handshake uses.
#[derive(Debug)]
pub struct Tls {
    config: ArcSwap<ServerConfig>,
    /// Clients are asked for a certificate.
    pub asks: bool,
}

impl Tls {
    /// As it is now.
    pub fn now(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

/// How the webhooks are spoken to.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    leaf: Leaf,
    /// Whose certificates prove an API server.
    clients: Option<PathBuf>,
}

impl TlsOptions {
    /// With the files that were chosen.
    pub fn new(leaf: Leaf, clients: Option<PathBuf>) -> Self {
        Self { leaf, clients }
    }

    /// As the files are now.
    pub fn config(&self) -> Result<Arc<Tls>, Error> {
        let config = match &self.clients {
            None => self.for_everybody(),
            Some(file) => self.for_clients_of(file, &text(file)?)?,
        };
        Ok(Arc::new(Tls { config: ArcSwap::new(config), asks: self.clients.is_some() }))
    }

    /// Follows the file of client CAs until the process ends. One that is of no use changes nothing, and is said.
    pub async fn follow(self, tls: Arc<Tls>) {
        let Some(file) = self.clients.clone() else { return std::future::pending().await };
        let read = || text(&file).map_err(|error| chain(&error));
        // The first time, too: the file may have changed since the start.
        let take = |now: &Result<Vec<u8>, String>| {
            let config = now.as_ref().map_err(Clone::clone);
            match config.and_then(|pem| self.for_clients_of(&file, pem).map_err(|error| chain(&error))) {
                Ok(config) => {
                    tls.config.store(config);
                    info!(file = %file.display(), "the client CAs are read");
                }
                Err(error) => warn!(error, "the client CAs cannot be read; the last good ones stay"),
            }
        };
        reload::contents(read, take).await;
    }

    fn for_everybody(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder().with_no_client_auth();
        speaking(builder.with_cert_resolver(Arc::new(self.leaf.clone())))
    }

    /// A client without a certificate gets through the handshake, because only then can an answer say what is the matter.
    fn for_clients_of(&self, file: &Path, pem: &[u8]) -> Result<Arc<ServerConfig>, Error> {
        let wrong = |words: String| Error::Form(file.to_owned(), words);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build();
        let verifier = verifier.map_err(|error| wrong(error.to_string()))?;
        let builder = ServerConfig::builder().with_client_cert_verifier(verifier);
        Ok(speaking(builder.with_cert_resolver(Arc::new(self.leaf.clone()))))
    }
}

/// HTTP/1.1 alone: API servers speak nothing else to a Service, so that their requests reach all replicas.
fn speaking(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn text(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Read(file.to_owned(), error))
}
