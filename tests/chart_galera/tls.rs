//! TLS between members: the options of servers, the request to cert-manager, and the order of upgrades in which a running cluster
//! moves to TLS and back.

use facts::galera::options;
use serde_json::{Value, json};

use super::live::{assert_quiet, assert_refused};
use super::{INSTANCE, ports, rendered, template};
use crate::cluster::STATEFUL_SET;
use crate::lab::eventually;
use crate::living_cluster::Alive;

pub const OWN: &str = "--set=tls.existingSecret=ours";
/// An upgrade without this flag keeps the value of the previous release.
const NONE: &str = "--set=tls.existingSecret=";
const PLAIN_TOO: &str = "--set=tls.acceptPlain=true";
const PROVIDER: &str = "gcache.size=128M;socket.ssl=yes;socket.ssl_key=/etc/mysql/tls/tls.key;\
     socket.ssl_cert=/etc/mysql/tls/tls.crt;socket.ssl_ca=/etc/mysql/tls/ca.crt";

fn file(flags: &[&str], map: &str) -> String {
    let objects = rendered(flags);
    let text = objects[&format!("ConfigMap/{INSTANCE}-{map}")]["data"]["galera.cnf"].as_str().unwrap();
    text.to_owned()
}

fn provider(text: &str) -> String {
    options::effective(text, "wsrep_provider_options").unwrap().look().to_owned()
}

/// Members and the bootstrap node use the certificate for the group, for copies and for clients.
#[test]
fn every_server_reads_the_certificate() {
    for map in ["nodeconfig", "bootstrap"] {
        let text = file(&[OWN], map);
        assert_eq!(provider(&text), PROVIDER, "{map}");
        assert!(
            text.starts_with("# A donor and its joiner need the same")
                && text.contains("[sst]\nencrypt = 4\n")
        );
        let option = |key| options::effective(&text, key).unwrap().look().to_owned();
        let paths = ["ssl_ca", "ssl_cert", "ssl_key"].map(option);
        assert_eq!(paths, ["ca.crt", "tls.crt", "tls.key"].map(|it| format!("/etc/mysql/tls/{it}")), "{map}");
    }
    for what in [format!("StatefulSet/{STATEFUL_SET}"), format!("Deployment/{INSTANCE}-bootstrap")] {
        let spec = rendered(&[OWN])[&what]["spec"]["template"]["spec"].clone();
        let named = |list: &Value| {
            list.as_array().unwrap().iter().find(|it| it["name"] == "tls").cloned().unwrap_or_default()
        };
        let volume = named(&spec["volumes"]);
        let keys: Vec<_> =
            volume["secret"]["items"].as_array().unwrap().iter().map(|it| it["key"].clone()).collect();
        assert_eq!(
            (&volume["secret"]["secretName"], keys),
            (&json!("ours"), vec![json!("ca.crt"), json!("tls.crt"), json!("tls.key")])
        );
        let mount = named(&spec["containers"][0]["volumeMounts"]);
        assert_eq!(mount["mountPath"], "/etc/mysql/tls", "{what}");
    }
    assert!(!template(INSTANCE, &[]).succeeded().contains("/etc/mysql/tls"));
}

/// Where members without TLS are accepted, copies are made without TLS, too, because those members cannot encrypt them.
#[test]
fn members_that_accept_plain_ones_copy_without_tls() {
    let text = file(&[OWN, PLAIN_TOO], "nodeconfig");
    assert_eq!(provider(&text), format!("{PROVIDER};socket.dynamic=yes"));
    assert!(!text.contains("[sst]"), "{text}");
    let other_ports = rendered(&[OWN, ports::OTHERS]);
    let server =
        &other_ports[&format!("StatefulSet/{STATEFUL_SET}")]["spec"]["template"]["spec"]["containers"][0];
    let joined = server["args"][2].as_str().unwrap();
    assert!(
        joined.contains(";base_port=4600;socket.ssl=yes;")
            && joined.ends_with(";ist.recv_addr=$(POD_IP):5568"),
        "{joined}"
    );
}

#[test]
fn cert_manager_is_asked_for_a_certificate_of_servers_and_clients() {
    let objects = rendered(&["--set=tls.issuerRef.name=ours,tls.issuerRef.kind=ClusterIssuer"]);
    let spec = &objects["Certificate/galera-instance-tls"]["spec"];
    assert_eq!(spec["issuerRef"], json!({ "name": "ours", "kind": "ClusterIssuer" }));
    assert_eq!(
        spec["usages"],
        json!(["digital signature", "key encipherment", "server auth", "client auth"])
    );
    let names = spec["dnsNames"].as_array().unwrap();
    assert!(
        names.contains(&json!("galera-instance-cs.db.svc"))
            && names.contains(&json!("*.galera-instance-hs.db"))
    );
    let volumes = &objects[&format!("StatefulSet/{STATEFUL_SET}")]["spec"]["template"]["spec"]["volumes"];
    assert!(volumes.to_string().contains(&format!(r#""secretName":{}"#, spec["secretName"])), "{volumes}");
}

#[test]
fn tls_that_cannot_work_is_refused_with_an_explanation() {
    for (flag, words) in [
        (
            "tls.acceptPlain=true",
            "tls.acceptPlain is true, but there is no TLS: set tls.existingSecret or tls.issuerRef.name, or take tls.acceptPlain out",
        ),
        (
            "tls.existingSecret=ours,tls.issuerRef.name=theirs",
            "tls.issuerRef needs the name of an issuer, and tls.existingSecret must be empty: either cert-manager makes the certificate, or you do",
        ),
        ("tls.issuerRef.kind=Issuer", "tls.issuerRef needs the name of an issuer"),
        ("tls.secret=ours", "additional properties 'secret' not allowed"),
        (
            "tls.existingSecret=ours,config=wsrep_provider_options=gcs.fc_limit=64",
            "config sets wsrep_provider_options, and a server uses only the last line of that name: members would not speak the TLS that you chose; add to that line: socket.ssl=yes;socket.ssl_key=/etc/mysql/tls/tls.key;",
        ),
    ] {
        let output = template(INSTANCE, &[&format!("--set={flag}")]);
        assert!(output.status != 0 && output.stderr.contains(words), "{flag}: {output}");
    }
    let own_line = format!("--set-string=config=wsrep_provider_options = \"gcs.fc_limit=64;{PROVIDER}\"");
    template(INSTANCE, &[OWN, &own_line]).succeeded();
    let plain_too = own_line.replace(PROVIDER, &format!("{PROVIDER};socket.dynamic=yes"));
    let output = template(INSTANCE, &[OWN, &plain_too]);
    let words = "config sets socket.dynamic, so members would still accept connections without TLS";
    assert!(output.status != 0 && output.stderr.contains(words), "{output}");
    // An upgrade that keeps the values of a release from before TLS was added.
    template(INSTANCE, &["--set=tls=null"]).succeeded();
}

/// The guard allows both steps, and a wrong step is refused.
#[test]
fn a_plain_cluster_moves_to_tls_in_two_upgrades() {
    let alive = Alive::empty("chart-tls");
    assert_quiet(&alive.install(&[]));
    alive.until_formed();
    alive.until_bootstrap_removed();
    let keys = ["ca.crt", "tls.crt", "tls.key"].map(|key| format!("--from-literal={key}=x"));
    alive.admin(&["create", "secret", "generic", "ours", &keys[0]]).succeeded();
    assert_refused(
        &alive.upgrade_chart(&[OWN]),
        "/ours has no key tls.crt: pods do not start without it; add it",
    );
    alive.admin(&["delete", "secret", "ours"]).succeeded();
    alive.admin(&["create", "secret", "generic", "ours", &keys[0], &keys[1], &keys[2]]).succeeded();

    let alone = "a member with TLS and a member without it cannot connect, so the first one that restarts would be alone";
    assert_refused(&alive.upgrade_chart(&[OWN]), alone);
    upgrade_and_restart(&alive, &[OWN, PLAIN_TOO]);
    assert_refused(&alive.upgrade_chart(&[OWN]), "tls.copies would change");
    upgrade_and_restart(&alive, &[OWN, "--set=tls.copies=false"]);
    assert_refused(&alive.upgrade_chart(&[NONE]), alone);
}

/// Upgrades the chart and waits until every member has restarted.
fn upgrade_and_restart(alive: &Alive, flags: &[&str]) {
    let before = alive.stateful_set()["status"]["updateRevision"].clone();
    let upgraded = alive.upgrade_chart(flags);
    assert!(upgraded.status == 0 && !upgraded.stderr.contains("[G09]"), "{flags:?}: {upgraded}");
    eventually("every member to have restarted", || {
        let status = alive.stateful_set()["status"].clone();
        let done = status["updateRevision"] != before
            && status["currentRevision"] == status["updateRevision"]
            && status["readyReplicas"] == 3;
        done.then_some(())
    });
}
