//! Every path that a change can take, through the real kubectl: destructive changes are refused on each path, with a message
//! that is compared in full; changes that only look destructive are allowed.
//!
//! There is one page per cluster state: `tests/fixtures/paths-*.snap` is what users see.

use serde_json::{Value, json};

use crate::cluster::{STATEFUL_SET, running_cluster};
use crate::guarded;
use crate::lab::{ControlPlane, Output, User, eventually};
use crate::living_cluster::GALERA;

/// A namespace with a running cluster, the user who types commands there, and the page with their output.
pub struct Terminal {
    pub plane: &'static ControlPlane,
    pub ns: String,
    pub user: User,
    page: String,
}

impl Terminal {
    pub fn new(prefix: &str) -> Self {
        let (plane, ns) = running_cluster(prefix);
        Self { plane, ns, user: User::Editor, page: String::new() }
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl(self.user, &[&["--namespace", &*self.ns], arguments].concat())
    }

    pub fn feed(&self, arguments: &[&str], stdin: &Value) -> Output {
        let all = [&["--namespace", &*self.ns], arguments].concat();
        self.plane.kubectl_stdin(self.user, &all, &stdin.to_string())
    }

    /// Runs a command line and puts it on the page with the output of kubectl.
    fn run_on_page(&mut self, line: &str) -> Output {
        let words: Vec<&str> = line.split(' ').collect();
        let output = self.run(&words);
        self.add_to_page(&format!("kubectl {line}"), &output);
        output
    }

    fn add_to_page(&mut self, line: &str, output: &Output) {
        let text = format!("$ {line}\nexit {}\n{}{}\n", output.status, output.stdout, output.stderr);
        self.page.push_str(&text.replace(&self.ns, "db"));
    }

    fn assert_refused(&mut self, line: &str, rule: &str) -> Output {
        let output = self.run_on_page(line);
        assert_ne!(output.status, 0, "{line}: {output}");
        assert!(output.stderr.contains(&format!("[{rule}] ")), "{line}: {output}");
        assert!(!output.stderr.contains("immutable"), "{line}: {output}");
        output
    }

    fn assert_allowed(&mut self, line: &str) {
        let output = self.run_on_page(line);
        assert_eq!(output.status, 0, "{line}: {output}");
    }

    fn assert_page(&self, name: &str) {
        let mut page = self.page.clone();
        if self.plane.minor() <= 33 {
            // Up to version 1.33, kubectl does not print the namespace.
            assert!(!page.contains(" from db namespace"), "{page}");
            page = page.replace(" deleted (server", " deleted from db namespace (server");
        }
        insta::with_settings!({
            prepend_module_to_snapshot => false,
            omit_expression => true,
            snapshot_path => "fixtures",
            filters => vec![
                (r"until=\S+Z", "until=SOON"),
                (r"allowed to leave \d+s ago", "allowed to leave 0s ago"),
                (r"/\S*/kubectl_replace_\d+/", ""),
            ],
        }, { insta::assert_snapshot!(name, page) });
    }

    /// Replaces the pods that were deleted, lets them become Ready, and waits until the guard sees a healthy cluster.
    pub fn heal(&self) {
        self.plane.finish_deletes(&self.ns);
        self.plane.run_stateful_set(&self.ns, STATEFUL_SET);
        eventually("the guard to see a healthy cluster", || {
            let asked = ["delete", "pod", &format!("{STATEFUL_SET}-0"), "--dry-run=server"];
            (self.run(&asked).status == 0).then_some(())
        });
    }

    pub fn make_unready(&self, ordinal: usize) {
        self.plane.make_pod_unready(&self.ns, &format!("{STATEFUL_SET}-{ordinal}"));
        eventually("the guard to see that the member is not Ready", || {
            let other = format!("{STATEFUL_SET}-{}", (ordinal + 1) % 3);
            (self.run(&["delete", "pod", &other, "--dry-run=server"]).status != 0).then_some(())
        });
    }

    pub fn exists(&self, what: &str) -> bool {
        self.run(&["get", what]).status == 0
    }
}

fn eviction(pod: &str, grace: Option<i64>) -> Value {
    let mut it = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } });
    if let Some(grace) = grace {
        it["deleteOptions"] = json!({ "gracePeriodSeconds": grace });
    }
    it
}

/// Lists destructive commands of an editor of the namespace, each with the rule that refuses it.
fn destructive_commands() -> Vec<(String, &'static str)> {
    let claim = format!("galera-instance-datadir-{STATEFUL_SET}-1");
    vec![
        (format!("delete statefulset {STATEFUL_SET}"), "G03"),
        (format!("delete statefulset {STATEFUL_SET} --cascade=foreground"), "G03"),
        (format!("delete statefulset {STATEFUL_SET} --grace-period=0 --force"), "G03"),
        ("delete statefulset --all".to_owned(), "G03"),
        (format!("delete pod {STATEFUL_SET}-1 --grace-period=0 --force"), "G02"),
        (format!("delete pod {STATEFUL_SET}-1 --now"), "G02"),
        (format!("delete persistentvolumeclaim {claim}"), "G07"),
        ("delete persistentvolumeclaim --all".to_owned(), "G07"),
        ("delete service galera-instance-hs".to_owned(), "G10"),
        ("delete service galera-instance-cs".to_owned(), "G10"),
        ("delete configmap galera-instance-nodeconfig".to_owned(), "G10"),
        ("delete secret galera-instance".to_owned(), "G10"),
        (format!("scale statefulset {STATEFUL_SET} --replicas=0"), "G01"),
        (
            format!(
                "patch statefulset {STATEFUL_SET} --type=json --patch=[{{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":1}}]"
            ),
            "G01",
        ),
        (
            format!("patch statefulset {STATEFUL_SET} --type=merge --patch={{\"spec\":{{\"replicas\":0}}}}"),
            "G01",
        ),
        (
            format!(
                "patch statefulset {STATEFUL_SET} --subresource=scale --type=merge --patch={{\"spec\":{{\"replicas\":0}}}}"
            ),
            "G01",
        ),
        (
            format!(
                "patch statefulset {STATEFUL_SET} --patch={{\"spec\":{{\"podManagementPolicy\":\"Parallel\"}}}}"
            ),
            "G08",
        ),
        (
            format!("patch statefulset {STATEFUL_SET} --patch={{\"spec\":{{\"serviceName\":\"other\"}}}}"),
            "G08",
        ),
        (
            "patch secret galera-instance --patch={\"stringData\":{\"root-password\":\"hunter2\"}}"
                .to_owned(),
            "G12",
        ),
        (
            format!("patch statefulset {STATEFUL_SET} --patch={{\"spec\":{{\"ordinals\":{{\"start\":3}}}}}}"),
            "G01",
        ),
        (
            format!(
                "patch statefulset {STATEFUL_SET} --patch={{\"metadata\":{{\"ownerReferences\":[{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"release\",\"uid\":\"9\"}}]}}}}"
            ),
            "G03",
        ),
        (format!("set image pod/{STATEFUL_SET}-1 mariadb=mariadb:10.11.9"), "G17"),
        (format!("label pod {STATEFUL_SET}-1 --overwrite instance=other"), "G18"),
        (format!("label pod {STATEFUL_SET}-1 app-"), "G18"),
        ("create poddisruptionbudget loose --selector=app=galera --max-unavailable=2".to_owned(), "G14"),
        (
            format!(
                "patch statefulset {STATEFUL_SET} --patch={{\"spec\":{{\"template\":{{\"spec\":{{\"terminationGracePeriodSeconds\":0}}}}}}}}"
            ),
            "G14",
        ),
        (format!("set image statefulset/{STATEFUL_SET} mariadb=mariadb"), "G17"),
        (format!("set image statefulset/{STATEFUL_SET} mariadb=mariadb:10.6"), "G17"),
        (format!("set image statefulset/{STATEFUL_SET} mariadb=mysql:8.0"), "G17"),
        ("patch service galera-instance-hs --patch={\"spec\":{\"publishNotReadyAddresses\":false}}".to_owned(), "G16"),
        ("patch service galera-instance-hs --patch={\"spec\":{\"selector\":{\"app\":\"web\"}}}".to_owned(), "G16"),
        (
            "patch configmap galera-instance-nodeconfig --patch={\"data\":{\"more.cnf\":\"[mysqld]\\nbinlog_format=STATEMENT\"}}"
                .to_owned(),
            "G09",
        ),
        (
            "patch configmap galera-instance-nodeconfig --patch={\"data\":{\"z.cnf\":\"[mysqld]\\nwsrep_cluster_address=gcomm://10.0.0.7\"}}"
                .to_owned(),
            "G06",
        ),
        (
            format!(
                "patch statefulset {STATEFUL_SET} --patch={{\"spec\":{{\"persistentVolumeClaimRetentionPolicy\":{{\"whenScaled\":\"Delete\"}}}}}}"
            ),
            "G07",
        ),
        (format!("annotate pod {STATEFUL_SET}-1 --overwrite gatera.dev/script=true"), "G18"),
        (format!("annotate statefulset {STATEFUL_SET} gatera.dev/override=please"), "G18"),
        (format!("label persistentvolumeclaim {claim} app-"), "G18"),
    ]
}

#[test]
fn what_stops_or_removes_a_healthy_cluster_is_refused_on_every_path() {
    let mut it = Terminal::new("paths");
    for (line, rule) in destructive_commands() {
        let dry = it.run(&format!("{line} --dry-run=server").split(' ').collect::<Vec<_>>());
        let [by_dry_run, for_real] = [dry, it.assert_refused(&line, rule)].map(|output| {
            output.stderr.lines().filter(|line| line.contains("] ")).map(str::to_owned).collect::<Vec<_>>()
        });
        assert_eq!(by_dry_run, for_real, "{line}: a dry run has another message");
    }
    it.user = User::Admin;
    let ns = it.ns.clone();
    it.assert_refused(&format!("delete namespace {ns}"), "G03");
    it.assert_refused(&format!("label namespace {ns} gatera.dev/mode-"), "G18");
    it.assert_refused(&format!("label namespace {ns} --overwrite gatera.dev/mode=Off"), "G18");
    it.user = User::Editor;

    // A forced replacement is a deletion and a creation: the deletion is refused, so nothing is lost.
    let uid = it.plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"))["metadata"]["uid"].clone();
    let mut set = it.plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"));
    set["metadata"] = json!({ "name": STATEFUL_SET });
    let output = it.feed(&["replace", "--force", "--filename=-"], &set);
    it.add_to_page("kubectl replace --force --filename=statefulset.json", &output);
    assert!(output.stderr.contains("[G03] StatefulSet "), "{output}");
    assert_eq!(it.plane.get(&ns, &format!("statefulset/{STATEFUL_SET}"))["metadata"]["uid"], uid);

    // An autoscaler does not consider majorities.
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "galera" },
        "spec": { "minReplicas": 1, "maxReplicas": 9, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": STATEFUL_SET } },
    });
    let output = it.feed(&["create", "--filename=-"], &autoscaler);
    it.add_to_page("kubectl create --filename=autoscaler.yaml", &output);
    assert!(output.stderr.contains("[G14] HorizontalPodAutoscaler "), "{output}");

    // A request that deletes many objects is judged once per object. A dry run reserves nothing, so it allows every pod.
    let pods = format!("/api/v1/namespaces/{ns}/pods?labelSelector=app%3Dgalera&dryRun=All");
    let output = it.run(&["delete", &format!("--raw={pods}")]);
    assert_eq!(output.status, 0, "a dry run reserves nothing, so each pod alone could be deleted: {output}");
    let output = it.run(&["delete", &format!("--raw=/apis/apps/v1/namespaces/{ns}/statefulsets")]);
    it.add_to_page("kubectl delete --raw=…/statefulsets", &output);
    assert!(output.stderr.contains("[G03] StatefulSet "), "{output}");
    assert!(it.exists(&format!("statefulset/{STATEFUL_SET}")));

    // These changes do no harm, although some look destructive.
    it.assert_allowed(&format!("delete statefulset {STATEFUL_SET} --cascade=orphan --dry-run=server"));
    it.assert_allowed(&format!("delete pod {STATEFUL_SET}-2 --dry-run=server"));
    it.assert_allowed(&format!("annotate statefulset {STATEFUL_SET} team=databases"));
    it.assert_allowed(&format!("label pod {STATEFUL_SET}-1 team=databases"));
    it.assert_allowed(&format!("rollout restart statefulset {STATEFUL_SET}"));
    it.assert_page("paths-healthy");
}

#[test]
fn evictions_wait_with_429_and_go_through_one_at_a_time() {
    let mut it = Terminal::new("evict");
    let ns = it.ns.clone();
    let pod = |ordinal: usize| format!("{STATEFUL_SET}-{ordinal}");
    let evict = |it: &Terminal, ordinal: usize, grace: Option<i64>| {
        let path = format!("--raw=/api/v1/namespaces/{ns}/pods/{}/eviction", pod(ordinal));
        it.feed(&["create", &path, "--filename=-"], &eviction(&pod(ordinal), grace))
    };
    it.make_unready(2);
    let output = evict(&it, 1, None);
    it.add_to_page("evict galera-1 while galera-2 is not Ready", &output);
    assert!(output.stderr.contains("TooManyRequests") && output.stderr.contains("[G02] Pod "), "{output}");
    it.heal();
    let output = evict(&it, 1, Some(0));
    it.add_to_page("evict galera-1 without grace", &output);
    assert!(output.stderr.contains("[G02] Pod "), "{output}");
    assert_eq!(evict(&it, 1, None).status, 0, "refused, although all other members are Ready");
    // Either the reservation or the watch causes the refusal, so its message varies and is on no page.
    let output = evict(&it, 0, None);
    assert!(output.stderr.contains("TooManyRequests") && output.stderr.contains("[G02] Pod "), "{output}");
    it.heal();
    assert_eq!(evict(&it, 0, None).status, 0, "refused, although galera-1 is Ready again");
    it.assert_page("paths-evictions");
}

/// During the first installation only the bootstrap node holds the data.
#[test]
fn the_bootstrap_node_is_kept_while_members_join() {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace_with_labels("joining", &[("gatera.dev/mode", "enforce")]);
    plane.kubectl_stdin(User::Editor, &["apply", "--namespace", &ns, "--filename=-"], GALERA).succeeded();
    plane.make_pod_ready(&ns, &format!("{STATEFUL_SET}-0"));
    let node = eventually("the bootstrap pod", || {
        let get = [
            "--namespace",
            &ns,
            "get",
            "pods",
            "--selector=app=galera-bootstrap",
            "--output=jsonpath={.items[0].metadata.name}",
        ];
        Some(plane.kubectl(User::Admin, &get))
            .filter(|output| output.status == 0 && !output.stdout.is_empty())
    });
    plane.make_pod_ready(&ns, &node.stdout);
    eventually("the next member", || {
        let get = ["--namespace", &ns, "get", "pod", &format!("{STATEFUL_SET}-1")];
        (plane.kubectl(User::Admin, &get).status == 0).then_some(())
    });
    plane.make_pod_unready(&ns, &format!("{STATEFUL_SET}-1"));
    let mut it = Terminal { plane, ns, user: User::Editor, page: String::new() };
    eventually("the guard to see the joiner", || {
        let output = it.run(&["delete", "deployment", "galera-instance-bootstrap", "--dry-run=server"]);
        output.stderr.contains("1 of 3 members").then_some(())
    });
    for line in [
        "delete deployment galera-instance-bootstrap".to_owned(),
        "scale deployment galera-instance-bootstrap --replicas=0".to_owned(),
        "delete service galera-instance-bootstrap-svc".to_owned(),
        "delete configmap galera-instance-bootstrap".to_owned(),
        format!("delete pod {}", node.stdout),
        "rollout restart deployment galera-instance-bootstrap".to_owned(),
    ] {
        let line = line.as_str();
        it.assert_refused(line, "G05");
    }
    it.page = it.page.replace(&node.stdout, "galera-instance-bootstrap-HASH");
    it.assert_page("paths-joining");
}

/// The change is judged, not the state: an object that broke rules before the guard was installed can be edited, and improved
/// in steps.
#[test]
fn an_existing_violation_may_stay_or_shrink_but_not_grow() {
    let (plane, _) = guarded::shared();
    let ns = plane.namespace_with_labels("ratchet", &[("gatera.dev/mode", "off")]);
    let seed = include_str!("fixtures/seed.yaml");
    eventually("the mode of the namespace to be seen", || {
        let output = plane.kubectl_stdin(User::Editor, &["apply", "--namespace", &ns, "--filename=-"], seed);
        (output.status == 0).then_some(())
    });
    plane.run_stateful_set(&ns, STATEFUL_SET);
    let mut it = Terminal { plane, ns: ns.clone(), user: User::Editor, page: String::new() };
    let mode = ["label", "namespace", &ns, "--overwrite", "gatera.dev/mode=enforce"];
    plane.kubectl(User::Admin, &mode).succeeded();
    let set = format!("statefulset/{STATEFUL_SET}");
    eventually("the mode to be seen", || {
        let worse = it.run(&["set", "env", &set, "OTHER_PASSWORD=x", "--dry-run=server"]);
        (worse.status != 0).then_some(())
    });
    it.assert_refused(&format!("set env {set} OTHER_PASSWORD=x"), "G11");
    it.assert_refused(&format!("set image {set} mariadb=mariadb"), "G17");
    it.assert_allowed(&format!("label {set} team=databases"));
    it.assert_allowed("label configmap galera-instance-nodeconfig team=databases");
    // The patch removes one of several passwords.
    let better = json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/env/0", "value": {
        "name": "MYSQL_ROOT_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "galera-instance", "key": "root-password" } },
    } }]);
    let output = it.run(&["patch", &set, "--type=json", &format!("--patch={better}")]);
    it.add_to_page("kubectl patch statefulset: the password from a Secret", &output);
    assert_eq!(output.status, 0, "{output}");
    // Changes of a status are not sent to the guard, and no rule holds up an object that is being deleted.
    let status = [
        "patch",
        &set,
        "--subresource=status",
        "--type=merge",
        "--patch={\"status\":{\"observedGeneration\":1}}",
    ];
    let arguments = [&["--namespace", &*ns], &status[..]].concat();
    assert_eq!(it.plane.kubectl(User::Admin, &arguments).status, 0);
    let finalizer = |list: &str| {
        it.run(&[
            "patch",
            &set,
            "--type=merge",
            &format!("--patch={{\"metadata\":{{\"finalizers\":{list}}}}}"),
        ])
    };
    finalizer("[\"example.com/wait\"]").succeeded();
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
    it.run(&["annotate", &set, &format!("gatera.dev/override=G03 until={until} reason=the end")]).succeeded();
    eventually("the override to be seen", || {
        (it.run(&["delete", &set, "--wait=false"]).status == 0).then_some(())
    });
    let last = finalizer("[]");
    assert_eq!(
        (last.status, &*last.stderr),
        (0, ""),
        "a change of an object that is being deleted is refused"
    );
    it.assert_page("paths-ratchet");
}
