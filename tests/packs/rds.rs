//! The pack rds with the operator's own chart and definition: its account is recognized, and every printed way out is taken from
//! the output and followed as printed. There is no cloud: the test writes the status with the operator's account.

use serde_json::{Value, json};

use super::until_entry;
use crate::advice::{advice, follow};
use crate::guarded::{self, Guard, Start};
use crate::lab::{ControlPlane, Output, User, eventually};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rds-operator");
/// The name of the operator's release and namespace, as in its README.
const RELEASE: &str = "rdsoperator";
/// The flag with which kubectl acts as the operator's account.
const ACCOUNT: &str = "--as=system:serviceaccount:rdsoperator:rdsoperator-otc-rds-operator";

struct Shop {
    plane: ControlPlane,
    _guard: Guard,
    ns: String,
}

impl Shop {
    fn run(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl(User::Admin, &[&["--namespace", &*self.ns], arguments].concat())
    }

    fn create(&self, name: &str, object: &Value) -> Output {
        let mut whole =
            json!({ "apiVersion": "otc.mcsps.de/v1alpha1", "kind": "Rds", "metadata": { "name": name } });
        json_patch::merge(&mut whole, object);
        let arguments = ["create", "--namespace", &self.ns, "--filename=-"];
        self.plane.kubectl_stdin(User::Admin, &arguments, &whole.to_string())
    }

    fn patch(&self, name: &str, patch: &str) -> Output {
        self.run(&["patch", "rds", name, "--type=merge", "--patch", patch])
    }

    /// Writes a status as the operator does with the cloud's answer.
    fn write_status(&self, name: &str, status: &str) {
        let status = json!({ "status": { "id": format!("{name}in01"), "ip": "10.0.0.7", "status": status } });
        let status = status.to_string();
        self.run(&["patch", "rds", name, "--type=merge", "--patch", &status, ACCOUNT]).succeeded();
    }

    /// Checks that the request is refused by this rule, and succeeds after the printed commands.
    fn assert_allowed_as_advised(&self, rule: &str, act: impl Fn() -> Output) {
        let refused = act();
        assert!(refused.stderr.contains(&format!("[{rule}] ")), "{refused}");
        let commands = advice(&refused);
        assert!(!commands.is_empty(), "{refused}");
        for command in &commands {
            follow(&self.plane, User::Admin, command);
        }
        act().succeeded();
    }

    /// Removes the override, as a warning advises for the time after the change.
    fn remove_override(&self, name: &str) {
        self.run(&["annotate", "rds", name, "gatera.dev/override-"]).succeeded();
    }
}

/// Returns the text between two others.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {text}"));
    rest.split_once(to).unwrap_or_else(|| panic!("no {to:?} in {rest}")).0
}

fn shop() -> Shop {
    let plane = ControlPlane::start_with_nodes(1);
    let definition = format!("--filename={CHART}/crds/rds.yml");
    plane.kubectl(User::Admin, &["create", &definition]).succeeded();
    guarded::install(&plane);
    let start = Start { identity: "rds".into(), ..Start::default() };
    let guard = Guard::start(&plane, &guarded::program(), &start);
    guard.until_registered();
    until_entry(&plane, "rdss.gatera.dev", true);
    let ns = plane.namespace("shop");
    Shop { plane, _guard: guard, ns }
}

#[test]
fn ways_out_work_with_the_operators_own_chart_and_definition() {
    let shop = shop();
    let plane = &shop.plane;
    // No object of the operator's release is refused; the commands on the page of rule R17 are followed.
    let install = ["install", RELEASE, CHART, "--namespace", RELEASE, "--create-namespace", "--skip-crds"];
    let installed = plane.helm(User::Admin, &install);
    assert!(installed.status == 0 && installed.stderr.contains("[R17]"), "{installed}");
    let page = include_str!("../../docs/rules/R17.md");
    let commands = page.lines().filter_map(|it| it.trim().strip_prefix("kubectl "));
    let binds = |it: &&str| it.contains("rdsoperator-otc-rds-operator");
    let commands: Vec<_> = commands.filter(binds).collect();
    assert_eq!(commands.len(), 2, "{page}");
    for command in commands {
        follow(plane, User::Admin, command);
    }

    // The printed command creates a password that the schema accepts.
    let refused = shop.create("orders", &json!({}));
    assert!(refused.stderr.contains("[R06]"), "{refused}");
    let command = between(&refused.stderr, "choose another with `", "`");
    let password = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
    let password = String::from_utf8(password.stdout).unwrap();
    shop.create("orders", &json!({ "spec": { "password": password.trim() } })).succeeded();

    // Another password is accepted once root has it.
    let other = json!({ "spec": { "password": format!("{}x", password.trim()) } }).to_string();
    shop.assert_allowed_as_advised("R01", || shop.patch("orders", &other));
    shop.remove_override("orders");

    // A deletion first waits for the status in which a last backup works, and then for a confirmation.
    shop.write_status("orders", "BUILD");
    let delete = |name: &'static str| shop.run(&["delete", "rds", name, "--wait=false"]);
    let wait = advice(&delete("orders"));
    assert!(wait.len() == 1 && wait[0].contains(" wait "), "{wait:?}");
    shop.write_status("orders", "ACTIVE");
    follow(plane, User::Admin, &wait[0]);
    let time = (jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1)).strftime("%Y-%m-%dT%H:%M:%SZ");
    let restore = json!({ "spec": { "backuprestoretime": time.to_string() } }).to_string();
    shop.assert_allowed_as_advised("R07", || shop.patch("orders", &restore));
    shop.remove_override("orders");
    shop.patch("orders", r#"{"spec":{"backuprestoretime":""}}"#).succeeded();
    shop.assert_allowed_as_advised("R14", || delete("orders"));

    // A failed instance never reaches that status.
    shop.create("broken", &json!({ "spec": { "password": password.trim() } })).succeeded();
    shop.write_status("broken", "FAILED");
    shop.assert_allowed_as_advised("R14", || delete("broken"));

    take_over(&shop);
}

/// Takes over an existing instance, by a new Rds and by one without an instance, and releases it again.
fn take_over(shop: &Shop) {
    let takes = |annotations: Value| {
        shop.create(
            "legacy",
            &json!({ "metadata": { "annotations": annotations }, "status": { "id": "legacyin01" } }),
        )
    };
    let refused = takes(json!({}));
    assert!(refused.stderr.contains("[R12]"), "{refused}");
    let mark = between(&refused.stderr, "gatera.dev/override: \"", "\"").replace('…', "as-advised");
    takes(json!({ "gatera.dev/override": mark })).succeeded();
    assert_eq!(shop.plane.get(&shop.ns, "rds/legacy")["status"]["id"], "legacyin01");
    shop.remove_override("legacy");
    shop.write_status("legacy", "ACTIVE");
    shop.assert_allowed_as_advised("R12", || shop.patch("legacy", r#"{"status":{"id":""}}"#));
    shop.remove_override("legacy");
    // The first id is set by an account that the settings do not name.
    let patch = r#"{"status":{"id":"legacyin01"}}"#;
    let stranger = ["--as=system:serviceaccount:otc:databases", "--as-group=system:masters"];
    let by =
        || shop.run(&[&["patch", "rds", "legacy", "--type=merge", "--patch", patch], &stranger[..]].concat());
    let refused = by();
    let named =
        "name it in the guard's settings: rds: {operators: [\"system:serviceaccount:otc:databases\"]}";
    assert!(refused.stderr.contains(named), "{refused}");
    shop.assert_allowed_as_advised("R12", || shop.patch("legacy", patch));
    shop.remove_override("legacy");
    shop.assert_allowed_as_advised("R12", || shop.patch("legacy", r#"{"status":{"id":""}}"#));
    eventually("the guard to see that the Rds has no instance", || {
        let namespace = shop.run(&["delete", "namespace", &shop.ns, "--dry-run=server"]);
        namespace.stderr.contains("none has a status.id").then_some(())
    });
    let gone = shop.run(&["delete", "rds", "legacy"]);
    assert!(gone.status == 0 && gone.stderr.contains("no instance is deleted"), "{gone}");
}
