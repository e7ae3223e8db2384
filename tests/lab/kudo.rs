//! The real KUDO: its plugin for kubectl, run as the admin, and its controller, installed from the plugin's manifests.
//! `tests/e2e/images/build.sh kudo` makes its image.

use std::path::Path;

use super::PATIENCE;
use super::command::Output;
use super::control_plane::ControlPlane;
use super::supervise::supervised;
use super::tools::Tools;
use super::users::User;

/// The flag that names the controller's image; its version is pinned in `tools/kudo/go.mod`.
const IMAGE: &str = "--kudo-image=docker.io/kudobuilder/controller:v0.19.0";

impl ControlPlane {
    /// Runs `kubectl kudo …` as the admin. Panics when it does not end within `PATIENCE`.
    pub(crate) fn kudo(&self, arguments: &[&str]) -> Output {
        let run = || {
            let plugin = supervised(self.folder(), &Tools::also("kubectl-kudo")?, Path::new("/dev/null"));
            self.run_as(User::Admin, plugin, "kubectl kudo", arguments, PATIENCE)
        };
        run().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Installs what `kubectl kudo init` would install, with this image. The plugin itself cannot: it uses a version of
    /// webhook configurations that API servers no longer serve.
    pub(crate) fn install_kudo(&self, image: &Path) {
        self.import_image(image);
        let init = ["init", "--dry-run", "--output=yaml", "--unsafe-self-signed-webhook-ca", IMAGE];
        let written =
            self.kudo(&[&init[..], &["--kudo-image-pull-policy=IfNotPresent"]].concat()).succeeded();
        let old = "apiVersion: admissionregistration.k8s.io/v1beta1";
        assert!(written.contains(old), "{written}");
        let manifest = written
            .replace(old, "apiVersion: admissionregistration.k8s.io/v1")
            .replace("- clientConfig:", "- admissionReviewVersions: [v1beta1]\n  clientConfig:");
        self.kubectl_stdin(User::Admin, &["apply", "--filename=-"], &manifest).succeeded();
        let set = "statefulset/kudo-controller-manager";
        let rollout = ["rollout", "status", set, "--namespace=kudo-system", "--timeout=60s"];
        self.kubectl(User::Admin, &rollout).succeeded();
    }
}
