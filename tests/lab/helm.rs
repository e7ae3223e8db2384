//! The real Helm, run as one of the users. It keeps its files in the control plane's folder and has no repositories: charts
//! are folders, so it talks to nobody but the API server.

use std::path::Path;

use super::PATIENCE;
use super::command::Output;
use super::control_plane::ControlPlane;
use super::supervise::supervised;
use super::tools::Tools;
use super::users::User;

impl ControlPlane {
    /// Panics when Helm does not end within the lab's patience.
    pub(crate) fn helm(&self, user: User, arguments: &[&str]) -> Output {
        let run = || {
            let mut helm = supervised(self.folder(), &Tools::also("helm")?, Path::new("/dev/null"));
            for room in ["CACHE", "CONFIG", "DATA"] {
                helm.env(format!("HELM_{room}_HOME"), self.folder().join("helm").join(room.to_lowercase()));
            }
            self.run_as(user, helm, "helm", arguments, PATIENCE)
        };
        run().unwrap_or_else(|error| panic!("{error}"))
    }
}
