//! The known state of the guard's Secret and entries, and what follows from it.
//!
//! Owns: every decision of the registration: which certificates the Secret should hold, which leaf is presented to clients, which
//! CAs API servers trust by now, what `/readyz` reports. Pure: the time is an argument. Must not know: clients, metrics;
//! `certificate.rs` and `entries.rs` carry out what is decided here.

use std::time::{Duration, Instant};

use engine::webhooks::Endpoint;
use engine::webhooks::compare::{as_values, decoded};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::act::certs::{self, Lifetimes, Material, Pair};

use super::Error;
use super::watch::Watched;

/// Both configurations: the endpoint of their entries, their kind, and what is lost without each.
pub(super) const CONFIGURATIONS: [(Endpoint, &str, &str); 2] = [
    (Endpoint::Mutate, "MutatingWebhookConfiguration", "nothing is injected into pods"),
    (Endpoint::Validate, "ValidatingWebhookConfiguration", "deletions, scaling and evictions are not judged"),
];

/// The parts of a webhook configuration that concern the guard.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    pub(super) version: String,
    pub(super) entries: Vec<Value>,
}

impl From<MutatingWebhookConfiguration> for Configuration {
    fn from(it: MutatingWebhookConfiguration) -> Self {
        Self { version: it.resource_version().unwrap_or_default(), entries: as_values(it.webhooks.as_ref()) }
    }
}

impl From<ValidatingWebhookConfiguration> for Configuration {
    fn from(it: ValidatingWebhookConfiguration) -> Self {
        Self { version: it.resource_version().unwrap_or_default(), entries: as_values(it.webhooks.as_ref()) }
    }
}

/// Everything that the registration knows.
#[derive(Debug, Default)]
pub(super) struct KnownState {
    /// The pair that new handshakes use.
    pub(super) shown: Option<Pair>,
    /// The last usable content that was taken from the Secret.
    pub(super) held: Option<Material>,
    pub(super) secret: Watched<Secret>,
    /// The bundle that API servers should trust.
    pub(super) bundle: Option<String>,
    /// The mutating and the validating configuration, in this order.
    pub(super) entries: [Watched<Configuration>; 2],
    /// The registered bundle, and since when this replica has seen it.
    seen: Option<(String, Instant)>,
    /// The last registered bundle that every API server has noticed; empty before there is one.
    settled: String,
    /// The configurations about whose deletion an Event was published.
    reported_deletions: Vec<&'static str>,
}

impl KnownState {
    /// Returns what should replace the content of the Secret; `None` if the content should stay.
    pub(super) fn next(
        &self,
        names: &[String],
        lifetimes: Lifetimes,
        settled: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<Material>, certs::Error> {
        let Some(secret) = self.secret.there() else { return Ok(None) };
        let now = corrected_time(secret, now);
        match Material::read(secret) {
            None => Material::with_new_ca(self.held.as_ref(), names, lifetimes, now).map(Some),
            Some(found) => found.next(self.held.as_ref(), names, lifetimes, settled, now),
        }
    }

    /// Adopts the content of the Secret, if it can be used. Returns the pair to present from now on, if there is a new one.
    pub(super) fn take(
        &mut self,
        leads: bool,
        name: &str,
        now: Timestamp,
    ) -> (Option<Pair>, Result<(), Error>) {
        let secret = match &self.secret {
            Watched::NotYet => return (None, Ok(())),
            Watched::Gone => return (None, Err(Error::NoSecret(name.to_owned()))),
            Watched::There(secret) => secret,
        };
        let now = corrected_time(secret, now);
        let Some(found) = Material::read(secret) else { return (None, Err(Error::Empty(name.to_owned()))) };
        let sound = found.check(now).map_err(|error| Error::Unusable(name.to_owned(), error));
        // An unusable pair is presented only if there is no other: it may be the clock of this process that is wrong.
        if sound.is_err() && self.shown.is_some() {
            return (None, sound);
        }
        // The content of another writer would cut off API servers that trust what is held: the leader keeps its own.
        if leads && self.held.as_ref().is_some_and(|held| !found.continues(held, now)) {
            return (None, Ok(()));
        }
        if sound.is_ok() {
            self.bundle = Some(found.bundle());
        }
        let takes_over = takes_over(&found.leaf, self.shown.as_ref(), self.registered().as_deref(), now);
        let leaf = takes_over.then(|| found.leaf.clone());
        if sound.is_ok() {
            self.held = Some(found);
        }
        (leaf, sound)
    }

    /// Returns whether API servers would reject the leaf that is presented.
    pub(super) fn untrusted(&self) -> bool {
        match (&self.shown, self.registered()) {
            (Some(shown), Some(bundle)) => !shown.trusted_by(&bundle),
            _ => false,
        }
    }

    /// Returns the bundle of the registered entries (an outdated one if they differ); `None` while there are no entries.
    pub(super) fn registered(&self) -> Option<String> {
        let entries = self.entries.iter().filter_map(|it| it.there()).flat_map(|it| &it.entries);
        let bundles = entries.filter_map(|entry| entry.pointer("/clientConfig/caBundle")?.as_str());
        let registered = bundles
            .min_by_key(|bundle| self.bundle.as_deref().is_some_and(|wanted| decoded(bundle) == wanted))?;
        Some(decoded(registered))
    }

    /// Returns the last registered bundle that every API server has had time to notice: empty if there is none yet, `None` while
    /// there are no entries. API servers read the entries by their own watch, and with a leaf that they do not trust yet every
    /// new connection would fail.
    pub(super) fn settled(&mut self, notice_time: Duration, now: Instant) -> Option<String> {
        let registered = self.registered()?;
        let since = match &self.seen {
            Some((bundle, since)) if *bundle == registered => *since,
            _ => self.seen.insert((registered.clone(), now)).1,
        };
        if now.saturating_duration_since(since) >= notice_time {
            self.settled = registered;
        }
        Some(self.settled.clone())
    }

    /// Returns the state as a message. `foreign_change` is what another writer changed in the entries.
    pub(super) fn summary(&self, name: &str, foreign_change: Option<String>) -> String {
        let gone = self.gone();
        if gone.len() == CONFIGURATIONS.len() {
            let kinds = gone.iter().map(|(kind, _)| *kind).collect::<Vec<_>>().join(" and ");
            return format!(
                "{kinds} {name} do not exist, so nothing is guarded; `helm upgrade` creates them again"
            );
        }
        if let Some((kind, lost)) = gone.first() {
            return format!("{kind} {name} does not exist, so {lost}; `helm upgrade` creates it again");
        }
        if let Some(change) = foreign_change {
            return format!("{change}; the leading replica writes it again");
        }
        let has_entries = |it: &Watched<Configuration>| it.there().is_some_and(|it| !it.entries.is_empty());
        if self.entries.iter().all(has_entries) { "registered" } else { "not registered yet" }.to_owned()
    }

    /// Returns the kinds of the configurations that do not exist, with what is lost without each.
    pub(super) fn gone(&self) -> Vec<(&'static str, &'static str)> {
        let both = self.entries.iter().zip(CONFIGURATIONS);
        both.filter(|(it, _)| it.is_gone()).map(|(_, (_, kind, lost))| (kind, lost)).collect()
    }

    /// Returns the deleted configurations if the leader has to publish an Event, and records them as reported: each deletion is
    /// reported once, deliberate or not.
    pub(super) fn unreported_deletions(&mut self, leads: bool) -> Option<Vec<&'static str>> {
        let gone: Vec<_> = self.gone().into_iter().map(|(kind, _)| kind).collect();
        let news = leads && !gone.iter().all(|kind| self.reported_deletions.contains(kind));
        if leads || gone.len() < self.reported_deletions.len() {
            self.reported_deletions.clone_from(&gone);
        }
        news.then_some(gone)
    }
}

/// Returns the time, or the time of the last write to this Secret if that is later. By a clock that is behind, good certificates
/// would seem not valid yet, and certificates that it dates could have expired already.
fn corrected_time(secret: &Secret, now: Timestamp) -> Timestamp {
    let written = secret.metadata.managed_fields.iter().flatten().filter_map(|it| it.time.as_ref());
    written.map(|time| time.0).fold(now, Timestamp::max)
}

/// Returns whether a new leaf replaces the presented one: API servers already trust the new one or do not trust the presented
/// one, or the presented one is missing or unusable.
fn takes_over(new: &Pair, shown: Option<&Pair>, registered: Option<&str>, now: Timestamp) -> bool {
    let trusted = |pair: &Pair| registered.is_none_or(|bundle| pair.trusted_by(bundle));
    shown.is_none_or(|shown| trusted(new) || !trusted(shown) || shown.check(now).is_err())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, Time};
    use serde_json::json;

    use engine::webhooks::Destination;
    use engine::webhooks::compare::{encoded, first_difference, same};
    use facts::settings::Settings;
    use k8s_openapi::api::admissionregistration::v1::ValidatingWebhook;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Empty fields that an API server adds or omits are not a difference.
    #[test]
    fn what_the_api_server_sends_back_is_what_was_written() {
        let target = Destination::Service { namespace: "gatera".into(), name: "gatera".into() };
        let wanted = crate::rulebook().entries(
            Endpoint::Validate,
            &Settings::default(),
            &std::collections::BTreeSet::new(),
            &target,
            &encoded("CA"),
        );
        let read: Vec<ValidatingWebhook> =
            wanted.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect();
        let found = as_values(Some(&read));
        assert!(same(&found, &wanted));
        assert_eq!(first_difference(&found, &wanted), None);
    }

    #[test]
    fn a_clock_that_is_behind_is_corrected_by_the_last_write() {
        let written = ManagedFieldsEntry { time: Some(Time(at(0))), ..ManagedFieldsEntry::default() };
        let metadata = ObjectMeta { managed_fields: Some(vec![written]), ..ObjectMeta::default() };
        let secret = Secret { metadata, ..Secret::default() };
        assert_eq!(corrected_time(&secret, at(-1_000_000)), at(0));
        assert_eq!(corrected_time(&secret, at(60)), at(60));
        assert_eq!(corrected_time(&Secret::default(), at(-1)), at(-1));
    }

    #[test]
    fn a_new_leaf_is_used_if_it_is_trusted_or_the_old_one_is_not() {
        let [old, new, late] = [0, 0, -90 * 86_400].map(made);
        let both = format!("{}{}", old.bundle(), new.bundle());
        for (shown, registered, swaps) in [
            (None, Some(old.bundle()), true),
            (Some(&old), Some(old.bundle()), false),
            (Some(&old), Some(both), true),
            (Some(&old), Some(new.bundle()), true),
            (Some(&old), Some(late.bundle()), true),
            (Some(&old), None, true),
            (Some(&late), Some(late.bundle()), true),
        ] {
            let shown = shown.map(|it| &it.leaf);
            assert_eq!(takes_over(&new.leaf, shown, registered.as_deref(), at(0)), swaps, "{registered:?}");
        }
    }

    fn made(seconds: i64) -> Material {
        Material::new(&["a".to_owned()], Lifetimes::default(), at(seconds)).unwrap()
    }

    fn secret(material: &Material) -> Watched<Secret> {
        Watched::There(Secret { data: Some(material.data()), ..Secret::default() })
    }

    /// Both configurations with one entry each that trusts this bundle.
    fn entries(bundle: &str) -> [Watched<Configuration>; 2] {
        let entry = json!({ "clientConfig": { "caBundle": encoded(bundle) } });
        [0, 1].map(|_| Watched::There(Configuration { version: "1".into(), entries: vec![entry.clone()] }))
    }

    #[test]
    fn what_the_secret_holds_is_taken_if_it_can_be_used() {
        let [ours, theirs, over] = [0, 0, -9_000 * 86_400].map(made);
        let name = "gatera-tls";
        let mut known = KnownState::default();
        assert!(matches!(known.take(false, name, at(0)), (None, Ok(()))), "the Secret is not known yet");
        known.secret = Watched::Gone;
        assert!(matches!(known.take(false, name, at(0)), (None, Err(Error::NoSecret(_)))));
        known.secret = Watched::There(Secret::default());
        assert!(matches!(known.take(false, name, at(0)), (None, Err(Error::Empty(_)))));

        known.secret = secret(&over);
        let (pair, outcome) = known.take(false, name, at(0));
        assert!(
            pair.as_ref() == Some(&over.leaf) && matches!(outcome, Err(Error::Unusable(..))),
            "there is no other"
        );
        assert!(known.held.is_none() && known.bundle.is_none());
        known.secret = secret(&ours);
        let (pair, outcome) = known.take(true, name, at(0));
        assert!(outcome.is_ok() && pair.as_ref() == Some(&ours.leaf));
        assert_eq!(known.bundle, Some(ours.bundle()));
        known.shown = pair;

        known.secret = secret(&over);
        assert!(
            matches!(known.take(true, name, at(0)), (None, Err(Error::Unusable(..)))),
            "a good one stays"
        );
        known.entries = entries(&ours.bundle());
        known.secret = secret(&theirs);
        assert!(matches!(known.take(true, name, at(0)), (None, Ok(()))), "the leader keeps its own");
        assert_eq!(known.bundle, Some(ours.bundle()));
        assert!(
            matches!(known.take(false, name, at(0)), (None, Ok(()))),
            "a leaf that API servers do not trust is not shown"
        );
        assert_eq!(known.bundle, Some(theirs.bundle()), "a replica that does not lead follows the Secret");
        assert!(!known.untrusted());
        known.entries = entries(&theirs.bundle());
        assert!(known.untrusted());
    }

    #[test]
    fn what_the_secret_should_hold_follows_from_what_it_holds() {
        let names = ["a".to_owned()];
        let next = |known: &KnownState| known.next(&names, Lifetimes::default(), None, at(0)).unwrap();
        let ours = made(0);
        let mut known = KnownState::default();
        assert!(next(&known).is_none(), "the Secret is not known yet");
        known.secret = Watched::There(Secret::default());
        assert!(next(&known).is_some(), "it is empty");
        known.secret = secret(&ours);
        assert!(next(&known).is_none(), "nothing is due");
        known.secret = secret(&made(-9_000 * 86_400));
        known.held = Some(ours.clone());
        assert_eq!(next(&known).unwrap().leaf, ours.leaf, "only the CA is new");
    }

    #[test]
    fn a_bundle_settles_after_the_notice_time() {
        let [old, new] = [0, 0].map(made);
        let (notice_time, begin) = (Duration::from_secs(30), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut known = KnownState::default();
        assert_eq!(known.settled(notice_time, begin), None, "there are no entries");
        known.entries = entries(&old.bundle());
        assert_eq!(known.settled(notice_time, begin), Some(String::new()));
        assert_eq!(known.settled(notice_time, after(29)), Some(String::new()));
        assert_eq!(known.settled(notice_time, after(30)), Some(old.bundle()));
        known.entries = entries(&new.bundle());
        assert_eq!(known.settled(notice_time, after(31)), Some(old.bundle()), "not known everywhere yet");
        assert_eq!(known.settled(notice_time, after(61)), Some(new.bundle()));
        known.bundle = Some(new.bundle());
        known.entries[0] = entries(&old.bundle())[0].clone();
        assert_eq!(known.registered(), Some(old.bundle()), "the outdated one counts");
    }

    #[test]
    fn the_summary_names_what_is_missing_and_a_deletion_is_reported_once() {
        let said =
            |known: &KnownState, change: Option<&str>| known.summary("gatera", change.map(str::to_owned));
        let mut known = KnownState::default();
        assert_eq!(said(&known, None), "not registered yet");
        known.entries = entries("CA");
        assert_eq!(said(&known, None), "registered");
        assert_eq!(said(&known, Some("x is missing")), "x is missing; the leading replica writes it again");
        assert_eq!(known.unreported_deletions(true), None);
        known.entries[1] = Watched::Gone;
        assert_eq!(
            said(&known, Some("x")),
            "ValidatingWebhookConfiguration gatera does not exist, so deletions, scaling and evictions are not judged; `helm \
             upgrade` creates it again"
        );
        assert_eq!(known.unreported_deletions(false), None, "the leader reports it");
        assert_eq!(known.unreported_deletions(true), Some(vec!["ValidatingWebhookConfiguration"]));
        assert_eq!(known.unreported_deletions(true), None, "once");
        known.entries[0] = Watched::Gone;
        assert_eq!(
            said(&known, None),
            "MutatingWebhookConfiguration and ValidatingWebhookConfiguration gatera do not exist, so nothing is guarded; `helm \
             upgrade` creates them again"
        );
        assert_eq!(known.unreported_deletions(true).map(|it| it.len()), Some(2));
        known.entries = entries("CA");
        assert_eq!(known.unreported_deletions(false), None);
        known.entries[0] = Watched::Gone;
        assert_eq!(
            known.unreported_deletions(true),
            Some(vec!["MutatingWebhookConfiguration"]),
            "again, after it was back"
        );
    }
}
