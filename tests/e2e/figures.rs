//! Measures a cluster of three for one series of MariaDB and one image: how long it takes to form, to come back after a power
//! failure and by `gatera recover`, to restart member by member, and to fill a lost volume. The table in docs/members.md shows
//! these figures. Part of `make drills`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bitnami;
use crate::galera::{Galera, series};
use crate::gate;
use crate::guard::guarded;
use crate::install::{fill_heavy_table, formed, password};
use crate::power::{self, Kill};
use crate::recover::{Cordoned, delete_all_members, outcome, recover};
use crate::rolling;
use crate::writer::Writer;

/// Runs `work`. Returns its result and the seconds that it took.
fn seconds<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed().as_secs())
}

/// Runs each event on this cluster, and prints how long it takes. `claim` is that of the last member.
fn measure(image: &str, galera: &Galera<'_>, forming: u64, claim: &str, password: &Value) {
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    fill_heavy_table(galera);
    gate::until_identity_is_recorded(galera, &cluster);
    let writer = Writer::start(galera, password);
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));

    let names: Vec<_> = pods.iter().map(String::as_str).collect();
    let ((), power_failure) = seconds(|| {
        power::kill_until_restarted(galera, Kill::Sandboxes, &names, Duration::ZERO);
        galera.until_synced(3, 3);
        galera.until_ready(3);
    });
    writer.until_writes();

    {
        let _cordoned = Cordoned::all(galera);
        delete_all_members(galera, 3);
    }
    let ((code, text), recovered) = seconds(|| {
        let done = outcome(recover(galera, &["--yes"]));
        galera.until_ready(3);
        done
    });
    assert_eq!(code, Some(0), "{text}");
    writer.until_writes();

    let restarted = rolling::restart(galera);
    writer.until_writes();

    let datadir = galera.ask(&pods[2], "SELECT @@datadir");
    let megabytes = galera.in_pod(&pods[2], &format!("du -sm {datadir}"));
    let megabytes = megabytes.split_whitespace().next().unwrap_or_default();
    galera.delete_claim(claim);
    let ((), copied) = seconds(|| {
        galera.kubectl(&["delete", "pod", &pods[2]]).succeeded();
        galera.until_ready(3);
    });
    writer.until_writes();

    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::members_agree(galera, "shop.t, shop.heavy");
    let (acknowledged, failed) = writer.finish(3);
    println!(
        "figures of {image} {}: formed in {forming} s, power failure {power_failure} s, recover {recovered} s, restart of three \
         {restarted:.0} s, a lost volume of {megabytes} MiB filled in {copied} s; {acknowledged} rows acknowledged, none lost, \
         {failed} attempts failed",
        series()
    );
}

#[test]
fn figures_of_the_official_image() {
    let lab = guarded();
    let (galera, forming) = seconds(|| formed(lab, "figures"));
    measure("mariadb", &galera, forming, &galera.claim(2), &password(&galera));
}

#[test]
fn figures_of_bitnamis_image() {
    let lab = bitnami::lab();
    let (galera, forming) = seconds(|| bitnami::formed(lab));
    measure(
        "mariadb-galera",
        &galera,
        forming,
        &format!("data-{}", galera.member(2)),
        &json!({ "value": "admin" }),
    );
}
