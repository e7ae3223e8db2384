//! The upgrade that G17 describes, while a client commits rows: one series at a time, one member at a time, and a rollback while
//! a member still has the old series. Part of `make drills`, which builds the images of all series.
//!
//! The lab's image of 11.4 has no `mariadb-upgrade`, so the system tables are upgraded with 11.8 only. Its `mariadb-backup` is
//! that of 11.8.

use std::env;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use serde_json::json;

use crate::galera::{Galera, patiently};
use crate::guard::{guarded, refused};
use crate::install::{helm, password, until_bootstrap_is_removed};
use crate::lab::ControlPlane;
use crate::power;
use crate::transfer;
use crate::writer::Writer;

/// Returns the shared nodes, on which the guard runs, with the images of all series.
fn with_all_series() -> &'static ControlPlane {
    static IMAGES: LazyLock<()> = LazyLock::new(|| {
        let images =
            env::var("GATERA_MARIADB_IMAGES").expect("GATERA_MARIADB_IMAGES names images: use `make drills`");
        for archive in images.split_whitespace() {
            guarded().import_image(Path::new(archive));
        }
    });
    LazyLock::force(&IMAGES);
    guarded()
}

struct Upgrade<'a> {
    galera: &'a Galera<'a>,
}

impl Upgrade<'_> {
    /// Installs or upgrades the release, with a write-set cache that holds what is written while a member restarts.
    fn release(&self, verb: &str, series: &str, options: &str) {
        let values = format!("--set=image.tag={series},gcacheSize=256M,config={options}");
        helm(self.galera, verb, &[&values]);
    }

    /// Keeps members below this ordinal at their revision.
    fn hold_below(&self, ordinal: usize) {
        let patch = json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": ordinal } } } })
            .to_string();
        self.galera.kubectl(&["patch", &self.galera.stateful_set(), "--patch", &patch]).succeeded();
    }

    /// Returns the version of a member's server, or an empty text if it does not answer.
    fn version(&self, ordinal: usize) -> String {
        self.galera.sql(&self.galera.member(ordinal), "SELECT VERSION()").stdout.trim().to_owned()
    }

    /// Waits until these members run this series, and all three members are Synced.
    fn until_runs(&self, series: &str, ordinals: &[usize]) {
        for ordinal in ordinals {
            patiently(&format!("member {ordinal} runs {series} and is Ready"), || {
                let version = self.version(*ordinal);
                let ready = self.galera.is_ready(&self.galera.member(*ordinal));
                if ready && version.starts_with(series) { Ok(()) } else { Err(format!("{ready} {version}")) }
            });
        }
        self.galera.until_synced(3, 3);
    }

    /// Returns how a member caught up since its pod started.
    fn caught_up(&self, ordinal: usize) -> &'static str {
        let log = self.galera.kubectl(&["logs", &self.galera.member(ordinal), "--container=mariadb"]).stdout;
        match (log.contains("Running IST"), log.contains("Moving the backup to")) {
            (_, true) => "a full copy",
            (true, false) => "the write-set cache",
            (false, false) => "neither: nothing was missed",
        }
    }

    /// Returns the errors that a server has logged: with `previous` before its last restart, otherwise since then.
    fn errors(&self, pod: &str, previous: bool) -> String {
        let which = format!("--previous={previous}");
        let log = self.galera.kubectl(&["logs", pod, "--container=mariadb", &which]).stdout;
        log.lines().filter(|line| line.contains("[ERROR]")).collect::<Vec<_>>().join("\n")
    }

    /// Prints the version of these members, and how they caught up.
    fn print_progress(&self, ordinals: &[usize], began: Instant) {
        for ordinal in ordinals {
            println!(
                "{} runs {}, caught up from {}",
                self.galera.member(*ordinal),
                self.version(*ordinal),
                self.caught_up(*ordinal)
            );
        }
        println!("after {:.0} s", began.elapsed().as_secs_f64());
    }

    /// Checks that an image that skips a series is refused, and that the image of the next series only causes a warning.
    fn only_the_next_series_is_allowed(&self, next: &str, skipped: Option<&str>) {
        let image = |series: &str| {
            let image = format!("mariadb=mariadb:{series}");
            self.galera.kubectl(&["set", "image", &self.galera.stateful_set(), &image, "--dry-run=server"])
        };
        if let Some(skipped) = skipped {
            refused(&image(skipped), "G17", &format!("skips series; {next} comes first"));
        }
        let warned = image(next);
        assert!(warned.status == 0 && warned.stderr.contains("is a new series"), "{warned}");
        println!("{}", warned.stderr.trim());
    }

    /// Checks that tables and rows written by a member of one series arrive on the others.
    fn series_replicate(&self, table: &str) {
        self.galera.ask(&self.galera.member(0), &format!("CREATE TABLE shop.{table} (id INT PRIMARY KEY)"));
        for ordinal in 0..3 {
            self.galera.ask(
                &self.galera.member(ordinal),
                &format!("SET SESSION wsrep_sync_wait=15; INSERT INTO shop.{table} VALUES ({ordinal})"),
            );
        }
        power::members_agree(self.galera, &format!("shop.t, shop.{table}"));
    }

    /// Runs `mariadb-upgrade` on every member, one after the other, while the others serve.
    fn upgrade_system_tables(&self) {
        const UPGRADE: &str =
            "MYSQL_PWD=$MARIADB_ROOT_PASSWORD mariadb-upgrade --user=root --skip-write-binlog";
        for ordinal in 0..3 {
            let pod = self.galera.member(ordinal);
            let output = self.galera.in_pod(&pod, UPGRADE);
            println!("{pod}: {}", output.lines().last().unwrap_or_default());
            let needed = format!("{UPGRADE} --check-if-upgrade-is-needed; echo $?");
            assert!(self.galera.in_pod(&pod, &needed).ends_with("1\n"), "{pod} needs another upgrade");
        }
        self.galera.until_synced(3, 3);
    }
}

#[test]
fn an_upgrade_series_by_series_loses_no_row_and_can_be_rolled_back() {
    let lab = with_all_series();
    let namespace = lab.namespace_with_labels("upgrade", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "upgrade");
    let upgrade = Upgrade { galera: &galera };
    upgrade.release("install", "10.11", "");
    galera.until_ready(3);
    until_bootstrap_is_removed(&galera);
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    let writer = Writer::start(&galera, &password(&galera));
    upgrade.only_the_next_series_is_allowed("11.4", Some("11.8"));

    // The last member is upgraded, and once more without its data; then two of three are; then both are rolled back.
    let began = Instant::now();
    upgrade.hold_below(2);
    upgrade.release("upgrade", "11.4", "");
    upgrade.until_runs("11.4", &[2]);
    upgrade.print_progress(&[2], began);
    galera.replace_volume(2);
    upgrade.until_runs("11.4", &[2]);
    upgrade.print_progress(&[2], began);
    upgrade.hold_below(1);
    upgrade.until_runs("11.4", &[2, 1]);
    upgrade.print_progress(&[1], began);
    upgrade.series_replicate("mixed");
    writer.until_writes();
    roll_back(&upgrade, &writer);

    // All three members.
    let began = Instant::now();
    upgrade.release("upgrade", "11.4", "");
    upgrade.until_runs("11.4", &[2, 1]);
    upgrade.hold_below(0);
    upgrade.until_runs("11.4", &[2, 1, 0]);
    upgrade.print_progress(&[2, 1, 0], began);
    upgrade.series_replicate("second");
    writer.until_writes();

    let began = Instant::now();
    upgrade.only_the_next_series_is_allowed("11.8", None);
    upgrade.release("upgrade", "11.8", "");
    upgrade.until_runs("11.8", &[2, 1, 0]);
    upgrade.print_progress(&[2, 1, 0], began);
    upgrade.upgrade_system_tables();
    upgrade.series_replicate("third");
    writer.until_writes();
    transfer::lose_volume(&galera, 2);
    galera.until_ready(3);

    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::members_agree(&galera, "shop.t, shop.mixed, shop.second, shop.third");
    writer.finish(3);
}

/// Sets the old image again. Members whose data the new series has changed copy everything from one that still has the old
/// series.
fn roll_back(upgrade: &Upgrade<'_>, writer: &Writer<'_>) {
    let galera = upgrade.galera;
    let began = Instant::now();
    let set = galera.stateful_set();
    let back = ["set", "image", &set, "mariadb=mariadb:10.11", "--dry-run=server"];
    refused(&galera.kubectl(&back), "G17", "is older than the data");
    galera.set_override(&set, "G17").succeeded();
    patiently("the override takes effect", || {
        let output = galera.kubectl(&back);
        if output.status == 0 { Ok(()) } else { Err(output.stderr) }
    });
    // The old series cannot read a copy from a member of the new series, so the donor is the member with the old one.
    upgrade.release("upgrade", "10.11", &format!("wsrep_sst_donor = {}", galera.member(0)));
    for ordinal in [2, 1] {
        let pod = galera.member(ordinal);
        let started = patiently("the old server has started on newer data, or failed", || {
            let seen = galera.pod(&pod).unwrap_or_default();
            let status = &seen["status"]["containerStatuses"][0];
            let old = seen["spec"]["containers"][0]["image"] == "mariadb:10.11";
            match (old, galera.is_ready(&pod), status["restartCount"].as_u64()) {
                (true, true, _) => Ok(true),
                (true, _, Some(1..)) => Ok(false),
                _ => Err(status.to_string()),
            }
        });
        println!(
            "the old server over newer data of {pod} {}:\n{}",
            if started { "starts" } else { "does not start" },
            upgrade.errors(&pod, !started)
        );
        galera.replace_volume(ordinal);
        upgrade.until_runs("10.11", &[ordinal]);
        upgrade.print_progress(&[ordinal], began);
        writer.until_writes();
    }
    upgrade.until_runs("10.11", &[0, 1, 2]);
    power::members_agree(galera, "shop.t, shop.mixed");
}
