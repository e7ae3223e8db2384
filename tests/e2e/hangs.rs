//! A first install whose bootstrap server is killed while the first member copies from it: neither of the two ends that by itself. It
//! is named, with a way out that is allowed, and that way ends it. Part of `make drills`.

use std::time::{Duration, Instant};

use crate::galera::{Galera, patiently};
use crate::guard::{guarded, status};
use crate::install::{helm, until_bootstrap_is_removed};
use crate::power;

/// The copy of an empty database takes about a minute.
const SLOWLY: &str = "--set-string=config=innodb_buffer_pool_size = 32M\n[sst]\nrlimit=1024k";

#[test]
fn a_first_install_whose_bootstrap_server_was_killed_has_a_way_out() {
    let lab = guarded();
    let namespace = lab.namespace_with_labels("hangs", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "hangs");
    helm(&galera, "install", &[SLOWLY]);
    let founder = patiently("the first member to copy", || {
        let pods = galera.kubectl(&["get", "pods", "--output=name"]).stdout;
        let pods: Vec<_> = pods.lines().filter_map(|it| it.strip_prefix("pod/")).collect();
        let founder = pods.iter().find(|it| it.contains("-bootstrap-")).ok_or("no bootstrap pod")?;
        let gives = galera.wsrep(founder).is_ok_and(|it| it.state.starts_with("Donor"));
        if gives { Ok((*founder).to_owned()) } else { Err(format!("{pods:?}")) }
    });
    let killed = Instant::now();
    power::kill_servers(&[&founder]);
    let way_out = patiently("it to be named", || {
        let told = status(&galera);
        let line = told.lines().find(|it| it.contains(&format!("CUT-OFF {founder}")));
        line.map(str::to_owned).ok_or(told)
    });
    println!("{way_out}\nafter {} s", killed.elapsed().as_secs());
    assert!(
        way_out.contains(&format!("kubectl -n {namespace} delete pod {founder}: no member has data yet")),
        "{way_out}"
    );
    galera.kubectl(&["delete", "pod", &founder]).succeeded();
    let deadline = Instant::now() + Duration::from_secs(900);
    while !(0..3).all(|ordinal| galera.is_ready(&galera.member(ordinal))) {
        assert!(Instant::now() < deadline, "{}", status(&galera));
        std::thread::sleep(Duration::from_secs(1));
    }
    println!("three members are Ready after {} s", killed.elapsed().as_secs());
    until_bootstrap_is_removed(&galera);
    galera.until_synced(3, 3);
}
