//! One cluster goes through every kind of power failure, and another one through rollouts that are interrupted in every way,
//! while a client writes. Both clusters keep their identity, and at the end every member has every acknowledged row. Part of
//! `make drills`.

use std::time::{Duration, Instant};

use crate::galera::{Galera, patiently};
use crate::guard::{guarded, status};
use crate::install::{fill_heavy_table, formed, helm, password, until_bootstrap_is_removed};
use crate::lab::User;
use crate::power::{self, Kill};
use crate::writer::Writer;
use crate::{rolling, transfer};

#[test]
fn power_failures_lose_no_row_and_members_agree() {
    let galera = formed(guarded(), "drill");
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    fill_heavy_table(&galera);
    let writer = Writer::start(&galera, &password(&galera));
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    let all = pods.each_ref().map(String::as_str);

    let drill = |what: &str, fail: &dyn Fn()| {
        // A kubelet waits longer before each restart of the same container, but starts a new pod at once.
        rolling::restart(&galera);
        writer.until_writes();
        let began = Instant::now();
        fail();
        galera.until_ready(3);
        assert_eq!(galera.until_synced(3, 3), cluster, "{what}: the cluster keeps its identity");
        println!("{what}: serves again after {:.1} s", began.elapsed().as_secs_f64());
        power::members_agree(&galera, "shop.t, shop.heavy");
    };
    drill("all servers at once", &|| {
        power::kill_until_restarted(&galera, Kill::Servers, &all, Duration::ZERO);
    });
    drill("all sandboxes at once", &|| {
        power::kill_until_restarted(&galera, Kill::Sandboxes, &all, Duration::ZERO);
    });
    drill("all servers, one after the other, with rows in between", &|| {
        power::kill_until_restarted(&galera, Kill::Servers, &all, Duration::from_millis(400));
    });
    drill("one server, twice", &|| {
        for _ in 0..2 {
            power::kill_until_restarted(&galera, Kill::Servers, &all[1..2], Duration::ZERO);
        }
    });
    drill("two of three servers", &|| {
        power::kill_until_restarted(&galera, Kill::Servers, &all[..2], Duration::ZERO);
    });
    drill("all servers while one is behind", &|| power::kill_all_while_one_is_behind(&galera));
    drill("commits that are not on disk", &|| {
        for pod in &pods {
            galera.ask(pod, "SET GLOBAL innodb_flush_log_at_trx_commit=2");
        }
        power::kill_until_restarted(&galera, Kill::Servers, &all, Duration::ZERO);
    });
    drill("a rolling restart", &|| {
        rolling::restart(&galera);
    });
    drill("a lost disk", &|| transfer::lose_volume(&galera, 2));

    writer.finish(3);
}

/// Rollouts are interrupted by another change, a drain, a deleted member and the deletion of all guards. One comes from Helm,
/// and one has an option that is fatal for existing data.
#[test]
fn a_rollout_completes_despite_interruptions() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("config", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "config");
    helm(&galera, "install", &["--set=rollout=gatera"]);
    galera.until_ready(3);
    until_bootstrap_is_removed(&galera);
    let cluster = galera.until_synced(3, 3);
    let writer = Writer::start(&galera, &password(&galera));
    let mark = patiently("the guard has marked the configuration", || {
        Some(rolling::mark(&galera)).filter(|it| !it.is_null()).ok_or_else(|| status(&galera))
    });
    let all_have = |option: &str, value: &str| {
        for ordinal in 0..3 {
            let now = galera.ask(&galera.member(ordinal), &format!("SELECT @@{option}"));
            assert_eq!(now, value, "{option} on member {ordinal}");
        }
    };

    // By Helm: the template does not change, so the guard restarts the members.
    let began = Instant::now();
    let generation = || lab.get(&namespace, "statefulset/config-galera")["metadata"]["generation"].clone();
    let before = generation();
    helm(&galera, "upgrade", &["--set=rollout=gatera", "--set=config=innodb_buffer_pool_size = 48M"]);
    let mark = rolling::until_rolled_out(&galera, &mark);
    assert_eq!(generation(), before, "the template did not change");
    all_have("innodb_buffer_pool_size", "50331648");
    println!("by Helm: {:.1} s", began.elapsed().as_secs_f64());

    // The option changes again during its rollout.
    rolling::set_option(&galera, "max_connections = 66", false);
    until_rollout_begins(&galera);
    rolling::set_option(&galera, "max_connections = 67", false);
    let mark = rolling::until_rolled_out(&galera, &mark);
    all_have("max_connections", "67");

    // All guards are deleted as soon as the rollout begins; a member is deleted by hand, and a node is drained.
    rolling::set_option(&galera, "max_connections = 68", false);
    until_rollout_begins(&galera);
    lab.kubectl(User::Admin, &["--namespace=gatera", "delete", "pods", "--all", "--wait=false"]).succeeded();
    patiently("a member may be deleted", || {
        let deleted = galera.kubectl(&["delete", "pod", &galera.member(0), "--wait=false"]);
        if deleted.status == 0 { Ok(()) } else { Err(deleted.stderr) }
    });
    galera.until_ready(3);
    let node = galera.pod(&galera.member(1)).unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned();
    let drain =
        ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s"];
    let selector = format!("--pod-selector=instance={}", galera.name);
    lab.kubectl(User::Admin, &[&drain[..], &[&selector]].concat()).succeeded();
    lab.kubectl(User::Admin, &["uncordon", &node]).succeeded();
    galera.until_ready(3);
    let mark = rolling::until_rolled_out(&galera, &mark);
    all_have("max_connections", "68");

    // An option that is fatal for existing data, set with an override of G09.
    let pods = rolling::uids(&galera);
    rolling::set_option(&galera, "innodb_page_size = 4K", true);
    let why = rolling::until_stopped(&galera, &mark["good"]);
    assert_eq!(why, format!("{} keeps failing with innodb_page_size", galera.member(2)), "why it stopped");
    assert_eq!(pods[..2], rolling::uids(&galera)[..2], "the other members did not restart");

    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.finish(3);
}

/// Waits until the mark names the next revision.
fn until_rollout_begins(galera: &Galera<'_>) {
    patiently("a rollout begins", || {
        let mark = rolling::mark(galera);
        if mark["next"].is_null() { Err(mark.to_string()) } else { Ok(()) }
    });
}
