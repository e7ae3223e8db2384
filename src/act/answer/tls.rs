//! TLS: the leaf for new handshakes, and the CAs whose client certificates prove an API server.
//!
//! Owns: the [`ServerConfig`], replaced as a whole when the file of client CAs changes. Must not know: connections, HTTP.

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

/// The reasons why a file of client CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not exist, or this process may not read it.
    #[error("reading the client CAs in {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file holds no certificate, or data that is not a certificate of a CA.
    #[error("the client CAs in {0} are not PEM certificates of CAs: {1}")]
    Form(PathBuf, String),
}

/// The configuration that every handshake uses.
#[derive(Debug)]
pub struct Tls {
    config: ArcSwap<ServerConfig>,
    /// Whether clients are asked for a certificate.
    pub asks: bool,
}

impl Tls {
    /// Returns the current configuration.
    pub fn now(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

/// The options for TLS on the webhook port.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    leaf: Leaf,
    /// The file with the CAs whose certificates prove an API server.
    clients: Option<PathBuf>,
}

impl TlsOptions {
    /// Creates options with this leaf and, if API servers have to prove themselves, this file of client CAs.
    pub fn new(leaf: Leaf, clients: Option<PathBuf>) -> Self {
        Self { leaf, clients }
    }

    /// Builds the configuration from the current content of the file.
    pub fn config(&self) -> Result<Arc<Tls>, Error> {
        let config = match &self.clients {
            None => self.without_client_auth(),
            Some(file) => self.with_client_auth(file, &read_pem(file)?)?,
        };
        Ok(Arc::new(Tls { config: ArcSwap::new(config), asks: self.clients.is_some() }))
    }

    /// Follows the file of client CAs until the process ends. Content that cannot be used is logged and changes nothing.
    pub async fn follow(self, tls: Arc<Tls>) {
        let Some(file) = self.clients.clone() else { return std::future::pending().await };
        let read = || read_pem(&file).map_err(|error| chain(&error));
        // This includes the first content, because the file may have changed since the start.
        let take = |now: &Result<Vec<u8>, String>| {
            let config = now.as_ref().map_err(Clone::clone);
            match config.and_then(|pem| self.with_client_auth(&file, pem).map_err(|error| chain(&error))) {
                Ok(config) => {
                    tls.config.store(config);
                    info!(file = %file.display(), "the client CAs are read");
                }
                Err(error) => warn!(error, "the client CAs cannot be read; the last good ones stay"),
            }
        };
        reload::contents(read, take).await;
    }

    fn without_client_auth(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder().with_no_client_auth();
        http1_only(builder.with_cert_resolver(Arc::new(self.leaf.clone())))
    }

    /// Builds the configuration that asks for a client certificate of these CAs. A client without one completes the handshake,
    /// because only then can an answer explain what is wrong.
    fn with_client_auth(&self, file: &Path, pem: &[u8]) -> Result<Arc<ServerConfig>, Error> {
        let wrong = |words: String| Error::Form(file.to_owned(), words);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build();
        let verifier = verifier.map_err(|error| wrong(error.to_string()))?;
        let builder = ServerConfig::builder().with_client_cert_verifier(verifier);
        Ok(http1_only(builder.with_cert_resolver(Arc::new(self.leaf.clone()))))
    }
}

/// Limits the protocol to HTTP/1.1: API servers use no other with a Service, so that their requests reach all replicas.
fn http1_only(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn read_pem(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Read(file.to_owned(), error))
}
