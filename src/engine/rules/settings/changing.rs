//! A cluster whose options change while its members run with the old ones, or while no server runs.
//!
//! Must not know: single options, except those that decide whether members can connect to each other (TLS).

use super::command_line;
use facts::galera::options::{Effective, PlacedValue, is_file, switch};
use facts::revision::{self, Keys, Revision};
use facts::view::{Cluster, Freshness, PodFact, State, View};

/// A cluster with data under which options change.
pub(super) struct ChangingCluster<'a> {
    /// The cluster's name and state, for a message.
    pub(super) description: String,
    /// The cluster's name and namespace, as arguments of gatera's commands.
    pub(super) arguments: String,
    /// All options of its servers after the change.
    pub(super) after: &'a Effective<'a>,
    /// Whether the cluster was stopped in order, so that all members will start with the same options.
    pub(super) stopped: bool,
    cluster: &'a Cluster,
    view: View<'a>,
    /// The assumed TLS mode of members that are not observed: the one before the change.
    assumed: Option<TlsMode>,
}

/// How a server connects to its peers.
#[derive(Clone, Copy)]
struct TlsMode {
    /// Whether it uses TLS, which a certificate alone turns on.
    on: bool,
    /// Whether it accepts connections both with and without TLS.
    both: bool,
}

impl<'a> ChangingCluster<'a> {
    /// Returns the cluster with all options of its servers, `before` and `after` the change.
    pub(super) fn of<'b>(
        cluster: &'a Cluster,
        before: impl FnOnce() -> Effective<'b>,
        after: &'a Effective<'a>,
        view: &View<'a>,
    ) -> Self {
        Self {
            description: format!("cluster {} ({})", cluster.id.name, view.describe(cluster)),
            arguments: format!("{} -n {}", cluster.id.name, cluster.id.namespace),
            after,
            stopped: view.state(cluster) == State::Stopped,
            cluster,
            view: *view,
            assumed: view.from_files.then(|| tls_mode(&before())),
        }
    }

    /// Returns the TLS mode of each running member, if it is known. This reads all option files, so it is called only for the TLS
    /// options.
    fn members(&self) -> Option<Vec<TlsMode>> {
        let pods = self.cluster.members.iter().filter_map(|member| member.pod.as_deref());
        let mode = |pod| self.assumed.or_else(|| tls_mode_of(pod, self.cluster, &self.view));
        let members = pods.map(mode).collect::<Option<Vec<_>>>();
        members.filter(|it| self.view.freshness == Freshness::Current && !it.is_empty())
    }

    /// Returns whether running members can connect to one that starts with the changed options.
    pub(super) fn can_connect(&self, key: &str) -> bool {
        let new = tls_mode(self.after);
        // A member that uses TLS and accepts both can connect to every peer, so nothing has to be known about its peers.
        let all_can_connect = || {
            new.on && new.both
                || self.members().is_some_and(|all| all.iter().all(|it| are_compatible(*it, new)))
        };
        match key {
            "socket.ssl" => all_can_connect(),
            // Without `socket.ssl` the certificate decides about TLS.
            "socket.ssl_cert" => self.after.get("socket.ssl").is_some() || all_can_connect(),
            "socket.dynamic" => new.both || all_can_connect(),
            _ => false,
        }
    }
}

/// Returns whether two members can connect, no matter which of them opens the connection. With TLS and `socket.dynamic` a member
/// waits for what its peer sends first; without a certificate it cannot answer TLS, even with `socket.dynamic`.
const fn are_compatible(one: TlsMode, other: TlsMode) -> bool {
    match (one.on, other.on) {
        (true, false) => one.both,
        (false, true) => other.both,
        _ => true,
    }
}

fn tls_mode(settings: &Effective<'_>) -> TlsMode {
    let is_on = |it: &PlacedValue<'_>| switch(it.look().trim()) == Some(true);
    let on = |key| settings.get(key).map(is_on);
    TlsMode {
        on: on("socket.ssl").unwrap_or_else(|| settings.get("socket.ssl_cert").is_some()),
        both: on("socket.dynamic").unwrap_or(false),
    }
}

/// Returns the TLS mode with which this member started, if it is known.
fn tls_mode_of(pod: &PodFact, cluster: &Cluster, view: &View<'_>) -> Option<TlsMode> {
    let flags = command_line(&cluster.workload, view).map(|(_, flags)| flags).filter(|_| !cluster.rolls())?;
    let (spec, server) = cluster.server()?;
    let mut files = Vec::new();
    match &pod.revision {
        Some(read) => {
            let sources = revision::sources(spec, server);
            for (source, _) in read.iter() {
                // A newer template may name another ConfigMap.
                let keys = sources.get(source).unwrap_or(&Keys::ALL);
                let map = view.text_of(cluster, read, source)?;
                let all = map.data.iter().map(|(key, text)| (&**key, text.look()));
                files.extend(all.filter(|(key, text)| keys.contains(key) && is_file(key, text)));
            }
        }
        None if cluster.live.as_ref().is_ok_and(Revision::is_empty) => {}
        None => return None,
    }
    Some(tls_mode(&Effective::of_files(files).then(flags)))
}
