//! charts/gatera as Helm sees it: what it renders and what it refuses. `release.rs` installs it, and `policy.rs` tries what
//! the guard's own account may not do.

mod policy;
mod release;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use engine::webhooks::{Destination, Endpoint};
use facts::pages::Pages;
use facts::settings::Settings;
use gatera::rulebook;
use serde_json::{Value, json};

use crate::cluster::running_cluster;
use crate::guarded::{self, CHART, program};
use crate::lab::{self, Output, User, eventually};

fn file(name: &str) -> String {
    fs::read_to_string(format!("{CHART}/{name}")).unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn rendered(arguments: &[&str]) -> Output {
    let template = ["template", "gatera", CHART, "--namespace=gatera"];
    lab::shared().helm(User::Admin, &[&template, arguments].concat())
}

fn objects(text: &str) -> Vec<Value> {
    inspect::manifest::read(text).into_iter().map(|it| it.unwrap().json()).collect()
}

fn of_kind(objects: &[Value], kind: &str) -> Value {
    objects.iter().find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("no {kind}")).clone()
}

#[test]
fn versions_are_those_of_the_program() {
    let chart = yaml(&file("Chart.yaml"));
    let ours = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(ours), &json!(ours)));
    for text in [file("README.md"), file("values.yaml"), file("../../Dockerfile")] {
        assert!(text.contains(&format!("gatera:{ours}")), "{text}");
    }
}

#[test]
fn helm_lint_passes() {
    let lint = lab::shared().helm(User::Admin, &["lint", "--strict", CHART]);
    assert!(lint.stdout.contains("1 chart(s) linted, 0 chart(s) failed"), "{lint}");
}

#[test]
fn the_rendered_chart_is_as_in_its_snapshot() {
    // The pages have their own test.
    let text = rendered(&[]).succeeded();
    let (rest, pages) = text.split("---\n").partition::<Vec<_>, _>(|it| !it.contains("\n  G01: "));
    assert_eq!(pages.len(), 1);
    if lab::is_helm_3() {
        return;
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("chart-gatera", rest.join("---\n"));
    });
}

#[test]
fn chosen_values_reach_the_objects() {
    let text = rendered(&[
        "--set=image.repository=registry.example/gatera,image.tag=1.2.3,imagePullSecrets[0].name=ours",
        "--set=adopt[0]=app in (a\\, b),modes.G11=warn,injection.failurePolicy=Fail,webhooks.timeoutSeconds=9",
        "--set=tls.existingSecret=own,priorityClassName=,nodeSelector.disk=fast,serviceMonitor.enabled=true",
        "--set=commonLabels.team=db,podLabels.a=b,podAnnotations.c=d,logLevel=debug,extraEnv[0].name=N,extraEnv[0].value=v",
        "--set=affinity.podAffinity.x=1",
    ]);
    let objects = objects(&text.succeeded());
    let pod = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.example/gatera:1.2.3");
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "ours" }]));
    assert_eq!((&pod["priorityClassName"], &pod["nodeSelector"]["disk"]), (&Value::Null, &json!("fast")));
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], "own");
    assert_eq!(pod["affinity"]["podAffinity"]["x"], 1);
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let more = [json!({ "name": "RUST_LOG", "value": "debug" }), json!({ "name": "N", "value": "v" })];
    assert_eq!(env[env.len() - 2..], more);
    for object in
        objects.iter().filter(|it| it["metadata"]["name"] != "gatera-selftest" || it["kind"] != "Pod")
    {
        assert_eq!(object["metadata"]["labels"]["team"], "db", "{object}");
    }
    let metadata = &of_kind(&objects, "Deployment")["spec"]["template"]["metadata"];
    assert_eq!((&metadata["labels"]["a"], &metadata["annotations"]["c"]), (&json!("b"), &json!("d")));
    assert!(
        pod["containers"][0]["args"].as_array().unwrap().contains(&json!("--tls-folder=/etc/gatera-tls"))
    );
    assert_eq!(of_kind(&objects, "ServiceMonitor")["spec"]["endpoints"][0]["port"], "operations");

    let settings = objects.iter().find_map(|it| it["data"]["settings.yaml"].as_str()).unwrap();
    let settings = rulebook().settings(settings).unwrap();
    assert_eq!(settings.mode("G11"), facts::mode::Mode::Warn);
    assert_eq!(settings.adoption.selectors().last().unwrap().to_string(), "app in (a,b)");
    let registered = |endpoint, settings: &Settings| {
        let target = Destination::Service { namespace: "gatera".into(), name: "gatera".into() };
        let entries = rulebook().entries(endpoint, settings, &BTreeSet::new(), &target, "");
        let of = |it: &Value| format!("{} {}", it["failurePolicy"], it["timeoutSeconds"]);
        entries.iter().map(of).collect::<BTreeSet<_>>()
    };
    let [fail, ignore, slow_fail] = ["\"Fail\" 5", "\"Ignore\" 2", "\"Fail\" 9"].map(str::to_owned);
    assert_eq!(registered(Endpoint::Mutate, &Settings::default()), [fail, ignore.clone()].into());
    assert_eq!(registered(Endpoint::Mutate, &settings), [slow_fail.clone()].into());
    assert_eq!(registered(Endpoint::Validate, &settings), [slow_fail, ignore].into());
}

/// A chart with several dependencies sets one registry and its pull Secrets for all of them.
#[test]
fn a_registry_and_its_secrets_may_be_global() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let one = |set: &str, show: &str| {
        let text =
            rendered(&[&format!("--set={set}"), &format!("--show-only=templates/{show}.yaml")]).succeeded();
        objects(&text).pop().unwrap()
    };
    let image =
        |set: &str| one(set, "deployment")["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!(image("image.registry=ours.example"), "ours.example/gatera:0.1.0");
    let both = format!("image.registry=ours.example,global.imageRegistry=all.example,image.digest={digest}");
    assert_eq!(image(&both), format!("all.example/gatera:0.1.0@{digest}"));
    let secrets = "imagePullSecrets[0].name=a,global.imagePullSecrets[0]=b,global.imagePullSecrets[1].name=c";
    for pod in [one(secrets, "deployment")["spec"]["template"].clone(), one(secrets, "tests/selftest")] {
        assert_eq!(
            pod["spec"]["imagePullSecrets"],
            json!([{ "name": "a" }, { "name": "b" }, { "name": "c" }])
        );
    }
}

#[test]
fn cert_manager_makes_the_certificate_that_is_mounted() {
    let objects =
        objects(&rendered(&["--set=tls.issuerRef.name=ours,tls.issuerRef.kind=ClusterIssuer"]).succeeded());
    let certificate = of_kind(&objects, "Certificate");
    assert_eq!(certificate["spec"]["dnsNames"], json!(["gatera.gatera.svc"]));
    let issuer = json!({ "name": "ours", "kind": "ClusterIssuer", "group": "cert-manager.io" });
    assert_eq!(certificate["spec"]["issuerRef"], issuer);
    let pod = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], certificate["spec"]["secretName"]);
    assert!(
        pod["containers"][0]["args"].as_array().unwrap().contains(&json!("--tls-folder=/etc/gatera-tls"))
    );
}

#[test]
fn the_pages_of_the_rules_are_in_a_config_map() {
    let objects = objects(&rendered(&["--show-only=templates/rules.yaml"]).succeeded());
    let pages = &of_kind(&objects, "ConfigMap")["data"];
    for rule in rulebook().pages() {
        let page = fs::read_to_string(Path::new(CHART).join("files/rules").join(rule.id)).unwrap();
        assert_eq!(pages[rule.id], page, "{}", rule.id);
    }
}

/// In a values file, YAML reads a bare `off` as false.
#[test]
fn off_needs_no_quotes() {
    let values = lab::shared().folder().join("off.yaml");
    fs::write(
        &values,
        "mode: off\nmodes: {G11: off, G01: warn}\npacks: {wordpress: off}\npages: {enabled: false}\n",
    )
    .unwrap();
    let text = rendered(&[&format!("--values={}", values.display())]).succeeded();
    assert!(!text.contains("gatera-rules"), "{text}");
    let objects = objects(&text);
    let settings = objects.iter().find_map(|it| it["data"]["settings.yaml"].as_str()).unwrap();
    let settings = rulebook().settings(settings).unwrap();
    let modes = ["G01", "G02", "G11"].map(|rule| settings.mode(rule).name());
    assert_eq!(modes, ["warn", "off", "off"]);
    assert!(rulebook().enabled_packs(&settings).all(|pack| pack.name != "wordpress"));
    assert_eq!(settings.pages, Pages::Program);
}

/// An older release, whose values `helm upgrade --reuse-values` keeps, has no `adoptDefaults`.
#[test]
fn the_usual_clusters_are_guarded_unless_the_values_say_no() {
    let install = ["install", "gatera", CHART, "--namespace=gatera", "--dry-run=client"];
    for (set, out) in [("adoptDefaults=null", false), ("adoptDefaults=false,adopt[0]=team=own", true)] {
        let set = format!("--set={set}");
        let text = lab::shared().helm(User::Admin, &[&install[..], &[&set]].concat()).succeeded();
        assert_eq!(text.contains("    adoptDefaults: false\n"), out, "{set}: {text}");
        assert_eq!(text.contains("WARNING: adoptDefaults is false"), out, "{set}: {text}");
    }
}

#[test]
fn names_that_look_like_numbers_stay_strings() {
    let template = ["template", "123", CHART, "--namespace=456"];
    let objects = objects(&lab::shared().helm(User::Admin, &template).succeeded());
    let names = objects.iter().flat_map(|it| {
        [&it["metadata"]["namespace"], &it["metadata"]["labels"]["app.kubernetes.io/instance"]]
    });
    for name in names {
        assert!(name.is_string() || name.is_null(), "{name}");
    }
    assert_eq!(of_kind(&objects, "Service")["metadata"]["namespace"], "456");
}

#[test]
fn bad_values_are_refused_with_an_explanation() {
    for (set, words) in [
        ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("mode=maybe", "at '/mode': value must be one of 'enforce', 'warn', 'audit', 'off', false"),
        ("modes.G99=warn", "invalid propertyName 'G99'"),
        ("modes.G11=maybe", "at '/modes/G11': value must be one of 'enforce', 'warn', 'audit', 'off', false"),
        (
            "injection.failurePolicy=Perhaps",
            "at '/injection/failurePolicy': value must be one of 'Ignore', 'Fail'",
        ),
        ("webhooks.timeoutSeconds=31", "at '/webhooks/timeoutSeconds': maximum: got 31, want 30"),
        ("tls.issuerRef.kind=Issuer", "tls.issuerRef needs a name"),
        ("tls.issuerRef.name=a,tls.existingSecret=b", "tls: set only one of existingSecret and issuerRef"),
        ("image.digest=abc", "at '/image/digest': 'abc' does not match pattern"),
        ("adoptDefaults=false", "adoptDefaults: false needs selectors in adopt"),
        ("image=gatera:1", "at '/image': got string, want object"),
        ("policy.enabled=perhaps", "at '/policy/enabled': got string, want boolean"),
        ("packs.other=false", "invalid propertyName 'other'"),
        ("packs.wordpress=perhaps", "at '/packs/wordpress': got string, want boolean"),
        ("replica=2", "additional properties 'replica' not allowed"),
        ("serviceMonitor.interval=often", "at '/serviceMonitor/interval': 'often' does not match pattern"),
        (
            "test.namespace=gatera",
            "test.namespace: gatera is the guard's own namespace, in which nothing is ever refused; name another one",
        ),
    ] {
        let output = rendered(&[&format!("--set={set}")]);
        assert_eq!(output.status, 1, "{set}: {output}");
        assert!(output.stderr.contains(words), "{set}: {output}");
    }
}

#[test]
fn the_charts_arguments_are_options_of_the_program() {
    for (choice, kind) in [
        ("tls.existingSecret=", "Deployment"),
        ("tls.existingSecret=own", "Deployment"),
        ("replicas=1", "Pod"),
    ] {
        let object = of_kind(&objects(&rendered(&[&format!("--set={choice}")]).succeeded()), kind);
        let pod = if kind == "Pod" { &object["spec"] } else { &object["spec"]["template"]["spec"] };
        let args: Vec<_> =
            pod["containers"][0]["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        let help = Command::new(program()).args([args[0], "--help"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(args.len() > 2 && !help.is_empty());
        for flag in &args[1..] {
            let line =
                flag.split_once('=').map_or_else(|| format!("{flag} "), |(name, _)| format!("{name} <"));
            assert!(help.contains(&line), "gatera {} has no {flag}", args[0]);
        }
        for variable in pod["containers"][0]["env"].as_array().into_iter().flatten() {
            assert!(help.contains(&format!("[env: {}]", variable["name"].as_str().unwrap())), "{variable}");
        }
    }
    let pod = of_kind(&objects(&rendered(&[]).succeeded()), "Deployment")["spec"]["template"]["spec"].clone();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    let seconds = |name: &str| -> u64 {
        let mut args = pod["containers"][0]["args"].as_array().unwrap().iter();
        args.find_map(|it| it.as_str()?.strip_prefix(name)).unwrap().parse().unwrap()
    };
    assert!(
        seconds("--lame-duck=") + seconds("--drain=") + 5 <= grace,
        "the grace period is too short: the guard would be killed while it drains"
    );
}

/// The Leases by which replicas coordinate are the same in the program, in the chart and in the guard's Role.
#[test]
fn the_charts_leases_are_those_of_the_program() {
    let objects = objects(&rendered(&[]).succeeded());
    let wanted: BTreeSet<_> = gatera::act::reserve::lease_names().chain(["gatera".to_owned()]).collect();
    let name = |value: &Value| value.as_str().unwrap().to_owned();
    let made = objects.iter().filter(|it| it["kind"] == "Lease").map(|it| name(&it["metadata"]["name"]));
    assert_eq!(made.collect::<BTreeSet<_>>(), wanted);
    let role = of_kind(&objects, "Role");
    let leases =
        role["rules"].as_array().unwrap().iter().find(|it| it["resources"] == json!(["leases"])).unwrap();
    let written = leases["resourceNames"].as_array().unwrap().iter().map(name);
    assert_eq!(written.collect::<BTreeSet<_>>(), wanted);
}

/// None of the guard's requests so far in this control plane was forbidden; it has read a cluster's configuration at least.
#[test]
fn the_guards_rights_are_sufficient() {
    let (plane, _ns) = running_cluster("rights");
    eventually("the guard to read a ConfigMap", || {
        plane
            .asked_by_the_guard()
            .iter()
            .any(|it| it.verb == "get" && it.resource == "configmaps")
            .then_some(())
    });
    assert_eq!(plane.forbidden_to_the_guard(), []);
}

/// What the guard may not do is as much a part of the contract as what it may do.
#[test]
fn the_guard_has_no_more_rights_than_it_needs() {
    let (plane, _) = guarded::shared();
    for (verb, what, may) in [
        ("get", "secret/gatera-tls", "no"),
        ("update", "secret/gatera-tls", "yes"),
        ("get", "configmap/any", "yes"),
        ("get", "pod/any", "no"),
        ("list", "secrets", "no"),
        ("get", "secret/other", "no"),
        ("create", "secret/gatera-tls", "yes"),
        ("create", "secret/other", "no"),
        ("create", "secrets", "no"),
        ("delete", "secret/other", "no"),
        ("create", "lease.coordination.k8s.io/gatera", "yes"),
        ("patch", "lease.coordination.k8s.io/gatera", "no"),
        ("create", "lease.coordination.k8s.io/other", "no"),
        ("create", "validatingwebhookconfigurations.admissionregistration.k8s.io", "no"),
        ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io/other", "no"),
        ("delete", "statefulsets.apps", "no"),
        ("delete", "persistentvolumeclaims", "no"),
        ("delete", "pods", "no"),
        ("list", "cronjobs.batch", "yes"),
        ("watch", "cronjobs.batch", "no"),
        ("get", "service/any", "no"),
        ("update", "configmaps", "no"),
        ("patch", "validatingadmissionpolicies.admissionregistration.k8s.io/gatera", "no"),
        ("delete", "validatingadmissionpolicybindings.admissionregistration.k8s.io/gatera", "no"),
        ("create", "pods/exec", "no"),
        ("update", "leases.coordination.k8s.io/other", "no"),
    ] {
        let can =
            ["auth", "can-i", verb, what, "--namespace=gatera", "--as=system:serviceaccount:gatera:gatera"];
        let output = plane.kubectl(User::Admin, &can);
        assert_eq!(output.stdout.trim(), may, "may the guard {verb} {what}? {output}");
    }
}
