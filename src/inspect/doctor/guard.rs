//! The guard itself: its entries, its certificates, its replicas, its rights.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{AnswerOrReason, DoctorRow, count};
use engine::rulebook::Rulebook;
use engine::webhooks::compare::{decoded, first_difference};
use engine::webhooks::{Destination, Endpoint};
use facts::mode::Mode;
use facts::settings::Settings;
use facts::way_out::{CommandLine, WayOut, run, say};
use objects::Kind;

/// A replica of the guard.
#[derive(Clone, Debug)]
pub struct Replica {
    pub name: String,
    /// Whether its kubelet reports it as ready.
    pub ready: bool,
    /// The version in its pod's label.
    pub version: Option<String>,
    /// The text of its `/readyz`.
    pub says: AnswerOrReason<String>,
}

/// A permission of the guard's account.
#[derive(Clone, Debug)]
pub struct Right {
    /// The permission, as in `list pods`.
    pub permission: String,
    pub allowed: AnswerOrReason<bool>,
}

const API_SERVER: &str = "api server";
const WEBHOOKS: &str = "webhooks";
const REPLICAS: &str = "replicas";
const AUTHORITY: &str = "CA";
const SETTINGS: &str = "settings";
/// The remaining life of a CA below which it is reported: a CA is replaced months before its end.
const CA_EXPIRY_NOTICE: SignedDuration = SignedDuration::from_hours(24 * 14);
/// The time after which a leader that does not renew its Lease is reported; it renews the Lease every few seconds.
const LEASE_OVERDUE_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// The oldest minor version of Kubernetes that the guard supports, from which on webhooks have match conditions.
const OLDEST_MINOR: u32 = 30;

fn helm_upgrade() -> CommandLine {
    CommandLine::new("helm upgrade gatera charts/gatera -n gatera --reuse-values")
}

/// Returns a row about the version of the API server.
pub fn api_server(major: &str, minor: &str, text: &str) -> DoctorRow {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let old = major == "1" && digits.parse().is_ok_and(|minor: u32| minor < OLDEST_MINOR);
    if !old {
        return DoctorRow::well(API_SERVER, text);
    }
    let says = format!("{text} is too old: it lacks features that the guard's webhook entries need");
    DoctorRow::wrong(API_SERVER, says, format!("use Kubernetes 1.{OLDEST_MINOR} or later"))
}

/// Returns rows about both webhook configurations, validating first, compared with those that a guard of this version writes if
/// the API server serves these kinds.
pub fn webhooks(
    rulebook: &Rulebook,
    found: &[AnswerOrReason<Option<Vec<Value>>>; 2],
    settings: Option<&Settings>,
    target: Option<&Destination>,
    served: &BTreeSet<Kind>,
    same_version: bool,
) -> Vec<DoctorRow> {
    let kinds = [
        (Endpoint::Validate, "ValidatingWebhookConfiguration"),
        (Endpoint::Mutate, "MutatingWebhookConfiguration"),
    ];
    if found.iter().all(|it| matches!(it, Ok(None))) {
        let says = "both webhook configurations (gatera) are missing: nothing in this cluster is guarded";
        let install = "helm upgrade --install gatera charts/gatera -n gatera --create-namespace";
        return vec![DoctorRow::wrong(WEBHOOKS, says, CommandLine::new(install))];
    }
    let row = |(found, (endpoint, kind)): (&AnswerOrReason<Option<Vec<Value>>>, (Endpoint, &str))| {
        let found = match found {
            Err(why) => return DoctorRow::not_asked(WEBHOOKS, format!("{kind} gatera: {why}")),
            Ok(None) => {
                return DoctorRow::wrong(WEBHOOKS, format!("there is no {kind} gatera"), helm_upgrade());
            }
            Ok(Some(found)) => found,
        };
        if found.is_empty() {
            let says = format!("{kind} gatera is empty, so nothing is sent to the guard");
            let instead = "the guard fills it as soon as it is ready; its /readyz shows what it waits for";
            return DoctorRow::wrong(WEBHOOKS, says, instead);
        }
        let entries = format!("{} of {kind} gatera", count(found.len(), "entry", "entries"));
        let Some((settings, target)) = settings.zip(target) else {
            let says = format!("cannot check the {entries}: the guard's settings are not known");
            return DoctorRow::not_asked(WEBHOOKS, says);
        };
        match first_difference(found, &rulebook.entries(endpoint, settings, served, target, "")) {
            None => DoctorRow::well(WEBHOOKS, format!("{entries}, as the guard writes them")),
            Some(difference) if same_version => DoctorRow::wrong(
                WEBHOOKS,
                format!("{kind} gatera: {difference}"),
                "the leading replica writes it again within seconds; if it does not, check its /readyz, and what else changes webhook configurations",
            ),
            Some(difference) => DoctorRow::remark(
                WEBHOOKS,
                format!("{kind} gatera: {difference}, as far as this version knows"),
                "run this again with the guard's version of gatera",
            ),
        }
    };
    found.iter().zip(kinds).map(row).collect()
}

/// Returns a row about the CA in the webhook entries: whether it is the same in all, and when it ends. `ends` reads the end of
/// each certificate of a bundle.
pub fn authority(
    found: &[AnswerOrReason<Option<Vec<Value>>>; 2],
    ends: impl Fn(&str) -> AnswerOrReason<Vec<Timestamp>>,
    now: Timestamp,
) -> Option<DoctorRow> {
    let all = found.iter().flatten().flatten().flatten();
    let bundles: BTreeSet<String> =
        all.map(|entry| decoded(entry["clientConfig"]["caBundle"].as_str().unwrap_or_default())).collect();
    let bundle = bundles.first()?;
    if bundles.len() > 1 {
        let says = "not all entries trust the same CA, so API servers reach the guard for some requests only";
        let instead = "the leading replica writes them again; if it does not, check its /readyz";
        return Some(DoctorRow::wrong(AUTHORITY, says, instead));
    }
    let last = match ends(bundle) {
        Err(problem) => {
            let says = format!("the caBundle of the entries is not a certificate: {problem}");
            return Some(DoctorRow::wrong(AUTHORITY, says, helm_upgrade()));
        }
        Ok(ends) => ends.into_iter().max()?,
    };
    let left = last.duration_since(now);
    let days = left.as_hours() / 24;
    Some(if !left.is_positive() {
        let says = format!("the CA that API servers trust expired at {last}: they cannot reach the guard");
        let delete = CommandLine::new("kubectl -n gatera delete secret gatera-tls");
        DoctorRow::wrong(AUTHORITY, says, run(delete).say(" (the guard creates a new one)"))
    } else if left < CA_EXPIRY_NOTICE {
        let says = format!("the CA that API servers trust expires at {last}, in {days} days");
        let instead =
            "the guard replaces it when a third of its life is left, unless you manage its certificates";
        DoctorRow::remark(AUTHORITY, says, instead)
    } else {
        DoctorRow::well(AUTHORITY, format!("API servers trust one CA, until {last} ({days} days)"))
    })
}

/// Returns a row about a guard that runs outside the cluster.
pub fn outside_cluster(url: &str) -> DoctorRow {
    let says = format!("the guard is outside this cluster, at {url}; its replicas were not asked");
    DoctorRow::remark(REPLICAS, says, "ask each at its operations port: /readyz")
}

/// Returns rows about the guard's pods. `own` is the version of this program.
pub fn replicas(found: &AnswerOrReason<Vec<Replica>>, own: &str) -> Vec<DoctorRow> {
    let found = match found {
        Err(why) => return vec![DoctorRow::not_asked(REPLICAS, why)],
        Ok(found) if found.is_empty() => {
            let describe = CommandLine::new("kubectl -n gatera describe deployment gatera");
            return vec![DoctorRow::wrong(REPLICAS, "no pod of the guard exists", describe)];
        }
        Ok(found) => found,
    };
    let mut rows = Vec::new();
    let ready = found.iter().filter(|it| it.ready).count();
    if ready == 0 {
        let says = format!(
            "none of {} is ready: requests that must be judged are refused, all others pass",
            count(found.len(), "replica", "replicas")
        );
        let describe = run(CommandLine::new("kubectl -n gatera describe pods"));
        let instead = describe.then(CommandLine::new("kubectl -n gatera logs deployment/gatera"));
        rows.push(DoctorRow::wrong(REPLICAS, says, instead));
    }
    for Replica { name, ready, version, says } in found {
        match says {
            Err(why) => {
                rows.push(DoctorRow::not_asked(REPLICAS, format!("the /readyz of pod {name}: {why}")));
            }
            Ok(text) if !is_readyz(text) => {
                rows.push(DoctorRow::not_asked(
                    REPLICAS,
                    format!("the /readyz of pod {name} is not that of a guard"),
                ));
            }
            Ok(text) => {
                for line in text.lines().filter_map(problem_line) {
                    let says = format!("pod {name} says: {line}");
                    // A replica that starts or stops while others serve is part of every rollout.
                    rows.push(if *ready || found.iter().all(|it| !it.ready) {
                        DoctorRow::wrong(REPLICAS, says, "see its log")
                    } else {
                        DoctorRow::remark(REPLICAS, says, WayOut::default())
                    });
                }
            }
        }
        if let Some(version) = version.as_ref().filter(|it| *it != own) {
            let says = format!("pod {name} has version {version}, but this gatera has {own}");
            rows.push(DoctorRow::remark(REPLICAS, says, "use the guard's version of gatera"));
        }
        if !ready && !rows.iter().any(|row| row.says.contains(&**name)) {
            let describe = CommandLine::new(format!("kubectl -n gatera describe pod {name}"));
            rows.push(DoctorRow::remark(REPLICAS, format!("pod {name} is not ready"), describe));
        }
    }
    if rows.is_empty() {
        let says = format!("{ready} of {} ready, and none reports a problem", found.len());
        rows.push(DoctorRow::well(REPLICAS, says));
    }
    rows
}

/// Returns a line of `/readyz` that reports a problem.
fn problem_line(line: &str) -> Option<&str> {
    let (sign, report) = line.split_at_checked(4)?;
    let (part, says) = report.split_once(": ")?;
    let well = match part {
        "view" | "settings" => says == "current",
        "webhooks" => says == "registered",
        // The problem follows the expiry date.
        "certificate" => {
            says.strip_prefix("valid until ").is_some_and(|until| until.parse::<Timestamp>().is_ok())
        }
        _ => sign == "[+] ",
    };
    (!well).then_some(report)
}

/// The parts of the guard that have a line in every `/readyz`.
const READYZ_PARTS: [&str; 5] = ["view", "certificate", "webhooks", "settings", "server"];

fn is_readyz(text: &str) -> bool {
    let says = |part: &str| {
        text.lines().any(|line| line.get(4..).is_some_and(|it| it.starts_with(&format!("{part}: "))))
    };
    READYZ_PARTS.into_iter().all(says)
}

/// Returns a row about the leader, and when it renewed its Lease.
pub fn leader(found: &AnswerOrReason<Option<(String, Timestamp)>>, now: Timestamp) -> DoctorRow {
    const LEADER: &str = "leader";
    let consequence =
        "so webhook entries are not renewed, bootstrap nodes not removed, and configurations not rolled out";
    let instead = run(CommandLine::new("kubectl -n gatera get pods"))
        .say("; a ready replica takes over within seconds");
    match found {
        Err(why) => DoctorRow::not_asked(LEADER, why),
        Ok(None) => DoctorRow::wrong(LEADER, format!("no replica leads, {consequence}"), instead),
        Ok(Some((holder, renewed))) if now.duration_since(*renewed) > LEASE_OVERDUE_AFTER => {
            let ago = now.duration_since(*renewed).as_secs();
            let says = format!("{holder} leads, but has not renewed its Lease for {ago} s, {consequence}");
            DoctorRow::wrong(LEADER, says, instead)
        }
        Ok(Some((holder, _))) => DoctorRow::well(LEADER, holder),
    }
}

/// Returns a row about the settings file in the cluster.
pub fn settings(rulebook: &Rulebook, found: &AnswerOrReason<Option<Settings>>) -> DoctorRow {
    match found {
        Err(why) if why.starts_with("ConfigMap ") => DoctorRow::wrong(
            SETTINGS,
            why,
            "correct it with helm upgrade; until then the guard keeps its last settings",
        ),
        Err(why) => DoctorRow::not_asked(SETTINGS, why),
        Ok(None) => DoctorRow::remark(
            SETTINGS,
            "there is no ConfigMap gatera-settings, so the defaults were used here",
            "if the chart did not install this guard, name its settings: --config FILE",
        ),
        Ok(Some(settings)) => {
            let milder = rulebook.rules().iter().filter(|rule| settings.mode(rule.id) < Mode::Enforce);
            let milder: Vec<_> = milder.map(|rule| rule.id).collect();
            if milder.is_empty() {
                return DoctorRow::well(
                    SETTINGS,
                    "ConfigMap gatera-settings can be read, and every rule refuses",
                );
            }
            let mode = settings.default_mode();
            if mode < Mode::Enforce && milder.len() == rulebook.rules().len() {
                let says = format!("mode is {}: nothing is refused in any namespace", mode.name());
                let enforce = helm_upgrade().arg("--set").arg("mode=enforce");
                return DoctorRow::remark(SETTINGS, says, say("when you are ready: ").run(enforce));
            }
            let says = format!("rules that refuse nothing in any namespace: {}", milder.join(", "));
            let which = if mode < Mode::Enforce { "write mode: enforce" } else { "take them out of `modes`" };
            DoctorRow::remark(SETTINGS, says, format!("when you are ready: {which} in the guard's settings"))
        }
    }
}

/// Returns rows about rights that the guard's account lacks.
pub fn rights(user: &str, all: &[Right]) -> Vec<DoctorRow> {
    const RIGHTS: &str = "rights";
    if let Some(Err(why)) = all.iter().map(|it| &it.allowed).find(|it| it.is_err()) {
        return vec![DoctorRow::not_asked(RIGHTS, why)];
    }
    let lacks: Vec<_> = all.iter().filter(|it| it.allowed == Ok(false)).collect();
    if lacks.is_empty() {
        return vec![DoctorRow::well(
            RIGHTS,
            format!("{user} has all {} permissions that it needs", all.len()),
        )];
    }
    let row =
        |it: &&Right| DoctorRow::wrong(RIGHTS, format!("{user} may not {}", it.permission), helm_upgrade());
    lacks.iter().map(row).collect()
}
