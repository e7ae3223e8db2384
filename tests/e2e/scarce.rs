//! Resources that run out while rows are written: a member's disk, its memory, and the API server. The other members go on, the
//! shortage is reported, and no row is lost. Part of `make drills`.

use std::thread;
use std::time::{Duration, Instant};

use crate::galera::{Galera, patiently};
use crate::guard::status;
use crate::outage::{outage, outage_with};
use crate::power;
use crate::volumes::run_on_host;

/// The disk of one member fills up. The other members exclude it, and it joins again when there is room.
#[test]
fn a_member_whose_disk_fills_is_excluded_and_joins_again() {
    let (before, after) = outage("fills", "shop.t, shop.heavy", |galera, writer, pods| {
        galera.ask(&pods[0], "CREATE TABLE shop.heavy (id INT AUTO_INCREMENT PRIMARY KEY, body LONGBLOB)");
        let set = galera.stateful_set();
        galera.kubectl(&["scale", &set, "--replicas=2"]).succeeded();
        galera.until_gone(&format!("pod/{}", pods[2]));
        let volume = galera.volume(2);
        run_on_host(
            r#"mv "$1" "$1.was" && mkdir "$1" && size=$(du -sk "$1.was" | cut -f1)
               mount -t tmpfs -o "size=$((size + 65536))k" tmpfs "$1" && chown --reference="$1.was" "$1"
               cp -a "$1.was/." "$1/""#,
            &[&volume],
        );
        galera.kubectl(&["scale", &set, "--replicas=3"]).succeeded();
        galera.until_ready(3);
        galera.until_synced(3, 3);

        let began = Instant::now();
        let reported = patiently("status reports the full disk", || {
            let rows = "USE shop; INSERT INTO shop.heavy (body) SELECT REPEAT('x', 1048576) FROM seq_1_to_4";
            galera.sql(&pods[0], rows);
            let text = status(galera);
            // A server that exits frees some room. If that is too little, the step script refuses to start it again.
            let excluded = text.contains(&format!("DISK-FULL {}: make room", pods[2]));
            let refused =
                text.contains(&format!("REFUSED {}: ", pods[2])) && text.contains("(its disk is full)");
            if excluded || refused { Ok(text) } else { Err(text) }
        });
        println!("{reported}\nafter {:.1} s", began.elapsed().as_secs_f64());
        writer.until_writes();
        run_on_host(r#"rm -rf "$1.was" && mount -o remount,size=2G "$1""#, &[&volume]);
        // The way out deletes the pod. A server whose start was refused would also start again by itself, but later.
        galera.kubectl(&["delete", "pod", &pods[2]]).succeeded();
    });
    assert_eq!(before, after, "the cluster keeps its identity");
}

/// The kernel kills servers that exceed their memory limit: first one, then all of them at the same time.
#[test]
fn servers_that_are_killed_for_their_memory_join_again() {
    let limit = &["--set=resources.limits.memory=400Mi"];
    let (before, after) = outage_with(limit, "memory", "shop.t", |galera, writer, pods| {
        exhaust_memory(galera, &pods[1..2]);
        galera.until_ready(3);
        galera.until_synced(3, 3);
        writer.until_writes();
        exhaust_memory(galera, pods);
    });
    assert_eq!(before, after, "the cluster keeps its identity");
}

/// Fills the memory of these servers with a temporary table until they are killed.
fn exhaust_memory(galera: &Galera<'_>, pods: &[String]) {
    const TABLE: &str = "SET SESSION max_heap_table_size=4294967295, tmp_table_size=4294967295; \
        CREATE TEMPORARY TABLE shop.huge (body CHAR(250)) ENGINE=MEMORY \
        AS SELECT REPEAT('x', 250) AS body FROM shop.seq_1_to_9000000";
    let before = power::restarts(galera);
    thread::scope(|scope| {
        for pod in pods {
            scope.spawn(move || println!("{pod}: {}", galera.sql(pod, TABLE)));
        }
    });
    patiently(&format!("the kubelets report that {pods:?} were OOMKilled"), || {
        let now = power::restarts(galera);
        let killed = |ordinal: usize| {
            let last = galera.pod(&galera.member(ordinal)).unwrap_or_default();
            let why = &last["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"];
            now[ordinal] > before[ordinal] && why == "OOMKilled"
        };
        let all = (0..3).all(|it| killed(it) || !pods.contains(&galera.member(it)));
        if all { Ok(()) } else { Err(format!("{before:?}, now {now:?}")) }
    });
}

/// The API server is away for three minutes; meanwhile all servers die.
#[test]
fn members_form_the_cluster_again_without_the_api_server() {
    let (before, after) = outage("offline", "shop.t", |galera, writer, pods| {
        let all = pods.each_ref().map(String::as_str);
        thread::scope(|scope| {
            scope.spawn(|| power::kill_api_server(Duration::from_secs(180)));
            thread::sleep(Duration::from_secs(20));
            power::kill_servers(&all);
        });
        let began = Instant::now();
        patiently("the API server answers", || {
            let output = galera.kubectl(&["get", "--raw=/readyz"]);
            if output.status == 0 { Ok(()) } else { Err(output.to_string()) }
        });
        galera.until_ready(3);
        println!("all Ready {:.1} s after the API server is back", began.elapsed().as_secs_f64());
        let pause = writer.longest_pause();
        println!("longest pause of the writer: {pause:.1} s");
        assert!(pause < 120.0, "members waited for the API server: the writer paused for {pause:.1} s");
    });
    assert_eq!(before, after, "the cluster keeps its identity");
}
