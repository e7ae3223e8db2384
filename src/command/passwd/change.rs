//! The command's own Secret, which records a change that is under way: both passwords, and which of them remains at the end. A
//! run that finds this Secret continues its change and begins no other. The Secret is deleted with the StatefulSet.
//!
//! Must not know: which step comes next.

use std::collections::BTreeMap;

use anyhow::Context as _;
use facts::galera::accounts::Password;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use leader::password::{PasswordChange, Underway, WhichPassword};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The number of characters of a random password.
const PASSWORD_LENGTH: usize = 24;
const CHARACTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// The number of characters of a turn, which is a random word.
const TURN_LENGTH: usize = 8;

/// Reads the change that an earlier run recorded.
pub(super) fn read(own: &Secret) -> anyhow::Result<PasswordChange> {
    let name = own.name_any();
    let value = |key: &str| {
        text(own, key)
            .with_context(|| format!("Secret {name} lacks key {key}, so gatera passwd did not write it"))
    };
    let password = |key: &str| {
        let password = Password::in_use(&value(key)?);
        password.with_context(|| format!("key {key} of Secret {name} holds no password"))
    };
    let (account, secret, key) = (value("account")?, value("secret")?, value("key")?);
    let (old, new) = (password("old")?, password("new")?);
    let target = if value("target")? == "old" { WhichPassword::Old } else { WhichPassword::New };
    let (turn, touched, sealed) = (value("turn")?, value("touched")? == "yes", value("sealed")? == "yes");
    let underway = Some(Underway { target, turn, touched, sealed });
    Ok(PasswordChange { account, secret, key, old, new, underway })
}

/// Returns the Secret that records a change that is about to begin.
pub(super) fn secret_of_change(
    change: &PasswordChange,
    name: &str,
    owner: OwnerReference,
) -> anyhow::Result<Secret> {
    let own = [
        ("account", &*change.account),
        ("secret", &change.secret),
        ("key", &change.key),
        ("old", change.old.look()),
        ("new", change.new.look()),
        ("target", "new"),
        ("turn", &new_turn()?),
        ("touched", "no"),
        ("sealed", "no"),
    ];
    let labels = [("app.kubernetes.io/managed-by", "gatera"), ("app.kubernetes.io/component", "passwd")];
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(bytes(&own)),
        ..Secret::default()
    })
}

/// Returns the value of a key in a Secret as text.
pub(super) fn text(secret: &Secret, key: &str) -> Option<String> {
    let ByteString(bytes) = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.clone()).ok()
}

/// Returns the values in the form of a Secret's data.
pub(super) fn bytes(values: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
    let value = |text: &str| ByteString(text.as_bytes().to_vec());
    values.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect()
}

/// Returns a random password.
pub(super) fn random_password() -> anyhow::Result<Password> {
    Password::new(&random(PASSWORD_LENGTH)?).map_err(anyhow::Error::msg)
}

/// Returns a random word that identifies one change, or its reversal.
pub(super) fn new_turn() -> anyhow::Result<String> {
    random(TURN_LENGTH)
}

fn random(length: usize) -> anyhow::Result<String> {
    let (system, mut text) = (SystemRandom::new(), String::new());
    while text.len() < length {
        let mut bytes = [0; 64];
        system.fill(&mut bytes).ok().context("asking the system for random bytes")?;
        // Every character is equally likely: of the 64 values, 62 are characters, and the other two are skipped.
        let characters = bytes.iter().filter_map(|byte| CHARACTERS.get(usize::from(byte & 63)));
        text.extend(characters.take(length - text.len()).map(|byte| char::from(*byte)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_change_is_read_back() {
        let [account, secret, key] = ["root", "s", "root-password"].map(str::to_owned);
        let old = Password::in_use("it's \"old\"").unwrap();
        let change =
            PasswordChange { account, secret, key, old, new: random_password().unwrap(), underway: None };
        let own = secret_of_change(&change, "gatera-passwd-g", OwnerReference::default()).unwrap();
        let again = read(&own).unwrap();
        let underway = again.underway.clone().unwrap();
        assert_eq!(PasswordChange { underway: None, ..again }, change);
        assert!(underway.target == WhichPassword::New && !underway.touched && !underway.sealed);
        let strange = read(&Secret::default()).unwrap_err();
        assert_eq!(strange.to_string(), "Secret  lacks key account, so gatera passwd did not write it");
    }

    #[test]
    fn random_passwords_differ() {
        let [one, other] = [random_password().unwrap(), random_password().unwrap()];
        assert!(one != other && one.look().len() == PASSWORD_LENGTH);
    }
}
