//! A cluster from the manifests of the seed documents (docs/seeds.md), corrected where they would not run at all, under a guard
//! that only warns of their passwords and of an option group that no program reads. Every command that would erase the database
//! is refused or harmless, and the failures that used to lose data lose none.

use crate::galera::{Galera, SEED, patiently};
use crate::gate;
use crate::guard::{import_guard_image, install, refused, until_registered};
use crate::install::{events, until_bootstrap_is_removed};
use crate::lab::User;
use crate::nodes::lab;
use crate::power;
use crate::transfer;
use crate::writer::Writer;
use serde_json::json;

const VERBATIM: &str = include_str!("../fixtures/seed-verbatim.yaml");

#[test]
fn commands_that_erased_the_database_are_refused_or_harmless() {
    let lab = lab();
    lab.have_volumes(5);
    import_guard_image(lab);
    // These modes are meant for existing manifests when a guard is introduced.
    install(lab, &["--set=modes.G11=warn", "--set=modes.G09=warn"]).succeeded();
    until_registered(lab);
    let namespace = lab.namespace_with_labels("seed", &[("gatera.dev/mode", "enforce")]);
    let galera = Galera::new(lab, &namespace, "galera-instance");
    let applied = galera.apply(SEED);
    assert_eq!(applied.status, 0, "{applied}");

    the_bootstrap_node_cannot_be_removed_too_early(&galera);
    galera.until_ready(3);
    until_bootstrap_is_removed(&galera);
    let cluster = galera.until_synced(3, 3);
    members_have_what_the_guard_injects(&galera);
    galera.fill();
    let writer = Writer::start(&galera, &json!({ "value": "admin" }));

    delete_every_pod(&galera);
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    apply_the_manifests_again(&galera);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    apply_the_documents_word_for_word(&galera);
    the_mount_of_the_data_stays_where_it_is(&galera);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    other_destructive_commands_are_refused(&galera);
    transfer::a_killed_server_is_not_ready_until_synced(&galera, 1);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::publish_not_ready_addresses(&galera);
    power::a_power_failure_loses_nothing(&galera, &cluster);
    galera.until_ready(3);
    transfer::slow_down_transfers(&galera, "[mysqld]\ninnodb_buffer_pool_size = 122M");
    transfer::a_donor_stays_until_its_joiner_is_synced(&galera);
    galera.until_ready(3);

    for ordinal in 0..3 {
        assert_eq!(galera.rows(&galera.member(ordinal)).succeeded().trim(), "3", "rows of member {ordinal}");
    }
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    gate::until_identity_is_recorded(&galera, &cluster);
    writer.finish(3);
}

/// Checks that the bootstrap node cannot be deleted while a member joins from it.
fn the_bootstrap_node_cannot_be_removed_too_early(galera: &Galera<'_>) {
    patiently("the first member runs", || {
        let running = galera.pod(&galera.member(0)).is_some_and(|pod| pod["status"]["phase"] == "Running");
        if running { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let deleted = galera.kubectl(&["delete", "deployment/galera-instance-bootstrap", "--wait=false"]);
    refused(&deleted, "G05", "galera-instance-galera-0 is not Ready yet");
}

/// Checks what the guard injected. The manifests themselves have no probes that see Galera, no preStop hook, and 30 s of grace.
fn members_have_what_the_guard_injects(galera: &Galera<'_>) {
    for ordinal in 0..3 {
        let pod = galera.pod(&galera.member(ordinal)).unwrap();
        let server = &pod["spec"]["containers"][0];
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 600, "the injected grace period");
        assert_eq!(
            server["lifecycle"]["preStop"]["exec"]["command"][0], "/etc/gatera/wait-for-sync.sh",
            "the injected hook"
        );
        assert_eq!(server["readinessProbe"]["exec"]["command"][1], "ready", "the injected probe");
        let state =
            galera.kubectl(&["exec", &galera.member(ordinal), "--", "/etc/gatera/wait-for-sync.sh", "ready"]);
        assert_eq!((state.status, state.stdout.trim()), (0, "the server is SYNCED"), "{state}");
    }
}

/// Runs the first everyday command: one member is deleted, and the deletion of the others is refused.
fn delete_every_pod(galera: &Galera<'_>) {
    let deleted = galera.kubectl(&["delete", "pod", "--selector=app=galera", "--wait=false"]);
    refused(&deleted, "G02", "do instead");
    assert_eq!(deleted.stdout.matches("deleted").count(), 1, "one member is deleted: {deleted}");
    assert_eq!(deleted.stderr.matches("[G02]").count(), 2, "the others are not: {deleted}");
}

/// Runs the second everyday command: the bootstrap node comes back, but founds nothing.
fn apply_the_manifests_again(galera: &Galera<'_>) {
    for _ in 0..2 {
        let applied = galera.apply(SEED);
        assert_eq!(applied.status, 0, "{applied}");
        assert!(applied.stderr.contains("[G04]"), "G04 does not warn: {applied}");
    }
    let replicas = ["get", "deployment/galera-instance-bootstrap", "--output=jsonpath={.spec.replicas}"];
    assert_eq!(galera.kubectl(&replicas).stdout, "0", "replicas of the bootstrap node");
    let pods = galera.kubectl(&["get", "pods", "--selector=app=galera-bootstrap", "--output=name"]).stdout;
    assert_eq!(pods, "", "no second bootstrap node");
    assert_eq!(
        events(galera, "BootstrapRemoved").len(),
        1,
        "the guard does not remove the objects a second time"
    );
}

/// Applies the documents unchanged, except for their namespace and for their image, which is not available here. One of their
/// objects was never valid: its script is under metadata.
fn apply_the_documents_word_for_word(galera: &Galera<'_>) {
    let here = VERBATIM.replace("  namespace: default\n", "").replace("mariadb:latest", "mariadb:10.11");
    let applied = galera.apply(&here);
    assert_eq!(applied.stderr.matches("rror from server").count(), 1, "one object is invalid: {applied}");
    assert!(applied.stderr.contains("unknown field \"metadata.wait-for-sync.sh\""), "{applied}");
    assert!(applied.stderr.contains("[G04]"), "G04 does not warn: {applied}");
    let replicas = ["get", "deployment/galera-instance-bootstrap", "--output=jsonpath={.spec.replicas}"];
    assert_eq!(galera.kubectl(&replicas).stdout, "0", "replicas of the bootstrap node");
}

/// Checks that the mount path of the data cannot change: otherwise each server would start empty, in a folder of its container.
fn the_mount_of_the_data_stays_where_it_is(galera: &Galera<'_>) {
    let set = "statefulset/galera-instance-galera";
    let revision = ["get", set, "--output=jsonpath={.status.updateRevision}"];
    let before = galera.kubectl(&revision).stdout;
    for path in ["/var/lib/mysql-data", "/var/lib"] {
        let patch = json!([
            { "op": "test", "path": "/spec/template/spec/containers/0/volumeMounts/1/mountPath", "value": "/var/lib/mysql" },
            { "op": "replace", "path": "/spec/template/spec/containers/0/volumeMounts/1/mountPath", "value": path },
        ]);
        let moved = galera.kubectl(&["patch", set, "--type=json", "--patch", &patch.to_string()]);
        refused(&moved, "G07", "but its server would look for it on ");
    }
    assert_eq!(galera.kubectl(&revision).stdout, before, "no pod is created again");
}

fn other_destructive_commands_are_refused(galera: &Galera<'_>) {
    let (ns, set) = (&galera.namespace, "statefulset/galera-instance-galera");
    let scaled = galera.kubectl(&["scale", "deployment/galera-instance-bootstrap", "--replicas=1"]);
    refused(&scaled, "G04", "already has data");
    let claim = "persistentvolumeclaim/galera-instance-datadir-galera-instance-galera-1";
    refused(&galera.kubectl(&["delete", claim, "--wait=false"]), "G07", "do instead");
    let scaled = galera.kubectl(&["scale", set, "--replicas=1"]);
    refused(&scaled, "G01", "do instead: ");
    refused(&galera.kubectl(&["delete", set, "--wait=false"]), "G03", "do instead");
    let other = json!({ "data": { "galera.cnf": "[galera]\nwsrep_on = ON\nwsrep_provider = /usr/lib/galera/libgalera_smm.so\nwsrep_cluster_address = gcomm://other-galera-0.other-hs\n" } });
    let patched = galera.kubectl(&[
        "patch",
        "configmap/galera-instance-nodeconfig",
        "--type=merge",
        "--patch",
        &other.to_string(),
    ]);
    refused(&patched, "G06", "other-galera-0.other-hs");
    let gone = galera.lab.kubectl(User::Admin, &["delete", "namespace", ns, "--wait=false"]);
    refused(&gone, "G03", "do instead");
    let forced =
        galera.kubectl(&["delete", "pod", &galera.member(0), "--force", "--grace-period=0", "--wait=false"]);
    refused(&forced, "G02", "do instead");
}
