//! One certificate and its key: making, reading, checking.
//!
//! Owns: X.509 and PEM. Must not know: the role of each pair (`certs.rs`). Bytes that cannot be used cause a readable error,
//! because users write Secrets, too.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, Error as VerifierError, KeyUsage, anchor_from_trusted_cert,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use super::{Error, Lifetimes};

/// The time by which a new certificate is backdated, because clocks differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// One certificate, or a chain with the leaf first.
    pub certificate: String,
    pub(super) key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(certificate and hidden key)")
    }
}

impl Pair {
    /// Creates a pair from the content of files that are maintained outside of the guard.
    pub fn new(certificate: String, key: String) -> Self {
        Self { certificate, key }
    }

    /// Checks that the key belongs to the certificate, and returns the pair in the form that rustls presents to clients.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, Error> {
        let chain = certificates_in(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| Error::Read(format!("key: {error}")))?;
        let key = any_supported_type(&key).map_err(|error| Error::Read(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|error| Error::Read(format!("certificate and key: {error}")))?;
        Ok(Arc::new(certified))
    }

    /// Returns when the first certificate expires.
    pub fn expires(&self) -> Result<Timestamp, Error> {
        Ok(self.validity()?.1)
    }

    /// Returns the start and the end of the certificate's validity.
    pub fn validity(&self) -> Result<(Timestamp, Timestamp), Error> {
        validity_of(&first_certificate_in(&self.certificate)?)
    }

    /// Returns whether at most a third of this lifetime is left.
    pub(super) fn is_due(&self, life: SignedDuration, now: Timestamp) -> Result<bool, Error> {
        Ok(now.duration_until(self.expires()?) <= life / 3)
    }

    /// Checks that the pair can be used now: the key belongs to the certificate, and the certificate is valid.
    pub fn check(&self, now: Timestamp) -> Result<(), Error> {
        self.certified_key()?;
        check_dates(&self.certificate, now)
    }

    /// Checks that the pair is a CA that can sign certificates now.
    pub(super) fn check_ca(&self, now: Timestamp) -> Result<(), Error> {
        self.check(now)?;
        KeyPair::from_pem(&self.key).map_err(|_| Error::Read("key: it cannot be used to sign".into()))?;
        let der = first_certificate_in(&self.certificate)?;
        if parsed(&der)?.is_ca() { Ok(()) } else { Err(Error::NotCa) }
    }

    /// Returns whether a client that trusts this bundle accepts the leaf as a server certificate at any point in time. Whether
    /// the certificates are valid now is not checked.
    pub fn trusted_by(&self, bundle: &str) -> bool {
        let (Ok(cas), Ok(chain)) = (certificates_in(bundle), certificates_in(&self.certificate)) else {
            return false;
        };
        // If the validity periods of all certificates in a path overlap, the start of the latest one lies in all of them.
        let mut starts = chain.iter().chain(&cas).filter_map(|der| Some(validity_of(der).ok()?.0));
        starts.any(|starts| check_as_client(&chain, &cas, None, starts).is_ok())
    }

    /// Checks that API servers with this bundle accept this pair now, for a server with this name if one is given.
    pub fn check_against(&self, bundle: &str, name: Option<&str>, now: Timestamp) -> Result<(), Error> {
        self.check(now)?;
        match certificates_in(bundle)? {
            cas if cas.is_empty() => Err(Error::NoBundle),
            cas => check_as_client(&certificates_in(&self.certificate)?, &cas, name, now),
        }
    }
}

fn certificates_in(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
    all.map_err(|error| Error::Read(format!("certificate: {error}")))
}

pub(super) fn new_ca(lifetimes: Lifetimes, now: Timestamp) -> Result<Pair, Error> {
    let mut params = params(&[], now, lifetimes.ca)?;
    // Every CA has a name of its own: chains are built by name, and two CAs in a bundle must not share one.
    params.distinguished_name.push(DnType::CommonName, format!("gatera CA {now}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

pub(super) fn new_leaf(
    ca: &Pair,
    names: &[String],
    lifetimes: Lifetimes,
    now: Timestamp,
) -> Result<Pair, Error> {
    let mut params = params(names, now, lifetimes.leaf)?;
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
    // rcgen takes dates of the `time` crate, which are made here from the seconds since 1970.
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| epoch + std::time::Duration::from_secs(time.as_second().max(0).unsigned_abs());
    params.not_before = at(now - SKEW);
    params.not_after = at(now + life);
    Ok(params)
}

fn validity_of(der: &CertificateDer<'_>) -> Result<(Timestamp, Timestamp), Error> {
    let certificate = parsed(der)?;
    let at = |seconds: i64| Timestamp::from_second(seconds).map_err(|error| Error::Read(error.to_string()));
    Ok((
        at(certificate.validity().not_before.timestamp())?,
        at(certificate.validity().not_after.timestamp())?,
    ))
}

pub(super) fn names_of(pem: &str) -> Result<Vec<String>, Error> {
    let der = first_certificate_in(pem)?;
    let certificate = parsed(&der)?;
    let names = certificate.subject_alternative_name().ok().flatten();
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match **bytes {
            [a, b, c, d] => Some(IpAddr::from([a, b, c, d]).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    };
    Ok(names.iter().flat_map(|it| &it.value.general_names).filter_map(text).collect())
}

/// Checks what a client that trusts these CAs checks: the path, its dates, its use for a server and, if one is given, the name.
fn check_as_client(
    chain: &[CertificateDer<'_>],
    cas: &[CertificateDer<'_>],
    name: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    let Some((first, others)) = chain.split_first() else {
        return Err(Error::Read("certificate: there is none".to_owned()));
    };
    let leaf = EndEntityCert::try_from(first).map_err(|error| refusal(&error, name))?;
    if let Some(name) = name {
        let server = ServerName::try_from(name).map_err(|error| Error::Read(format!("{name}: {error}")))?;
        leaf.verify_is_valid_for_subject_name(&server).map_err(|error| refusal(&error, Some(name)))?;
    }
    let time =
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.as_second().max(0).unsigned_abs()));
    let verified = |cas: &[&CertificateDer<'_>]| {
        let anchors: Vec<_> = cas.iter().filter_map(|ca| anchor_from_trusted_cert(ca).ok()).collect();
        let usage = KeyUsage::server_auth();
        leaf.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, others, time, usage, None, None).map(drop)
    };
    // API servers also check the dates of the CA itself; the verifier does not.
    let (valid, invalid): (Vec<_>, Vec<_>) = cas.iter().partition(|ca| check_dates_of(ca, now).is_ok());
    match verified(&valid) {
        Ok(()) => Ok(()),
        // A certificate in the bundle is a path of its own. API servers accept such a path; the verifier does not look for it.
        Err(_) if cas.contains(first) => check_dates_of(first, now).and(check_server_usage(first)),
        // API servers accept what the verifier does not support: a leaf that is also a CA, and keys such as P-521.
        Err(error) if is_beyond_the_verifier(&error) => {
            let signed = valid.iter().copied().chain(others).any(|ca| names_as_issuer(first, ca));
            if signed { check_server_usage(first) } else { Err(Error::OtherCa) }
        }
        Err(error) => Err(match invalid.into_iter().find(|ca| verified(&[ca]).is_ok()) {
            Some(ca) => {
                check_dates_of(ca, now).err().map_or(Error::OtherCa, |it| Error::InvalidCa(it.into()))
            }
            None => refusal(&error, name),
        }),
    }
}

/// The OID of the signature algorithm ecdsa-with-SHA512, as DER.
const ECDSA_SHA512: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];

fn is_beyond_the_verifier(error: &VerifierError) -> bool {
    match error {
        VerifierError::CaUsedAsEndEntity
        | VerifierError::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => true,
        VerifierError::UnsupportedSignatureAlgorithmContext(it) => it.signature_algorithm_id == ECDSA_SHA512,
        _ => false,
    }
}

/// Returns whether a certificate names this CA as its issuer; the signature is not checked.
fn names_as_issuer(der: &CertificateDer<'_>, ca: &CertificateDer<'_>) -> bool {
    match (parsed(der), parsed(ca)) {
        (Ok(it), Ok(ca)) => it.issuer() == ca.subject(),
        _ => false,
    }
}

fn check_server_usage(der: &CertificateDer<'_>) -> Result<(), Error> {
    let certificate = parsed(der)?;
    let usage = certificate.extended_key_usage().map_err(|error| Error::Read(error.to_string()))?;
    let serves = usage.is_none_or(|it| it.value.any || it.value.server_auth);
    if serves { Ok(()) } else { Err(Error::Refused(NO_SERVER_AUTH.to_owned())) }
}

const NO_SERVER_AUTH: &str =
    "the extended key usage of a certificate in its chain does not include serverAuth";

/// Returns the name of an error as separate words, for errors that are too rare for a message of their own.
fn spaced_name(error: &VerifierError) -> String {
    let name = error.to_string();
    let name = name.split(['(', ' ', '{']).next().unwrap_or_default();
    let spaced =
        name.chars().flat_map(|c| c.is_uppercase().then_some(' ').into_iter().chain(c.to_lowercase()));
    spaced.collect::<String>().trim().to_owned()
}

/// Turns the verifier's error into one with a message.
pub(super) fn refusal(error: &webpki::Error, name: Option<&str>) -> Error {
    let problem = match error {
        VerifierError::UnknownIssuer | VerifierError::InvalidSignatureForPublicKey => return Error::OtherCa,
        VerifierError::RequiredEkuNotFoundContext(_) => NO_SERVER_AUTH.to_owned(),
        VerifierError::EndEntityUsedAsCa => {
            "a certificate in its chain that is not a CA signed another one".to_owned()
        }
        VerifierError::CertExpired { .. } => "a certificate in its chain has expired".to_owned(),
        VerifierError::CertNotValidYet { .. } => "a certificate in its chain is not valid yet".to_owned(),
        VerifierError::CertNotValidForName(_) => {
            format!("its subject alternative names do not include {}", name.unwrap_or_default())
        }
        other => format!("its chain cannot be verified ({})", spaced_name(other)),
    };
    Error::Refused(problem)
}

/// Checks that the certificate is valid now.
pub(super) fn check_dates(certificate: &str, now: Timestamp) -> Result<(), Error> {
    check_dates_of(&first_certificate_in(certificate)?, now)
}

fn check_dates_of(der: &CertificateDer<'_>, now: Timestamp) -> Result<(), Error> {
    match validity_of(der)? {
        (starts, _) if now < starts => Err(Error::NotYetValid(starts)),
        (_, ends) if ends <= now => Err(Error::Expired(ends)),
        _ => Ok(()),
    }
}

/// Returns when each certificate of a bundle expires.
pub fn expirations(bundle: &str) -> Result<Vec<Timestamp>, Error> {
    let found: Vec<_> =
        certificates_in(bundle)?.iter().map(|der| Ok(validity_of(der)?.1)).collect::<Result<_, Error>>()?;
    if found.is_empty() { Err(Error::NoBundle) } else { Ok(found) }
}

fn first_certificate_in(pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| Error::Read(error.to_string()))
}

fn parsed<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    let (_, certificate) = parse_x509_certificate(der).map_err(|error| Error::Read(error.to_string()))?;
    Ok(certificate)
}
