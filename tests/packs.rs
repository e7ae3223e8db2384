//! Packs on a real API server: entries come with their custom resources and go with them; the operators that people run there are not
//! disturbed, and what would destroy their data is refused.

mod operator;

use serde_json::Value;

use crate::guarded::{self, Guard, Start};
use crate::lab::{ControlPlane, Output, User, eventually};
use operator::Operator;

const DEFINITION: &str = include_str!("fixtures/wordpress-crd.yaml");
const RESOURCE: &str = include_str!("fixtures/wordpress-cr.yaml");

/// The names of the entries that are registered.
fn entries(plane: &ControlPlane) -> Vec<String> {
    let path = "jsonpath={range .items[*].webhooks[*]}{.name}{\"\\n\"}{end}";
    let kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    let text = plane.kubectl(User::Admin, &["get", kinds, "--output", path]).succeeded();
    text.lines().map(str::to_owned).collect()
}

fn until_asked(plane: &ControlPlane, entry: &str, is_so: bool) {
    eventually("the entries to follow the API server", || {
        (entries(plane).iter().any(|it| it == entry) == is_so).then_some(())
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

    /// As the guard's last look had it: what was written before is known.
    fn until_known(&self, object: &str) {
        let before =
            self.admin(&["get", object, "--output=jsonpath={.metadata.resourceVersion}"]).succeeded();
        assert!(!before.is_empty());
        eventually("the guard to know it", || {
            let second =
                RESOURCE.replace("example-wordpress", "shop").replace("abc", "secretRef:mysql/password");
            let create = ["create", "--dry-run=server", "--namespace", &self.ns, "--filename=-"];
            self.plane.kubectl_stdin(User::Admin, &create, &second).stderr.contains("[W03]").then_some(())
        });
    }
}

fn variable(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]
}

#[test]
fn a_pack_comes_with_its_resources_and_their_operator_is_not_disturbed() {
    let plane = ControlPlane::start_with_nodes(1);
    guarded::install(&plane);
    let guard =
        Guard::start(&plane, &guarded::program(), &Start { identity: "packs".into(), ..Start::default() });
    guard.until_registered();
    assert!(!entries(&plane).iter().any(|it| it.starts_with("wordpresses.")), "nobody has installed it");

    plane.kubectl_stdin(User::Admin, &["apply", "--filename=-"], DEFINITION).succeeded();
    until_asked(&plane, "wordpresses.gatera.dev", true);
    let ns = plane.namespace("web");
    let web = Web { plane, guard, ns };
    let (plane, ns) = (&web.plane, &*web.ns);

    // As it stands in the example.
    let refused = web.apply(RESOURCE);
    assert_eq!(refused.status, 1, "{refused}");
    let words =
        "[W01] Wordpress WEB/example-wordpress: spec.sqlrootpassword is written out".replace("WEB", ns);
    assert!(refused.stderr.contains(&words) && !refused.stderr.contains("abc"), "{refused}");

    web.admin(&["create", "secret", "generic", "mysql", "--from-literal=password=hunter2"]).succeeded();
    web.apply(&RESOURCE.replace("abc", "secretRef:mysql/password")).succeeded();
    let operator = Operator { plane, ns, name: "example-wordpress" };
    eventually("the operator to make all of it", || {
        operator.reconcile().unwrap_or_else(|refused| panic!("it is not disturbed: {refused}"));
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
            "every Wordpress in every namespace goes with it (1,",
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
    // What somebody deletes by hand comes back.
    web.admin(&["delete", "service", "wordpress-mysql"]).succeeded();
    web.admin(&["delete", "deployment", "wordpress-mysql"]).succeeded();
    eventually("it to be made again", || {
        operator.reconcile().unwrap_or_else(|refused| panic!("it is not disturbed: {refused}"));
        operator.get("deployment", "wordpress-mysql")
    });

    // Confirmed, it goes, and everything with it.
    let confirmed = "gatera.dev/override=W04 until=UNTIL reason=moved";
    let until = (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    web.admin(&["annotate", "wordpress", "example-wordpress", &confirmed.replace("UNTIL", &until)])
        .succeeded();
    web.admin(&["delete", "wordpress", "example-wordpress"]).succeeded();
    eventually("the garbage collector to remove its parts", || {
        let left = ["deployment/wordpress", "pvc/wp-pv-claim", "service/wordpress-mysql"];
        let there =
            |it: &&str| it.split_once('/').and_then(|(kind, name)| operator.get(kind, name)).is_some();
        (!left.iter().any(there)).then_some(())
    });

    plane.kubectl(User::Admin, &["delete", "crd", "wordpresses.example.com"]).succeeded();
    until_asked(plane, "wordpresses.gatera.dev", false);
    let (status, text) = web.guard.get("/readyz").unwrap();
    assert_eq!(status, 200, "{text}");
}
