//! Rollouts of changed options on real MariaDB: a good option reaches every member while a client commits; an option that the
//! server refuses stops only the canary; and members that die meanwhile start with the last good configuration.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::galera::{Galera, patiently};
use crate::guard::{guarded, override_of, status};
use crate::install::{events, formed, password};
use crate::power::{self, Kill};
use crate::writer::Writer;

/// Returns the guard's mark on the StatefulSet about its configuration.
pub fn mark(galera: &Galera<'_>) -> Value {
    let set = galera.lab.get(&galera.namespace, &galera.stateful_set());
    let text = set["metadata"]["annotations"]["gatera.dev/configuration"].as_str().unwrap_or("null");
    serde_json::from_str(text).expect("the mark is JSON")
}

/// Adds a line to the option file that the members read, with an override of G09 if `overridden`.
pub fn set_option(galera: &Galera<'_>, line: &str, overridden: bool) {
    let config = format!("configmap/{}-nodeconfig", galera.name);
    let map = galera.lab.get(&galera.namespace, &config);
    let text = map["data"]["galera.cnf"].as_str().expect("the chart's option file");
    let annotation = overridden.then(|| override_of("G09"));
    let patch = json!({
        "metadata": { "annotations": { "gatera.dev/override": annotation } },
        "data": { "galera.cnf": format!("{text}[mariadbd]\n{line}\n") },
    });
    let patch = patch.to_string();
    galera.kubectl(&["patch", &config, "--type=merge", "--patch", &patch]).succeeded();
}

/// Removes a line that `set_option` added.
pub fn remove_option(galera: &Galera<'_>, line: &str) {
    let config = format!("configmap/{}-nodeconfig", galera.name);
    let map = galera.lab.get(&galera.namespace, &config);
    let text = map["data"]["galera.cnf"].as_str().expect("the chart's option file");
    let text = text.replace(&format!("[mariadbd]\n{line}\n"), "");
    let patch = json!({ "data": { "galera.cnf": text } }).to_string();
    galera.kubectl(&["patch", &config, "--type=merge", "--patch", &patch]).succeeded();
}

/// Returns the uids of the members' pods.
pub fn uids(galera: &Galera<'_>) -> [String; 3] {
    [0, 1, 2].map(|ordinal| {
        let pod = galera.pod(&galera.member(ordinal)).expect("the pod exists");
        pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    })
}

/// Waits until the rollout of the last change has succeeded. Returns the new mark.
pub fn until_rolled_out(galera: &Galera<'_>, before: &Value) -> Value {
    patiently("every member runs the new configuration", || {
        let now = mark(galera);
        let is_done = now["good"] != before["good"] && now["next"].is_null();
        if is_done { Ok(now) } else { Err(format!("{now}\n{}", status(galera))) }
    })
}

/// Waits until the rollout has stopped and every member runs the last good configuration. Returns the reason of the stop.
pub fn until_stopped(galera: &Galera<'_>, good: &Value) -> String {
    let why = patiently("the rollout stops", || {
        let now = mark(galera);
        let why = now["stopped"]["why"].as_str().map(str::to_owned);
        why.ok_or_else(|| format!("{now}\n{}", status(galera)))
    });
    patiently("every member runs the last good configuration", || {
        let revision = |ordinal| {
            galera.pod(&galera.member(ordinal))?["metadata"]["annotations"]["gatera.dev/revision"]
                .as_str()
                .map(str::to_owned)
        };
        let back = (0..3).all(|ordinal| revision(ordinal).as_deref() == good.as_str());
        let ready = (0..3).all(|ordinal| galera.is_ready(&galera.member(ordinal)));
        if back && ready { Ok(()) } else { Err(status(galera)) }
    });
    why
}

/// The pauses of a rollout in seconds: ten in which no further change is applied, and ten in which the canary is watched.
const PAUSES: f64 = 20.0;

/// Restarts the members one after the other by `kubectl rollout restart`. Returns the seconds that this takes.
pub fn restart(galera: &Galera<'_>) -> f64 {
    let set = galera.stateful_set();
    let began = Instant::now();
    galera.kubectl(&["rollout", "restart", &set]).succeeded();
    galera.kubectl(&["rollout", "status", &set, "--timeout=300s"]).succeeded();
    galera.until_ready(3);
    began.elapsed().as_secs_f64()
}

#[test]
fn a_good_option_reaches_all_members_and_a_fatal_one_stops_at_the_canary() {
    let galera = formed(guarded(), "rolling");
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    let writer = Writer::start(&galera, &password(&galera));
    let first = patiently("the guard has marked the configuration", || {
        Some(mark(&galera)).filter(|it| !it.is_null()).ok_or_else(|| status(&galera))
    });

    let restart_seconds = restart(&galera);
    let (began, pods) = (Instant::now(), uids(&galera));
    set_option(&galera, "max_connections = 77", false);
    let good = until_rolled_out(&galera, &first);
    let took = began.elapsed().as_secs_f64();
    println!(
        "a good change reached three members in {took:.1} s, kubectl rollout restart in {restart_seconds:.1} s: without the pauses, {:.2} of the time of the restart",
        (took - PAUSES) / restart_seconds
    );
    for ordinal in 0..3 {
        assert_eq!(galera.ask(&galera.member(ordinal), "SELECT @@max_connections"), "77", "member {ordinal}");
    }
    assert!(
        pods.iter().zip(uids(&galera)).all(|(before, after)| *before != after),
        "a member did not restart"
    );
    writer.until_writes();

    // An option that no rule knows, so only the server refuses it.
    let (began, pods) = (Instant::now(), uids(&galera));
    set_option(&galera, "no_such_option_at_all = 1", false);
    let why = until_stopped(&galera, &good["good"]);
    println!(
        "an option that no server knows stopped {} for {:.1} s: {why}",
        galera.member(2),
        began.elapsed().as_secs_f64()
    );
    let option = "no_such_option_at_all";
    assert_eq!(
        why,
        format!("{} keeps failing with {option} (unknown variable {option})", galera.member(2)),
        "why it stopped"
    );
    assert_eq!(pods[..2], uids(&galera)[..2], "the other members did not restart");
    println!("{}", status(&galera));
    let reported = events(&galera, "RolloutStopped");
    let reported = reported.first().and_then(|it| it["note"].as_str()).unwrap_or_default();
    println!("{reported}");
    assert!(
        reported.starts_with(&why) && reported.contains("its log") && reported.contains("nodeconfig"),
        "the Event does not say why, or what to look at: {reported}"
    );
    writer.until_writes();

    // Members that die while the ConfigMap contains this option start with the last good configuration.
    power::kill_until_restarted(
        &galera,
        Kill::Sandboxes,
        &[&galera.member(0), &galera.member(1), &galera.member(2)],
        Duration::ZERO,
    );
    galera.until_ready(3);
    galera.kubectl(&["delete", "pod", &galera.member(1)]).succeeded();
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    remove_option(&galera, "no_such_option_at_all = 1");
    patiently("the mark no longer names the failed configuration", || {
        let now = mark(&galera);
        if now["stopped"].is_null() { Ok(()) } else { Err(now.to_string()) }
    });

    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.finish(3);
}
