//! Rotations of certificates, Secrets that cannot be used, and certificates that users bring.

use super::*;

fn names() -> Vec<String> {
    vec!["gatera.gatera.svc".into(), "127.0.0.1".into()]
}

fn at(days: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_hours(24 * days)
}

#[test]
fn fresh_material_is_not_replaced_and_can_be_read_back_from_its_secret() {
    let material = Material::new(&names(), Lifetimes::default(), at(0)).unwrap();
    assert_eq!(
        material.next(None, &names(), Lifetimes::default(), Some(&material.bundle()), at(59)).unwrap(),
        None
    );
    let secret = Secret { data: Some(material.data()), ..Secret::default() };
    assert_eq!(Material::read(&secret), Some(material.clone()));
    assert_eq!(Material::read(&Secret::default()), None);
    assert!(material.leaf.certified_key().is_ok() && material.leaf.trusted_by(&material.bundle()));
    assert!(!format!("{material:?}").contains("PRIVATE"));
}

#[test]
fn a_leaf_is_replaced_when_a_third_of_its_lifetime_is_left_or_its_names_change() {
    let material = Material::new(&names(), Lifetimes::default(), at(0)).unwrap();
    let next = material
        .next(None, &names(), Lifetimes::default(), Some(&material.bundle()), at(60))
        .unwrap()
        .unwrap();
    assert_eq!(next.bundle(), material.bundle());
    assert_eq!(next.leaf.expires().unwrap(), at(150));
    let other = vec!["other".to_owned()];
    assert!(material.next(None, &other, Lifetimes::default(), None, at(1)).unwrap().is_some());
}

/// In two rotations of the CA, the leaf in use is trusted by the registered bundle at every step.
#[test]
fn a_new_ca_is_registered_before_it_signs() {
    let mut material = Material::new(&names(), Lifetimes::default(), at(0)).unwrap();
    let mut registered = material.bundle();
    let (mut cas, mut leaves) = (0, 0);
    for day in 0..600 {
        while let Some(next) =
            material.next(None, &names(), Lifetimes::default(), Some(&registered), at(day)).unwrap()
        {
            cas += i32::from(next.ca != material.ca);
            leaves += i32::from(next.leaf != material.leaf);
            material = next;
            assert!(material.leaf.trusted_by(&registered), "day {day}: presented before it was trusted");
            registered = material.bundle();
            assert!(
                material.leaf.trusted_by(&registered),
                "day {day}: the CA of the leaf was removed too early"
            );
        }
        assert!(material.leaf.expires().unwrap() > at(day), "day {day}: the leaf has expired");
    }
    assert_eq!(cas, 2);
    assert!(leaves >= 9, "{leaves}");
    let last = at(599);
    let behind = Material {
        ca: new_ca(Lifetimes::default(), last).unwrap(),
        previous_ca: Some(material.ca.certificate.clone()),
        ..material.clone()
    };
    assert_eq!(
        behind.next(None, &names(), Lifetimes::default(), Some(&registered), last).unwrap(),
        None,
        "no leaf is made before the new CA is registered"
    );
}

/// Returns the material with one key of the Secret replaced.
fn with(material: &Material, key: &str, text: &str) -> Material {
    let mut data = material.data();
    data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
    Material::read(&Secret { data: Some(data), ..Secret::default() }).unwrap()
}

fn text(material: &Material, key: &str) -> String {
    String::from_utf8(material.data()[key].0.clone()).unwrap()
}

/// Returns one Secret content for each reason why it cannot be used on day 0.
fn broken() -> Vec<(&'static str, Material)> {
    let [good, other, future, expired] =
        [0, 0, 400, -400].map(|day| Material::new(&names(), Lifetimes::default(), at(day)).unwrap());
    // A certificate without valid dates.
    let undated = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    let (ca, leaf) = (&good.ca, &good.leaf);
    vec![
        ("CA not PEM", with(&good, "ca.crt", "garbage")),
        ("CA's key not PEM", with(&good, "ca.key", "garbage")),
        ("CA's key of another CA", with(&good, "ca.key", &text(&other, "ca.key"))),
        ("CA without dates", with(&good, "ca.crt", undated)),
        ("CA is a leaf", Material { ca: leaf.clone(), ..good.clone() }),
        ("leaf not PEM", with(&good, "tls.crt", "garbage")),
        ("leaf's key not PEM", with(&good, "tls.key", "garbage")),
        ("leaf's key of another leaf", with(&good, "tls.key", &text(&other, "tls.key"))),
        ("leaf without dates", with(&good, "tls.crt", undated)),
        ("leaf of another CA", Material { leaf: other.leaf.clone(), ..good.clone() }),
        ("CA expired", expired.clone()),
        ("CA not yet valid", future.clone()),
        (
            "leaf expired",
            Material { leaf: new_leaf(ca, &names(), Lifetimes::default(), at(-91)).unwrap(), ..good.clone() },
        ),
        (
            "leaf not yet valid",
            Material { leaf: new_leaf(ca, &names(), Lifetimes::default(), at(1)).unwrap(), ..good.clone() },
        ),
    ]
}

/// Returns the material at which the leader stops, and each step to it. As in the guard, only material that can be used is held
/// and registered.
fn converged(found: &Material, held: Option<&Material>, registered: &str) -> (Material, Vec<Material>) {
    let (mut now, mut held, mut registered) = (found.clone(), held.cloned(), registered.to_owned());
    let mut steps = Vec::new();
    while let Some(next) =
        now.next(held.as_ref(), &names(), Lifetimes::default(), Some(&registered), at(0)).unwrap()
    {
        assert!(steps.len() < 4, "the steps do not end");
        now = next;
        steps.push(now.clone());
        if now.check(at(0)).is_ok() {
            held = Some(now.clone());
            registered = now.bundle();
        }
    }
    (now, steps)
}

#[test]
fn broken_material_is_replaced() {
    for (what, found) in broken() {
        assert!(found.check(at(0)).is_err(), "{what}");
        let (healed, _) = converged(&found, None, "another bundle");
        assert!(healed.check(at(0)).is_ok(), "{what}: {:?}", healed.check(at(0)));
        assert!(healed.leaf.trusted_by(&healed.ca.certificate), "{what}");
    }
}

/// While a replica presents a good leaf, every registered bundle trusts that leaf, until API servers trust its successor.
#[test]
fn the_leaf_in_use_is_always_trusted() {
    let held = Material::new(&names(), Lifetimes::default(), at(0)).unwrap();
    let other = Material::new(&names(), Lifetimes::default(), at(0)).unwrap();
    for (what, found) in broken().into_iter().chain([("all of another CA", other)]) {
        let (healed, steps) = converged(&found, Some(&held), &held.bundle());
        assert!(healed.check(at(0)).is_ok(), "{what}");
        let (mut presented, mut registered) = (held.leaf.clone(), held.bundle());
        for step in &steps {
            if step.leaf.trusted_by(&registered) {
                presented = step.leaf.clone();
            }
            registered = step.bundle();
            assert!(presented.trusted_by(&registered), "{what}: API servers are cut off");
        }
    }
    let again = Material::with_new_ca(Some(&held), &names(), Lifetimes::default(), at(0)).unwrap();
    assert_eq!((&again.leaf, again.previous_ca.as_ref()), (&held.leaf, Some(&held.ca.certificate)));
    assert_ne!(again.ca, held.ca);
    let late = Material::with_new_ca(Some(&held), &names(), Lifetimes::default(), at(400)).unwrap();
    assert_eq!(late.previous_ca, None, "an expired CA is not kept");
}

/// A foreign CA may have the same name as the guard's CA, but it has another key.
#[test]
fn a_leaf_is_not_trusted_by_a_ca_of_the_same_name() {
    let [one, two] = [0, 0].map(|day| new_ca(Lifetimes::default(), at(day)).unwrap());
    let leaf = new_leaf(&one, &names(), Lifetimes::default(), at(0)).unwrap();
    assert!(leaf.trusted_by(&one.certificate));
    assert!(!leaf.trusted_by(&two.certificate));
}

/// Returns a pair as a user may bring it, made with these parameters; self-signed if there is no issuer.
fn custom_pair(
    name: &str,
    issuer: Option<&Pair>,
    days: [i64; 2],
    change: impl FnOnce(&mut rcgen::CertificateParams),
) -> Pair {
    let mut params = rcgen::CertificateParams::new(vec![names()[0].clone()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let [begins, ends] = days.map(|day| {
        let seconds = at(day).as_second().unsigned_abs();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    });
    (params.not_before, params.not_after) = (begins, ends);
    change(&mut params);
    let key = rcgen::KeyPair::generate().unwrap();
    let made = match issuer {
        None => params.self_signed(&key),
        Some(issuer) => {
            let signer = rcgen::KeyPair::from_pem(&issuer.key).unwrap();
            let issuer = rcgen::Issuer::from_ca_cert_pem(&issuer.certificate, signer).unwrap();
            params.signed_by(&key, &issuer)
        }
    };
    Pair { certificate: made.unwrap().pem(), key: key.serialize_pem() }
}

/// Certificates that users bring are used only if API servers would accept them; otherwise the error says why not.
#[test]
fn a_pair_is_accepted_only_if_api_servers_would_accept_it() {
    use rcgen::{BasicConstraints, IsCa};
    let ca = |it: &mut rcgen::CertificateParams| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let plain = |_: &mut rcgen::CertificateParams| {};
    let usage = |usage| |it: &mut rcgen::CertificateParams| it.extended_key_usages = vec![usage];
    let clients = || usage(rcgen::ExtendedKeyUsagePurpose::ClientAuth);
    let long = [-10, 10];
    let root = custom_pair("root", None, long, ca);
    let strange = custom_pair("root", None, long, ca);
    let intermediate = custom_pair("intermediate", Some(&root), long, ca);
    let no_ca = custom_pair("no CA", Some(&root), long, plain);
    let expired = custom_pair("expired", Some(&root), [-10, -1], ca);
    let old_root = custom_pair("old root", None, [-10, -1], ca);
    let old_ca_leaf = custom_pair("leaf", Some(&old_root), long, ca);
    let leaf_of = |issuer: &Pair| custom_pair("leaf", Some(issuer), long, plain);
    let chain = |leaf: &Pair, others: &[&Pair]| {
        let others: String = others.iter().map(|it| &*it.certificate).collect();
        Pair { certificate: format!("{}{others}", leaf.certificate), key: leaf.key.clone() }
    };
    let leaf = leaf_of(&intermediate);
    let good = chain(&leaf, &[&intermediate]);
    let own = custom_pair("leaf", None, long, plain);
    let own_ca = custom_pair("leaf", None, long, ca);
    let own_client = custom_pair("leaf", None, long, |it| {
        ca(it);
        clients()(it);
    });
    let other_name = custom_pair("leaf", Some(&root), long, |it| {
        it.subject_alt_names = vec![rcgen::SanType::DnsName("other.gatera.svc".try_into().unwrap())];
    });
    let no_name = custom_pair(&names()[0], Some(&root), long, |it| it.subject_alt_names.clear());
    let both = strange.certificate.clone() + &root.certificate;
    let (another, no_server) = ("tls.crt is signed by another CA than ca.crt", "does not include serverAuth");
    for (what, pair, bundle, problem) in [
        ("a chain", good.clone(), &root.certificate, ""),
        ("a chain with its root", chain(&leaf, &[&intermediate, &root]), &root.certificate, ""),
        ("a chain in disorder", chain(&leaf, &[&root, &intermediate]), &root.certificate, ""),
        ("one of two CAs", good.clone(), &both, ""),
        ("a leaf as its own CA", own.clone(), &own.certificate, ""),
        ("a CA as its own leaf", own_ca.clone(), &own_ca.certificate, ""),
        (
            "for servers only",
            custom_pair("leaf", Some(&root), long, usage(rcgen::ExtendedKeyUsagePurpose::ServerAuth)),
            &root.certificate,
            "",
        ),
        ("a chain with a gap", leaf.clone(), &root.certificate, another),
        ("another CA", good.clone(), &strange.certificate, another),
        ("no CA in the bundle", good.clone(), &String::new(), "ca.crt holds no certificate"),
        (
            "another key",
            Pair { key: own.key.clone(), ..good.clone() },
            &root.certificate,
            "certificate and key",
        ),
        ("for clients only", custom_pair("leaf", Some(&root), long, clients()), &root.certificate, no_server),
        ("its own CA, for clients only", own_client.clone(), &own_client.certificate, no_server),
        (
            "an intermediate that is not a CA",
            chain(&leaf_of(&no_ca), &[&no_ca]),
            &root.certificate,
            "that is not a CA signed another one",
        ),
        (
            "an intermediate that has expired",
            chain(&leaf_of(&expired), &[&expired]),
            &root.certificate,
            "a certificate in its chain has expired",
        ),
        (
            "an expired root",
            leaf_of(&old_root),
            &old_root.certificate,
            "the CA in ca.crt that signed tls.crt cannot be used: a certificate expired at 2027-01-14",
        ),
        ("a CA as a leaf", custom_pair("leaf", Some(&root), long, ca), &root.certificate, ""),
        ("a CA as a leaf, of an expired root", old_ca_leaf, &old_root.certificate, another),
        (
            "an expired leaf",
            custom_pair("leaf", Some(&root), [-10, -1], plain),
            &root.certificate,
            "a certificate expired at",
        ),
        (
            "a leaf that is not valid yet",
            custom_pair("leaf", Some(&root), [1, 10], plain),
            &root.certificate,
            "is not valid before",
        ),
        ("another name", other_name, &root.certificate, "alternative names do not include gatera.gatera.svc"),
        (
            "a common name only",
            no_name,
            &root.certificate,
            "alternative names do not include gatera.gatera.svc",
        ),
    ] {
        let outcome = pair.check_against(bundle, Some(&names()[0]), at(0));
        let outcome = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(outcome.contains(problem) && outcome.is_empty() == problem.is_empty(), "{what}: {outcome}");
    }
}

#[test]
fn rare_errors_are_reported_without_identifiers_of_the_library() {
    let problem = pair::refusal(&webpki::Error::MaximumNameConstraintComparisonsExceeded, None).to_string();
    let expected = "API servers would refuse tls.crt: its chain cannot be verified (maximum name constraint comparisons exceeded)";
    assert_eq!(problem, expected);
}
