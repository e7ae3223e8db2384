//! Observes a password: which key of which Secret holds it, how far its change is, and which passwords members accept.
//!
//! Must not know: which step comes next.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use facts::galera::accounts::{self, Account, Password};
use facts::galera::credentials::{self, Credential, Role};
use facts::marks::password::PasswordMark;
use facts::marks::{PASSWORD, PREFIX};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use leader::password::{
    self, AccountOnMember, Observed, PasswordChange, ReadingPod, SecretState, Underway, WhichPassword,
};

use super::change::{self, text};
use crate::act::exec::{ExecError, shell};
use crate::command::look::ObservedCluster;

/// The script that runs a statement in a server's container, and tries two logins.
const STATEMENT: &str = include_str!("statement.sh");

/// The result of one observation.
pub(super) struct PasswordObservation {
    /// The command's own Secret; `None`: no change is under way.
    pub own: Option<Secret>,
    /// The Secret that members read.
    pub secret: Secret,
    pub state: Observed,
    /// Whether the account of the change is the one that `--user` names.
    pub is_asked_for: bool,
    /// The name of root, which changes accounts.
    root: String,
    /// Two passwords, of which at least one is root's.
    root_passwords: [Password; 2],
}

/// Returns the name of the command's own Secret.
pub(super) fn own_name(seen: &ObservedCluster) -> String {
    format!("gatera-passwd-{}", seen.id.name)
}

pub(super) fn secrets(seen: &ObservedCluster) -> Api<Secret> {
    seen.api()
}

/// Looks at the password of this account, or at the change that is under way. If none is, `new` is the new password.
pub(super) async fn observe(
    seen: &ObservedCluster,
    user: &str,
    new: &Password,
) -> anyhow::Result<PasswordObservation> {
    let own = secrets(seen)
        .get_opt(&own_name(seen))
        .await
        .context("reading the separate Secret of a change that is under way")?;
    let all = server_secrets(seen).await?;
    let credentials = server_credentials(seen, &all)?;
    let change = match &own {
        Some(own) => change::read(own)?,
        None => new_change(seen, user, new, &credentials, &all)?,
    };
    let (root, root_passwords) = root_login(&credentials, &change)?;
    let secret = all.get(&change.secret).cloned();
    let secret =
        secret.with_context(|| format!("there is no Secret {} that its server reads", change.secret))?;
    let (cluster, view) = (seen.cluster()?, seen.view());
    let not_now = password::wait_reason(cluster, &view);
    let is_asked_for = credentials_of(&credentials, user).any(|it| it.account == change.account);
    let secret_state = secret_state(seen, &secret, &change);
    let readers = readers(seen, &change).await?;
    let state = Observed { change, secret_state, readers, members: Vec::new(), not_now };
    let mut observation = PasswordObservation { own, secret, state, is_asked_for, root, root_passwords };
    if observation.state.not_now.is_none() {
        let names = cluster.members.iter().map(|it| &*it.name);
        observation.state.members = try_join_all(names.map(|it| observation.member_state(seen, it))).await?;
    }
    Ok(observation)
}

/// Reads the Secrets to which the server's pod template refers.
async fn server_secrets(seen: &ObservedCluster) -> anyhow::Result<BTreeMap<String, Secret>> {
    let (spec, _) = seen.cluster()?.server().context("its template has no server")?;
    let names: BTreeSet<_> = spec.secrets().filter(|name| !name.is_empty()).collect();
    let mut all = BTreeMap::new();
    for name in names {
        let secret = secrets(seen).get_opt(name).await.with_context(|| format!("reading Secret {name}"))?;
        all.extend(secret.map(|secret| (name.to_owned(), secret)));
    }
    Ok(all)
}

fn server_credentials(
    seen: &ObservedCluster,
    all: &BTreeMap<String, Secret>,
) -> anyhow::Result<Vec<Credential>> {
    let (spec, server) = seen.cluster()?.server().context("its template has no server")?;
    let texts = |it: &Secret| {
        it.data.iter().flatten().filter_map(|(key, _)| Some((key.clone(), text(it, key)?))).collect()
    };
    let values = all.iter().map(|(name, secret)| (name.clone(), texts(secret))).collect();
    Ok(credentials::of(spec, server, &values))
}

/// Returns the credentials of the account with this name; if there is none, of the account with this role.
fn credentials_of<'a>(credentials: &'a [Credential], user: &'a str) -> impl Iterator<Item = &'a Credential> {
    let by_name = credentials.iter().any(|it| it.account == user);
    credentials
        .iter()
        .filter(move |it| if by_name { it.account == user } else { it.role.word() == Some(user) })
}

/// Returns the change of this account that would begin. Fails if the password cannot be changed.
fn new_change(
    seen: &ObservedCluster,
    user: &str,
    new: &Password,
    credentials: &[Credential],
    all: &BTreeMap<String, Secret>,
) -> anyhow::Result<PasswordChange> {
    let Some(it) = credentials_of(credentials, user).next() else {
        let found =
            credentials.iter().map(|it| format!("{} (key {} of Secret {})", it.account, it.key, it.secret));
        let found = Some(found.collect::<Vec<_>>().join(", ")).filter(|it| !it.is_empty());
        anyhow::bail!(
            "no password of {user} was found in a Secret, neither in the server's variables, such as MARIADB_ROOT_PASSWORD and MARIADB_PASSWORD, nor as wsrep_sst_auth in its option files; found: {}",
            found.as_deref().unwrap_or("none")
        );
    };
    let Credential { account, secret, key, password, .. } = it.clone();
    let same = |other: &&Credential| other.account == account;
    if let Some(other) = credentials.iter().filter(same).find(|it| (&it.secret, &it.key) != (&secret, &key)) {
        anyhow::bail!(
            "the password of {account} is in two keys, {key} of Secret {secret} and {} of {}: gatera explain G12 shows the steps by hand",
            other.key,
            other.secret
        );
    }
    let old = password.with_context(|| {
        format!("key {key} of Secret {secret} is not one line, so it is unknown which password clients use")
    })?;
    ensure_writable(seen, &all[&secret], &key)?;
    Ok(PasswordChange { account, secret, key, old, new: new.clone(), underway: None })
}

/// Fails if the Secret must not be written, because it is immutable, has a controller, or is read by another cluster.
fn ensure_writable(seen: &ObservedCluster, secret: &Secret, key: &str) -> anyhow::Result<()> {
    let name = secret.name_any();
    anyhow::ensure!(secret.immutable != Some(true), "Secret {name} is immutable: no value of it can change");
    if let Some(owner) = secret.owner_references().iter().find(|it| it.controller == Some(true)) {
        anyhow::bail!(
            "Secret {name} is managed by {} {}, which would set it back: change it there, by the steps of gatera explain G12",
            owner.kind,
            owner.name
        );
    }
    let mut clusters =
        seen.world.clusters().filter(|it| it.id.namespace == seen.id.namespace && it.id != seen.id);
    let reads = |it: &&facts::view::Cluster| it.workload.spec.template.spec.uses_of_secret(&name).reads(key);
    if let Some(other) = clusters.find(reads) {
        anyhow::bail!(
            "cluster {} reads key {key} of Secret {name}, too, and has its own accounts: give each cluster a Secret of its own first",
            other.id.name
        );
    }
    Ok(())
}

/// Returns root's name, and two passwords, of which at least one is root's.
fn root_login(
    credentials: &[Credential],
    change: &PasswordChange,
) -> anyhow::Result<(String, [Password; 2])> {
    let root = credentials.iter().find(|it| it.role == Role::Root).context(
        "no password of root was found in a Secret (MARIADB_ROOT_PASSWORD of the server), and only root can change the passwords of other accounts",
    )?;
    let passwords = match root.password.clone() {
        _ if root.account == change.account => [change.old.clone(), change.new.clone()],
        Some(password) => [password.clone(), password],
        None => anyhow::bail!("key {} of Secret {} is not one line", root.key, root.secret),
    };
    Ok((root.account.clone(), passwords))
}

fn secret_state(seen: &ObservedCluster, secret: &Secret, change: &PasswordChange) -> SecretState {
    let held = text(secret, &change.key).and_then(|it| credentials::password_in(&it, &change.account));
    let holds = [WhichPassword::New, WhichPassword::Old]
        .into_iter()
        .find(|it| held.as_ref() == Some(change.password(*it)));
    let mark = secret.annotations().get(&format!("{PREFIX}{PASSWORD}"));
    let mark = mark.and_then(|text| PasswordMark::read(text));
    let written = mark.filter(|it| it.cluster == seen.id.name && it.key == change.key);
    SecretState { holds, written: written.map(|it| (it.turn, it.at)) }
}

/// Returns the pods that read the key and have not ended.
async fn readers(seen: &ObservedCluster, change: &PasswordChange) -> anyhow::Result<Vec<ReadingPod>> {
    let pods = seen.api::<Pod>().list(&ListParams::default()).await;
    let mut readers = Vec::new();
    for pod in pods.context("listing the pods that read the Secret")? {
        let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
        let spec: objects::PodSpec = serde_json::from_value(serde_json::to_value(&pod.spec)?)
            .with_context(|| format!("reading pod {}", pod.name_any()))?;
        if matches!(phase, Some("Succeeded" | "Failed"))
            || !spec.uses_of_secret(&change.secret).reads(&change.key)
        {
            continue;
        }
        let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |it| it.0);
        readers.push(ReadingPod { created, workload: workload_of(&pod), name: pod.name_any() });
    }
    Ok(readers)
}

/// Returns kind and name of the workload whose restart replaces this pod.
fn workload_of(pod: &Pod) -> Option<(String, String)> {
    let owner = pod.owner_references().iter().find(|it| it.controller == Some(true))?;
    match &*owner.kind {
        "StatefulSet" | "DaemonSet" => Some((owner.kind.clone(), owner.name.clone())),
        "ReplicaSet" => {
            let hash = pod.labels().get("pod-template-hash")?;
            let name = owner.name.strip_suffix(&**hash)?.strip_suffix('-')?;
            Some(("Deployment".to_owned(), name.to_owned()))
        }
        _ => None,
    }
}

impl PasswordObservation {
    /// Returns the Secret of the change that is under way.
    pub(super) fn own(&self) -> anyhow::Result<&Secret> {
        self.own.as_ref().context("no change is under way")
    }

    pub(super) fn underway(&self) -> anyhow::Result<&Underway> {
        self.state.change.underway.as_ref().context("no change is under way")
    }

    /// Runs a statement as root on this member, and returns what it prints.
    pub(super) async fn run(
        &self,
        seen: &ObservedCluster,
        member: &str,
        statement: &str,
    ) -> anyhow::Result<String> {
        let (_, server) = seen.cluster()?.server().context("its template has no server")?;
        let Self { root, root_passwords: [first, second], state, .. } = self;
        let PasswordChange { account, old, new, .. } = &state.change;
        // Before the change is recorded, no login is tried with the new password.
        let (second, new) = if self.own.is_some() { (second, new) } else { (first, old) };
        let [first, second, old, new] = [first, second, old, new].map(|it| credentials::quoted(it.look()));
        let lines = [root, &first, &second, statement, account, &old, &new].map(|it| format!("{it}\n"));
        let ran = shell(&seen.api::<Pod>(), member, &server.name, STATEMENT, &lines.concat()).await;
        let said = match ran {
            Err(ExecError::Failed(said)) => {
                let said = without_statement(&said);
                let drifted = said.contains("ERROR 1045").then(|| {
                    format!(": {root} does not log in with the password that the Secret holds; set that password in MariaDB, or write the one that MariaDB has to the Secret (gatera explain G12)")
                });
                anyhow::bail!("on {member}: {said}{}", drifted.unwrap_or_default());
            }
            ran => ran.with_context(|| format!("on {member}"))?,
        };
        anyhow::ensure!(said.lines().last() == Some("end"), "on {member}: the answer is incomplete");
        Ok(said)
    }

    async fn member_state(&self, seen: &ObservedCluster, member: &str) -> anyhow::Result<AccountOnMember> {
        let said = self.run(seen, member, &accounts::query(&self.state.change.account)).await?;
        let mut logs_in = said.lines().filter_map(|it| it.strip_prefix("login ")).map(|it| it == "yes");
        let logs_in = [logs_in.next().unwrap_or_default(), logs_in.next().unwrap_or_default()];
        let rows = said.lines().filter_map(|it| it.strip_prefix("row ")).filter(|it| it.contains(':'));
        let read = |row| {
            let account = Account::read(row);
            account.with_context(|| {
                format!("on {member}: a row of the account in mysql.global_priv cannot be read")
            })
        };
        let accounts = rows.map(read).collect::<anyhow::Result<_>>()?;
        Ok(AccountOnMember { member: member.to_owned(), accounts, logs_in })
    }
}

/// Returns the client's error message. The statement before it and the part of the statement that it quotes at its end are left
/// out, because both contain hashes.
pub(super) fn without_statement(said: &str) -> &str {
    let said = said.find("ERROR ").map_or(said, |at| &said[at..]);
    said.split(" near '").next().unwrap_or_default()
}
