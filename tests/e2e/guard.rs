//! The guard as a user installs it: by Helm, from `charts/gatera`, in pods.
//!
//! Must not know: what happens to its clusters.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;

use crate::galera::{Galera, patiently};
use crate::lab::{ControlPlane, Output, User};
use crate::nodes::lab;

pub const NAMESPACE: &str = "gatera";

/// Returns the path of a chart of this repository.
pub fn chart(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts").join(name).display().to_string()
}

/// Returns the shared nodes, with the guard installed.
pub fn guarded() -> &'static ControlPlane {
    static INSTALLED: LazyLock<()> = LazyLock::new(|| {
        import_guard_image(lab());
        install(lab(), &[]).succeeded();
        until_registered(lab());
    });
    LazyLock::force(&INSTALLED);
    lab()
}

/// Imports the guard's image, which `make gatera-image` builds.
pub fn import_guard_image(lab: &ControlPlane) {
    let image = env::var_os("GATERA_IMAGE").map(PathBuf::from);
    lab.import_image(&image.expect("GATERA_IMAGE names the guard's image: use `make e2e`"));
}

/// Installs the guard, with these arguments for Helm.
pub fn install(lab: &ControlPlane, more: &[&str]) -> Output {
    let install = ["install", "gatera", &chart("gatera"), "--namespace", NAMESPACE, "--create-namespace"];
    lab.helm(User::Admin, &[&install[..], more].concat())
}

/// Waits until every replica of the guard is ready and its webhooks are registered.
pub fn until_registered(lab: &ControlPlane) {
    patiently("the guard is ready and registered", || {
        let configuration =
            ["get", "validatingwebhookconfiguration", "gatera", "--output=jsonpath={.webhooks[*].name}"];
        let entries = lab.kubectl(User::Admin, &configuration).stdout;
        let rollout = ["rollout", "status", "deployment/gatera", "--namespace", NAMESPACE, "--watch=false"];
        let rollout = lab.kubectl(User::Admin, &rollout).stdout;
        if !entries.is_empty() && rollout.contains("successfully rolled out") {
            Ok(())
        } else {
            Err(format!("{rollout}{entries}"))
        }
    });
}

/// Waits until the guard has no pod.
pub fn until_no_guard_runs(lab: &ControlPlane) {
    patiently("the guard has no pod", || {
        let get = ["get", "pods", "--namespace", NAMESPACE, "--output=name"];
        let pods = lab.kubectl(User::Admin, &get).succeeded();
        if pods.is_empty() { Ok(()) } else { Err(pods) }
    });
}

/// Returns what `gatera status` prints.
pub fn status(galera: &Galera<'_>) -> String {
    let status = Command::new(env!("CARGO_BIN_EXE_gatera"))
        .args(["status", &galera.name, "--namespace", &galera.namespace, "--kubeconfig"])
        .arg(galera.lab.kubeconfig(User::Admin))
        .output()
        .unwrap();
    String::from_utf8(status.stdout).unwrap()
}

/// Asserts that `rule` refused the request of kubectl, or of its plugin for KUDO, with this text.
#[track_caller]
pub fn refused(output: &Output, rule: &str, text: &str) {
    // The exit codes of a refusal: 1 from kubectl, 255 from the plugin.
    assert!([1, 255].contains(&output.status), "{rule} has not refused the request: {output}");
    let expected = output.stderr.contains(&format!("[{rule}]")) && output.stderr.contains(text);
    assert!(expected, "this is not a refusal by {rule} that says \"{text}\": {output}");
}

/// Returns the text of an override for half an hour.
pub fn override_of(rules: &str) -> String {
    let until = Timestamp::now() + Duration::from_secs(1800);
    format!("{rules} until={until:.0} reason=a drill")
}

/// Commands of people who act against the guard's advice.
impl Galera<'_> {
    /// Sets an override for half an hour on an object. The command fails if the object does not exist.
    pub fn set_override(&self, object: &str, rules: &str) -> Output {
        let annotation = format!("gatera.dev/override={}", override_of(rules));
        self.kubectl(&["annotate", "--overwrite", object, &annotation])
    }

    /// Deletes a claim against the guard's advice. The claim remains until its pod is gone, too.
    pub fn delete_claim(&self, claim: &str) {
        let claim = format!("pvc/{claim}");
        self.set_override(&claim, "G07").succeeded();
        patiently("the claim may be deleted", || {
            let deleted = self.kubectl(&["delete", &claim, "--wait=false"]);
            if deleted.status == 0 { Ok(()) } else { Err(deleted.stderr) }
        });
    }

    /// Deletes a member's claim and then its pod. The next pod has an empty volume, so it copies all data from another member.
    pub fn replace_volume(&self, ordinal: usize) {
        let (claim, pod) = (self.claim(ordinal), self.member(ordinal));
        let uid = || self.lab.get(&self.namespace, &format!("pvc/{claim}"))["metadata"]["uid"].clone();
        let before = uid();
        self.delete_claim(&claim);
        patiently("the pod is deleted", || {
            let deleted = self.kubectl(&["delete", "pod", &pod, "--timeout=120s"]);
            if deleted.status == 0 { Ok(()) } else { Err(deleted.stderr) }
        });
        patiently("the member has a new claim", || {
            let now = self.kubectl(&["get", "pvc", &claim, "--output=jsonpath={.metadata.uid}"]).stdout;
            if now.is_empty() || before == *now { Err(now) } else { Ok(()) }
        });
    }
}
