//! TLS: the leaf for new handshakes, and the CAs whose client certificates prove an API server.
//!
//! Owns: the [`ServerConfig`], replaced as a whole when the file of client CAs changes. Must not know: connections, HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig};
use tracing::{info, warn};

use crate::act::certs::Leaf;
use crate::act::reload;
use crate::act::telemetry::chain;

/// The reasons why a file of client CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("reading the client CAs in {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file holds no certificate, or data that is not a certificate of a CA.
    #[error("the client CAs in {0} are not PEM certificates of CAs: {1}")]
    Invalid(PathBuf, String),
}

/// The configuration that every handshake uses, and what it is built from.
#[derive(Debug)]
pub struct Tls {
    leaf: Leaf,
    /// The file with the CAs whose certificates prove an API server; `None`: clients are not asked for a certificate.
    client_ca_file: Option<PathBuf>,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Creates the configuration with this leaf and, if API servers have to prove themselves, the current content of this file
    /// of client CAs.
    pub fn new(leaf: Leaf, client_ca_file: Option<PathBuf>) -> Result<Arc<Self>, Error> {
        let config = match &client_ca_file {
            None => http1_only(&leaf, ServerConfig::builder().with_no_client_auth()),
            Some(file) => with_client_auth(&leaf, file, &read_pem(file)?)?,
        };
        Ok(Arc::new(Self { leaf, client_ca_file, config: ArcSwap::new(config) }))
    }

    /// Returns the current configuration.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Returns whether clients are asked for a certificate.
    pub(super) fn requests_certificates(&self) -> bool {
        self.client_ca_file.is_some()
    }

    /// Follows the file of client CAs until the process ends. Content that cannot be used is logged and changes nothing.
    pub async fn follow(self: Arc<Self>) {
        let Some(file) = &self.client_ca_file else { return std::future::pending().await };
        let read = || read_pem(file).map_err(|error| chain(&error));
        // The first content is used, too: the file may have changed since it was read in `new`.
        let use_content = |read: &Result<Vec<u8>, String>| {
            let pem = read.as_ref().map_err(Clone::clone);
            let built =
                |pem: &Vec<u8>| with_client_auth(&self.leaf, file, pem).map_err(|error| chain(&error));
            match pem.and_then(built) {
                Ok(config) => {
                    self.config.store(config);
                    info!(file = %file.display(), "the client CAs were read");
                }
                Err(error) => {
                    warn!(error, "the client CAs cannot be read; the last valid ones stay in effect");
                }
            }
        };
        reload::follow_contents(read, use_content).await;
    }
}

/// Builds a configuration that asks for a client certificate, signed by one of these CAs. A client without a certificate
/// completes the handshake, because only then can an answer explain what is wrong.
fn with_client_auth(leaf: &Leaf, file: &Path, pem: &[u8]) -> Result<Arc<ServerConfig>, Error> {
    let invalid = |problem: String| Error::Invalid(file.to_owned(), problem);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
        roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build();
    let verifier = verifier.map_err(|error| invalid(error.to_string()))?;
    Ok(http1_only(leaf, ServerConfig::builder().with_client_cert_verifier(verifier)))
}

/// Builds a configuration for HTTP/1.1 only: API servers use it for a Service, so that their requests reach all replicas.
fn http1_only(leaf: &Leaf, builder: ConfigBuilder<ServerConfig, WantsServerCert>) -> Arc<ServerConfig> {
    let mut config = builder.with_cert_resolver(Arc::new(leaf.clone()));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn read_pem(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Read(file.to_owned(), error))
}
