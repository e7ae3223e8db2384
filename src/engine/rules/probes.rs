//! G15: no probe kills a member for its password, its cluster or its patience.
//!
//! Refuses a liveness probe that needs a login or a state of Galera, and one that leaves a joining member less than five
//! minutes, where gatera cannot put a better one in its place; where it can (when the pod is created), it only says so. Refuses a
//! liveness or startup probe of port 3306 where the server listens on another (`port` in an option, a file, or Bitnami's variable).
//! Warns where a probe of yours is replaced when the pod starts, where a readiness probe that cannot see Galera's state
//! stays, where a startup probe of your own is short or is taken away, and where something of yours has the name or the place
//! of what gatera puts into a pod: then it puts in nothing.
//!
//! # Why
//!
//! A failed liveness probe kills the server. One that logs in fails on every member at once when the password changes,
//! and the whole cluster is down. One that wants `Primary` or `Synced` kills the donor, which is desynced while it
//! helps, and the joiner, which has nothing yet; and it restarts members that lost their majority, which throws away the
//! file with which they would have found back together. A member that joins copies the whole database first: that
//! takes minutes or hours in which nothing answers, and a probe without that patience kills it again and again.
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
//! Leave the probes out: gatera adds its own when the pod is created, as long as it knows how the image takes options
//! (`gatera.dev/profile: official` or `bitnami` in the template's annotations says so) and a `command` of the container,
//! if it has one, ends in the image's own entry point. Or write a liveness probe that only asks whether the server lives,
//! with a startup probe that waits an hour: `livenessProbe: {tcpSocket: {port: 3306}}`,
//! `startupProbe: {tcpSocket: {port: 3306}, periodSeconds: 10, failureThreshold: 360}`.
//!
//! # How to waive it
//!
//! Annotate the StatefulSet or the bootstrap Deployment, for an hour at most:
//! `gatera.dev/override: "G15 until=2026-12-01T10:00:00Z reason=…"`.

use super::template;
use crate::inject::Prospect;
use crate::rule::{Rule, WRITTEN};
use crate::verdict::{Finding, Findings, Verdict};
use facts::galera::ports::USUAL as USUAL_PORT;
use facts::galera::programs;
use facts::galera::server;
use facts::review::Review;
use facts::view::View;
use objects::{ConfigMap, Container, Handler, Kind, Object, Template};

pub(super) const RULE: Rule = Rule {
    id: "G15",
    name: "probes",
    touches: &[(Kind::StatefulSet, WRITTEN), (Kind::Deployment, WRITTEN), (Kind::ConfigMap, WRITTEN)],
    depends_on_state: false,
    source: include_str!("probes.rs"),
    check,
};

/// Less than this is too little for any state transfer worth the name.
const LEAST_PATIENCE: i64 = 300;

fn check(review: &Review, view: &View<'_>) -> Findings {
    if let Some(Object::ConfigMap(new)) = &review.new {
        return moves_the_port(&review.namespace, new, view).into_iter().collect();
    }
    let Some((template, server)) = template::of(review.new.as_ref(), view) else { return Findings::new() };
    let claims = match &review.new {
        Some(Object::StatefulSet(it)) => &it.spec.volume_claim_templates[..],
        _ => &[],
    };
    let claims = claims.iter().map(|claim| &*claim.metadata.name);
    let prospect = Prospect::of(server, &template.metadata, &template.spec, claims);
    let mut found = in_template(server, &prospect);
    found.extend(asks_another_port(&review.namespace, template, server, view));
    if let Some((_, before)) = template::of(review.old.as_ref(), view) {
        found.extend(taken_away(before, server, &prospect));
    }
    found
}

/// The patience that somebody wrote down is gone.
fn taken_away(before: &Container, server: &Container, prospect: &Prospect) -> Option<Finding> {
    let patience = before.startup_probe.as_ref()?.patience();
    if let Some(now) = server.startup_probe.as_ref().map(Handler::patience) {
        let kept = prospect.kept.as_ref().filter(|_| now < LEAST_PATIENCE && patience >= LEAST_PATIENCE)?;
        let says = format!(
            "startupProbe of container {} waits {now}s instead of {patience}s, and gatera puts no other in its place: {kept}",
            server.name
        );
        let field = format!("spec.template.spec.containers[{}].startupProbe", server.name);
        return Some(RULE.finding(
            Verdict::Warn,
            field,
            says,
            KILLED_COPYING,
            "let it wait an hour, as long as a copy of all data may take",
        ));
    }
    let (left, instead) = match &prospect.kept {
        None => (
            "only gatera's own is left, and that only in pods that start while gatera runs".to_owned(),
            "leave it in",
        ),
        Some(kept) => (
            format!("nothing takes its place: gatera adds none, since {kept}"),
            if server.liveness_probe.is_some() {
                "leave it in, or take livenessProbe out, too"
            } else {
                "leave it in"
            },
        ),
    };
    let says =
        format!("startupProbe of container {}, which waited {patience}s, is taken away: {left}", server.name);
    let field = format!("spec.template.spec.containers[{}].startupProbe", server.name);
    Some(RULE.finding(Verdict::Warn, field, says, KILLED_COPYING, instead.to_owned()))
}

const KILLED_COPYING: &str = "a member that joins copies the whole database before it answers; a probe that does not wait for that kills it again and again";

fn in_template(server: &Container, prospect: &Prospect) -> Findings {
    let place = format!("spec.template.spec.containers[{}].", server.name);
    let liveness = server.liveness_probe.as_ref().map(|probe| {
        demanding(&place, server, probe, prospect).or_else(|| impatient(&place, server, probe, prospect))
    });
    let found = liveness.flatten().into_iter().chain(blind(&place, server, prospect));
    found.chain(replaced(&place, server, prospect)).collect()
}

/// Probes that ours take the place of when the pod starts, beside what [`demanding`] says.
fn replaced(place: &str, server: &Container, prospect: &Prospect) -> Findings {
    let of = |probe: &str, says: String, why: &str, instead: &str| {
        let says = format!("{probe} of container {} {says}", server.name);
        RULE.finding(Verdict::Warn, format!("{place}{probe}"), says, why, instead.to_owned())
    };
    let demands = |probe: &Handler| programs::demand(&probe.exec.command).is_some();
    let liveness = prospect.replaces_liveness && !server.liveness_probe.as_ref().is_some_and(demands);
    let liveness = liveness.then(|| {
        let why = "gatera's asks only whether the port answers; one that asks for more can fail on every member at once";
        of("livenessProbe", "is replaced by a look at its port when the pod starts".to_owned(), why, LEAVE_OUT)
    });
    let readiness = prospect.replaces_readiness.map(|what| {
        let says = format!("{what} is replaced when the pod starts");
        of(
            "readinessProbe",
            says,
            GOES_ON,
            "leave it out, or annotate the template with gatera.dev/readiness: keep",
        )
    });
    let startup = prospect.replaces_startup.map(|(patience, limit)| {
        let says = format!(
            "gives up after {patience}s and is replaced by one that waits {limit}s when the pod starts"
        );
        of("startupProbe", says, KILLED_COPYING, LEAVE_OUT)
    });
    liveness.into_iter().chain(readiness).chain(startup).collect()
}

const LEAVE_OUT: &str = "leave it out";
const GOES_ON: &str = "a rollout goes on as soon as a member is Ready, and clients are sent to it";

/// A liveness probe that fails while the server lives.
fn demanding(place: &str, server: &Container, probe: &Handler, prospect: &Prospect) -> Option<Finding> {
    let demand = programs::demand(&probe.exec.command)?;
    let says = format!("livenessProbe of container {} needs {demand}", server.name);
    let (verdict, says, instead) = match &prospect.kept {
        None => (
            Verdict::Warn,
            format!("{says} and is replaced by a look at port 3306 when the pod starts"),
            LEAVE_OUT.to_owned(),
        ),
        Some(kept) => {
            (Verdict::Deny, format!("{says}, and gatera cannot replace it: {kept}"), ask_the_port())
        }
    };
    let why = if demand == "a login" {
        "when the password changes, or while the server is busy, it fails on every member at once and kills them all"
    } else {
        "a donor and a joiner are not Synced, and a member without its majority is not Primary: it kills all of these"
    };
    Some(RULE.finding(verdict, format!("{place}livenessProbe.exec.command"), says, why, instead))
}

/// A liveness probe that kills a member which is still copying its data.
fn impatient(place: &str, server: &Container, probe: &Handler, prospect: &Prospect) -> Option<Finding> {
    let kept = prospect.kept.as_ref()?;
    // The state transfer's own file: it lasts as long as the transfer.
    if probe.exec.command.iter().any(|word| word.look().contains("sst_in_progress")) {
        return None;
    }
    let startup = server.startup_probe.as_ref().map_or(0, Handler::patience);
    let seconds = startup.saturating_add(probe.patience());
    let says = format!(
        "container {} is killed {seconds}s after it started unless it answers, and gatera adds no startupProbe: {kept}",
        server.name
    );
    let why = "a member that joins copies the whole database before it answers; killed on the way, it begins anew for ever";
    (seconds < LEAST_PATIENCE).then(|| {
        let instead = "let startupProbe wait an hour: {tcpSocket: {port: 3306}, periodSeconds: 10, failureThreshold: 360}"
            .to_owned();
        // Somebody thought of it, and what a startup probe waits for is not always to be seen.
        let verdict = if server.startup_probe.is_some() { Verdict::Warn } else { Verdict::Deny };
        RULE.finding(verdict, format!("{place}livenessProbe"), says, why, instead)
    })
}

/// A probe that kills the server because it asks a port on which none listens.
fn asks_another_port(ns: &str, template: &Template, server: &Container, view: &View<'_>) -> Option<Finding> {
    let probes = [("livenessProbe", &server.liveness_probe), ("startupProbe", &server.startup_probe)];
    let asked = |probe: &Handler| {
        let port = probe.tcp_socket.as_ref()?.port.as_ref()?.text();
        let declared = server.ports.iter().find(|it| it.name == port);
        declared.map_or_else(|| port.parse().ok(), |it| Some(it.container_port))
    };
    // Another one may be a side-car's.
    let usual = |(_, probe): &&(&str, &Option<Handler>)| probe.as_ref().and_then(asked) == Some(USUAL_PORT);
    let (name, _) = probes.iter().find(usual)?;
    let port = view.ports(ns, &template.spec, server).clients.filter(|port| *port != USUAL_PORT)?;
    let place = format!("spec.template.spec.containers[{}].{name}.tcpSocket.port", server.name);
    let says = format!(
        "{name} of container {} asks port {USUAL_PORT}, and its server listens on {port}",
        server.name
    );
    let why = "a probe that never succeeds has every member killed, again and again";
    Some(RULE.finding(Verdict::Deny, place, says, why, format!("let it ask port {port}")))
}

/// A ConfigMap by which servers will listen where their probes do not ask.
fn moves_the_port(ns: &str, new: &ConfigMap, view: &View<'_>) -> Option<Finding> {
    let with = view.with(new);
    view.readers_of(ns, &new.metadata.name).find_map(|cluster| {
        let template = &cluster.workload.spec.template;
        let server = server::of(template)?;
        let found = asks_another_port(ns, template, server, &with)?;
        let before = asks_another_port(ns, template, server, view);
        let says = format!("{} ({})", found.says, cluster.id.name);
        let instead = "leave the port; to change it, in two rollouts: take that probe out of the StatefulSet first, and put it back with the new port afterwards"
            .to_owned();
        before.is_none().then(|| Finding { field: "data".to_owned(), says, instead, ..found })
    })
}

/// Ready will not mean Synced.
fn blind(place: &str, server: &Container, prospect: &Prospect) -> Option<Finding> {
    let says = format!("Ready will not prove that container {} is Synced", server.name);
    let (says, instead) = match &prospect.kept {
        None => (says, "take gatera.dev/readiness: keep off the template"),
        Some(kept) if prospect.in_the_way => (
            format!(
                "gatera injects nothing into its pods, so Ready will not prove that they are Synced: {kept}"
            ),
            "give the volume another name or place",
        ),
        Some(kept) => (format!("{says}: {kept}"), "let readinessProbe ask for wsrep_local_state 4"),
    };
    (!prospect.readiness_proves).then(|| {
        RULE.finding(Verdict::Warn, format!("{place}readinessProbe"), says, GOES_ON, instead.to_owned())
    })
}

fn ask_the_port() -> String {
    "leave it out, or ask the port (livenessProbe: {tcpSocket: {port: 3306}}) with a startupProbe of an hour beside it"
        .to_owned()
}
