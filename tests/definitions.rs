//! Objects for cert-manager and for the Prometheus operator: an API server that has the published definitions accepts them and
//! knows each of their fields.

use crate::lab::{self, ControlPlane, User, sources_of};

const CERTIFICATES: &str = "github.com/cert-manager/cert-manager";
const MONITORING: &str = "github.com/prometheus-operator/prometheus-operator";
const EXAMPLES: &str = include_str!("../certs/cert-manager.yaml");

fn define(plane: &ControlPlane, module: &str, path: &str, names: &[&str]) {
    let folder = sources_of("definitions", module);
    for name in names {
        let file = folder.join(format!("{path}_{name}.yaml"));
        let file = format!("--filename={}", file.display());
        plane.kubectl(User::Admin, &["apply", "--server-side", &file]).succeeded();
    }
    plane.until_defined();
}

/// Returns the objects for cert-manager and for the Prometheus operator that a chart renders.
fn rendered(plane: &ControlPlane, ns: &str, chart: &str, values: &[&str]) -> String {
    let folder = format!("{}/charts/{chart}", env!("CARGO_MANIFEST_DIR"));
    let fixed = ["template", "shop", &folder, "--namespace", ns];
    let text = plane.helm(User::Admin, &[&fixed, values].concat()).succeeded();
    let is_for_an_operator = |text: &&str| {
        text.contains("apiVersion: cert-manager.io") || text.contains("apiVersion: monitoring.coreos.com")
    };
    text.split("\n---").filter(is_for_an_operator).collect::<Vec<_>>().join("\n---\n")
}

#[test]
fn objects_for_other_operators_conform_to_their_definitions() {
    let plane = lab::shared();
    define(plane, CERTIFICATES, "deploy/crds/cert-manager.io", &["certificates", "issuers"]);
    let path = "example/prometheus-operator-crd/monitoring.coreos.com";
    define(plane, MONITORING, path, &["servicemonitors", "prometheusrules"]);
    let ns = plane.namespace("definitions");
    let issuer = "--set=tls.issuerRef.name=ours";
    let monitored = "--set=serviceMonitor.enabled=true,prometheusRule.enabled=true";
    let metrics =
        "--set=metrics.enabled=true,metrics.existingSecret=ours,metrics.serviceMonitor.enabled=true";
    for (text, kinds) in [
        (
            EXAMPLES.replace("namespace: gatera}", &format!("namespace: {ns}}}")),
            "IssuerCertificateIssuerCertificate",
        ),
        (rendered(plane, &ns, "gatera", &[issuer, monitored]), "CertificatePrometheusRuleServiceMonitor"),
        (rendered(plane, &ns, "galera", &[issuer, metrics]), "CertificateServiceMonitor"),
    ] {
        let apply = [
            "apply",
            "--validate=strict",
            "--output=jsonpath={.kind}{.items[*].kind}",
            "--namespace",
            &ns,
            "--filename=-",
        ];
        let applied = plane.kubectl_stdin(User::Admin, &apply, &text).succeeded();
        assert_eq!(applied.replace("List", "").replace(' ', ""), kinds, "{text}");
    }
}
