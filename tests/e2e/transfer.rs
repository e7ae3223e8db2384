//! Slow state transfers, and servers that die: a donor stays until its joiner is Synced, no probe kills a joiner, and a member is
//! not Ready again before its new server is Synced.
//!
//! GATERA_SLOW sets the length of a transfer in seconds. The default of 70 exceeds the minute after which the liveness probes of
//! the seed documents kill a server.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::chance::env_number;
use crate::galera::{Galera, patiently};
use crate::{power, rolling};

/// The rate at which a donor sends, in KiB/s.
const RATE: u64 = 1024;

/// Returns the seconds that a transfer should take.
fn seconds() -> u64 {
    env_number("GATERA_SLOW").unwrap_or(70)
}

/// Limits the rate of donors in the option file that the members read, and waits until the guard has restarted them for that.
/// Then enlarges the database until a transfer takes `seconds`.
pub fn slow_down_transfers(galera: &Galera<'_>, options: &str) {
    let before = rolling::mark(galera);
    let patch = json!({ "data": { "innodb.cnf": format!("{options}\n[sst]\nrlimit={RATE}k\n") } });
    let patch =
        ["patch", "configmap/galera-instance-nodeconfig", "--type=merge", "--patch", &patch.to_string()];
    galera.kubectl(&patch).succeeded();
    rolling::until_rolled_out(galera, &before);
    // The empty database has about sixty megabytes.
    let megabytes = (seconds() * RATE / 1024).saturating_sub(60);
    galera
        .ask(&galera.member(0), "CREATE TABLE shop.heavy (id INT AUTO_INCREMENT PRIMARY KEY, body LONGBLOB)");
    for _ in 0..megabytes {
        galera.ask(&galera.member(0), "INSERT INTO shop.heavy (body) VALUES (REPEAT('x', 1048576))");
    }
}

/// Waits until exactly one member is the donor of this joiner, and returns it. A server that was killed during a transfer still
/// counts as a member for some seconds, and its donor as a donor. If another member left in that time, the rest would lose the
/// majority.
fn donor(galera: &Galera<'_>, joiner: &str) -> String {
    patiently("exactly one donor sends to the joiner", || {
        let probe = ["exec", joiner, "--container=mariadb", "--", "/etc/gatera/wait-for-sync.sh", "started"];
        let joiner_state = galera.kubectl(&probe).stdout;
        let is_donor = |pod: &String| galera.wsrep(pod).is_ok_and(|it| it.state.starts_with("Donor"));
        let mut donors = (0..2).map(|it| galera.member(it)).filter(is_donor);
        match (joiner_state.starts_with("the server is JOINING"), donors.next(), donors.next()) {
            (true, Some(donor), None) => Ok(donor),
            seen => Err(format!("{seen:?}: {joiner_state}")),
        }
    })
}

/// Removes the last member by scaling, deletes its volume, and adds the member again, which then needs a full copy.
pub fn lose_volume(galera: &Galera<'_>, last: usize) {
    let (set, joiner) = (galera.stateful_set(), galera.member(last));
    galera.kubectl(&["scale", &set, &format!("--replicas={last}")]).succeeded();
    galera.until_gone(&format!("pod/{joiner}"));
    let volume = galera.volume(last);
    fs::remove_dir_all(&volume).unwrap();
    galera.until_synced(last, last);
    galera.kubectl(&["scale", &set, &format!("--replicas={}", last + 1)]).succeeded();
}

/// Checks that a donor that is deleted during a transfer stays until its joiner is Synced. Its preStop hook waits for that.
pub fn a_donor_stays_until_its_joiner_is_synced(galera: &Galera<'_>) {
    let joiner = galera.member(2);
    lose_volume(galera, 2);
    donor(galera, &joiner);
    power::a_joiner_leaves_within_seconds(galera, &joiner);
    let (began, donor) = (Instant::now(), donor(galera, &joiner));
    assert!(galera.is_ready(&donor), "{donor} answers queries as a donor, but is not Ready");

    let refused = galera.kubectl(&["delete", "pod", &donor, "--wait=false"]);
    assert!(refused.stderr.contains("[G02]"), "G02 does not refuse to delete the donor: {refused}");
    galera.set_override(&format!("pod/{donor}"), "G02").succeeded();
    let uid = galera.pod(&donor).unwrap()["metadata"]["uid"].clone();
    patiently("the override takes effect", || {
        let deleted = galera.kubectl(&["delete", "pod", &donor, "--wait=false"]);
        if deleted.status == 0 { Ok(()) } else { Err(deleted.stderr) }
    });

    let (mut ready, mut left) = (None, None);
    patiently("the joiner is Ready and the donor has gone", || {
        ready = ready.or_else(|| galera.is_ready(&joiner).then(Instant::now));
        let there = galera.pod(&donor).is_some_and(|pod| pod["metadata"]["uid"] == uid);
        left = left.or_else(|| (!there).then(Instant::now));
        if ready.is_some() && left.is_some() {
            Ok(())
        } else {
            Err(format!("Ready: {ready:?}, gone: {left:?}"))
        }
    });
    let pod = galera.pod(&joiner).unwrap();
    assert_eq!(
        pod["status"]["containerStatuses"][0]["restartCount"], 0,
        "neither a probe nor a lost donor restarted the joiner"
    );
    println!(
        "the transfer took {:.0} s; the donor left {:.1} s after its joiner was Ready",
        ready.unwrap().duration_since(began).as_secs_f64(),
        left.unwrap().saturating_duration_since(ready.unwrap()).as_secs_f64()
    );
    let log = galera.kubectl(&["logs", &joiner, "--container=mariadb"]).stdout;
    assert!(!log.contains("is no longer in the group"), "the joiner lost its donor: {log}");
}

/// Checks that a member whose server was killed is not Ready until its new server is Synced.
pub fn a_killed_server_is_not_ready_until_synced(galera: &Galera<'_>, ordinal: usize) {
    let pod = galera.member(ordinal);
    let starts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
    let before = galera.pod(&pod).as_ref().and_then(starts);
    power::kill_servers(&[&pod]);
    let restarted = |pod: &Value| starts(pod) > before;
    patiently("the server is started again", || {
        galera.pod(&pod).filter(restarted).map(drop).ok_or_else(|| "not yet".to_owned())
    });
    // Until the new server writes its status file, the one of the old server remains.
    loop {
        let ready = galera.is_ready(&pod);
        let synced = galera.wsrep(&pod).is_ok_and(|it| it.state == "Synced" || it.state.starts_with("Donor"));
        assert!(synced || !ready, "{pod} is Ready, but its server is not Synced");
        if ready {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
}
