//! The real KUDO under the guard, with the operator of the seed documents: unchanged, and corrected so that the guard accepts it,
//! from its installation to its removal while a client writes. Part of `make drills`, which builds KUDO's image.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::galera::{Galera, patiently, series};
use crate::guard::{guarded, refused, status};
use crate::install::events;
use crate::lab::{ControlPlane, Output, User};
use crate::power;
use crate::recover::{gatera, outcome};
use crate::writer::Writer;

const INSTANCE: &str = "galera-instance";

/// Returns the shared nodes, on which the guard and KUDO run.
fn with_kudo() -> &'static ControlPlane {
    static INSTALLED: LazyLock<()> = LazyLock::new(|| {
        let image = env::var_os("GATERA_KUDO_IMAGE").map(PathBuf::from);
        guarded().install_kudo(&image.expect("GATERA_KUDO_IMAGE names its image: use `make drills`"));
        patiently("the guard is registered for Instances", || {
            let names =
                ["get", "validatingwebhookconfigurations", "--output=jsonpath={.items[*].webhooks[*].name}"];
            let names = guarded().kubectl(User::Admin, &names).succeeded();
            if names.contains("kudo-instances.gatera.dev") { Ok(()) } else { Err(names) }
        });
    });
    LazyLock::force(&INSTALLED);
    guarded()
}

fn new_cluster(name: &str) -> Galera<'static> {
    let lab = with_kudo();
    let namespace = lab.namespace_with_labels(name, &[("gatera.dev/mode", "enforce")]);
    Galera::new(lab, &namespace, INSTANCE)
}

fn kudo(galera: &Galera<'_>, arguments: &[&str]) -> Output {
    galera.lab.kudo(&[arguments, &["--namespace", &galera.namespace]].concat())
}

/// Installs an operator from a folder in tests/fixtures/kudo.
fn install(galera: &Galera<'_>, package: &str, more: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kudo").join(package);
    let folder = folder.display().to_string();
    kudo(galera, &[&["install", &*folder, "--instance", INSTANCE], more].concat())
}

fn update(galera: &Galera<'_>, parameter: &str) -> Output {
    kudo(galera, &["update", "--instance", INSTANCE, "--parameter", parameter])
}

/// Returns the status of the plans, as `kubectl kudo` prints it.
fn plans(galera: &Galera<'_>) -> String {
    kudo(galera, &["plan", "status", "--instance", INSTANCE]).succeeded()
}

fn until_complete(galera: &Galera<'_>, plan: &str) {
    patiently(&format!("plan {plan} is complete"), || {
        let path = format!("--output=jsonpath={{.status.planStatus.{plan}.status}}");
        let now = galera.kubectl(&["get", &format!("instance/{INSTANCE}"), &path]).succeeded();
        if now == "COMPLETE" { Ok(()) } else { Err(plans(galera)) }
    });
}

#[test]
fn kudos_plan_shows_why_the_seed_operator_is_refused() {
    let galera = new_cluster("kudo-seed");
    let installed = install(&galera, "seed", &[]);
    assert_eq!(installed.status, 0, "{installed}");
    // The API server warns about the Instance before KUDO has done anything.
    let reported = "[K04] Instance NS/galera-instance: parameter MYSQL_ROOT_PASSWORD is not set, so the operator's default applies";
    assert!(installed.stderr.contains(&reported.replace("NS", &galera.namespace)), "{installed}");

    let plan = patiently("KUDO's plan shows the refusal", || {
        let plan = plans(&galera);
        if plan.contains("[G11]") { Ok(plan) } else { Err(plan) }
    });
    println!("{plan}");
    // KUDO stops at the first object of the plan that contains a password.
    let first = "Step bootstrap_config [ERROR] (A transient error when executing task deploy.deploy.bootstrap_config.bootstrap_config. \
                 Will retry. admission webhook \"namespace.gatera.dev\" denied the request: [G11] ConfigMap NS/galera-instance-bootstrap: \
                 galera.cnf line 6 contains the password of wsrep_sst_auth in plain text\n";
    assert!(plan.contains(&first.replace("NS", &galera.namespace)), "{plan}");
    assert!(
        plan.contains("  do instead: keep it in a Secret, and mount that beside this ConfigMap"),
        "{plan}"
    );
    assert!(!plan.contains("admin"), "the plan repeats the password: {plan}");
    let made =
        ["get", "deployments,statefulsets,pods,configmaps", "--selector=heritage=kudo", "--output=name"];
    assert_eq!(galera.kubectl(&made).succeeded(), "", "the plan has created nothing");

    // An Instance without data may be deleted.
    let gone = kudo(&galera, &["uninstall", "--instance", INSTANCE]);
    assert_eq!((gone.status, &*gone.stderr), (0, ""), "{gone}");
    galera.until_gone(&format!("instance/{INSTANCE}"));
}

#[test]
fn a_corrected_operator_runs_every_plan_and_loses_no_row() {
    let galera = new_cluster("kudo");
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "galera-secret", "namespace": galera.namespace },
        "stringData": { "root-password": "for-a-test-9", "sst.cnf": "[mariadbd]\nwsrep_sst_auth = \"root:for-a-test-9\"\n" },
    });
    galera.lab.create(&secret);
    let version = format!("MARIADB={}", series());
    // The second parameter lets five members run on three nodes.
    let parameters: &[_] = &["-p", &version, "-p", "ANTI_AFFINITY=false"];
    let installed = install(&galera, "mended", parameters);
    assert_eq!((installed.status, installed.stderr.matches("Warning: ").count()), (0, 1), "{installed}");
    assert!(installed.stderr.contains("[K03]"), "{installed}");
    until_complete(&galera, "deploy");
    for what in ["deployment", "service", "configmap"] {
        let name = if what == "service" { "bootstrap-svc" } else { "bootstrap" };
        galera.until_gone(&format!("{what}/{INSTANCE}-{name}"));
    }
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    let password =
        json!({ "valueFrom": { "secretKeyRef": { "name": "galera-secret", "key": "root-password" } } });
    let writer = Writer::start(&galera, &password);
    println!("{}\n{}", plans(&galera), status(&galera));

    destructive_operations_on_the_instance_are_refused(&galera);
    refused(
        &update(&galera, "NODE_COUNT=1"),
        "K02",
        "NODE_COUNT: 3 -> 1 replicas would leave 1 of 3 members",
    );
    assert_eq!(update(&galera, "NODE_COUNT=5").status, 0);
    until_complete(&galera, "node_update");
    galera.until_ready(5);
    assert_eq!(galera.until_synced(5, 5), cluster, "the cluster keeps its identity");
    writer.until_writes();

    // KUDO writes the option file, and the guard restarts the members one after the other.
    assert_eq!(update(&galera, "BUFFER_POOL=48M").status, 0);
    until_complete(&galera, "update");
    patiently("every member runs the new configuration", || {
        if events(&galera, "RolledOut").is_empty() { Err(status(&galera)) } else { Ok(()) }
    });
    for ordinal in 0..5 {
        assert_eq!(
            galera.ask(&galera.member(ordinal), "SELECT @@innodb_buffer_pool_size"),
            "50331648",
            "member {ordinal}"
        );
    }
    writer.until_writes();

    refused(
        &update(&galera, "NODE_COUNT=2"),
        "K02",
        "5 -> 2 replicas would leave 2 of 5 members; 3 is the smallest next step",
    );
    assert_eq!(update(&galera, "NODE_COUNT=3").status, 0);
    galera.until_gone(&format!("pod/{}", galera.member(3)));
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    writer.until_writes();
    deploy_again_founds_nothing(&galera);
    orphan_and_install_again(&galera, parameters);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::members_agree(&galera, "shop.t");
    writer.finish(3);
    stop_uninstall_and_start(&galera, &cluster, parameters);
    uninstall_with_an_override(&galera);
}

fn destructive_operations_on_the_instance_are_refused(galera: &Galera<'_>) {
    let deletes = format!(
        "Instance {}/{INSTANCE}: deleting it deletes cluster {INSTANCE}-galera (3 of 3 members Synced",
        galera.namespace
    );
    refused(&kudo(galera, &["uninstall", "--instance", INSTANCE]), "K05", &deletes);
    refused(&galera.kubectl(&["delete", "instance", INSTANCE]), "K05", &deletes);
    let all = galera.kubectl(&["delete", "customresourcedefinition", "instances.kudo.dev"]);
    refused(
        &all,
        "K05",
        &format!(
            "deleting it deletes every Instance, and with them cluster {}/{INSTANCE}-galera",
            galera.namespace
        ),
    );
    let again = kudo(galera, &["plan", "trigger", "--name", "deploy", "--instance", INSTANCE]);
    refused(&again, "K01", "plan deploy would run again for cluster");
}

/// Checks that with an override the plan runs again but founds no second cluster: the bootstrap node stays at 0 replicas, which
/// KUDO accepts.
fn deploy_again_founds_nothing(galera: &Galera<'_>) {
    galera.set_override(&format!("instance/{INSTANCE}"), "K01").succeeded();
    let again = kudo(galera, &["plan", "trigger", "--name", "deploy", "--instance", INSTANCE]);
    assert_eq!(again.status, 0, "{again}");
    until_complete(galera, "deploy");
    let pods =
        galera.kubectl(&["get", "pods", "--selector=app=galera-bootstrap", "--output=name"]).succeeded();
    assert_eq!(pods, "", "no second bootstrap node");
}

/// Follows the way out of K05: the Instance is deleted without its objects. A new Instance may then own the cluster again.
fn orphan_and_install_again(galera: &Galera<'_>, parameters: &[&str]) {
    let members = galera.kubectl(&["get", "pods", "--selector=app=galera", "--output=name"]).succeeded();
    galera.kubectl(&["delete", "instance", INSTANCE, "--cascade=orphan"]).succeeded();
    let set = format!("statefulset/{INSTANCE}-galera");
    let owners =
        || galera.kubectl(&["get", &set, "--output=jsonpath={.metadata.ownerReferences}"]).succeeded();
    assert_eq!(owners(), "", "no Instance owns the StatefulSet");
    assert_eq!(
        galera.kubectl(&["get", "pods", "--selector=app=galera", "--output=name"]).succeeded(),
        members,
        "the members are still there"
    );

    assert_eq!(install(galera, "mended", parameters).status, 0);
    until_complete(galera, "deploy");
    assert!(owners().contains("kudo.dev"), "the new Instance does not own the StatefulSet: {}", owners());
}

/// Uninstalls the cluster after an orderly stop, which is allowed. An installation under the same name founds no cluster, and
/// `gatera start` starts it from its claims.
fn stop_uninstall_and_start(galera: &Galera<'_>, cluster: &str, parameters: &[&str]) {
    let (code, text) = outcome(gatera("stop", galera, &["--yes"]));
    assert_eq!(code, Some(0), "{text}");
    let gone = kudo(galera, &["uninstall", "--instance", INSTANCE]);
    assert_eq!((gone.status, &*gone.stderr), (0, ""), "{gone}");
    galera.until_gone(&format!("statefulset/{INSTANCE}-galera"));

    let installed = install(galera, "mended", parameters);
    assert_eq!(installed.status, 0, "{installed}");
    patiently("KUDO's plan waits for the members", || {
        let plan = plans(galera);
        if plan.contains("Step statefulset [IN_PROGRESS]") { Ok(()) } else { Err(plan) }
    });
    let pods =
        galera.kubectl(&["get", "pods", "--selector=app=galera-bootstrap", "--output=name"]).succeeded();
    assert_eq!(pods, "", "no bootstrap node over claims with data");
    let (code, text) = outcome(gatera("start", galera, &["--yes"]));
    println!("{text}");
    assert_eq!(code, Some(0), "{text}");
    until_complete(galera, "deploy");
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    assert_eq!(galera.rows(&galera.member(2)).succeeded().trim(), "3", "rows of member 2");
}

/// Uninstalls the cluster with an override: the garbage collector deletes its objects, and the claims are kept.
fn uninstall_with_an_override(galera: &Galera<'_>) {
    galera.set_override(&format!("instance/{INSTANCE}"), "K05").succeeded();
    let gone = kudo(galera, &["uninstall", "--instance", INSTANCE]);
    assert_eq!(gone.status, 0, "{gone}");
    for what in [
        format!("instance/{INSTANCE}"),
        format!("statefulset/{INSTANCE}-galera"),
        format!("pod/{}", galera.member(0)),
    ] {
        galera.until_gone(&what);
    }
    let claims: Value =
        serde_json::from_str(&galera.kubectl(&["get", "pvc", "--output=json"]).succeeded()).unwrap();
    assert_eq!(claims["items"].as_array().map(Vec::len), Some(5), "five claims are kept: {claims}");
}
