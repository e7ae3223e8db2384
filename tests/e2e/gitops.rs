//! GitOps engines under the guard: commits of two people reach the cluster through a real engine, or are refused, and the engine
//! shows why. While there is nothing to do, neither engine nor guard writes. After the last good commit the cluster is healthy.
//!
//! Part of `make drills`; GATERA_MINUTES sets the length of the random commits in minutes (5), GATERA_SEED their sequence.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;

use crate::chance::{Chance, env_number, seed};
use crate::galera::patiently;
use crate::gate;
use crate::guard::{NAMESPACE, install, until_no_guard_runs, until_registered};
use crate::guard_life::{both_refused, dry_run_seed};
use crate::install::events;
use crate::lab::{ControlPlane, User};
use crate::power;
use crate::shop::{Content, GitOpsEngine, Shop, Wanted, good, pool, with_charts, written_by};
use crate::writer::Writer;

/// Runs every kind of commit and fault once, and then random commits.
pub fn commits_reach_the_cluster_or_are_refused(
    lab: &ControlPlane,
    engine: &dyn GitOpsEngine,
    content: Content,
    name: &str,
) {
    let shop = Shop::new(lab, engine, content, name);
    let (cluster, writer) = shop.form_cluster();
    shop.config_changes();
    shop.too_few_members();
    shop.five_members_and_three();
    if content == Content::Manifests {
        shop.without_bootstrap();
    }
    shop.removed_from_the_repository();
    shop.changed_by_hand();
    shop.guard_away();
    shop.override_ends();
    shop.option_that_no_server_knows();
    shop.random_commits(seed());
    let commit = shop.commit("ann", "the last good commit", &good());
    shop.until_healthy(&commit);
    shop.galera.until_ready(3);
    shop.galera.until_synced(3, 3);
    shop.nothing_is_written();
    // On a busy machine members may have lost contact for some seconds meanwhile.
    assert_eq!(shop.galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    power::members_agree(&shop.galera, "shop.t");
    writer.finish(3);
}

/// Checks that the engine installs, upgrades and removes the guard. Installs it again at the end.
pub fn guard_is_installed_upgraded_and_removed(lab: &ControlPlane, engine: &dyn GitOpsEngine) {
    let (configurations, in_its_namespace) =
        ("validatingwebhookconfigurations,mutatingwebhookconfigurations", "--namespace=gatera");
    let registrations =
        || lab.kubectl(User::Admin, &["get", configurations, "gatera", "--ignore-not-found"]).succeeded();
    let until_healthy = |commit: &str| {
        patiently("the engine reports the guard as applied and healthy", || {
            let (healthy, shown) = engine.state_of_the_guard(lab, commit);
            if healthy { Ok(()) } else { Err(shown) }
        });
    };
    lab.helm(User::Admin, &["uninstall", "gatera", in_its_namespace, "--wait"]).succeeded();
    assert_eq!(registrations(), "", "Helm removes the webhooks of the guard");

    let repository = with_charts(lab, &format!("guard-by-{}", engine.namespace()));
    let values = repository.folder().join("values.yaml");
    let objects = engine.objects_to_install_the_guard(&repository);
    fs::write(&values, "{}").unwrap();
    let commit = repository.commit("ann", "the guard");
    lab.create(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }));
    patiently("the guard is installed", || {
        if registrations().is_empty() { Err(engine.state_of_the_guard(lab, &commit).1) } else { Ok(()) }
    });
    until_registered(lab);
    until_healthy(&commit);
    patiently("the guard refuses the manifests", || {
        let output = dry_run_seed(lab);
        if output.status == 1 { Ok(()) } else { Err(output.to_string()) }
    });
    both_refused(&dry_run_seed(lab));
    let before = written_by(lab, engine).len();
    thread::sleep(Duration::from_secs(60));
    assert_eq!(written_by(lab, engine)[before..], [], "the engine writes though there is nothing to do");

    fs::write(&values, "podAnnotations: {example.org/changed: again}").unwrap();
    let commit = repository.commit("bob", "pods with an annotation");
    until_healthy(&commit);
    until_registered(lab);
    let pods = [
        "get",
        "pods",
        in_its_namespace,
        "--output=jsonpath={.items[*].metadata.annotations.example\\.org/changed}",
    ];
    assert_eq!(lab.kubectl(User::Admin, &pods).succeeded(), "again again", "both pods are upgraded");
    both_refused(&dry_run_seed(lab));

    let last = objects.last().unwrap();
    let [kind, namespace, name] = [&last["kind"], &last["metadata"]["namespace"], &last["metadata"]["name"]]
        .map(|it| it.as_str().unwrap());
    lab.kubectl(User::Admin, &["delete", kind, name, "--namespace", namespace, "--timeout=120s"]).succeeded();
    assert_eq!(registrations(), "", "the engine removes the webhooks of the guard");
    assert_eq!(dry_run_seed(lab).status, 0, "no request is blocked after the removal");
    until_no_guard_runs(lab);
    install(lab, &[]).succeeded();
    until_registered(lab);
}

impl Shop<'_> {
    /// Commits the cluster, and waits until it has formed. Returns its identity and a client.
    fn form_cluster(&self) -> (String, Writer<'_>) {
        let galera = &self.galera;
        galera.lab.create(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "passwords", "namespace": galera.namespace },
            "stringData": { "root-password": "for-a-test-9", "sst.cnf": "[mariadbd]\nwsrep_sst_auth = \"sst:for-a-test-9\"\n" },
        }));
        let commit = self.commit("ann", "a cluster", &good());
        galera.lab.create(
            &json!({ "apiVersion": "v1", "kind": "List", "items": self.engine.objects_to_follow(self) }),
        );
        patiently("the cluster has formed", || {
            let (_, shown) = self.engine.state_of(self, &commit);
            if (0..3).all(|it| galera.is_ready(&galera.member(it))) { Ok(()) } else { Err(shown) }
        });
        let cluster = galera.until_synced(3, 3);
        patiently("the bootstrap node is removed", || {
            if events(galera, "BootstrapRemoved").is_empty() { Err("no Event".to_owned()) } else { Ok(()) }
        });
        if self.content == Content::Manifests {
            self.until_bootstrap_is_back();
        }
        galera.fill();
        gate::until_identity_is_recorded(galera, &cluster);
        self.until_healthy(&commit);
        self.nothing_is_written();
        let password =
            json!({ "valueFrom": { "secretKeyRef": { "name": "passwords", "key": "root-password" } } });
        (cluster, Writer::start(galera, &password))
    }

    fn until_pool_is(&self, megabytes: u64) {
        let bytes = (megabytes << 20).to_string();
        patiently("each member has the new configuration", || {
            for ordinal in 0..3 {
                let now =
                    self.galera.sql(&self.galera.member(ordinal), "SELECT @@innodb_buffer_pool_size").stdout;
                if now.trim() != bytes {
                    return Err(now);
                }
            }
            Ok(())
        });
        self.galera.until_ready(3);
    }

    fn config_changes(&self) {
        let commit = self.commit("bob", "a larger buffer pool", &Wanted { config: pool(40), ..good() });
        self.until_healthy(&commit);
        self.until_pool_is(40);
        self.repository.revert();
        self.until_pool_is(32);
        self.until_healthy(&self.repository.head());
    }

    fn too_few_members(&self) {
        let commit = self.commit("bob", "one member", &Wanted { members: 1, ..good() });
        self.until_shown(&commit, "would leave 1 of 3 members");
        self.revert_and_wait();
    }

    fn five_members_and_three(&self) {
        let commit = self.commit("ann", "five members", &Wanted { members: 5, ..good() });
        self.galera.until_ready(5);
        self.until_healthy(&commit);
        self.revert_and_wait();
        self.galera.until_gone(&format!("pod/{}", self.galera.member(3)));
        self.galera.until_synced(3, 3);
    }

    fn without_bootstrap(&self) {
        let commit = self.commit("ann", "no bootstrap node", &Wanted { bootstrap: false, ..good() });
        self.until_healthy(&commit);
        self.galera.until_gone(&format!("deployment/{}-bootstrap", self.galera.name));
        self.revert_and_wait();
        self.until_bootstrap_is_back();
        self.nothing_is_written();
    }

    /// Waits until the engine has created the bootstrap node again, at 0 replicas.
    fn until_bootstrap_is_back(&self) {
        patiently("the bootstrap node exists, at 0 replicas", || {
            let it = self.read(&format!("deployment/{}-bootstrap", self.galera.name));
            if it["spec"]["replicas"] == 0 { Ok(()) } else { Err(it["spec"]["replicas"].to_string()) }
        });
    }

    fn removed_from_the_repository(&self) {
        let before = self.read(&self.galera.stateful_set())["metadata"]["uid"].clone();
        let commit = self.commit("bob", "no cluster", &Wanted { present: false, ..good() });
        self.until_shown(&commit, self.engine.text_after_removal(self.content));
        let commit = self.repository.revert();
        self.note("reverted");
        self.engine.finish_revert(self);
        self.until_healthy(&commit);
        assert_eq!(
            self.read(&self.galera.stateful_set())["metadata"]["uid"],
            before,
            "the StatefulSet was not deleted"
        );
    }

    fn changed_by_hand(&self) {
        let scaled = self.galera.kubectl(&["scale", &self.galera.stateful_set(), "--replicas=5"]);
        assert_eq!(scaled.status, 0, "{scaled}");
        patiently("the engine restores the replicas", || {
            let now = self.read(&self.galera.stateful_set())["spec"]["replicas"].clone();
            if now == 3 { Ok(()) } else { Err(now.to_string()) }
        });
        self.galera.until_gone(&format!("pod/{}", self.galera.member(3)));
        self.until_healthy(&self.repository.head());
    }

    fn guard_away(&self) {
        let lab = self.galera.lab;
        let scale = |to: &str| {
            lab.kubectl(User::Admin, &["scale", "deployment/gatera", "--namespace", NAMESPACE, to])
                .succeeded()
        };
        scale("--replicas=0");
        until_no_guard_runs(lab);
        let commit = self.commit("bob", "a larger buffer pool", &Wanted { config: pool(48), ..good() });
        self.until_shown(&commit, "failed calling webhook");
        scale("--replicas=2");
        until_registered(lab);
        self.until_healthy(&commit);
        self.until_pool_is(48);
        self.revert_and_wait();
        self.until_pool_is(32);
    }

    /// Checks that neither engine nor guard writes because an override has expired, in the repository or on the object.
    fn override_ends(&self) {
        let until = Timestamp::now() + Duration::from_secs(40);
        let text = format!("G01 until={until:.0} reason=a drill");
        if self.content == Content::Manifests {
            let commit = self.commit("ann", "an override", &Wanted { overridden: Some(text), ..good() });
            self.until_healthy(&commit);
        } else {
            self.galera
                .kubectl(&["annotate", &self.galera.stateful_set(), &format!("gatera.dev/override={text}")])
                .succeeded();
        }
        patiently("the override has expired", || {
            if Timestamp::now() > until { Ok(()) } else { Err(until.to_string()) }
        });
        self.nothing_is_written();
        self.until_healthy(&self.repository.head());
        if self.content == Content::Manifests {
            self.revert_and_wait();
        }
    }

    fn option_that_no_server_knows(&self) {
        let wanted = Wanted { config: "no_such_option = 1".to_owned(), ..good() };
        let commit = self.commit("ann", "a bad option", &wanted);
        patiently("the member that restarts first is down", || {
            let pod = self.galera.member(2);
            if self.galera.is_ready(&pod) { Err(self.engine.state_of(self, &commit).1) } else { Ok(()) }
        });
        self.revert_and_wait();
        self.galera.until_ready(3);
        self.galera.until_synced(3, 3);
    }

    fn random_commits(&self, seed: u64) {
        let duration = Duration::from_secs(60 * env_number("GATERA_MINUTES").unwrap_or(5));
        println!("GATERA_SEED={seed}, {} minutes", duration.as_secs() / 60);
        let (mut chance, mut wanted, began) = (Chance(seed), good(), Instant::now());
        let before = self.writes().map(|all| all.len());
        while began.elapsed() < duration {
            let who = *chance.one(&["ann", "bob"]);
            let what = match chance.below(8) {
                0 => {
                    self.repository.revert();
                    self.note(&format!("{who} reverts"));
                    thread::sleep(Duration::from_millis(chance.below(30_000)));
                    continue;
                }
                1 => {
                    wanted.members = *chance.one(&[1, 2, 3, 3, 5]);
                    format!("{} members", wanted.members)
                }
                2 => {
                    "no_such_option = 1".clone_into(&mut wanted.config);
                    "a bad option".to_owned()
                }
                // Restoring a removed release takes more than a commit.
                3 if self.content == Content::Manifests => {
                    wanted.present = !wanted.present;
                    format!("present: {}", wanted.present)
                }
                4 => {
                    wanted.bootstrap = !wanted.bootstrap;
                    format!("bootstrap: {}", wanted.bootstrap)
                }
                5 => {
                    wanted = good();
                    "the good state".to_owned()
                }
                _ => {
                    wanted.config = pool(32 + 8 * chance.below(3));
                    wanted.config.clone()
                }
            };
            let commit = self.commit(who, &what, &wanted);
            thread::sleep(Duration::from_millis(chance.below(45_000)));
            self.note(&self.engine.state_of(self, &commit).1);
        }
        let minutes = usize::try_from(duration.as_secs() / 60).unwrap().max(1);
        let writes = self.writes().map(|all| all.len());
        for (who, (after, before)) in ["engine", "guard"].iter().zip(writes.iter().zip(before)) {
            let rate = (after - before) / minutes;
            println!("the {who} wrote {rate} times a minute");
            assert!(
                rate <= 60,
                "engine and guard undo each other's writes: the {who} wrote {rate} times a minute"
            );
        }
    }
}
