//! The guard's own certificates: what they are, when they change, and the Secret that holds them.
//!
//! Owns: [`Material`] and the decisions [`Material::next`] and [`Material::with_new_ca`]. These do no I/O: apart from the random
//! keys that they generate, they depend only on what the Secret holds, what this replica took from it last, the registered
//! caBundle and the time. Only the leader makes certificates; every replica reads them from the Secret, and `register/` puts the
//! bundle into the webhook entries. Must not know: sockets.
//!
//! A rotation never breaks a handshake, because its steps wait for each other: first a new CA joins the bundle, and a leaf that
//! this CA signed is made only when the *registered* bundle holds the CA. The old CA stays in the bundle until the next rotation.
//! Certificates that cannot be used are replaced under the same rule: while this replica holds a leaf that API servers trust,
//! that leaf and its CA stay.

mod leaf;
mod pair;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use pair::{check_dates, names_of, new_ca, new_leaf};

pub use leaf::Leaf;
pub use pair::{Pair, expirations};

/// The lifetimes of certificates. Each certificate is replaced when a third of its lifetime is left.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// The lifetime of a CA.
    pub ca: SignedDuration,
    /// The lifetime of a leaf.
    pub leaf: SignedDuration,
}

impl Default for Lifetimes {
    /// Returns one year for a CA, and ninety days for a leaf.
    fn default() -> Self {
        Self { ca: SignedDuration::from_hours(24 * 365), leaf: SignedDuration::from_hours(24 * 90) }
    }
}

/// The content of the Secret: the current CA, the one before it, and the leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Material {
    ca: Pair,
    /// The certificate of the CA before `ca`, which is still in the bundle.
    previous_ca: Option<String>,
    /// The pair that the server presents to clients.
    pub leaf: Pair,
}

/// An error of making, reading or checking certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be made.
    #[error("making a certificate")]
    Make(#[from] rcgen::Error),
    /// A certificate or its key could not be read.
    #[error("reading a certificate: {0}")]
    Read(String),
    /// The certificate is not valid yet: the clock was ahead when it was made, or the clock of this process is behind.
    #[error("a certificate is not valid before {0}")]
    NotYetValid(Timestamp),
    /// The certificate has expired.
    #[error("a certificate expired at {0}")]
    Expired(Timestamp),
    /// The certificate is not a CA and may not sign others.
    #[error("ca.crt is not a CA certificate")]
    NotCa,
    /// The bundle is empty, so API servers would trust no certificate.
    #[error("ca.crt holds no certificate")]
    NoBundle,
    /// The leaf is signed by a CA outside of the bundle, so API servers would not trust it.
    #[error("tls.crt is signed by another CA than ca.crt")]
    OtherCa,
    /// The CA that signed the leaf is not valid now, so API servers would not trust the leaf.
    #[error("the CA in ca.crt that signed tls.crt cannot be used: {0}")]
    InvalidCa(Box<Self>),
    /// API servers would refuse the leaf for another reason.
    #[error("API servers would refuse tls.crt: {0}")]
    Refused(String),
}

impl Material {
    /// Makes a new CA and a leaf for these names.
    pub fn new(names: &[String], lifetimes: Lifetimes, now: Timestamp) -> Result<Self, Error> {
        let ca = new_ca(lifetimes, now)?;
        let leaf = new_leaf(&ca, names, lifetimes, now)?;
        Ok(Self { ca, previous_ca: None, leaf })
    }

    /// Returns the CA certificates that API servers should trust: PEM, new CA first.
    pub fn bundle(&self) -> String {
        format!("{}{}", self.ca.certificate, self.previous_ca.as_deref().unwrap_or_default())
    }

    /// Returns the material that should replace this one, if it should change. `held` is what this replica took from the Secret
    /// last and presents. `registered` is the bundle that API servers are sure to trust by now, so that a change cuts off none of
    /// them; `None` while nothing is registered.
    pub fn next(
        &self,
        held: Option<&Self>,
        names: &[String],
        lifetimes: Lifetimes,
        registered: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        if self.ca.check_ca(now).is_err() {
            return Self::with_new_ca(held.or(Some(self)), names, lifetimes, now).map(Some);
        }
        if let Some(joined) = held.and_then(|held| self.joined_with(held, now)) {
            return Ok(Some(joined));
        }
        if self.ca.is_due(lifetimes.ca, now)? {
            let previous_ca = Some(self.ca.certificate.clone());
            return Ok(Some(Self { ca: new_ca(lifetimes, now)?, previous_ca, leaf: self.leaf.clone() }));
        }
        let trusted = registered.is_none_or(|bundle| bundle.contains(self.ca.certificate.trim()));
        if self.check_leaf(now).is_err() {
            // Until every API server trusts the new CA, the leaf that this replica presents is put back into the Secret.
            let kept =
                held.filter(|held| !trusted && held.issuer(now).is_some_and(|ca| self.bundle().contains(ca)));
            let leaf =
                kept.map_or_else(|| new_leaf(&self.ca, names, lifetimes, now), |held| Ok(held.leaf.clone()))?;
            return Ok(Some(Self { leaf, ..self.clone() }));
        }
        let stale = self.leaf.is_due(lifetimes.leaf, now)?
            || !self.leaf.trusted_by(&self.ca.certificate)
            || !names_of(&self.leaf.certificate)?.iter().eq(names);
        let renewed = || Ok(Self { leaf: new_leaf(&self.ca, names, lifetimes, now)?, ..self.clone() });
        (stale && trusted).then(renewed).transpose()
    }

    /// Makes a new CA, because the Secret holds none that can be used. The leaf of `held` and the CA that signed it stay if they
    /// can be used; otherwise the leaf is new, too.
    pub fn with_new_ca(
        held: Option<&Self>,
        names: &[String],
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> Result<Self, Error> {
        match held.and_then(|held| Some((held, held.issuer(now)?))) {
            None => Self::new(names, lifetimes, now),
            Some((held, issuer)) => Ok(Self {
                ca: new_ca(lifetimes, now)?,
                previous_ca: Some(issuer.to_owned()),
                leaf: held.leaf.clone(),
            }),
        }
    }

    /// Returns this CA together with the leaf of `held` and the CA that signed it, if that leaf can be used and this bundle does
    /// not trust it, as after another writer replaced the content of the Secret.
    fn joined_with(&self, held: &Self, now: Timestamp) -> Option<Self> {
        let issuer = held.issuer(now).filter(|_| !held.leaf.trusted_by(&self.bundle()))?;
        Some(Self { ca: self.ca.clone(), previous_ca: Some(issuer.to_owned()), leaf: held.leaf.clone() })
    }

    /// Returns whether this material can replace `held` without cutting off API servers: its bundle trusts the leaf of `held`, or
    /// that leaf cannot be used.
    pub fn continues(&self, held: &Self, now: Timestamp) -> bool {
        self.joined_with(held, now).is_none()
    }

    /// Returns the certificate of the CA that signed the leaf. `None`: the leaf or that CA cannot be used now.
    fn issuer(&self, now: Timestamp) -> Option<&str> {
        self.leaf.check(now).ok()?;
        let cas = [Some(&self.ca.certificate), self.previous_ca.as_ref()].into_iter().flatten();
        let signed_leaf = |ca: &&String| check_dates(ca, now).is_ok() && self.leaf.trusted_by(ca);
        cas.into_iter().find(signed_leaf).map(String::as_str)
    }

    /// Checks that the CA and the leaf can be used now, and that the bundle trusts the leaf.
    pub fn check(&self, now: Timestamp) -> Result<(), Error> {
        self.ca.check_ca(now)?;
        self.check_leaf(now)
    }

    fn check_leaf(&self, now: Timestamp) -> Result<(), Error> {
        self.leaf.check(now)?;
        if self.leaf.trusted_by(&self.bundle()) { Ok(()) } else { Err(Error::OtherCa) }
    }

    /// Reads the material from the Secret. `None`: a required key is missing, empty or not text.
    pub fn read(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text =
            |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok().filter(|text| !text.is_empty());
        let pair = |certificate, key| Some(Pair { certificate: text(certificate)?, key: text(key)? });
        Some(Self {
            ca: pair("ca.crt", "ca.key")?,
            previous_ca: text("previous-ca.crt"),
            leaf: pair("tls.crt", "tls.key")?,
        })
    }

    /// Returns the material as the data of the Secret.
    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let Self { ca, previous_ca, leaf } = self;
        [
            ("ca.crt", &ca.certificate),
            ("ca.key", &ca.key),
            ("previous-ca.crt", previous_ca.as_ref().unwrap_or(&String::new())),
            ("tls.crt", &leaf.certificate),
            ("tls.key", &leaf.key),
        ]
        .into_iter()
        .map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())))
        .collect()
    }
}

#[cfg(test)]
mod tests;
