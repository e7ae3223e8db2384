//! Profiles: how a server image reads options, which decides how much can be injected.
//!
//! An injected probe that can never succeed would cause an outage. So a server gets no option, and no probe that depends on one,
//! if it is not known how that server is started.

use facts::galera::added::{FOLDER, STATUS_FILE};
use facts::galera::image::Image;
use facts::galera::options::{Flag, flags, one_spelling};
use facts::galera::{bitnami, runs};
use facts::marks;
use objects::{Container, Meta};

/// How an image starts its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// The official image and similar ones, which read `MYSQL_HOME/my.cnf`.
    Official,
    /// Bitnami's image, whose scripts read `bitnami.bash`, which passes the options on.
    Bitnami,
    /// An unknown image, whose server may not write the status file.
    Unknown,
    /// A replaced command (diagnostic mode): perhaps no server runs at all.
    Replaced,
    /// A container in which gatera's options have no effect, for this reason.
    Overridden(&'static str),
}

impl Profile {
    /// Returns the profile that `gatera.dev/profile` names, or else the one that fits the container.
    pub(super) fn of(server: &Container, meta: &Meta) -> Self {
        let differs = |name, ours| server.env.iter().any(|var| var.name == name && var.value.look() != ours);
        let overrides_status_file = |flag: &Flag<'_>| {
            flag.key == "wsrep_status_file"
                && flag.value.as_ref().is_none_or(|value| value.look() != STATUS_FILE)
        };
        let why = match Self::named_or_detected(server, meta.mark(marks::PROFILE)) {
            Self::Official if differs("MYSQL_HOME", FOLDER) => "it sets MYSQL_HOME itself",
            Self::Bitnami if differs(bitnami::BASH_ENV, bitnami::SCRIPT) => "it sets BASH_ENV itself",
            Self::Bitnami if meta.mark(marks::START) == Some("keep") => {
                "gatera.dev/start: keep leaves its start unchanged"
            }
            Self::Official | Self::Bitnami if flags(server).iter().any(overrides_status_file) => {
                "it sets wsrep_status_file itself"
            }
            profile => return profile,
        };
        Self::Overridden(why)
    }

    pub(super) fn named_or_detected(server: &Container, named: Option<&str>) -> Self {
        match named {
            Some("official") => return Self::Official,
            Some("bitnami") => return Self::Bitnami,
            Some(_) => return Self::Unknown,
            None => {}
        }
        if !runs::starts_as_the_image_does(server) {
            return Self::Replaced;
        }
        let has_option = |name: &str| {
            let is_it = |word: &str| {
                let option = word.strip_prefix('-').map(|it| it.trim_start_matches('-'));
                option.is_some_and(|it| one_spelling(it.split('=').next().unwrap_or_default()) == name)
            };
            let words = server.command.iter().chain(&server.args).flat_map(|it| it.look().split_whitespace());
            words.into_iter().any(is_it)
        };
        let image = Image::read(&server.image);
        match image.name() {
            _ if bitnami::is_its_image(server) => Self::Bitnami,
            "mariadb"
                if !image.repository.contains("bitnami")
                    && !has_option("defaults_file")
                    && !has_option("no_defaults") =>
            {
                Self::Official
            }
            _ => Self::Unknown,
        }
    }

    /// Returns why a container keeps its probes. `None`: the server writes its status file to the path that the script reads.
    pub(super) fn keeps_probes(self) -> Option<String> {
        match self {
            Self::Official | Self::Bitnami => None,
            Self::Replaced => Some("its command is replaced".to_owned()),
            Self::Overridden(why) => Some(format!("{why}, so gatera's options would have no effect")),
            Self::Unknown => {
                Some("it is not known how its image reads options; set gatera.dev/profile".to_owned())
            }
        }
    }
}
