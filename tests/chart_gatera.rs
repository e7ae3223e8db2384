//! charts/gatera as Helm and a real API server see it: what it renders, what it refuses, and that what the guard writes
//! belongs to the guard through install, upgrade, rollback and uninstall.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use gatera::config::Settings;
use gatera::rules::RULES;
use gatera::webhooks::{self, Endpoint, Target};
use serde_json::{Value, json};

use crate::guarded::{self, CHART, Guard, Start, program};
use crate::lab::{self, ControlPlane, Output, User, eventually};

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
    gatera::manifest::read(text).unwrap().iter().map(gatera::manifest::Document::json).collect()
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
fn helm_finds_nothing_to_complain_about() {
    let lint = lab::shared().helm(User::Admin, &["lint", "--strict", CHART]);
    assert!(lint.stdout.contains("1 chart(s) linted, 0 chart(s) failed"), "{lint}");
}

#[test]
fn what_it_renders() {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("chart-gatera", rendered(&[]).succeeded());
    });
}

#[test]
fn what_can_be_chosen_arrives() {
    let text = rendered(&[
        "--set=image.repository=registry.example/gatera,image.tag=1.2.3,imagePullSecrets[0].name=ours",
        "--set=adopt[0]=app in (a\\, b),modes.G11=warn,injection.failurePolicy=Fail,webhooks.timeoutSeconds=9",
        "--set=tls.existingSecret=own,priorityClassName=,nodeSelector.disk=fast,serviceMonitor.enabled=true",
    ]);
    let objects = objects(&text.succeeded());
    let pod = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.example/gatera:1.2.3");
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "ours" }]));
    assert_eq!((&pod["priorityClassName"], &pod["nodeSelector"]["disk"]), (&Value::Null, &json!("fast")));
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], "own");
    assert!(
        pod["containers"][0]["args"].as_array().unwrap().contains(&json!("--tls-folder=/etc/gatera-tls"))
    );
    assert_eq!(of_kind(&objects, "ServiceMonitor")["spec"]["endpoints"][0]["port"], "operations");

    let settings = of_kind(&objects, "ConfigMap")["data"]["settings.yaml"].as_str().unwrap().to_owned();
    let ids: Vec<_> = RULES.iter().map(|rule| rule.id).collect();
    let settings = Settings::read(&settings, &ids).unwrap();
    assert_eq!(settings.mode("G11"), gatera::verdict::Mode::Warn);
    assert_eq!(settings.adoption.selectors()[0].to_string(), "app in (a,b)");
    let registered = |endpoint, settings: &Settings| {
        let target = Target::Service { namespace: "gatera".into(), name: "gatera".into() };
        let entries = webhooks::entries(endpoint, settings, &target, "");
        let of = |it: &Value| format!("{} {}", it["failurePolicy"], it["timeoutSeconds"]);
        entries.iter().map(of).collect::<BTreeSet<_>>()
    };
    let [fail, ignore, patient] = ["\"Fail\" 5", "\"Ignore\" 2", "\"Fail\" 9"].map(str::to_owned);
    assert_eq!(registered(Endpoint::Mutate, &Settings::default()), [fail, ignore.clone()].into());
    assert_eq!(registered(Endpoint::Mutate, &settings), [patient.clone()].into());
    assert_eq!(registered(Endpoint::Validate, &settings), [patient, ignore].into());
}

#[test]
fn names_that_look_like_numbers_are_names() {
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
fn bad_values_are_refused_with_words() {
    for (set, words) in [
        ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("modes.G99=warn", "invalid propertyName 'G99'"),
        ("modes.G11=maybe", "at '/modes/G11': value must be one of 'enforce', 'warn', 'audit', 'off'"),
        (
            "injection.failurePolicy=Perhaps",
            "at '/injection/failurePolicy': value must be one of 'Ignore', 'Fail'",
        ),
        ("webhooks.timeoutSeconds=31", "at '/webhooks/timeoutSeconds': maximum: got 31, want 30"),
        ("image=gatera:1", "at '/image': got string, want object"),
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

/// Every value there is, by the schema: `a.b`, where `a` is an object with properties of its own.
fn leaves(schema: &Value, prefix: &str) -> Vec<String> {
    let properties = schema["properties"].as_object().unwrap().iter();
    let below = properties.flat_map(|(name, property)| {
        if property["properties"].is_object() {
            leaves(property, &format!("{prefix}{name}."))
        } else {
            vec![format!("{prefix}{name}")]
        }
    });
    below.collect()
}

#[test]
fn values_schema_and_readme_agree() {
    let schema: Value = serde_json::from_str(&file("values.schema.json")).unwrap();
    let values = yaml(&file("values.yaml"));
    let readme = file("README.md");
    // `global` is what a chart around this one hands down.
    let known: BTreeSet<String> = leaves(&schema, "").into_iter().filter(|name| name != "global").collect();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let mut told = BTreeSet::new();
    for (name, rest) in rows {
        let default = rest.split(" | ").next().unwrap();
        let value = values.pointer(&format!("/{}", name.replace('.', "/")));
        let value = value.unwrap_or_else(|| panic!("values.yaml has no {name}"));
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let text = if text.is_empty() { "\"\"".to_owned() } else { text };
        let in_words = ["image.tag", "resources", "test.namespace"].contains(&name);
        assert!(in_words || default == format!("`{text}`"), "{name} is {text}, and README.md says {default}");
        told.insert(name.to_owned());
    }
    assert_eq!(told, known);
    let rules: Vec<_> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(schema["properties"]["modes"]["propertyNames"]["enum"], json!(rules));
}

#[test]
fn its_arguments_are_the_program_s() {
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
        assert!(args.len() > 2 && !help.is_empty());
        for flag in &args[1..] {
            let name = flag.split('=').next().unwrap();
            assert!(help.contains(&format!("{name} <")), "gatera {} knows no {name}", args[0]);
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
    assert!(seconds("--lame-duck=") + seconds("--drain=") + 5 <= grace, "it is killed while it drains");
}

/// A release `guard` in a namespace that enforces the strictest Pod Security.
struct Release<'a> {
    plane: &'a ControlPlane,
    ns: String,
}

impl<'a> Release<'a> {
    fn install(plane: &'a ControlPlane, flags: &[&str]) -> Self {
        let restricted = ["enforce", "warn"].map(|it| format!("pod-security.kubernetes.io/{it}"));
        let labels = restricted.each_ref().map(|it| (&**it, "restricted"));
        let release = Self { plane, ns: plane.namespace_with_labels("guard", &labels) };
        let output = release.helm("install", &[&["guard", CHART], flags].concat());
        assert_eq!((output.status, &*output.stderr), (0, ""), "{output}");
        release
    }

    fn helm(&self, command: &str, arguments: &[&str]) -> Output {
        self.plane.helm(User::Admin, &[&[command, "--namespace", &self.ns], arguments].concat())
    }

    fn guard(&self, by_service: bool) -> Guard {
        let home = Some(self.ns.clone());
        let start = Start { identity: self.ns.clone(), home, by_service, ..Start::default() };
        Guard::start(self.plane, &program(), &start)
    }

    /// What the guard writes; of the lease only who holds it.
    fn written(&self) -> Value {
        let get = |what: &str| self.plane.get(&self.ns, what);
        json!({
            "mutating": get("mutatingwebhookconfiguration/gatera")["webhooks"],
            "validating": get("validatingwebhookconfiguration/gatera")["webhooks"],
            "certificates": get("secret/gatera-tls")["data"],
            "holder": get("lease/gatera")["spec"]["holderIdentity"],
        })
    }

    /// A Galera StatefulSet whose password is written out.
    fn try_what_is_forbidden(&self) -> Output {
        let manifest = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
            "spec": { "serviceName": "db", "selector": { "matchLabels": { "gatera.dev/cluster": "db" } }, "template": {
                "metadata": { "labels": { "gatera.dev/cluster": "db" } },
                "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "env": [{ "name": "MARIADB_ROOT_PASSWORD", "value": "x" }] }] },
            } },
        });
        let create = ["create", "--namespace=default", "--dry-run=server", "--filename=-"];
        self.plane.kubectl_stdin(User::Admin, &create, &manifest.to_string())
    }

    /// The guard is gone already. An ordinary write passes, where the moment before it was refused.
    fn uninstall(self) {
        let held_up = self.try_what_is_forbidden();
        assert!(held_up.stderr.contains("failed calling webhook"), "{held_up}");
        let output = self.helm("uninstall", &["guard"]);
        assert_eq!(output.status, 0, "{output}");
        eventually("API servers ask no more", || (self.try_what_is_forbidden().status == 0).then_some(()));
        let kinds = "secret,lease,configmap,deployment,service,serviceaccount,role,rolebinding,pdb,\
                     clusterrole,clusterrolebinding,validatingwebhookconfiguration,mutatingwebhookconfiguration";
        let left = ["get", kinds, "--namespace", &self.ns, "--output=name"];
        let left = self.plane.kubectl(User::Admin, &left).succeeded();
        assert!(!left.contains("gatera"), "{left}");
    }

    /// `gatera selftest` as the pod of `helm test` runs it, with that pod's rights.
    fn selftest(&self) -> (i32, String) {
        let hooks = ["guard", CHART, "--show-only=templates/tests/selftest.yaml"];
        let text = self.helm("template", &hooks).succeeded();
        let pod = of_kind(&objects(&text), "Pod");
        let apply = ["apply", "--filename=-"];
        let output = self.plane.kubectl_stdin(User::Admin, &apply, &text);
        assert_eq!((output.status, &*output.stderr), (0, ""), "the strictest Pod Security: {output}");
        let kubeconfig = guarded::kubeconfig_of(self.plane, &self.ns, "gatera-selftest", "selftest", None);
        let args = pod["spec"]["containers"][0]["args"].as_array().unwrap().iter();
        let args = args.map(|it| it.as_str().unwrap()).filter(|it| !it.starts_with("--config="));
        let ran = Command::new(program())
            .args(args)
            .arg("--patience=0")
            .env("KUBECONFIG", kubeconfig)
            .output()
            .unwrap();
        // As the hooks' deletion policy has it. No kubelet confirms the end of a pod.
        let delete = ["delete", "--wait=false", "--filename=-"];
        self.plane.kubectl_stdin(User::Admin, &delete, &text).succeeded();
        (ran.status.code().unwrap(), String::from_utf8(ran.stdout).unwrap())
    }
}

const METHODS: [[&str; 3]; 3] = [
    ["--server-side=true", "--server-side=true", "--server-side=auto"],
    ["--server-side=false", "--server-side=false", "--server-side=auto"],
    ["--server-side=false", "--server-side=true", "--server-side=false"],
];

/// Whichever way Helm writes, the guard's own fields stay, and a guard that is down stands in nobody's way out.
#[test]
fn what_the_guard_writes_survives_upgrade_and_rollback() {
    let plane = ControlPlane::start();
    for [install, upgrade, rollback] in METHODS {
        let release = Release::install(&plane, &[install]);
        let guard = release.guard(false);
        guard.until_registered();
        let written = eventually("the lease is held", || {
            Some(release.written()).filter(|it| !it["holder"].as_str().unwrap_or_default().is_empty())
        });
        assert!(written["certificates"]["tls.key"].is_string(), "{:?}", written["certificates"]);
        release.helm("upgrade", &["guard", CHART, upgrade, "--set=modes.G11=warn,replicas=3"]).succeeded();
        assert_eq!(release.written(), written, "{upgrade}");
        release.helm("rollback", &["guard", "1", rollback]).succeeded();
        assert_eq!(release.written(), written, "{rollback}");

        // The way out when a guard is broken, and the way back.
        let kinds = "validatingwebhookconfiguration,mutatingwebhookconfiguration";
        plane.kubectl(User::Admin, &["delete", kinds, "gatera"]).succeeded();
        eventually("nothing is guarded", || (release.try_what_is_forbidden().status == 0).then_some(()));
        eventually("the guard says so", || {
            guard.get("/readyz")?.1.contains("not there: nothing is guarded").then_some(())
        });
        release.helm("upgrade", &["guard", CHART, upgrade]).succeeded();
        guard.until_registered();
        eventually("API servers ask again", || (release.try_what_is_forbidden().status == 1).then_some(()));

        let (code, words) = release.selftest();
        assert_eq!(code, 0, "{words}");
        assert!(words.starts_with("refused, as it must be: [G"), "{words}");
        drop(guard);
        release.uninstall();
    }
}

/// By its Service, as in a cluster: no entry before a pod is ready, and none is needed for a pod to become so.
#[test]
fn a_guard_whose_pods_never_become_ready_blocks_nobody() {
    let plane = ControlPlane::start();
    let release = Release::install(&plane, &[]);
    let guard = release.guard(true);
    eventually("the guard waits for an endpoint", || {
        let (status, text) = guard.get("/readyz")?;
        (status == 200 && text.contains("webhooks: waiting for a ready endpoint of our Service"))
            .then_some(())
    });
    let written = release.written();
    assert_eq!((&written["validating"], &written["mutating"]), (&Value::Null, &Value::Null));
    assert_eq!(release.try_what_is_forbidden().status, 0);
    let (code, words) = release.selftest();
    assert_eq!(code, 1, "{words}");
    assert!(
        words.starts_with("not refused by the guard: the API server admits a StatefulSet with"),
        "{words}"
    );

    let other = plane.helm(User::Admin, &["install", "second", CHART, "--namespace=default"]);
    let words = format!(
        "this cluster has a guard already: release guard in namespace {}. One guard serves the whole cluster; upgrade \
         that release, or uninstall it first",
        release.ns
    );
    assert!(other.status == 1 && other.stderr.contains(&words), "{other}");

    // Both pods were admitted under the strictest Pod Security. One of them becomes ready.
    let pods = || plane.get(&release.ns, "pods")["items"].as_array().unwrap().clone();
    let pods = eventually("two pods", || {
        let names = pods().into_iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
        Some(names.filter(|it| it.starts_with("gatera-") && it != "gatera-selftest").collect::<Vec<_>>())
            .filter(|names| names.len() == 2)
    });
    plane.make_pod_ready(&release.ns, &pods[0]);
    guard.until_registered();
    let entry = &release.written()["validating"][0];
    let service = json!({ "namespace": release.ns, "name": "gatera", "path": "/validate", "port": 443 });
    assert_eq!(entry["clientConfig"]["service"], service);
    let never = &entry["namespaceSelector"]["matchExpressions"][0]["values"];
    assert!(never.as_array().unwrap().contains(&json!(release.ns)), "{never}");
    drop(guard);
    release.uninstall();
}

/// What it cannot do is as much of the contract as what it can.
#[test]
fn its_rights_are_no_more_than_it_needs() {
    let (plane, _) = guarded::shared();
    for (verb, what, may) in [
        ("get", "secret/gatera-tls", "yes"),
        ("list", "secrets", "no"),
        ("get", "secret/other", "no"),
        ("create", "validatingwebhookconfigurations.admissionregistration.k8s.io", "no"),
        ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io/other", "no"),
        ("delete", "statefulsets.apps", "no"),
        ("delete", "persistentvolumeclaims", "no"),
        ("delete", "pods", "no"),
        ("create", "pods/exec", "no"),
        ("update", "leases.coordination.k8s.io/other", "no"),
    ] {
        let can =
            ["auth", "can-i", verb, what, "--namespace=gatera", "--as=system:serviceaccount:gatera:gatera"];
        let output = plane.kubectl(User::Admin, &can);
        assert_eq!(output.stdout.trim(), may, "{verb} {what}: {output}");
    }
}
