//! The node lab by itself: nodes are Ready, pods run, names resolve.

use std::sync::LazyLock;
use std::time::Instant;

use crate::lab::{ControlPlane, User};

/// Returns the nodes that all tests share.
pub fn lab() -> &'static ControlPlane {
    static LAB: LazyLock<ControlPlane> = LazyLock::new(|| {
        let started = Instant::now();
        let plane = ControlPlane::start_with_machines();
        eprintln!("the node lab started in {:.1} s", started.elapsed().as_secs_f64());
        plane
    });
    &LAB
}

#[test]
fn pods_run_and_find_each_other_by_name() {
    let lab = lab();
    let namespace = lab.namespace("pods");
    lab.until_pods_work(&namespace);
    let nodes = lab.kubectl(User::Admin, &["get", "nodes", "--no-headers"]).succeeded();
    assert_eq!(nodes.matches(" Ready ").count(), 3, "{nodes}");
}
