//! Interrupted full copies, by mariabackup and by rsync: the donor or the joiner dies when a tenth, half or nine tenths of the
//! rows have arrived. Then nodes that are replaced one after the other, each with the volume of its member. A client writes
//! throughout. Part of `make drills`; GATERA_GIGABYTES sets the size of the copy.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::galera::{Galera, patiently};
use crate::guard::{guarded, status};
use crate::install::{fill_heavy_table, formed_with, password};
use crate::lab::User;
use crate::outage::follow_way_out_of_cut_off;
use crate::page;
use crate::power;
use crate::transfer;
use crate::writer::Writer;

fn formed(name: &str, method: &str) -> (Galera<'static>, String) {
    let options = format!("--set=config=innodb_buffer_pool_size = 64M\nwsrep_sst_method = {method}");
    let galera = formed_with(guarded(), name, &[&options, "--set=volumeSize=20Gi"]);
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    fill_heavy_table(&galera);
    (galera, cluster)
}

/// Returns the size of all files in a folder in bytes. Files may come and go meanwhile.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.metadata() {
        Ok(it) if it.is_dir() => folder_bytes(&entry.path()),
        Ok(it) => it.len(),
        Err(_) => 0,
    });
    each.sum()
}

/// Returns the size of the tables, without the files that every server has: a measure of the rows that have arrived.
fn table_bytes(folder: &Path) -> u64 {
    // mariadb-backup receives into a folder beside the data.
    ["shop", ".sst/shop", "data/shop", "data/.sst/shop"].iter().map(|it| folder_bytes(&folder.join(it))).sum()
}

/// Waits until this share of the rows has arrived at the joiner. Returns how long that took.
fn until_arrived(galera: &Galera<'_>, percent: u64) -> Duration {
    let began = Instant::now();
    let (whole, joiner) = (table_bytes(&galera.volume(0)), galera.volume(2));
    assert!(whole > 1 << 20, "the donor has less than a megabyte to copy: {whole}");
    // The copy takes only seconds, so this loop does not pause.
    while table_bytes(&joiner) < whole * percent / 100 {
        assert!(
            began.elapsed() < Duration::from_secs(300),
            "{} of {whole} bytes arrived",
            table_bytes(&joiner)
        );
    }
    began.elapsed()
}

fn interrupted_copies_complete(method: &str) {
    let (galera, cluster) = formed(&method.replace("mariabackup", "backup"), method);
    let writer = Writer::start(&galera, &password(&galera));
    let megabytes = table_bytes(&galera.volume(0)) >> 20;
    for percent in [10, 50, 90] {
        for who in ["joiner", "donor"] {
            writer.until_writes();
            transfer::lose_volume(&galera, 2);
            let arrived = until_arrived(&galera, percent);
            let victim = match who {
                "joiner" => galera.member(2),
                _ => donor(&galera),
            };
            let since = Instant::now();
            assert!(power::kill_if_running(&victim), "no server of {victim} runs during the copy");
            until_all_are_back(&galera);
            assert_eq!(
                galera.until_synced(3, 3),
                cluster,
                "{method}, {percent} %, {who}: the cluster keeps its identity"
            );
            println!(
                "{method}, {megabytes} MiB: the {who} ({victim}) died at {percent} % after {:.1} s; all Ready {:.1} s later",
                arrived.as_secs_f64(),
                since.elapsed().as_secs_f64()
            );
            power::members_agree(&galera, "shop.t, shop.heavy");
        }
    }
    writer.finish(3);
}

/// Waits until all members are Ready. A joiner may exit shortly after its donor has died, which leaves one of three members
/// without a majority: `gatera status` reports that, and this function follows its way out.
fn until_all_are_back(galera: &Galera<'_>) {
    let (mut followed, began) = (false, Instant::now());
    patiently("all members are Ready", || {
        if (0..3).all(|ordinal| galera.is_ready(&galera.member(ordinal))) {
            return Ok(());
        }
        let text = status(galera);
        // The way out says first that the other members may come back by themselves.
        let may_recover_alone = began.elapsed() < Duration::from_secs(90);
        if let Some((_, rest)) = text.split_once("CUT-OFF ").filter(|_| !followed && !may_recover_alone) {
            println!("{text}");
            follow_way_out_of_cut_off(galera, rest.split(':').next().unwrap(), &text);
            followed = true;
        }
        Err(text)
    });
}

/// Returns the donor that the joiner's log names. It is not asked by SQL, because a donor that is blocked answers no query.
fn donor(galera: &Galera<'_>) -> String {
    let log = galera.kubectl(&["logs", &galera.member(2), "--container=mariadb"]).stdout;
    let (_, chosen) = log.rsplit_once("Selected ").expect("the group has chosen a donor");
    let name = chosen.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    name.expect("the donor's name is in brackets").0.to_owned()
}

#[test]
fn interrupted_mariabackup_copies_complete() {
    interrupted_copies_complete("mariabackup");
}

#[test]
fn interrupted_rsync_copies_complete() {
    interrupted_copies_complete("rsync");
}

/// The donor loses its network in the middle of the copy. The joiner and the third member are a majority, so the joiner starts a
/// new copy from that member.
#[test]
fn a_copy_starts_again_when_its_donor_is_cut_off() {
    let (galera, cluster) = formed("cut", "rsync");
    let writer = Writer::start(&galera, &password(&galera));
    transfer::lose_volume(&galera, 2);
    let addresses = [0, 1].map(|ordinal| galera.address(&galera.member(ordinal)).expect("it runs"));
    until_arrived(&galera, 10);
    let donor = donor(&galera);
    let began = Instant::now();
    let cut = power::cut_off(&addresses[usize::from(donor == galera.member(1))..][..1]);
    let half = fs::exists(galera.volume(2).join("sst_in_progress")).unwrap();
    assert!(
        half && table_bytes(&galera.volume(2)) < table_bytes(&galera.volume(0)),
        "the copy was over before the cut"
    );
    let joiner = galera.member(2);
    patiently("the joiner is Synced in a component of two", || match galera.wsrep(&joiner) {
        Ok(seen) if (seen.size, &*seen.state) == (2, "Synced") => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
    println!("cut: {joiner} is Synced {:.1} s after {donor} was cut off", began.elapsed().as_secs_f64());
    patiently("the donor that is cut off is not Ready", || {
        if galera.is_ready(&donor) { Err(status(&galera)) } else { Ok(()) }
    });
    drop(cut);
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.until_writes();
    power::members_agree(&galera, "shop.t, shop.heavy");
    writer.finish(3);
}

/// Nodes are upgraded by replacing them: each is cordoned and drained, and its local volume is lost with it.
#[test]
fn three_nodes_are_replaced_one_after_the_other() {
    let (galera, cluster) = formed("replaced", "mariabackup");
    let writer = Writer::start(&galera, &password(&galera));
    for ordinal in [2, 0, 1] {
        let pod = galera.member(ordinal);
        let began = Instant::now();
        let node = galera.pod(&pod).unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned();
        patiently("the node is drained", || {
            let output = galera.drain(&node, "--timeout=80s");
            if output.status == 0 { Ok(()) } else { Err(output.to_string()) }
        });
        fs::remove_dir_all(galera.volume(ordinal)).unwrap();
        give_empty_volume(&galera, ordinal);
        galera.lab.kubectl(User::Admin, &["uncordon", &node]).succeeded();
        galera.until_ready(3);
        assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
        println!("{pod}: on a new volume, Ready after {:.1} s", began.elapsed().as_secs_f64());
        power::members_agree(&galera, "shop.t, shop.heavy");
        writer.until_writes();
    }
    writer.finish(3);
}

/// Runs the commands of docs/drains.md that give a new volume to a member whose volume is lost.
fn give_empty_volume(galera: &Galera<'_>, ordinal: usize) {
    let (_, block) = include_str!("../../docs/drains.md").split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let commands = block
        .replace("datadir-galera-1", &galera.claim(ordinal))
        .replace(" galera-1", &format!(" {}", galera.member(ordinal)))
        .replace("-n db", &format!("-n {}", galera.namespace));
    page::run_block(galera, "set -e", &commands).succeeded();
}
