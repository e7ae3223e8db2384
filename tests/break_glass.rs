//! Break-glass: what it allows, for how long, and what it never does. The cases of the rules themselves are in `tests/cases`.

use facts::review::{self, Origin, Review};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use inspect::audit;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{STATEFUL_SET, running_cluster};
use crate::guarded;
use crate::lab::{ControlPlane, Output, User, eventually};
use crate::published_events::deletion;
use crate::router;
use crate::scene::{self, Scene};

const OPEN: &str = "until=2026-12-01T10:00:00Z reason=a node burns";

fn open() -> Scene {
    Scene { glass: Some(OPEN.to_owned()), ..Scene::default() }
}

fn read(body: &Value) -> Review {
    review::read(body.to_string().as_bytes(), Origin::Validating, rulebook().kinds()).unwrap().review
}

/// Returns a request to delete the claim, and so the data, of the first member.
fn deletion_of_a_claim() -> Review {
    let (_, object) =
        Scene::default().object(&format!("PersistentVolumeClaim/datadir-{}-0", scene::STATEFUL_SET));
    read(&deletion("persistentvolumeclaims", "PersistentVolumeClaim", "", &object))
}

/// Break-glass ends by the guard's clock, without any action.
#[test]
fn break_glass_is_in_effect_until_its_end() {
    let settings = Settings::default();
    let now = scene::now();
    let allowed = |scene: &Scene, now: Timestamp| {
        let world = scene.world(&settings);
        rulebook().evaluate(&deletion_of_a_claim(), &View::new(&world, now, &settings)).allowed()
    };
    let end: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
    assert!(allowed(&open(), now));
    assert!(allowed(&open(), end - SignedDuration::from_secs(1)));
    assert!(!allowed(&open(), end), "break-glass is in effect after its end");
    assert!(!allowed(&Scene::default(), now));
}

#[test]
fn break_glass_has_no_effect_in_other_namespaces() {
    let settings = Settings::default();
    let mut elsewhere = Scene::default();
    elsewhere.also.push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other", "annotations": { "gatera.dev/break-glass": OPEN } } }));
    let world = elsewhere.world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    assert_eq!(view.break_glasses().map(|(name, _)| name).collect::<Vec<_>>(), ["other"]);
    assert!(!rulebook().evaluate(&deletion_of_a_claim(), &view).allowed());
}

/// People may be able to read an object that the guard cannot, so break-glass admits it, with a warning.
#[test]
fn an_unreadable_object_is_admitted_with_a_warning() {
    let settings = Settings::default();
    let mut asked = deletion("statefulsets", "StatefulSet", "apps", &json!({ "metadata": { "name": "x" } }));
    asked["request"]["operation"] = json!("CREATE");
    asked["request"]["object"] = json!({ "metadata": { "name": "x" }, "spec": { "replicas": "three" } });
    asked["request"]["oldObject"] = Value::Null;
    let review = read(&asked);
    assert!(review.unreadable.is_some());
    let judge = |scene: &Scene| {
        let world = scene.world(&settings);
        rulebook().evaluate(&review, &View::new(&world, scene::now(), &settings))
    };
    assert!(!judge(&Scene::default()).allowed());
    let decision = judge(&open());
    assert!(decision.allowed());
    let warnings = report::warnings(&review.subject(), &decision);
    assert!(warnings.iter().any(|it| it.starts_with("[G00] ")), "{warnings:?}");
    assert!(warnings.iter().any(|it| it.starts_with("until 2026-12-01T10:00:00Z refusals are suspended in namespace db (to end it: kubectl annotate namespace db gatera.dev/break-glass-): a node burns")), "{warnings:?}");
}

/// An audit is not a request, so break-glass hides none of its findings: they are what will be refused again afterwards.
#[test]
fn an_audit_reports_the_same_findings_under_break_glass() {
    let settings = Settings::default();
    let found = |scene: &Scene| {
        let mut scene = scene.clone();
        scene.stateful_set = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "mariadb", "env": [{ "name": "MARIADB_ROOT_PASSWORD", "value": "x" }] }] } } } });
        let world = scene.world(&settings);
        audit::run(rulebook(), &View::new(&world, scene::now(), &settings)).refused()
    };
    assert!(found(&Scene::default()) > 0);
    assert_eq!(found(&open()), found(&Scene::default()));
}

/// The command that ends break-glass is readable however long the reason is: an API server cuts warnings at 256 characters.
#[test]
fn the_command_that_ends_break_glass_precedes_the_reason() {
    let settings = Settings::default();
    for reason in ["é".repeat(450), "\u{202e}\u{7}x".repeat(100), "a\nb".repeat(200)] {
        let scene =
            Scene { glass: Some(format!("until=2026-12-01T10:00:00Z reason={reason}")), ..Scene::default() };
        let world = scene.world(&settings);
        let review = deletion_of_a_claim();
        let decision = rulebook().evaluate(&review, &View::new(&world, scene::now(), &settings));
        let warnings = report::warnings(&review.subject(), &decision);
        let reported = warnings.iter().find(|it| it.starts_with("until ")).unwrap();
        assert!(reported.contains("kubectl annotate namespace db gatera.dev/break-glass-"), "{reported}");
        assert!(
            reported.chars().count() <= 256
                && !reported.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{reported}"
        );
        let overridden = warnings.iter().find(|it| it.starts_with("[G07]")).unwrap();
        assert!(overridden.contains("(overridden until 2026-12-01T10:00:00Z: "), "{overridden}");
    }
}

/// Only the validating call, which decides, warns that break-glass is open; the mutating call does not repeat it.
#[test]
fn only_the_validating_call_warns_of_break_glass() {
    let settings = Settings::default();
    let world = open().world(&settings);
    let view = View::new(&world, scene::now(), &settings);
    let said = |origin: Origin| {
        let review = Review { origin, ..deletion_of_a_claim() };
        rulebook().evaluate(&review, &view).remarks.iter().filter(|it| it.starts_with("until ")).count()
    };
    assert_eq!([Origin::Validating, Origin::Mutating].map(said), [1, 0]);
}

/// A dry run, such as a canary, does not count as the use of an override and raises no alert.
#[tokio::test]
async fn a_dry_run_does_not_count_as_a_use_of_an_override() {
    let guard = router::guard(open().world(&Settings::default()));
    let (_, object) =
        Scene::default().object(&format!("PersistentVolumeClaim/datadir-{}-0", scene::STATEFUL_SET));
    let mut body = deletion("persistentvolumeclaims", "PersistentVolumeClaim", "", &object);
    for (dry_run, counted) in [(true, false), (false, true)] {
        body["request"]["dryRun"] = json!(dry_run);
        let answer = router::ask(&guard, "/validate", &body).await;
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        let text = guard.metrics.text();
        assert_eq!(text.contains("gatera_overrides_total{rule=\"G07\"} 1"), counted, "{text}");
    }
}

/// A running cluster in a namespace of its own, in which `gatera break-glass` is run as a person types it.
struct Guarded {
    plane: &'static ControlPlane,
    ns: String,
}

impl Guarded {
    fn of(prefix: &str) -> Self {
        let (plane, ns) = running_cluster(prefix);
        Self { plane, ns }
    }

    fn break_glass(&self, arguments: &[&str]) -> Output {
        self.gatera(&[&["break-glass", &*self.ns], arguments].concat())
    }

    fn gatera(&self, arguments: &[&str]) -> Output {
        guarded::ask(&self.plane.kubeconfig(User::Admin), arguments)
    }

    /// Tries, in a dry run, to scale the cluster to 0 members, which G01 refuses.
    fn scale(&self) -> Output {
        let scale = [
            "--namespace",
            &*self.ns,
            "scale",
            "statefulset",
            STATEFUL_SET,
            "--replicas=0",
            "--dry-run=server",
        ];
        self.plane.kubectl(User::Editor, &scale)
    }

    fn mark(&self) -> String {
        let get = ["get", "namespace", &self.ns, "--output=json"];
        let object: Value = serde_json::from_str(&self.plane.kubectl(User::Admin, &get).succeeded()).unwrap();
        object["metadata"]["annotations"]["gatera.dev/break-glass"].as_str().unwrap_or_default().to_owned()
    }

    fn events(&self, reason: &str) -> Vec<String> {
        let get = ["get", "events.events.k8s.io", "--namespace", &self.ns, "--output=json"];
        let list: Value = serde_json::from_str(&self.plane.kubectl(User::Admin, &get).succeeded()).unwrap();
        let all = list["items"].as_array().unwrap().iter().filter(|it| it["reason"] == reason);
        all.map(|it| it["note"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

#[test]
fn break_glass_is_opened_reported_and_closed() {
    let it = Guarded::of("glass");
    let refused = it.scale();
    assert!(refused.status == 1 && refused.stderr.contains("[G01]"), "{refused}");
    // There is no terminal, so the command cannot ask for confirmation.
    let asked = it.break_glass(&["--for", "15m", "--reason", "node-2 burns"]);
    assert!(asked.status == 2 && asked.stderr.contains("--yes"), "{asked}");
    assert_eq!(it.mark(), "");

    let opened = it.break_glass(&["--for", "15m", "--reason", "node-2 burns", "--yes"]);
    assert_eq!(opened.status, 0, "{opened}");
    for words in [
        "For 15m no request in namespace",
        "galera-instance-galera  HEALTHY",
        "the guard honours it, and says so each time: [G",
        "--close",
    ] {
        assert!(opened.stdout.contains(words), "{words:?} is not in {opened}");
    }
    assert!(it.mark().ends_with(" reason=node-2 burns"), "{}", it.mark());
    let scaled = it.scale();
    assert_eq!(scaled.status, 0, "{scaled}");
    assert!(
        scaled.stderr.contains("(overridden until ")
            && scaled.stderr.contains("refusals are suspended in namespace"),
        "{scaled}"
    );
    let status = it.gatera(&["status", "--namespace", &it.ns]);
    assert!(status.stdout.contains("node-2 burns"), "{status}");
    eventually("the Event that break-glass is open", || (it.events("GlassBroken").len() == 1).then_some(()));

    // A second call, with less time, reports the existing break-glass and that the guard honours it as it is.
    let again = it.break_glass(&["--for", "5m", "--reason", "still", "--yes"]);
    assert!(again.status == 0 && again.stdout.contains("Break-glass is open until "), "{again}");
    assert!(again.stdout.contains("the guard honours it"), "{again}");

    let closed = it.break_glass(&["--close"]);
    assert!(closed.status == 0 && closed.stdout.contains("the guard refuses again: [G"), "{closed}");
    assert!(closed.stdout.contains("Break-glass is open until "), "{closed}");
    let again = it.break_glass(&["--close"]);
    let nothing = format!("namespace {} has no break-glass, so there is nothing to close\n", it.ns);
    assert!(again.status == 0 && again.stdout == nothing, "{again}");
    assert_eq!(it.mark(), "");
    assert_eq!(it.scale().status, 1);
    eventually("the Event that break-glass has ended", || {
        (!it.events("GlassMended").is_empty()).then_some(())
    });
}

/// Break-glass ends although no command closes it: its end is in the annotation of the namespace.
#[test]
fn break_glass_ends_by_itself() {
    let it = Guarded::of("glassend");
    let until = Timestamp::from_second(Timestamp::now().as_second() + 20).unwrap();
    let mark = format!("gatera.dev/break-glass=until={until} reason=x");
    it.plane.kubectl(User::Admin, &["annotate", "namespace", &it.ns, &mark]).succeeded();
    eventually("break-glass to take effect", || (it.scale().status == 0).then_some(()));
    assert!(Timestamp::now() < until, "the machine is too slow for this test");
    eventually("break-glass to end", || (it.scale().status == 1).then_some(()));
    assert!(Timestamp::now() >= until, "break-glass ended too early");
}

/// An end that is too far away is refused however the annotation is written: break-glass takes effect at once or not at all.
#[test]
fn break_glass_that_would_begin_later_is_refused() {
    let it = Guarded::of("glasslater");
    let late = Timestamp::from_second(Timestamp::now().as_second() + 7200).unwrap();
    let late = format!("until={late} reason=x");
    let annotate = |ns: &str, how: &[&str]| {
        let patch = json!({ "metadata": { "annotations": { "gatera.dev/break-glass": late } } }).to_string();
        it.plane.kubectl(User::Admin, &[&["patch", "namespace", ns, "--patch", &patch], how].concat())
    };
    let plain = it.plane.namespace_with_labels("glassplain", &[]);
    for (ns, how) in [
        (&*it.ns, &[][..]),
        (&*plain, &[]),
        (&*plain, &["--subresource=status"]),
        (&*it.ns, &["--subresource=status"]),
    ] {
        let refused = annotate(ns, how);
        let words = "break-glass would have no effect: it must end within an hour from now";
        assert!(
            refused.status == 1 && refused.stderr.contains("[G18]") && refused.stderr.contains(words),
            "{ns} {how:?} {refused}"
        );
    }
    let new = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": format!("{plain}-new"), "annotations": { "gatera.dev/break-glass": late } } });
    let refused = it.plane.kubectl_stdin(User::Admin, &["create", "--filename=-"], &new.to_string());
    assert!(refused.status == 1 && refused.stderr.contains("[G18]"), "{refused}");
    let get = ["get", "namespace", &plain, "--output=json"];
    let mut whole: Value = serde_json::from_str(&it.plane.kubectl(User::Admin, &get).succeeded()).unwrap();
    whole["metadata"]["annotations"] = json!({ "gatera.dev/break-glass": late });
    let path = format!("/api/v1/namespaces/{plain}/finalize");
    let replace = ["replace", "--raw", &path, "--filename=-"];
    let refused = it.plane.kubectl_stdin(User::Admin, &replace, &whole.to_string());
    assert!(refused.status == 1 && refused.stderr.contains("[G18]"), "{refused}");
    // A change that no rule looks at is not sent to the guard.
    it.plane.kubectl(User::Admin, &["label", "namespace", &plain, "a=b"]).succeeded();
    // A user with rights inside a namespace may not open break-glass for it.
    let mark = format!("gatera.dev/break-glass={late}");
    let editor = it.plane.kubectl(User::Editor, &["annotate", "namespace", &it.ns, &mark]);
    assert!(editor.status == 1 && editor.stderr.contains("forbidden"), "{editor}");
}

#[test]
fn invalid_arguments_are_refused_with_the_reason() {
    let it = Guarded::of("glasswords");
    for (arguments, code, words) in [
        (&["--for", "2h", "--reason", "x"][..], 2, "it must be at least one minute and at most one hour"),
        (&["--for", "0s", "--reason", "x"], 2, "it must be at least one minute and at most one hour"),
        (&["--for", "later", "--reason", "x"], 2, "write it as 15m or 1h"),
        (&["--for", "15m"], 2, "--reason"),
        (
            &["--for", "15m", "--reason", "TEXT", "--yes"],
            2,
            "this break-glass would have no effect: its reason is still a placeholder",
        ),
        (&["--for", "15m", "--reason", " ", "--yes"], 2, "this break-glass would have no effect"),
    ] {
        let output = it.break_glass(arguments);
        assert!(output.status == code && output.stderr.contains(words), "{arguments:?} {output}");
        assert_eq!(it.mark(), "");
    }
    let nowhere = it.gatera(&["break-glass", "no-such-namespace", "--close"]);
    assert!(
        nowhere.status == 2 && nowhere.stderr.contains("there is no namespace no-such-namespace"),
        "{nowhere}"
    );
    // A reason with a control sequence is accepted, and printed in escaped form.
    let text = "until=2026-12-01T10:00:00Z reason=\u{1b}[2J";
    let odd = it.break_glass(&["--for", "5m", "--reason", text, "--yes"]);
    assert!(odd.status == 0 && !odd.stdout.contains('\u{1b}') && odd.stdout.contains("\\u{1b}[2J"), "{odd}");
}
