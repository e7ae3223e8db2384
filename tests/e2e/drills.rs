//! `make drills`: one cluster, one kind of power failure after the other, a writer all the while. After each: the same cluster,
//! nobody differs, and at the end every acknowledged row is on every member. Too long for every change.

use std::time::{Duration, Instant};

use crate::galera::Galera;
use crate::guard::guarded;
use crate::install::{formed, grown, password};
use crate::power::{self, Kill};
use crate::transfer;
use crate::writer::Writer;

#[test]
fn whatever_fails_nobody_differs_and_nothing_is_lost() {
    let galera = formed(guarded(), "drill");
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    grown(&galera);
    let writer = Writer::start(&galera, &password(&galera));
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    let all = pods.each_ref().map(String::as_str);

    let drill = |what: &str, fails: &dyn Fn()| {
        // A kubelet that has started a container again and again waits longer each time; of a new pod it remembers nothing.
        renewed(&galera);
        writer.until_writes();
        let began = Instant::now();
        fails();
        galera.until_ready(3);
        assert_eq!(galera.until_synced(3, 3), cluster, "{what}");
        println!("{what}: serves again after {:.1} s", began.elapsed().as_secs_f64());
        power::members_agree(&galera, "shop.t, shop.heavy");
    };
    drill("all servers at once", &|| power::killed_all(&galera, Kill::Servers, &all, Duration::ZERO));
    drill("all sandboxes at once", &|| power::killed_all(&galera, Kill::Sandboxes, &all, Duration::ZERO));
    drill("one after the other, rows between", &|| {
        power::killed_all(&galera, Kill::Servers, &all, Duration::from_millis(400));
    });
    drill("one server, twice", &|| {
        for _ in 0..2 {
            power::killed_all(&galera, Kill::Servers, &all[1..2], Duration::ZERO);
        }
    });
    drill("two of three", &|| power::killed_all(&galera, Kill::Servers, &all[..2], Duration::ZERO));
    drill("a lock on one", &|| power::all_servers_die_while_one_is_behind(&galera));
    drill("commits that are not on disk", &|| {
        for pod in &pods {
            galera.ask(pod, "SET GLOBAL innodb_flush_log_at_trx_commit=2");
        }
        power::killed_all(&galera, Kill::Servers, &all, Duration::ZERO);
    });
    drill("a rolling restart", &|| renewed(&galera));
    drill("a lost disk", &|| transfer::a_disk_is_lost(&galera, 2));

    let (acknowledged, failed) = writer.finish(3);
    println!("drills: {acknowledged} rows acknowledged, none lost; {failed} were tried again");
}

/// Every pod is made anew, one after the other.
fn renewed(galera: &Galera<'_>) {
    galera.kubectl(&["rollout", "restart", "statefulset/drill-galera"]).succeeded();
    galera.kubectl(&["rollout", "status", "statefulset/drill-galera", "--timeout=300s"]).succeeded();
    galera.until_ready(3);
}
