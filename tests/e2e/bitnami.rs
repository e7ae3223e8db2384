//! Bitnami's image and chart, whose scripts decide by themselves when to found a cluster. The lab's image (`images/bitnami`)
//! behaves as Bitnami's does. GATERA_BITNAMI_SCRIPTS builds it with Bitnami's own scripts, and GATERA_BITNAMI_IMAGE replaces it
//! by the image in that archive. Part of `make drills`.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::galera::{Galera, patiently, series};
use crate::gate;
use crate::guard::{guarded, status};
use crate::lab::ControlPlane;
use crate::power::{self, Kill};
use crate::recover::{Cordoned, delete_member, gatera, outcome, recover_from};
use crate::writer::Writer;

const CHART: &str = include_str!("bitnami.yaml");

/// Returns the shared nodes, with the guard and the image.
pub fn lab() -> &'static ControlPlane {
    let lab = guarded();
    let image = env::var_os("GATERA_BITNAMI_IMAGE").map(PathBuf::from);
    lab.import_image(&image.expect("GATERA_BITNAMI_IMAGE names its image: use `make drills`"));
    lab.have_volumes(5);
    lab
}

/// Installs a cluster of three members, and waits until all are Ready.
pub fn formed(lab: &ControlPlane) -> Galera<'_> {
    let namespace = lab.namespace_with_labels("bitnami", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "shop");
    let image = format!("mariadb-galera:{}", series());
    println!("{}", galera.apply(&CHART.replace("mariadb-galera:10.11", &image)).succeeded());
    galera.until_ready(3);
    galera
}

fn log(galera: &Galera<'_>, pod: &str) -> String {
    galera.kubectl(&["logs", pod, "--container=mariadb"]).stdout
}

#[test]
fn a_cluster_of_bitnamis_image_is_recovered_like_any_other() {
    let galera = formed(lab());
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    gate::until_identity_is_recorded(&galera, &cluster);
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    for pod in &pods {
        assert!(
            log(&galera, pod).contains("gatera: start of "),
            "the log of {pod} shows no start by the step script"
        );
    }
    let writer = Writer::start(&galera, &json!({ "value": "admin" }));

    // All servers die at once. Then they die together with the sandboxes of their pods, so the pods get new addresses.
    for what in [Kill::Servers, Kill::Sandboxes] {
        writer.until_writes();
        let names: Vec<_> = pods.iter().map(String::as_str).collect();
        power::kill_until_restarted(&galera, what, &names, Duration::ZERO);
        assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
        for pod in &pods {
            assert!(log(&galera, pod).contains("recovered after a crash"), "{}", log(&galera, pod));
        }
        galera.until_ready(3);
        writer.until_writes();
        power::members_agree(&galera, "shop.t");
        println!("{what:?}: the cluster came back by itself");
    }

    newest_member_is_found(&galera, &writer, &cluster);
    stop_and_start(&galera, &writer, &cluster);
    hidden_switch_is_ignored(&galera, &cluster);
    lost_volume_is_filled_again(&galera, &cluster);

    writer.until_writes();
    power::members_agree(&galera, "shop.t");
    writer.finish(3);
}

/// Deletes all pods, one after the other, and recovers the cluster. The controller creates one pod at a time, so the first one is
/// alone and no other member's name resolves.
fn newest_member_is_found(galera: &Galera<'_>, writer: &Writer<'_>, cluster: &str) {
    {
        let _cordoned = Cordoned::all(galera);
        for ordinal in [0, 2, 1] {
            writer.until_writes();
            delete_member(galera, &galera.member(ordinal));
        }
    }
    let first = galera.member(0);
    patiently("the first member waits for the others", || {
        let log = log(galera, &first);
        if log.contains("gatera: start of ") { Ok(()) } else { Err(log) }
    });
    // The step script runs after the image's setup, so the log is complete up to there.
    let log = log(galera, &first);
    assert!(!log.contains("FORCE_SAFETOBOOTSTRAP"), "the image's setup has refused to start: {log}");
    let reported = patiently("status names the command to recover", || {
        let reported = status(galera);
        if reported.contains("gatera recover") { Ok(reported) } else { Err(reported) }
    });
    println!("{reported}");
    recover_from(galera, 1, cluster);
    writer.until_writes();
}

fn stop_and_start(galera: &Galera<'_>, writer: &Writer<'_>, cluster: &str) {
    for verb in ["stop", "start"] {
        let (code, text) = outcome(gatera(verb, galera, &["--yes"]));
        println!("{text}");
        assert_eq!(code, Some(0), "{text}");
        // Without the step script, the image would found a cluster by itself from the first member's data.
        let asks = format!("may start the cluster from {cluster}:");
        assert!(verb == "stop" || text.contains(&asks), "{text}");
    }
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.until_writes();
}

/// Puts the image's switch for a new cluster into a Secret, where no webhook sees it. The Secret remains until the end of the
/// test.
fn hidden_switch_is_ignored(galera: &Galera<'_>, cluster: &str) {
    let switch = "--from-literal=MARIADB_GALERA_CLUSTER_BOOTSTRAP=yes";
    galera.kubectl(&["create", "secret", "generic", "hidden", switch]).succeeded();
    let pod = galera.member(2);
    galera.kubectl(&["delete", "pod", &pod]).succeeded();
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    let says = "gatera: MARIADB_GALERA_CLUSTER_BOOTSTRAP is ignored: its cluster exists already";
    assert!(log(galera, &pod).contains(says), "{}", log(galera, &pod));
}

/// Deletes a member's claim and its pod. The image would found another cluster if the names of the other members did not resolve.
fn lost_volume_is_filled_again(galera: &Galera<'_>, cluster: &str) {
    let pod = galera.member(0);
    galera.delete_claim(&format!("data-{pod}"));
    galera.kubectl(&["delete", "pod", &pod]).succeeded();
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    assert!(log(galera, &pod).contains("gatera: start of "), "{}", log(galera, &pod));
    assert_eq!(galera.rows(&pod).succeeded().trim(), "3", "rows of {pod}");
}
