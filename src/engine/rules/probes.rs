//! G15: no probe kills a member because of a password, the cluster's state or a slow start.
//!
//! Refuses a liveness probe that needs a login or a state of Galera, and one that gives a joining member less than five
//! minutes, where gatera cannot replace it; where it can (when the pod is created), it only warns. Refuses a
//! liveness or startup probe of port 3306 if the server listens on another (`port` in an option, a file, or Bitnami's variable).
//! Warns if a probe of yours is replaced when the pod starts, if a readiness probe that cannot see Galera's state
//! stays, if your startup probe is short or is removed, and if something in the template has the name or the path of what
//! gatera injects: then it injects nothing.
//!
//! # Why
//!
//! A failed liveness probe kills the server. One that logs in fails on every member at once when the password changes,
//! and the whole cluster is down. One that requires `Primary` or `Synced` kills the donor, which is desynced during a
//! transfer, and the joiner, which has no data yet; and it restarts members that lost their majority, which deletes the
//! file with which they would have formed the cluster again. A member that joins copies the whole database first: that
//! takes minutes or hours without an answer, and a probe that does not wait kills it repeatedly.
//!
//! # Example
//!
//! ```text
//! livenessProbe:
//!   exec: {command: [mysqladmin, -p$(PASSWORD), ping]}      # refused where it would stay
//! ```
//!
//! # What to do instead
//!
//! Leave the probes out: gatera adds its own when the pod is created, if it knows how the image reads options
//! (set `gatera.dev/profile: official` or `bitnami` in the template's annotations) and if a `command` of the container
//! ends in the image's own entry point. Or write a liveness probe that only asks whether the server is alive,
//! with a startup probe that waits an hour: `livenessProbe: {tcpSocket: {port: 3306}}`,
//! `startupProbe: {tcpSocket: {port: 3306}, periodSeconds: 10, failureThreshold: 360}`.
//!
//! # Exceptions
//!
//! Annotate the StatefulSet or the bootstrap Deployment, for an hour at most:
//! `gatera.dev/override: "G15 until=2026-12-01T10:00:00Z reason=…"`.

use super::template;
use crate::inject::PlannedInjection;
use crate::rule::{Finding, Findings, OfTemplates, One, Review, Rule, Verdict, View, WRITTEN};
use facts::galera::ports::DEFAULT_PORT;
use facts::galera::programs;
use facts::galera::server;
use facts::way_out::say;
use objects::{ConfigMap, Container, Handler, Kind, Object, Template};

pub(super) const RULE: Rule = Rule {
    id: "G15",
    name: "probes",
    judges: &[
        (Kind::StatefulSet, WRITTEN, OfTemplates(check)),
        (Kind::Deployment, WRITTEN, OfTemplates(check)),
        (Kind::ConfigMap, WRITTEN, One(moves_the_port)),
    ],
    depends_on_state: false,
    source: include_str!("probes.rs"),
};

/// The shortest time, in seconds, that a probe must give a state transfer.
const LEAST_PATIENCE: i64 = 300;

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((template, server)) = template::of(review.new.as_ref(), view) else { return Findings::new() };
    let claims = match &review.new {
        Some(Object::StatefulSet(it)) => &it.spec.volume_claim_templates[..],
        _ => &[],
    };
    let claims = claims.iter().map(|claim| &*claim.metadata.name);
    let planned = PlannedInjection::of(server, &template.metadata, &template.spec, claims);
    let mut found = in_template(server, &planned);
    found.extend(asks_another_port(&review.namespace, template, server, view));
    let before = template::of(review.old.as_ref(), view).and_then(|(_, it)| it.startup_probe.as_ref());
    found.extend(before.and_then(|it| startup_probe_weakened(it.seconds_to_failure(), server, &planned)));
    found
}

/// Returns a warning if the template's own startup probe, which waited this number of seconds, is removed or becomes too short.
fn startup_probe_weakened(patience: i64, server: &Container, planned: &PlannedInjection) -> Option<Finding> {
    let removed = |left: &str| format!(", which waited {patience}s, is removed: {left}");
    let (says, instead) =
        match (server.startup_probe.as_ref().map(Handler::seconds_to_failure), &planned.keeps_probes) {
            (Some(now), Some(kept)) if now < LEAST_PATIENCE && patience >= LEAST_PATIENCE => (
                format!(" waits {now}s instead of {patience}s, and gatera does not replace it: {kept}"),
                "make it wait an hour, as long as a copy of all data may take",
            ),
            (Some(_), _) => return None,
            (None, None) => (
                removed("only gatera's own is left, and only in pods that start while gatera runs"),
                "keep the startupProbe",
            ),
            (None, Some(kept)) => (
                removed(&format!("nothing replaces it: gatera adds none, because {kept}")),
                if server.liveness_probe.is_some() {
                    "keep the startupProbe, or remove livenessProbe too"
                } else {
                    "keep the startupProbe"
                },
            ),
        };
    let says = format!("startupProbe of container {}{says}", server.name);
    Some(RULE.warn(field_of("startupProbe", server), says, KILLED_COPYING, instead))
}

const KILLED_COPYING: &str = "a member that joins copies the whole database before it answers; a probe that does not wait kills it repeatedly";

fn in_template(server: &Container, planned: &PlannedInjection) -> Findings {
    let liveness = demanding_liveness(server, planned).or_else(|| impatient_liveness(server, planned));
    let found = liveness.into_iter().chain(ready_may_not_mean_synced(server, planned));
    found.chain(replaced_probes(server, planned)).collect()
}

fn field_of(probe: &str, server: &Container) -> String {
    format!("spec.template.spec.containers[{}].{probe}", server.name)
}

/// Returns warnings about probes that injection replaces when the pod starts, besides those of [`demanding_liveness`].
fn replaced_probes(server: &Container, planned: &PlannedInjection) -> Findings {
    let warning = |probe: &str, says: String, why: &str, instead: &str| {
        let says = format!("{probe} of container {} {says}", server.name);
        RULE.warn(field_of(probe, server), says, why, instead)
    };
    let makes_demands = |probe: &Handler| programs::demand(&probe.exec.command).is_some();
    let liveness = planned.replaces_liveness && !server.liveness_probe.as_ref().is_some_and(makes_demands);
    let liveness = liveness.then(|| {
        let why = "gatera's probe asks only whether the port answers; one that asks for more can fail on every member at once";
        warning("livenessProbe", "is replaced by a check of its port when the pod starts".to_owned(), why, LEAVE_OUT)
    });
    let readiness = planned.replaces_readiness.map(|what| {
        let says = format!("{what} is replaced when the pod starts");
        warning(
            "readinessProbe",
            says,
            WHY_READINESS,
            "leave it out, or annotate the template with gatera.dev/readiness: keep",
        )
    });
    let startup = planned.replaces_startup.map(|(patience, limit)| {
        let says = format!(
            "gives up after {patience}s and is replaced by one that waits {limit}s when the pod starts"
        );
        warning("startupProbe", says, KILLED_COPYING, LEAVE_OUT)
    });
    liveness.into_iter().chain(readiness).chain(startup).collect()
}

const LEAVE_OUT: &str = "leave it out";
const ASK_THE_PORT: &str = "leave it out, or ask the port (livenessProbe: {tcpSocket: {port: 3306}}) with a startupProbe of an hour beside it";
const WHY_READINESS: &str = "as soon as a member is Ready, a rollout continues, and clients are sent to it";

/// Returns a finding about a liveness probe that fails while the server is alive.
fn demanding_liveness(server: &Container, planned: &PlannedInjection) -> Option<Finding> {
    let demand = programs::demand(&server.liveness_probe.as_ref()?.exec.command)?;
    let says = format!("livenessProbe of container {} needs {demand}", server.name);
    let (verdict, says, instead) = match &planned.keeps_probes {
        None => (
            Verdict::Warn,
            format!("{says} and is replaced by a check of port 3306 when the pod starts"),
            LEAVE_OUT,
        ),
        Some(kept) => (Verdict::Deny, format!("{says}, and gatera cannot replace it: {kept}"), ASK_THE_PORT),
    };
    let why = if demand == "a login" {
        "when the password changes, or while the server is busy, it fails on every member at once and kills them all"
    } else {
        "a donor and a joiner are not Synced, and a member without its majority is not Primary: it kills all of these"
    };
    Some(RULE.finding(verdict, field_of("livenessProbe.exec.command", server), says, why, instead))
}

/// Returns a finding about a liveness probe that kills a member that is still copying its data.
fn impatient_liveness(server: &Container, planned: &PlannedInjection) -> Option<Finding> {
    let (probe, kept) = (server.liveness_probe.as_ref()?, planned.keeps_probes.as_ref()?);
    // The probe checks the state transfer's own file, which exists during the transfer.
    if probe.exec.command.iter().any(|word| word.look().contains("sst_in_progress")) {
        return None;
    }
    let startup = server.startup_probe.as_ref().map_or(0, Handler::seconds_to_failure);
    let seconds = startup.saturating_add(probe.seconds_to_failure());
    let says = format!(
        "container {} is killed {seconds}s after it started unless it answers, and gatera adds no startupProbe: {kept}",
        server.name
    );
    let why = "a member that joins copies the whole database before it answers; each time it is killed, it starts again";
    (seconds < LEAST_PATIENCE).then(|| {
        let instead = "make startupProbe wait an hour: {tcpSocket: {port: 3306}, periodSeconds: 10, failureThreshold: 360}";
        // A startup probe is deliberate, and its real waiting time is not always visible.
        let verdict = if server.startup_probe.is_some() { Verdict::Warn } else { Verdict::Deny };
        RULE.finding(verdict, field_of("livenessProbe", server), says, why, instead)
    })
}

/// Returns a finding about a probe that kills the server because it asks a port on which no server listens.
fn asks_another_port(ns: &str, template: &Template, server: &Container, view: &View<'_>) -> Option<Finding> {
    let probes = [("livenessProbe", &server.liveness_probe), ("startupProbe", &server.startup_probe)];
    let probed_port = |probe: &Handler| {
        let port = probe.tcp_socket.as_ref()?.port.as_ref()?.text();
        let declared = server.ports.iter().find(|it| it.name == port);
        declared.map_or_else(|| port.parse().ok(), |it| Some(it.container_port))
    };
    // Another port may belong to a sidecar.
    let usual =
        |(_, probe): &&(&str, &Option<Handler>)| probe.as_ref().and_then(probed_port) == Some(DEFAULT_PORT);
    let (name, _) = probes.iter().find(usual)?;
    let port = view.ports(ns, &template.spec, server).clients.filter(|port| *port != DEFAULT_PORT)?;
    let says = format!(
        "{name} of container {} asks port {DEFAULT_PORT}, but its server listens on {port}",
        server.name
    );
    let why = "a probe that never succeeds kills every member repeatedly";
    let field = field_of(&format!("{name}.tcpSocket.port"), server);
    Some(RULE.deny(field, says, why, format!("set its port to {port}")))
}

/// Returns a finding about a ConfigMap that changes the servers' port to one that their probes do not ask.
fn moves_the_port(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (ns, new) = (&review.namespace, review.change::<ConfigMap>().new?);
    let with = view.with_config_map(new);
    view.readers_of(ns, &new.metadata.name).find_map(|cluster| {
        let template = &cluster.workload.spec.template;
        let server = server::of(template)?;
        let found = asks_another_port(ns, template, server, &with)?;
        let before = asks_another_port(ns, template, server, view);
        let says = format!("{} ({})", found.says, cluster.id.name);
        let instead = say("keep the port").or(
            "to change it, in two rollouts: first remove that probe from the StatefulSet, and afterwards add it with the new port",
        );
        before.is_none().then(|| Finding { field: "data".to_owned(), says, instead, ..found })
    })
}

/// Returns a warning if Ready will not mean Synced.
fn ready_may_not_mean_synced(server: &Container, planned: &PlannedInjection) -> Option<Finding> {
    let says = format!("Ready will not prove that container {} is Synced", server.name);
    let (says, instead) = match &planned.keeps_probes {
        None => (says, "remove gatera.dev/readiness: keep from the template"),
        Some(kept) if planned.has_conflict => (
            format!(
                "gatera injects nothing into its pods, so Ready will not prove that they are Synced: {kept}"
            ),
            "give the volume another name or path",
        ),
        Some(kept) => (format!("{says}: {kept}"), "make readinessProbe check for wsrep_local_state 4"),
    };
    (!planned.ready_means_synced)
        .then(|| RULE.warn(field_of("readinessProbe", server), says, WHY_READINESS, instead))
}
