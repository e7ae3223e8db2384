//! A first install completes although its bootstrap server is killed while the first member copies from it: by itself, or after
//! the way out that `gatera status` prints. Part of `make drills`.

use std::time::{Duration, Instant};

use crate::galera::{Galera, patiently};
use crate::guard::{guarded, status};
use crate::install::{helm, until_bootstrap_is_removed};
use crate::power;

/// Values with which the copy of an empty database takes about a minute.
const SLOW_COPY: &str = "--set-string=config=innodb_buffer_pool_size = 32M\n[sst]\nrlimit=1024k";

#[test]
fn a_first_install_completes_after_its_bootstrap_server_was_killed() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("hangs", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "hangs");
    helm(&galera, "install", &[SLOW_COPY]);
    let bootstrap_pod = patiently("the first member copies from the bootstrap node", || {
        let pods = galera.kubectl(&["get", "pods", "--output=name"]).stdout;
        let pods: Vec<_> = pods.lines().filter_map(|it| it.strip_prefix("pod/")).collect();
        let bootstrap_pod = pods.iter().find(|it| it.contains("-bootstrap-")).ok_or("no bootstrap pod")?;
        let is_donor = galera.wsrep(bootstrap_pod).is_ok_and(|it| it.state.starts_with("Donor"));
        if is_donor { Ok((*bootstrap_pod).to_owned()) } else { Err(format!("{pods:?}")) }
    });
    let killed = Instant::now();
    power::kill_servers(&[&bootstrap_pod]);
    // The bootstrap server comes back empty. Either it meets the first member and neither has a majority: `status` reports
    // that with a way out. Or it founds its own cluster, and the step script ends the copy that receives nothing.
    let (deadline, mut followed) = (killed + Duration::from_secs(1200), false);
    while !(0..3).all(|ordinal| galera.is_ready(&galera.member(ordinal))) {
        let reported = status(&galera);
        assert!(Instant::now() < deadline, "not all members are Ready after 20 minutes:\n{reported}");
        if let Some(line) =
            reported.lines().find(|it| !followed && it.contains(&format!("CUT-OFF {bootstrap_pod}")))
        {
            println!("{line}\nafter {} s", killed.elapsed().as_secs());
            let way_out =
                format!("kubectl -n {namespace} delete pod {bootstrap_pod}: no member has data yet");
            assert!(line.contains(&way_out), "status does not print the way out: {line}");
            galera.kubectl(&["delete", "pod", &bootstrap_pod]).succeeded();
            followed = true;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    println!(
        "three members are Ready after {} s; the way out was needed: {followed}",
        killed.elapsed().as_secs()
    );
    until_bootstrap_is_removed(&galera);
    galera.until_synced(3, 3);
}
