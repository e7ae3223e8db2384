//! The certificate that new handshakes get.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The leaf of the moment. Swapping it touches no connection.
#[derive(Clone, Debug, Default)]
pub struct Leaf(Arc<ArcSwapOption<CertifiedKey>>);

impl Leaf {
    /// New handshakes get this one.
    pub fn swap(&self, leaf: Arc<CertifiedKey>) {
        self.0.store(Some(leaf));
    }
}

impl ResolvesServerCert for Leaf {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}
