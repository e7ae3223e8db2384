//! Programs that check files and make no connections: promtool reads rules as Prometheus does, and replays recorded metrics to
//! them; kube-score looks at manifests.

use std::path::Path;

use super::PATIENCE;
use super::command::Output;
use super::control_plane::ControlPlane;
use super::supervise::supervised;
use super::tools::Tools;
use super::users::User;

impl ControlPlane {
    /// Runs promtool. Panics when it does not end within `PATIENCE`.
    pub(crate) fn promtool(&self, arguments: &[&str]) -> Output {
        self.checker("promtool", arguments)
    }

    /// Runs kube-score. Panics when it does not end within `PATIENCE`.
    pub(crate) fn kube_score(&self, arguments: &[&str]) -> Output {
        self.checker("kube-score", arguments)
    }

    fn checker(&self, name: &'static str, arguments: &[&str]) -> Output {
        let run = || {
            let program = supervised(self.folder(), &Tools::also(name)?, Path::new("/dev/null"));
            self.run_as(User::Admin, program, name, arguments, PATIENCE)
        };
        run().unwrap_or_else(|error| panic!("{error}"))
    }
}
