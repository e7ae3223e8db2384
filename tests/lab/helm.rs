//! The real Helm, run as one of the users. It keeps its files in the control plane's folder and has no repositories: charts
//! are folders, so it connects only to the API server.

use std::env;
use std::path::Path;

use super::PATIENCE;
use super::command::Output;
use super::control_plane::ControlPlane;
use super::supervise::supervised;
use super::tools::Tools;
use super::users::User;

/// Returns whether the tests use Helm 3, which applies manifests on the client's side only and prints them in another order.
pub(crate) fn is_helm_3() -> bool {
    env::var_os("GATERA_HELM").is_some_and(|release| release == "3")
}

/// Translates an argument that Helm 3 names differently; returns `None` for one that Helm 3 does not know.
fn for_this_release(argument: &str) -> Option<&str> {
    match argument {
        _ if !is_helm_3() => Some(argument),
        "--rollback-on-failure" => Some("--atomic"),
        "--force-conflicts" => None,
        it if it.starts_with("--server-side=") => None,
        it => Some(it),
    }
}

impl ControlPlane {
    /// Runs Helm. Panics when it does not end within `PATIENCE`.
    pub(crate) fn helm(&self, user: User, arguments: &[&str]) -> Output {
        let run = || {
            let mut helm = supervised(self.folder(), &Tools::also("helm")?, Path::new("/dev/null"));
            for room in ["CACHE", "CONFIG", "DATA"] {
                helm.env(format!("HELM_{room}_HOME"), self.folder().join("helm").join(room.to_lowercase()));
            }
            let arguments: Vec<_> = arguments.iter().filter_map(|it| for_this_release(it)).collect();
            self.run_as(user, helm, "helm", &arguments, PATIENCE)
        };
        run().unwrap_or_else(|error| panic!("{error}"))
    }
}
