//! Installing, upgrading and removing the guard: a guard that does not start blocks no request, every request is judged during an
//! upgrade, and a guard that is down can be removed. Runs in its own lab, because other tests need a guard that runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::galera::{SEED, patiently};
use crate::guard::{NAMESPACE, chart, import_guard_image, install, until_no_guard_runs, until_registered};
use crate::lab::{ControlPlane, Output, User};
use crate::nodes::lab;

/// Applies the manifests of the seed documents as a dry run.
pub fn dry_run_seed(lab: &ControlPlane) -> Output {
    let apply = ["apply", "--namespace=default", "--dry-run=server", "--filename=-"];
    lab.kubectl_stdin(User::Admin, &apply, SEED)
}

/// Asserts that rules refused both workloads of the seed documents and that nothing else failed.
#[track_caller]
pub fn both_refused(output: &Output) {
    assert_eq!(output.status, 1, "both workloads are refused: {output}");
    let denied = output.stderr.matches("denied the request: [G").count();
    let errors = output.stderr.matches("Error from server").count();
    assert_eq!((denied, errors), (2, 2), "two refusals and no other error: {output}");
}

#[test]
fn the_guard_is_installed_upgraded_and_removed_without_blocking_requests() {
    let lab = lab();
    import_guard_image(lab);
    a_broken_guard_blocks_no_request(lab);
    upgrades_and_a_new_leader_miss_no_request(lab);
    uninstalling_a_guard_that_is_down_leaves_nothing(lab);
}

fn a_broken_guard_blocks_no_request(lab: &ControlPlane) {
    install(lab, &["--set=image.tag=none", "--set=image.pullPolicy=Never"]).succeeded();
    patiently("the image of both replicas is missing", || {
        let pods =
            lab.kubectl(User::Admin, &["get", "pods", "--namespace", NAMESPACE, "--no-headers"]).stdout;
        if pods.matches("ErrImageNeverPull").count() == 2 { Ok(()) } else { Err(pods) }
    });
    assert_eq!(dry_run_seed(lab).status, 0, "a guard that never started blocks requests");

    // Without `--reset-values` the upgrade would keep the image that is missing.
    let upgrade = ["upgrade", "gatera", &chart("gatera"), "--namespace", NAMESPACE, "--reset-values"];
    lab.helm(User::Admin, &upgrade).succeeded();
    until_registered(lab);
    patiently("API servers call the guard", || {
        let output = dry_run_seed(lab);
        if output.status == 1 { Ok(()) } else { Err(output.to_string()) }
    });
    both_refused(&dry_run_seed(lab));
}

/// Sets the flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Checks that every request is judged while both replicas are replaced twice and the leader is deleted.
fn upgrades_and_a_new_leader_miss_no_request(lab: &ControlPlane) {
    let done = AtomicBool::new(false);
    let requests = thread::scope(|scope| {
        // The clients stop also if this scope panics.
        let _done = SetOnDrop(&done);
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut requests = 0;
                    while !done.load(Ordering::Relaxed) {
                        both_refused(&dry_run_seed(lab));
                        requests += 1;
                    }
                    requests
                })
            })
            .collect();
        let upgrade = ["upgrade", "gatera", &chart("gatera"), "--namespace", NAMESPACE];
        lab.helm(User::Admin, &[&upgrade[..], &["--set=resources.requests.cpu=20m"]].concat()).succeeded();
        until_registered(lab);
        lab.helm(User::Admin, &["rollback", "gatera", "--namespace", NAMESPACE]).succeeded();
        until_registered(lab);
        // Then the pod of the leader is deleted.
        let leader =
            ["get", "lease", "gatera", "--namespace", NAMESPACE, "--output=jsonpath={.spec.holderIdentity}"];
        // The replaced leader has released the lease; another replica takes it a moment later.
        let pod = patiently("a replica leads", || {
            let leader = lab.kubectl(User::Admin, &leader).succeeded();
            let pod = leader.split('_').next().filter(|it| !it.is_empty());
            pod.map(str::to_owned).ok_or_else(|| "no replica holds the lease".to_owned())
        });
        lab.kubectl(User::Admin, &["delete", "pod", &pod, "--namespace", NAMESPACE]).succeeded();
        until_registered(lab);
        done.store(true, Ordering::Relaxed);
        clients.into_iter().map(|it| it.join().expect("every request is judged")).sum::<usize>()
    });
    println!(
        "both workloads were judged {requests} times while the guard was upgraded, rolled back and lost its leader"
    );
    assert!(requests > 5, "only {requests} requests were sent, which tests too little");
}

fn uninstalling_a_guard_that_is_down_leaves_nothing(lab: &ControlPlane) {
    let scale = ["scale", "deployment/gatera", "--namespace", NAMESPACE, "--replicas=0"];
    lab.kubectl(User::Admin, &scale).succeeded();
    until_no_guard_runs(lab);
    let refused = dry_run_seed(lab);
    assert_eq!(
        refused.status, 1,
        "while the guard is down, changes of Galera objects are refused: {refused}"
    );
    assert!(
        refused.stderr.contains("failed calling webhook"),
        "the API server does not report why: {refused}"
    );
    lab.helm(User::Admin, &["uninstall", "gatera", "--namespace", NAMESPACE]).succeeded();
    patiently("API servers no longer call the guard", || {
        let output = dry_run_seed(lab);
        if output.status == 0 { Ok(()) } else { Err(output.to_string()) }
    });
    let left =
        lab.kubectl(User::Admin, &["get", "clusterroles,clusterrolebindings", "--output=name"]).succeeded();
    assert!(!left.contains("gatera"), "roles or bindings of the guard are left: {left}");
}
