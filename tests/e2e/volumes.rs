//! Volumes that change while their cluster is stopped: one is emptied, lost, replaced by an older copy or by another cluster's
//! volume, read-only or full, or it holds an interrupted copy. `gatera start` reports that data may be missing, and the command
//! that it prints brings the cluster back.
//!
//! Part of `make drills`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::galera::{Galera, patiently};
use crate::gate;
use crate::install::fill_heavy_table;
use crate::power;
use crate::recover::{Cordoned, delete_all_members, gatera, outcome, recover};

/// Runs a line of shell on this machine, on which the volumes are folders. `paths` are its arguments.
pub fn run_on_host(line: &str, paths: &[&Path]) {
    let status = Command::new("sh").args(["-euc", line, "sh"]).args(paths).status().unwrap();
    assert!(status.success(), "{line} {paths:?}");
}

fn stop(galera: &Galera<'_>) {
    let (code, text) = outcome(gatera("stop", galera, &["--yes"]));
    assert_eq!(code, Some(0), "{text}");
}

/// Checks that `gatera start` refuses with this text, and runs the command that it prints.
fn recover_as_start_reports(galera: &Galera<'_>, what: &str, expected: &str) {
    let (code, text) = outcome(gatera("start", galera, &["--yes"]));
    println!("--- {what}\n{text}");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(expected), "`gatera start` does not report \"{expected}\": {text}");
    let (_, arguments) = text
        .rsplit_once(&format!(": gatera recover {}-galera -n {} --from ", galera.name, galera.namespace))
        .expect("the next command is printed");
    let (from, loss) = arguments.trim().split_once(" --accept-loss ").expect("it names the loss");
    assert_ne!(from, "MEMBER", "the command names the member: {text}");
    let (code, text) =
        outcome(recover(galera, &["--yes", "--from", from, "--accept-loss", loss.trim_matches('\'')]));
    println!("{text}");
    assert_eq!(code, Some(0), "{text}");
}

/// Checks that all members are back in the same cluster with this number of rows.
fn all_members_have(galera: &Galera<'_>, cluster: &str, rows: usize) {
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    for ordinal in 0..3 {
        let found = galera.rows(&galera.member(ordinal)).succeeded();
        assert_eq!(found.trim(), rows.to_string(), "rows of member {ordinal}");
    }
    power::members_agree(galera, "shop.t");
}

#[test]
fn missing_data_is_reported_before_a_cluster_starts() {
    let (galera, cluster) = gate::formed_with_identity("volumes");
    let aside = |name: &str| galera.lab.folder().join(name);

    // An older copy of the newest volume: the member had more data when it was stopped.
    stop(&galera);
    let older = aside("older");
    run_on_host(r#"cp -a "$1" "$2""#, &[&galera.volume(0), &older]);
    let (code, text) = outcome(gatera("start", &galera, &["--yes"]));
    assert_eq!(code, Some(0), "{text}");
    galera.ask(&galera.member(1), "INSERT INTO shop.t VALUES (4,'four'),(5,'five')");
    stop(&galera);
    run_on_host(r#"rm -rf "$2" && mv "$1" "$2""#, &[&older, &galera.volume(0)]);
    let newer = format!(
        "claim {} had newer data when its member stopped, and no member has that data now",
        galera.claim(0)
    );
    recover_as_start_reports(&galera, "an older copy", &newer);
    all_members_have(&galera, &cluster, 5);

    // The newest volume is emptied, then another one.
    for ordinal in [0, 2] {
        stop(&galera);
        run_on_host(r#"find "$1" -mindepth 1 -delete"#, &[&galera.volume(ordinal)]);
        let empty = format!("{} is empty, and may have had newer data", galera.member(ordinal));
        recover_as_start_reports(&galera, "an empty volume", &empty);
        all_members_have(&galera, &cluster, 5);
    }

    // The claim is deleted against the guard's advice: its member gets a new one.
    stop(&galera);
    galera.delete_claim(&galera.claim(1));
    galera.until_gone(&format!("pvc/{}", galera.claim(1)));
    let empty = format!("{} has no claim with a volume, and may have had newer data", galera.member(1));
    recover_as_start_reports(&galera, "a lost claim", &empty);
    all_members_have(&galera, &cluster, 5);

    // The data of another cluster.
    let (other, strangers) = gate::formed_with_identity("strangers");
    stop(&other);
    stop(&galera);
    run_on_host(r#"rm -rf "$2" && cp -a "$1" "$2""#, &[&other.volume(0), &galera.volume(2)]);
    let differs = format!("have different histories ({cluster} and {strangers}): two clusters were created");
    recover_as_start_reports(&galera, "another cluster's data", &differs);
    all_members_have(&galera, &cluster, 5);
}

/// The newest member cannot start and reports why. Once its disk is repaired, the cluster starts with all of its data.
#[test]
fn a_volume_that_cannot_be_written_is_reported() {
    let (galera, cluster) = gate::formed_with_identity("disks");
    for (what, breaks, mends, says) in [
        (
            "read-only",
            r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1""#,
            r#"umount "$1""#,
            "grastate.dat or /run/gatera cannot be written",
        ),
        (
            "full",
            r#"mv "$1" "$1.was" && mkdir "$1" && size=$(du -sk "$1.was" | cut -f1)
               mount -t tmpfs -o "size=$((size + 256))k" tmpfs "$1" && chown --reference="$1.was" "$1"
               cp -a "$1.was/." "$1/" && { head -c 1G /dev/zero >"$1/filler" || true; } 2>/dev/null"#,
            r#"rm -rf "$1.was" "$1/filler" && mount -o remount,size=1G "$1""#,
            "cannot be written (its disk is full), so the server could not read its position",
        ),
    ] {
        stop(&galera);
        let newest = galera.volume(0);
        run_on_host(breaks, &[&newest]);
        let (code, text) = outcome(gatera("start", &galera, &["--yes"]));
        println!("--- {what}: {code:?}\n{text}");
        assert_ne!(code, Some(0), "the disk is {what}: {text}");
        assert!(text.contains(says), "`gatera start` does not report \"{says}\": {text}");
        run_on_host(mends, &[&newest]);
        let (code, text) = outcome(gatera("start", &galera, &["--yes"]));
        println!("{text}");
        assert_eq!(code, Some(0), "{text}");
        all_members_have(&galera, &cluster, 3);
    }
}

/// An interrupted copy does not count as data: the cluster does not start from it, and no member waits for it.
#[test]
fn no_cluster_starts_from_an_interrupted_copy() {
    let (galera, cluster) = gate::formed_with_identity("half");
    fill_heavy_table(&galera);
    let joiner = galera.member(2);
    {
        let set = galera.stateful_set();
        galera.kubectl(&["scale", &set, "--replicas=2"]).succeeded();
        galera.until_gone(&format!("pod/{joiner}"));
        run_on_host(r#"find "$1" -mindepth 1 -delete"#, &[&galera.volume(2)]);
        galera.kubectl(&["scale", &set, "--replicas=3"]).succeeded();
        patiently("the joiner receives a copy", || {
            let half = fs::exists(galera.volume(2).join("sst_in_progress")).unwrap();
            if half { Ok(()) } else { Err("nothing yet".to_owned()) }
        });
        power::kill_if_running(&joiner);
        let _cordoned = Cordoned::all(&galera);
        delete_all_members(&galera, 3);
    }
    let (code, text) = outcome(recover(&galera, &["--yes"]));
    println!("{text}");
    assert_eq!(code, Some(0), "{text}");
    let log = galera.kubectl(&["logs", &joiner, "--container=mariadb"]).succeeded();
    assert!(
        log.contains("a state transfer was not finished, "),
        "the joiner does not report its interrupted copy: {log}"
    );
    all_members_have(&galera, &cluster, 3);
}
