//! The real promtool: reads rules as Prometheus does, and replays recorded metrics to them. It makes no connections.

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
        let run = || {
            let promtool = supervised(self.folder(), &Tools::also("promtool")?, Path::new("/dev/null"));
            self.run_as(User::Admin, promtool, "promtool", arguments, PATIENCE)
        };
        run().unwrap_or_else(|error| panic!("{error}"))
    }
}
