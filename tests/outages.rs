//! What breaks admission webhooks in practice, tested on a real API server: certificates that rotate, replicas that are
//! rolled, connections that never send a request, an API server that cannot be reached, and a guard that is down.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gatera::rulebook;

use crate::cluster::STATEFUL_SET;
use crate::guarded::{self, Guard, Start, free_lease, install, program};
use crate::lab::{Asked, ControlPlane, User, eventually};
use crate::living_cluster::GALERA;
use crate::wire::{Balancer, Load};

fn guarded_namespace(plane: &ControlPlane) -> String {
    let ns = plane.namespace_with_labels("out", &[("gatera.dev/mode", "enforce")]);
    plane.kubectl_stdin(User::Editor, &["apply", "--namespace", &ns, "--filename=-"], GALERA).succeeded();
    ns
}

fn install_crypto_provider() {
    // Only the first call in a process installs the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A leaf that is valid for 12 s is replaced after 8 s, and a CA that is valid for 24 s after 16 s.
#[test]
fn no_request_fails_while_leaf_and_ca_rotate() {
    install_crypto_provider();
    let plane = ControlPlane::start();
    install(&plane);
    let day = 86_400.0;
    let arguments = vec![format!("--certificate-days={}", 12.0 / day), format!("--ca-days={}", 24.0 / day)];
    let guard = Guard::start(
        &plane,
        &program(),
        &Start { identity: "rotating".into(), arguments, ..Start::default() },
    );
    guard.until_registered();
    let ns = guarded_namespace(&plane);
    let load = Load::start(&plane, &ns, STATEFUL_SET);
    let bundle = || {
        plane.get("default", "validatingwebhookconfiguration/gatera")["webhooks"][0]["clientConfig"]["caBundle"].clone()
    };
    let first = bundle();
    eventually("two rotations of the leaf, one of them under a new CA", || {
        let leaves = guard.log().matches("serving certificate is in use").count();
        (leaves >= 4 && bundle() != first).then_some(())
    });
    let (done, failed) = load.end();
    assert!(
        failed.is_empty(),
        "{} of {done} failed: {:#?}\n{}",
        failed.len(),
        &failed[..failed.len().min(3)],
        guard.log()
    );
    assert!(done > 50, "only {done} requests were made, too few for a load");
    let (status, text) = guard.get("/readyz").unwrap();
    assert_eq!(status, 200, "{text}");
}

/// The leader of two replicas behind a stand-in for a Service is replaced while requests come in, and another replica leads at
/// once.
#[test]
fn no_request_fails_while_replicas_are_rolled() {
    install_crypto_provider();
    let plane = ControlPlane::start();
    install(&plane);
    let service = Balancer::start();
    let url = Some(format!("https://{}", service.address));
    let start = |identity: &str| {
        let arguments = vec!["--lame-duck=2".into(), "--drain=5".into()];
        Guard::start(
            &plane,
            &program(),
            &Start { identity: identity.into(), arguments, url: url.clone(), ..Start::default() },
        )
    };
    let (one, two) = (start("one"), start("two"));
    service.set_backends(&[one.webhooks, two.webhooks]);
    one.until_registered();
    two.until_registered();
    let ns = guarded_namespace(&plane);
    let leads =
        |guard: &Guard| guard.get("/metrics").is_some_and(|(_, text)| text.contains("gatera_leader 1\n"));
    assert!(leads(&one) != leads(&two), "not exactly one replica leads");
    let (leader, other) = if leads(&one) { (one, two) } else { (two, one) };

    let load = Load::start(&plane, &ns, STATEFUL_SET);
    let three = start("three");
    three.until_registered();
    leader.terminate();
    eventually("the old leader to be unready", || {
        (leader.get("/readyz").is_none_or(|(status, _)| status == 503)).then_some(())
    });
    // As with endpoints, an unready pod gets no new connections.
    service.set_backends(&[other.webhooks, three.webhooks]);
    let (status, log) = leader.until_ended(Duration::from_secs(60));
    assert!(status.success(), "{log}");
    eventually("a successor to lead", || (leads(&other) || leads(&three)).then_some(()));
    let before = load.done();
    eventually("more load on the new pair", || (load.done() > before + 100).then_some(()));
    let (done, failed) = load.end();
    assert!(
        failed.is_empty(),
        "{} of {done} failed: {:#?}\n{log}",
        failed.len(),
        &failed[..failed.len().min(3)]
    );
    assert!(done > 100, "only {done} requests were made, too few for a load");
}

/// Asserts that in steady state the guard sends no requests except for its watches, its lease, and kinds of packs that are not
/// installed.
fn assert_quiet_in_steady_state(plane: &ControlPlane) {
    let renewals = || {
        plane
            .asked_by_the_guard()
            .iter()
            .filter(|asked| asked.resource == "leases" && asked.verb == "update")
            .count()
    };
    let (seen, before) = (plane.asked_by_the_guard().len(), renewals());
    eventually("two renewals of the lease", || (renewals() >= before + 2).then_some(()));
    let asked = plane.asked_by_the_guard().split_off(seen);
    let is_usual = |asked: &&Asked| {
        let absent =
            asked.code == 404 && rulebook().kinds().watched().any(|kind| kind.plural() == asked.resource);
        asked.resource == "leases" || asked.verb == "watch" || absent
    };
    let others: Vec<_> = asked.iter().filter(|it| !is_usual(it)).collect();
    assert!(others.is_empty(), "requests in steady state: {others:?}");
    // Kinds that are not installed are requested about as often as the watches of other kinds are renewed.
    let absent = asked.iter().filter(|it| it.code == 404).count();
    assert!(
        absent <= 4 * rulebook().kinds().watched().count(),
        "{absent} requests for kinds that are not installed: {asked:?}"
    );
}

/// The webhooks fail closed for Galera and do not affect other workloads; one command disables them and one restores them.
#[test]
fn a_guard_that_is_down_blocks_only_galera_and_can_be_switched_off() {
    let plane = ControlPlane::start();
    install(&plane);
    let guard = Guard::start(&plane, &program(), &Start { identity: "gone".into(), ..Start::default() });
    guard.until_registered();
    let ns = guarded_namespace(&plane);
    let off = plane.namespace_with_labels("off", &[("gatera.dev/mode", "off")]);
    drop(guard);
    free_lease(&plane);
    for create in [
        &["create", "secret", "generic", "web", "--from-literal=a=b"][..],
        &["create", "configmap", "web", "--from-literal=a=b"],
        &["create", "service", "clusterip", "web", "--tcp=80"],
        &["label", "namespace", &off, "a=1"],
        &["delete", "namespace", &off, "--wait=false"],
    ] {
        plane.kubectl(User::Admin, &[&["--namespace", &*off], create].concat()).succeeded();
    }
    let label = |what: &str, value: &str| {
        plane.kubectl(User::Editor, &["--namespace", &ns, "label", "--overwrite", what, value])
    };
    let set = "statefulset/galera-instance-galera";
    assert_eq!(label(set, "a=1").status, 0, "no rule reads this label");
    let patch =
        ["--namespace", &ns, "patch", set, "--type=merge", r#"--patch={"spec":{"minReadySeconds":1}}"#];
    let refused = plane.kubectl(User::Editor, &patch);
    assert_eq!(refused.status, 1, "{refused}");
    assert!(refused.stderr.contains("failed calling webhook \"workloads.gatera.dev\""), "{}", refused.stderr);
    assert_eq!(label("service/galera-instance-cs", "a=1").status, 1, "the namespace is guarded as a whole");
    // Objects that no server reads are not sent to the guard, so Helm keeps working for other workloads; for that a name or a
    // type alone is not enough.
    let run = |arguments: &[&str]| {
        plane.kubectl(User::Editor, &[&["--namespace", &*ns], arguments].concat()).status
    };
    let secret = |name: &str, of_type: &str| {
        run(&["create", "secret", "generic", name, "--from-literal=a=b", &format!("--type={of_type}")])
    };
    let helms = "sh.helm.release.v1.web.v1";
    assert_eq!(secret("sh.helm.release.v1.web.v2", "Opaque"), 1, "Helm's name, but another type");
    assert_eq!(secret("web", "helm.sh/release.v1"), 1, "Helm's type, but another name");
    assert_eq!(secret(helms, "helm.sh/release.v1"), 0, "a Secret of Helm");
    assert_eq!(run(&["label", "secret", helms, "a=1"]), 0);
    assert_eq!(run(&["delete", "secret", helms]), 0);
    assert_eq!(
        run(&["create", "configmap", "istio-ca-root-cert", "--from-literal=a=b"]),
        0,
        "Istio's ConfigMap"
    );
    assert_eq!(run(&["create", "configmap", "web", "--from-literal=a=b"]), 1, "another ConfigMap");
    let stranger = plane.namespace("stranger");
    let created = plane
        .kubectl(User::Editor, &["--namespace", &stranger, "create", "deployment", "web", "--image=nginx"]);
    assert_eq!((created.status, &*created.stderr), (0, ""), "{created}");
    let pods = plane
        .kubectl(User::Editor, &["--namespace", &stranger, "scale", "deployment", "web", "--replicas=2"]);
    assert_eq!(pods.status, 0, "scaling elsewhere is fail-open: {}", pods.stderr);

    // The way out is one command in README.md.
    let readme = include_str!("../README.md");
    let command = readme
        .lines()
        .find_map(|line| line.strip_prefix("kubectl delete validating"))
        .expect("the README has the command that switches the guard off");
    let objects = format!("validating{}", command.split(' ').next().unwrap());
    plane.kubectl(User::Admin, &["delete", &objects, "gatera"]).succeeded();
    assert_eq!(label(set, "a=1").status, 0, "refused, although the guard is switched off");
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"mariadb","env":[{"name":"A_PASSWORD","value":"x"}]}]}}}}"#;
    let run = |arguments: &[&str]| plane.kubectl(User::Editor, &[&["--namespace", &*ns], arguments].concat());
    run(&["patch", "statefulset", STATEFUL_SET, "--patch", patch]).succeeded();

    install(&plane);
    let guard = Guard::start(&plane, &program(), &Start { identity: "back".into(), ..Start::default() });
    guard.until_registered();
    let scaled = plane
        .kubectl(User::Editor, &["--namespace", &ns, "scale", "statefulset", STATEFUL_SET, "--replicas=0"]);
    assert!(scaled.stderr.contains("[G01]"), "{}", scaled.stderr);
    // The audit reports what happened meanwhile, and once: a change that leaves the finding in place is not reported again.
    eventually("Events about the password and the bootstrap node", || {
        // With Kubernetes 1.30 editors see only Events of the other group.
        let get = ["get", "events.events.k8s.io", "--namespace", &ns];
        let found = plane.kubectl(User::Admin, &get).succeeded();
        // A state that lasts is reported after ten seconds.
        (found.contains("AuditG11") && found.contains("BootstrapKept")).then_some(())
    });
    run(&["label", "statefulset", STATEFUL_SET, "--overwrite", "a=2"]).succeeded();
    assert_quiet_in_steady_state(&plane);
}

/// Connections that never finish the handshake end with a timeout and do not disturb the service.
#[test]
fn silent_connections_cost_nothing() {
    let (plane, guard) = guarded::shared();
    let ns = guarded_namespace(plane);
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(guard.webhooks).unwrap()).collect();
    let mut half = TcpStream::connect(guard.webhooks).unwrap();
    half.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).unwrap();
    let scaled = plane
        .kubectl(User::Editor, &["--namespace", &ns, "scale", "statefulset", STATEFUL_SET, "--replicas=0"]);
    assert!(
        scaled.stderr.contains("[G01]"),
        "the guard waited for the silent connections: {}",
        scaled.stderr
    );
    // If the guard had waited for the silent connections, the API server would have timed out with a message of its own.
    eventually("the silent connections to be turned away", || {
        let text = guard.get("/metrics")?.1;
        let line = text
            .lines()
            .find(|line| line.starts_with("gatera_connections_turned_away_total{reason=\"handshake\"}"))?;
        (line.rsplit(' ').next()?.parse::<usize>().ok()? > silent.len()).then_some(())
    });
    half.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(half.read(&mut [0; 16]).unwrap_or(0), 0, "the half-open connection was not closed");
}

/// While the API server cannot be reached, the guard reports a stale view and refuses what destroys, and it recovers by itself.
#[test]
fn an_api_server_out_of_reach_makes_the_view_stale_until_it_is_back() {
    let (plane, _) = guarded::shared();
    let wire = Balancer::start();
    let real: SocketAddr = plane.url().strip_prefix("https://").unwrap().parse().unwrap();
    wire.set_backends(&[real]);
    let guard = Guard::start(
        plane,
        &program(),
        &Start {
            identity: "cut".into(),
            namespace: Some("default".into()),
            // With this name the guard does not use the shared guard's entries, certificates and lease.
            arguments: vec!["--configuration=cut".into()],
            api_server: Some(format!("https://{}", wire.address)),
            ..Start::default()
        },
    );
    let view = |wanted: &str| {
        let text = guard.get("/readyz")?.1;
        text.lines().any(|line| line.contains("view:") && line.contains(wanted)).then_some(())
    };
    eventually("the view to be current after the first lists", || view("current"));
    wire.cut();
    eventually("the view to be stale", || view("stale for"));
    eventually("the metric to report a stale view", || {
        guard.get("/metrics")?.1.contains("gatera_view_current 0\n").then_some(())
    });
    wire.set_backends(&[real]);
    eventually("the view to be current again", || view("current"));
}

/// Certificates that another program maintains are used as they are and swapped twice without a restart, and a broken pair is
/// ignored.
#[test]
fn certificates_of_your_own_are_swapped_when_their_folder_changes() {
    use gatera::act::certs::{Lifetimes, Material};
    install_crypto_provider();
    let (plane, _) = guarded::shared();
    let folder = tempfile::tempdir().unwrap();
    let mut generation = 0;
    // Like a kubelet, this creates a new folder and renames the new link `..data` over the old one.
    let mut swap = |files: &[(String, Vec<u8>)]| {
        generation += 1;
        let new = folder.path().join(format!("..{generation}"));
        std::fs::create_dir(&new).unwrap();
        for (name, bytes) in files {
            std::fs::write(new.join(name), bytes).unwrap();
            let link = folder.path().join(name);
            if !link.is_symlink() {
                std::os::unix::fs::symlink(format!("..data/{name}"), link).unwrap();
            }
        }
        std::os::unix::fs::symlink(format!("..{generation}"), folder.path().join("..next")).unwrap();
        std::fs::rename(folder.path().join("..next"), folder.path().join("..data")).unwrap();
    };
    let material = |days: i64| {
        let lives = Lifetimes { leaf: jiff::SignedDuration::from_hours(24 * days), ..Lifetimes::default() };
        let material = Material::new(&["127.0.0.1".to_owned()], lives, jiff::Timestamp::now()).unwrap();
        let files = material
            .data()
            .into_iter()
            .filter(|(name, _)| name != "ca.key")
            .map(|(name, bytes)| (name, bytes.0));
        (material.leaf.expires().unwrap().to_string(), files.collect::<Vec<_>>())
    };
    let (first, files) = material(10);
    swap(&files);
    let guard = Guard::start(
        plane,
        &program(),
        &Start {
            identity: "own".into(),
            namespace: Some("default".into()),
            arguments: vec![
                format!("--tls-folder={}", folder.path().display()),
                "--configuration=own".into(),
            ],
            ..Start::default()
        },
    );
    let shows = |ends: &str| {
        guard.get("/readyz").filter(|(_, text)| text.contains(&format!("valid until {ends}"))).map(drop)
    };
    eventually("the first certificate to be used", || shows(&first));
    for days in [20, 30] {
        let (ends, files) = material(days);
        swap(&files);
        eventually("the next certificate to be used", || shows(&ends));
    }
    let (_, mut broken) = material(40);
    for (_, key) in broken.iter_mut().filter(|(name, _)| name == "tls.key") {
        *key = b"nonsense".to_vec();
    }
    swap(&broken);
    eventually("the guard to log the broken pair", || {
        guard.log().contains("reading a certificate: key").then_some(())
    });
    let (_, text) = guard.get("/readyz").unwrap();
    assert!(
        text.contains("[+] certificate: valid until"),
        "the previous certificate is not in use any more: {text}"
    );
}
