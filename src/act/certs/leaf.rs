//! The leaf that new handshakes use.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The current leaf, shared by all clones. Replacing it does not affect open connections.
#[derive(Clone, Debug, Default)]
pub struct Leaf(Arc<ArcSwapOption<CertifiedKey>>);

impl Leaf {
    /// Replaces the leaf that new handshakes use.
    pub fn swap(&self, leaf: Arc<CertifiedKey>) {
        self.0.store(Some(leaf));
    }
}

impl ResolvesServerCert for Leaf {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}
