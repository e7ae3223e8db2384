//! Packs on a real API server: entries are added and removed with the definitions of their custom resources; installed operators
//! are not disturbed, and changes that would destroy their data are refused.

mod operator;
mod rds;

use serde_json::{Value, json};

use crate::advice::{advice, follow};
use crate::guarded::{self, Guard, Start};
use crate::lab::{ControlPlane, Output, User, eventually};
use operator::Operator;

const DEFINITION: &str = include_str!("fixtures/wordpress-crd.yaml");
const RESOURCE: &str = include_str!("fixtures/wordpress-cr.yaml");

/// Returns the names of the registered entries.
fn entries(plane: &ControlPlane) -> Vec<String> {
    let path = "jsonpath={range .items[*].webhooks[*]}{.name}{\"\\n\"}{end}";
    let kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    let text = plane.kubectl(User::Admin, &["get", kinds, "--output", path]).succeeded();
    text.lines().map(str::to_owned).collect()
}

/// Waits until an entry with this name is registered or, if `is_there` is false, is not.
fn until_entry(plane: &ControlPlane, entry: &str, is_there: bool) {
    eventually("the entries to follow the API server", || {
        (entries(plane).iter().any(|it| it == entry) == is_there).then_some(())
    });
}

struct Web {
    plane: ControlPlane,
    guard: Guard,
    ns: String,
}

impl Web {
    fn apply(&self, manifest: &str) -> Output {
        self.plane.kubectl_stdin(User::Admin, &["apply", "--namespace", &self.ns, "--filename=-"], manifest)
    }

    fn admin(&self, arguments: &[&str]) -> Output {
        self.plane.kubectl(User::Admin, &[&["--namespace", &*self.ns], arguments].concat())
    }

    /// Waits until the guard's view contains this object, and with it everything that was written before.
    fn until_known(&self, object: &str) {
        let version =
            self.admin(&["get", object, "--output=jsonpath={.metadata.resourceVersion}"]).succeeded();
        assert!(!version.is_empty(), "{object} does not exist");
        eventually("the guard's view to contain the Wordpress", || {
            let second =
                RESOURCE.replace("example-wordpress", "shop").replace("abc", "secretRef:mysql/password");
            let create = ["create", "--dry-run=server", "--namespace", &self.ns, "--filename=-"];
            self.plane.kubectl_stdin(User::Admin, &create, &second).stderr.contains("[W03]").then_some(())
        });
    }

    /// Asserts a warning about a Deployment that has the name of the operator's but another owner.
    fn assert_warning_about_a_deployment_of_another_owner(&self) {
        let owner = json!({ "apiVersion": "apps.example.org/v1", "kind": "Site", "name": "x", "uid": "7" });
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "nginx:1.27" }] } });
        let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "wordpress", "ownerReferences": [owner] }, "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } });
        let create = ["create", "--dry-run=server", "--namespace", &self.ns, "--filename=-"];
        let output = self.plane.kubectl_stdin(User::Admin, &create, &object.to_string());
        assert!(output.status == 0 && output.stderr.contains("[W09]"), "{output}");
    }
}

fn variable(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]
}

#[test]
fn a_pack_is_registered_with_its_definition_and_does_not_disturb_the_operator() {
    let plane = ControlPlane::start_with_nodes(1);
    guarded::install(&plane);
    let guard =
        Guard::start(&plane, &guarded::program(), &Start { identity: "packs".into(), ..Start::default() });
    guard.until_registered();
    assert!(
        !entries(&plane).iter().any(|it| it.starts_with("wordpresses.")),
        "an entry is registered before its definition is installed"
    );

    plane.kubectl_stdin(User::Admin, &["apply", "--filename=-"], DEFINITION).succeeded();
    until_entry(&plane, "wordpresses.gatera.dev", true);
    let ns = plane.namespace("web");
    let web = Web { plane, guard, ns };
    let (plane, ns) = (&web.plane, &*web.ns);

    // The resource is applied exactly as in the operator's example.
    let refused = web.apply(RESOURCE);
    assert_eq!(refused.status, 1, "{refused}");
    let words =
        "[W01] Wordpress WEB/example-wordpress: spec.sqlrootpassword is in plain text".replace("WEB", ns);
    let shown = refused.stderr.replace(ns, "");
    assert!(refused.stderr.contains(&words) && !shown.contains("abc"), "{refused}");

    web.admin(&["create", "secret", "generic", "mysql", "--from-literal=password=hunter2"]).succeeded();
    web.apply(&RESOURCE.replace("abc", "secretRef:mysql/password")).succeeded();
    web.until_known("wordpress/example-wordpress");
    web.assert_warning_about_a_deployment_of_another_owner();
    let operator = Operator { plane, ns, name: "example-wordpress" };
    eventually("the operator to make all its objects", || {
        operator.reconcile().unwrap_or_else(|refused| panic!("the operator is disturbed: {refused}"));
        operator.get("service", "wordpress")
    });
    let mysql = operator.get("deployment", "wordpress-mysql").unwrap();
    assert_eq!(mysql["spec"]["strategy"]["type"], "Recreate", "{mysql}");
    for name in ["wordpress-mysql", "wordpress"] {
        let made = operator.get("deployment", name).unwrap();
        let from = &variable(&made)["valueFrom"]["secretKeyRef"];
        assert_eq!((&from["name"], &from["key"]), (&"mysql".into(), &"password".into()), "{made}");
    }

    web.until_known("wordpress/example-wordpress");
    for (arguments, words) in [
        (&["delete", "wordpress", "example-wordpress"][..], "[W04]"),
        (&["delete", "pvc", "mysql-pv-claim"], "[W04]"),
        (&["delete", "pvc", "wp-pv-claim"], "[W04]"),
        (&["delete", "namespace", ns], "it holds claim mysql-pv-claim of a WordPress"),
        (
            &["delete", "customresourcedefinition", "wordpresses.example.com"],
            "deleting it deletes every Wordpress in every namespace (1,",
        ),
        (&["scale", "deployment", "wordpress-mysql", "--replicas=2"], "[W05]"),
        (&["set", "image", "deployment/wordpress-mysql", "mysql=mysql:8.0"], "5.7 comes first"),
        (
            &[
                "patch",
                "service",
                "wordpress-mysql",
                "--patch={\"spec\":{\"selector\":{\"tier\":\"frontend\"}}}",
            ],
            "[W07]",
        ),
        (
            &[
                "patch",
                "pvc",
                "mysql-pv-claim",
                "--patch={\"spec\":{\"resources\":{\"requests\":{\"storage\":\"5Gi\"}}}}",
            ],
            "10Gi -> 5Gi",
        ),
        (
            &[
                "patch",
                "wordpress",
                "example-wordpress",
                "--type=merge",
                "--patch={\"spec\":{\"sqlrootpassword\":\"secretRef:a/b\"}}",
            ],
            "[W02]",
        ),
    ] {
        let output = web.admin(arguments);
        assert!(output.status == 1 && output.stderr.contains(words), "{arguments:?}: {output}");
    }
    // The operator re-creates what is deleted by hand.
    web.admin(&["delete", "service", "wordpress-mysql"]).succeeded();
    web.admin(&["delete", "deployment", "wordpress-mysql"]).succeeded();
    eventually("the operator to make the Deployment again", || {
        operator.reconcile().unwrap_or_else(|refused| panic!("the operator is disturbed: {refused}"));
        operator.get("deployment", "wordpress-mysql")
    });

    delete_without_its_data(&web, &operator);
    delete_with_its_data(&web, &operator);
    plane.kubectl(User::Admin, &["delete", "crd", "wordpresses.example.com"]).succeeded();
    until_entry(plane, "wordpresses.gatera.dev", false);
    let (status, text) = web.guard.get("/readyz").unwrap();
    assert_eq!(status, 200, "{text}");
}

/// Follows the printed commands: first the label, then the deletion of the Wordpress alone, whose claims are still guarded.
fn delete_without_its_data(web: &Web, operator: &Operator<'_>) {
    let (plane, ns) = (&web.plane, &*web.ns);
    let delete = || web.admin(&["delete", "wordpress", "example-wordpress"]);
    let printed = advice(&delete());
    let [label, orphan, _] = &printed[..] else { panic!("{printed:?}") };
    follow(plane, User::Admin, label);
    follow(plane, User::Admin, orphan);
    eventually("the Wordpress to be deleted without its claims", || {
        let claim = plane.get(ns, "pvc/mysql-pv-claim");
        (claim["metadata"]["ownerReferences"].is_null()
            && operator.get("wordpress", "example-wordpress").is_none())
        .then_some(())
    });
    for claim in ["mysql-pv-claim", "wp-pv-claim"] {
        let refused = web.admin(&["delete", "pvc", claim]);
        assert!(refused.status == 1 && refused.stderr.contains("[W04]"), "{refused}");
    }
    // A new Wordpress that uses these claims does not own them, so it may be deleted.
    web.apply(&RESOURCE.replace("abc", "secretRef:mysql/password")).succeeded();
    web.until_known("wordpress/example-wordpress");
    delete().succeeded();
    for what in ["pvc/mysql-pv-claim", "pvc/wp-pv-claim"] {
        for command in advice(&web.admin(&["delete", what])) {
            follow(plane, User::Admin, &command);
        }
        web.admin(&["delete", what, "--wait=false"]).succeeded();
    }
    web.admin(&["delete", "deployment,service", "--selector=app=example-wordpress"]).succeeded();
    eventually("the claims to be deleted with the pods", || {
        (!["mysql-pv-claim", "wp-pv-claim"].iter().any(|it| operator.get("pvc", it).is_some())).then_some(())
    });
}

/// Deletes a Wordpress, once that is confirmed, with everything that it owns.
fn delete_with_its_data(web: &Web, operator: &Operator<'_>) {
    web.apply(&RESOURCE.replace("abc", "secretRef:mysql/password")).succeeded();
    eventually("the operator to make all its objects again", || {
        operator.reconcile().unwrap_or_else(|refused| panic!("the operator is disturbed: {refused}"));
        operator.get("service", "wordpress")
    });
    let printed = eventually("the guard to see its claims", || {
        let refused = web.admin(&["delete", "wordpress", "example-wordpress", "--dry-run=server"]);
        (refused.status != 0 && refused.stderr.contains("wp-pv-claim")).then(|| advice(&refused))
    });
    follow(&web.plane, User::Admin, &printed[2]);
    web.admin(&["delete", "wordpress", "example-wordpress"]).succeeded();
    eventually("the garbage collector to remove its parts", || {
        let left = ["deployment/wordpress", "pvc/wp-pv-claim", "service/wordpress-mysql"];
        let there =
            |it: &&str| it.split_once('/').and_then(|(kind, name)| operator.get(kind, name)).is_some();
        (!left.iter().any(there)).then_some(())
    });
}
