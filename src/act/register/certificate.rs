//! The Secret and the leaf: every replica serves with what the Secret holds, and the leader keeps its content usable.
//!
//! Must not know: entries, except for the CA that they trust. Every replica remembers what it last took from the Secret, so a
//! Secret that is deleted or overwritten does not take a good leaf out of use.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use tracing::info;

use crate::act::api::{self, Exactly, Fault};
use crate::act::certs::Pair;
use crate::act::guard::FIELD_MANAGER;
use crate::act::ownership;
use crate::act::telemetry::Trouble;

use super::watch::Watched;
use super::{Error, Registrar, Registration, logged};

/// The time after which every API server has noticed a change of the entries.
const SETTLE_TIME: Duration = Duration::from_secs(30);

impl Registrar {
    /// Puts the leaf into use and remembers its bundle, if they can be used. On the leader, first writes to the Secret what it
    /// should hold.
    pub(super) async fn certificate(&mut self, leads: bool) -> Result<(), Error> {
        if let Some(folder) = self.registration.folder.clone() {
            return self.use_files(&folder);
        }
        let updated = if leads { self.update_secret().await } else { Ok(()) };
        let (pair, taken) = self.known.take(leads, &self.registration.secret, Timestamp::now());
        let used = pair.map_or(Ok(()), |pair| self.use_pair(pair));
        updated.and(used).and(taken)
    }

    /// Creates the Secret if it is gone, and writes what it should hold. Only the leader does this.
    async fn update_secret(&mut self) -> Result<(), Error> {
        if self.known.secret.is_gone() {
            self.known.secret = Watched::There(self.create_secret().await?);
        }
        let Registration { names, lifetimes, .. } = &self.registration;
        let settled =
            self.known.settled(SETTLE_TIME.min((lifetimes.leaf / 20).unsigned_abs()), Instant::now());
        let next = self.known.next(names, *lifetimes, settled.as_deref(), Timestamp::now())?;
        let (Some(secret), Some(next)) = (self.known.secret.there().cloned(), next) else { return Ok(()) };
        let secret =
            if secret.immutable == Some(true) { self.recreate_secret(&secret).await? } else { secret };
        let secret = Secret { data: Some(next.data()), ..secret };
        match self.secrets().replace(&self.registration.secret, &PostParams::default(), &secret).await {
            Ok(secret) => {
                info!("new certificates were written to the Secret");
                self.known.secret = Watched::There(secret);
                Ok(())
            }
            // Another writer changed or deleted the Secret meanwhile; the watch delivers its current state.
            Err(error) if Fault::of(&error).is_overtaken() => Ok(()),
            Err(error) => Err(Error::WriteSecret(self.registration.secret.clone(), error)),
        }
    }

    /// Creates the Secret again, empty, as the chart does, or returns the one that another writer created meanwhile. It is
    /// applied because RBAC can limit an apply to a name, but not a POST. The apply sets no content: two writers at once do no
    /// harm.
    async fn create_secret(&self) -> Result<Secret, Error> {
        let Registration { namespace, release, secret, .. } = &self.registration;
        let body = Secret { metadata: ownership::metadata(release, namespace, secret), ..Secret::default() };
        let params = PatchParams::apply(FIELD_MANAGER);
        let created = self.secrets().patch(secret, &params, &Patch::Apply(&body)).await;
        created.map_err(|error| Error::WriteSecret(secret.clone(), error))
    }

    /// Deletes an immutable Secret whose content has to change, and creates it again.
    async fn recreate_secret(&self, immutable: &Secret) -> Result<Secret, Error> {
        let deleted = api::delete(&self.secrets(), Exactly::of(&immutable.metadata)).await;
        deleted.map_err(|error| Error::WriteSecret(self.registration.secret.clone(), error))?;
        self.create_secret().await
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.registration.namespace)
    }

    /// Uses this pair in new handshakes, unless it is already in use.
    fn use_pair(&mut self, pair: Pair) -> Result<(), Error> {
        if self.known.shown.as_ref() != Some(&pair) {
            let (begins, ends) = pair.validity()?;
            self.leaf.swap(pair.certified_key()?);
            self.guard.ready.leaf_begins.store(Some(Arc::new(begins)));
            self.guard.ready.leaf_ends.store(Some(Arc::new(ends)));
            #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 fit a double for a while")]
            self.guard.metrics.certificate_ends.set(ends.as_second() as f64);
            info!(%ends, "this serving certificate is in use from now on");
            self.known.shown = Some(pair);
        }
        Ok(())
    }

    /// Puts the files of a folder into use. A half-written set of files is a temporary error: the pair in use and the registered
    /// bundle stay.
    fn use_files(&mut self, folder: &Path) -> Result<(), Error> {
        let read = |name: &str| {
            std::fs::read_to_string(folder.join(name)).map_err(|error| Error::Read(folder.join(name), error))
        };
        let (pair, bundle) = (Pair::new(read("tls.crt")?, read("tls.key")?), read("ca.crt")?);
        pair.check_against(&bundle, self.registration.names.first().map(String::as_str), Timestamp::now())?;
        self.use_pair(pair)?;
        self.known.bundle = Some(bundle);
        Ok(())
    }

    /// Records whether API servers would accept the leaf. Every replica does this.
    pub(super) fn report_trust(&self) {
        self.guard.ready.untrusted.store(self.known.untrusted(), Ordering::Relaxed);
        let not_yet_valid =
            self.guard.ready.leaf_begins.load().as_deref().is_some_and(|begins| Timestamp::now() < *begins);
        self.guard.metrics.set_trouble(Trouble::LEAF_NOT_YET_VALID, not_yet_valid);
    }

    /// Reports the outcome in `/readyz` and the metrics, where a failure stays until it is over.
    pub(super) fn report_certificate(&self, outcome: Result<(), Error>) {
        let unusable = matches!(outcome, Err(Error::Unusable(..) | Error::Empty(_) | Error::NoSecret(_)));
        self.guard.metrics.set_trouble(Trouble::SECRET_UNUSABLE, unusable);
        let trouble = outcome.err().map(|error| Arc::new(format!("{}; trying again", logged(&error))));
        self.guard.ready.certificates.store(trouble);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::certs::{Leaf, Lifetimes, Material};
    use crate::act::guard::Guard;
    use engine::webhooks::Destination;
    use facts::settings::Settings;

    /// The files in a folder are used together or not at all: if one does not match the others, `/readyz` reports why.
    #[tokio::test]
    async fn files_that_do_not_match_change_nothing() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let registration = Registration {
            namespace: "gatera".into(),
            release: String::new(),
            secret: String::new(),
            configuration: String::new(),
            target: Destination::Service { namespace: "gatera".into(), name: "gatera".into() },
            names: Vec::new(),
            lifetimes: Lifetimes::default(),
            folder: Some(folder.path().to_owned()),
        };
        let guard = Arc::new(Guard::new(Arc::default(), Settings::default(), Timestamp::now));
        let mut registrar =
            Registrar::new(kube::Client::try_from(client).unwrap(), guard, Leaf::default(), registration);
        let [first, second] =
            [0, 0].map(|_| Material::new(&["a".to_owned()], Lifetimes::default(), Timestamp::now()).unwrap());
        let mut look = async |leaf: &Material, ca: &str| {
            let keys = leaf.data();
            for (name, text) in
                [("tls.crt", &*keys["tls.crt"].0), ("tls.key", &keys["tls.key"].0), ("ca.crt", ca.as_bytes())]
            {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            let outcome = registrar.certificate(true).await;
            registrar.report_certificate(outcome);
            let text = registrar.guard.ready.certificates.load().as_deref().cloned().unwrap_or_default();
            let shown = registrar.known.shown.as_ref().map(|pair| pair.certificate.clone());
            (shown, registrar.known.bundle.clone(), text)
        };
        let nothing = "certificates: ca.crt holds no certificate; trying again".to_owned();
        assert_eq!(look(&first, "").await, (None, None, nothing.clone()));
        let good = (Some(first.leaf.certificate.clone()), Some(first.bundle()));
        assert_eq!(look(&first, &first.bundle()).await, (good.0.clone(), good.1.clone(), String::new()));
        let other = "certificates: tls.crt is signed by another CA than ca.crt; trying again".to_owned();
        assert_eq!(look(&second, &first.bundle()).await, (good.0.clone(), good.1.clone(), other));
        assert_eq!(look(&second, "").await, (good.0, good.1, nothing));
        let (shown, bundle, text) = look(&second, &second.bundle()).await;
        assert_eq!((shown, bundle), (Some(second.leaf.certificate.clone()), Some(second.bundle())));
        assert_eq!(text, "");
    }
}
