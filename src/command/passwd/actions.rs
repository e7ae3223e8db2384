//! The steps of a password change, with the rights of the person who runs the command.
//!
//! Must not know: which step comes next. Each write names the version that was looked at, so a run on a machine that was
//! suspended does not overwrite what another run has written since.

use std::collections::BTreeSet;

use anyhow::Context as _;
use facts::galera::{accounts, credentials};
use facts::marks::password::PasswordMark;
use facts::marks::{PASSWORD, PREFIX};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, Patch, PostParams};
use kube::{Api, ResourceExt as _};
use leader::password::{AccountOnMember, Observed, PasswordStep, WhichPassword};
use serde_json::{Value, json};

use super::change::{bytes, new_turn, secret_of_change, text};
use super::observation::{PasswordObservation, own_name, secrets};
use crate::act::api::{self, Exactly, Fault, written_by};
use crate::command::guided::MANAGER;
use crate::command::look::ObservedCluster;

/// The annotation by which `kubectl rollout restart` restarts a workload.
const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";

/// Does this step.
pub(super) async fn act(
    seen: &ObservedCluster,
    observation: &PasswordObservation,
    step: &PasswordStep,
) -> anyhow::Result<()> {
    match step {
        PasswordStep::Begin => begin(seen, observation).await,
        PasswordStep::AcceptBoth(clauses) => alter(seen, observation, clauses).await,
        PasswordStep::End(clauses) => {
            alter(seen, observation, clauses).await?;
            if observation.underway()?.sealed {
                Ok(())
            } else {
                record(seen, observation, &[("sealed", "yes")]).await
            }
        }
        PasswordStep::Write => {
            let underway = observation.underway()?;
            if !underway.touched {
                // Recorded before the write, for a run that reverses the change. This fails if a run has already reversed it.
                record(seen, observation, &[("touched", "yes")]).await?;
            }
            write_secret(seen, observation, underway.target, &underway.turn).await
        }
        PasswordStep::Restart { workloads, .. } => {
            let at = observation.state.secret_state.written.as_ref().context("the Secret has no mark")?.1;
            restart(seen, workloads, at).await
        }
        PasswordStep::Both | PasswordStep::Seal => record(seen, observation, &[("sealed", "yes")]).await,
        PasswordStep::Finish => finish(seen, observation).await,
        PasswordStep::Wait(_) | PasswordStep::Cannot(_) => Ok(()),
    }
}

async fn begin(seen: &ObservedCluster, observation: &PasswordObservation) -> anyhow::Result<()> {
    let owner = OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "StatefulSet".to_owned(),
        name: seen.id.name.clone(),
        uid: seen.cluster()?.workload.metadata.uid.clone(),
        ..OwnerReference::default()
    };
    let own = secret_of_change(&observation.state.change, &own_name(seen), owner)?;
    let changed = format!("Secret {} changed just now", observation.secret.name_any());
    ensure_unchanged(seen, &observation.secret, &changed).await?;
    let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match secrets(seen).create(&parameters, &own).await {
        // Another run was faster; the next look finds its change.
        Err(error) if Fault::of(&error) == Fault::Conflict => Ok(()),
        created => created.map(drop).context("recording the passwords in a separate Secret"),
    }
}

/// Fails with this reason if the Secret has changed since it was looked at.
async fn ensure_unchanged(seen: &ObservedCluster, secret: &Secret, why: &str) -> anyhow::Result<()> {
    let name = secret.name_any();
    let now = secrets(seen).get_metadata(&name).await.with_context(|| format!("asking for Secret {name}"))?;
    anyhow::ensure!(now.metadata.resource_version == secret.metadata.resource_version, "{why}");
    Ok(())
}

/// Changes the account in MariaDB, unless another run has written something since the look.
async fn alter(
    seen: &ObservedCluster,
    observation: &PasswordObservation,
    clauses: &[String],
) -> anyhow::Result<()> {
    ensure_unchanged(
        seen,
        observation.own()?,
        "another run of gatera passwd is working on the same change; wait until it ends",
    )
    .await?;
    let AccountOnMember { member, accounts, .. } =
        observation.state.members.first().context("it has no member")?;
    let account = &observation.state.change.account;
    let said = observation.run(seen, member, &accounts::change(account, accounts, clauses)).await?;
    anyhow::ensure!(
        said.lines().any(|it| it.strip_prefix("row ") == Some(accounts::CHANGED)),
        "on {member}, another session is changing account {account}, or has changed it since this command read it: nothing was done"
    );
    Ok(())
}

/// Writes a password to the Secret that members read. The mark in it shows the guard that MariaDB accepts the password.
async fn write_secret(
    seen: &ObservedCluster,
    observation: &PasswordObservation,
    which: WhichPassword,
    turn: &str,
) -> anyhow::Result<()> {
    let PasswordObservation { state: Observed { change, .. }, secret, .. } = observation;
    let name = &change.secret;
    let value =
        text(secret, &change.key).with_context(|| format!("key {} of Secret {name} is gone", change.key))?;
    let value = credentials::with_password(&value, &change.account, change.password(which));
    let value =
        value.with_context(|| format!("key {} of Secret {name} now holds another account", change.key))?;
    let mark = PasswordMark {
        cluster: seen.id.name.clone(),
        key: change.key.clone(),
        version: secret.resource_version().context("the Secret has no version")?,
        at: seen.time_after(SignedDuration::ZERO)?,
        turn: turn.to_owned(),
    };
    let patch = json!({
        "metadata": {
            "resourceVersion": mark.version,
            "annotations": { format!("{PREFIX}{PASSWORD}"): mark.to_string() },
        },
        "data": bytes(&[(&change.key, &value)]),
    });
    let written = secrets(seen).patch(name, &written_by(MANAGER), &Patch::Merge(&patch)).await;
    written.map(drop).with_context(|| format!("writing Secret {name}"))
}

/// Restarts these workloads, as `kubectl rollout restart` does. Repeating it with the same time changes nothing.
async fn restart(
    seen: &ObservedCluster,
    workloads: &BTreeSet<(String, String)>,
    at: Timestamp,
) -> anyhow::Result<()> {
    let annotations = json!({ RESTARTED: at.to_string() });
    let patch = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
    for (kind, name) in workloads {
        let of = match &**kind {
            "StatefulSet" => ApiResource::erase::<StatefulSet>(&()),
            "DaemonSet" => ApiResource::erase::<DaemonSet>(&()),
            _ => ApiResource::erase::<Deployment>(&()),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(seen.client.clone(), &seen.id.namespace, &of);
        let restarted = api.patch(name, &written_by(MANAGER), &Patch::Merge(&patch)).await;
        restarted.with_context(|| format!("restarting {kind} {name}"))?;
    }
    Ok(())
}

/// Writes these values to the command's own Secret. Fails if the Secret has changed since the look.
async fn record(
    seen: &ObservedCluster,
    observation: &PasswordObservation,
    values: &[(&str, &str)],
) -> anyhow::Result<()> {
    let own = observation.own()?;
    let patch =
        json!({ "metadata": { "resourceVersion": own.metadata.resource_version }, "data": bytes(values) });
    let recorded = secrets(seen).patch(&own.name_any(), &written_by(MANAGER), &Patch::Merge(&patch)).await;
    recorded.map(drop).context("writing to the separate Secret of this change")
}

/// Reverses the change: the old password becomes the target.
pub(super) async fn reverse(seen: &ObservedCluster, observation: &PasswordObservation) -> anyhow::Result<()> {
    if observation.underway()?.target == WhichPassword::Old {
        return Ok(());
    }
    record(seen, observation, &[("target", "old"), ("turn", &new_turn()?)]).await
}

/// Removes the mark, and only then the command's own Secret: as long as that Secret exists, a later run continues the change.
async fn finish(seen: &ObservedCluster, observation: &PasswordObservation) -> anyhow::Result<()> {
    let key = format!("{PREFIX}{PASSWORD}");
    if observation.secret.annotations().contains_key(&key) {
        let it = Exactly::of(&observation.secret.metadata);
        api::annotate(&secrets(seen), it, MANAGER, &json!({ key: Value::Null })).await?;
    }
    api::delete(&secrets(seen), Exactly::of(&observation.own()?.metadata)).await?;
    Ok(())
}
