//! The guard's own certificates: what they are, when they change, and the Secret they live in.
//!
//! Owns: [`Material`] and the decision [`Material::next`], a pure function of the material, the registered caBundle and
//! the time. One writer (the leader) makes them, every replica reads them from the Secret; `register.rs` puts the
//! bundle into the webhook entries. Must not know: sockets.
//!
//! A rotation never breaks a handshake, because its steps wait for each other: first a new CA joins the bundle, and
//! only when the *registered* bundle holds it does a leaf signed by it appear. The old CA stays in the bundle until the
//! next rotation.

mod leaf;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

pub use leaf::Leaf;

/// How long certificates live. Each is replaced when a third of its life is left.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    /// Of a CA.
    pub ca: SignedDuration,
    /// Of a leaf.
    pub leaf: SignedDuration,
}

impl Default for Lives {
    /// A year, and ninety days.
    fn default() -> Self {
        Self { ca: SignedDuration::from_hours(24 * 365), leaf: SignedDuration::from_hours(24 * 90) }
    }
}

/// Clocks differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// One certificate, or a chain with the leaf first.
    pub certificate: String,
    key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(certificate and hidden key)")
    }
}

/// Everything in the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Material {
    ca: Pair,
    /// The CA before this one: still trusted.
    previous_ca: Option<String>,
    /// What the server shows.
    pub leaf: Pair,
}

/// What can go wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Making one failed.
    #[error("making a certificate")]
    Make(#[from] rcgen::Error),
    /// One could not be read.
    #[error("reading a certificate: {0}")]
    Read(String),
}

impl Material {
    /// A new CA and a leaf for these names.
    pub fn new(names: &[String], lives: Lives, now: Timestamp) -> Result<Self, Error> {
        let ca = new_ca(lives, now)?;
        let leaf = new_leaf(&ca, names, lives, now)?;
        Ok(Self { ca, previous_ca: None, leaf })
    }

    /// What API servers should trust: PEM, new CA first.
    pub fn bundle(&self) -> String {
        format!("{}{}", self.ca.certificate, self.previous_ca.as_deref().unwrap_or_default())
    }

    /// The material as it should be from now on, if it should change. `registered` is the bundle that API servers
    /// are sure to trust by now; `None` while nothing is registered, so that nobody can be cut off.
    pub fn next(
        &self,
        names: &[String],
        lives: Lives,
        registered: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        if due(&self.ca.certificate, lives.ca, now)? {
            let ca = new_ca(lives, now)?;
            return Ok(Some(Self {
                ca,
                previous_ca: Some(self.ca.certificate.clone()),
                leaf: self.leaf.clone(),
            }));
        }
        let trusted = registered.is_none_or(|bundle| bundle.contains(self.ca.certificate.trim()));
        let stale = due(&self.leaf.certificate, lives.leaf, now)?
            || !issued_by(&self.leaf.certificate, &self.ca.certificate)?
            || !names_of(&self.leaf.certificate)?.iter().eq(names);
        Ok(if stale && trusted {
            Some(Self { leaf: new_leaf(&self.ca, names, lives, now)?, ..self.clone() })
        } else {
            None
        })
    }

    /// From the Secret; `None` if it holds none (yet), or something that is not ours.
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

    /// For the Secret.
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

impl Pair {
    /// From files somebody else keeps.
    pub fn new(certificate: String, key: String) -> Self {
        Self { certificate, key }
    }

    /// What rustls shows to clients, checked: the key belongs to the certificate.
    pub fn loaded(&self) -> Result<Arc<CertifiedKey>, Error> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| Error::Read(format!("certificate: {error}")))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| Error::Read(format!("key: {error}")))?;
        let key = any_supported_type(&key).map_err(|error| Error::Read(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|error| Error::Read(format!("certificate and key: {error}")))?;
        Ok(Arc::new(certified))
    }

    /// When the leaf ends.
    pub fn ends(&self) -> Result<Timestamp, Error> {
        Ok(validity(&self.certificate)?.1)
    }

    /// A bundle that trusts this leaf: one of its certificates signed it (or is it).
    pub fn trusted_by(&self, bundle: &str) -> bool {
        let Ok(ders) = CertificateDer::pem_slice_iter(bundle.as_bytes()).collect::<Result<Vec<_>, _>>()
        else {
            return false;
        };
        let Ok(chain) =
            CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()
        else {
            return false;
        };
        chain.iter().any(|link| ders.iter().any(|ca| ca == link || signed(link, ca)))
    }
}

fn new_ca(lives: Lives, now: Timestamp) -> Result<Pair, Error> {
    let mut params = params(&[], now, lives.ca)?;
    // The name differs from CA to CA: chains are built by name, and two CAs in a bundle must not share one.
    params.distinguished_name.push(DnType::CommonName, format!("gatera CA {now}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

fn new_leaf(ca: &Pair, names: &[String], lives: Lives, now: Timestamp) -> Result<Pair, Error> {
    let mut params = params(names, now, lives.leaf)?;
    params.distinguished_name.push(DnType::CommonName, "gatera");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
    Ok(Pair { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
}

fn params(names: &[String], now: Timestamp, life: SignedDuration) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    // rcgen counts in the `time` crate's dates; from 1970 on they are seconds.
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| epoch + std::time::Duration::from_secs(time.as_second().max(0).unsigned_abs());
    params.not_before = at(now - SKEW);
    params.not_after = at(now + life);
    Ok(params)
}

/// A third of its life is left, or less.
fn due(certificate: &str, life: SignedDuration, now: Timestamp) -> Result<bool, Error> {
    Ok(now.duration_until(validity(certificate)?.1) <= life / 3)
}

fn validity(pem: &str) -> Result<(Timestamp, Timestamp), Error> {
    let der = first(pem)?;
    let (_, parsed) = parse_x509_certificate(&der).map_err(|error| Error::Read(error.to_string()))?;
    let at = |seconds: i64| Timestamp::from_second(seconds).map_err(|error| Error::Read(error.to_string()));
    Ok((at(parsed.validity().not_before.timestamp())?, at(parsed.validity().not_after.timestamp())?))
}

fn names_of(pem: &str) -> Result<Vec<String>, Error> {
    let der = first(pem)?;
    let (_, parsed) = parse_x509_certificate(&der).map_err(|error| Error::Read(error.to_string()))?;
    let names = parsed
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|it| it.value.general_names.clone())
        .unwrap_or_default();
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match **bytes {
            [a, b, c, d] => Some(IpAddr::from([a, b, c, d]).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    };
    Ok(names.iter().filter_map(text).collect())
}

fn issued_by(leaf: &str, ca: &str) -> Result<bool, Error> {
    Ok(signed(&first(leaf)?, &first(ca)?))
}

/// Issuer and subject are the same name. Our CAs all differ in theirs, and a wrong guess would only be a wrong word in
/// `/readyz`: API servers check signatures themselves.
fn signed(leaf: &CertificateDer<'_>, ca: &CertificateDer<'_>) -> bool {
    match (parse_x509_certificate(leaf), parse_x509_certificate(ca)) {
        (Ok((_, leaf)), Ok((_, ca))) => leaf.issuer().as_raw() == ca.subject().as_raw(),
        _ => false,
    }
}

fn first(pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| Error::Read(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["gatera.gatera.svc".into(), "127.0.0.1".into()]
    }

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_hours(24 * days)
    }

    #[test]
    fn fresh_material_is_left_alone_and_survives_its_secret() {
        let material = Material::new(&names(), Lives::default(), at(0)).unwrap();
        assert_eq!(
            material.next(&names(), Lives::default(), Some(&material.bundle()), at(59)).unwrap(),
            None
        );
        let secret = Secret { data: Some(material.data()), ..Secret::default() };
        assert_eq!(Material::read(&secret), Some(material.clone()));
        assert_eq!(Material::read(&Secret::default()), None);
        assert!(material.leaf.loaded().is_ok() && material.leaf.trusted_by(&material.bundle()));
        assert!(!format!("{material:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_leaf_is_replaced_when_a_third_of_it_is_left_or_its_names_change() {
        let material = Material::new(&names(), Lives::default(), at(0)).unwrap();
        let next =
            material.next(&names(), Lives::default(), Some(&material.bundle()), at(60)).unwrap().unwrap();
        assert_eq!(next.bundle(), material.bundle());
        assert_eq!(next.leaf.ends().unwrap(), at(150));
        let other = vec!["other".to_owned()];
        assert!(material.next(&other, Lives::default(), None, at(1)).unwrap().is_some());
    }

    /// Two rotations of the CA: at every step the leaf that is shown is trusted by the bundle that is registered.
    #[test]
    fn a_new_ca_is_registered_before_it_signs() {
        let mut material = Material::new(&names(), Lives::default(), at(0)).unwrap();
        let mut registered = material.bundle();
        let (mut cas, mut leaves) = (0, 0);
        for day in 0..600 {
            while let Some(next) =
                material.next(&names(), Lives::default(), Some(&registered), at(day)).unwrap()
            {
                cas += i32::from(next.ca != material.ca);
                leaves += i32::from(next.leaf != material.leaf);
                material = next;
                assert!(material.leaf.trusted_by(&registered), "day {day}: shown before it was trusted");
                registered = material.bundle();
                assert!(
                    material.leaf.trusted_by(&registered),
                    "day {day}: the old one was forgotten too early"
                );
            }
            assert!(material.leaf.ends().unwrap() > at(day), "day {day}: ended");
        }
        assert_eq!(cas, 2);
        assert!(leaves >= 9, "{leaves}");
        let behind = Material {
            ca: new_ca(Lives::default(), at(0)).unwrap(),
            previous_ca: Some(material.ca.certificate.clone()),
            ..material.clone()
        };
        assert_eq!(
            behind.next(&names(), Lives::default(), Some(&registered), at(1)).unwrap(),
            None,
            "waits until the new CA is registered"
        );
    }
}
