//! Profiles: how a server image takes options, and so how far injection may go.
//!
//! A probe that can never succeed would be an outage of our own making. Where it is not known how the server is
//! started, it gets no option and no probe that depends on one.

use facts::galera::added::{FOLDER, STATUS_FILE};
use facts::galera::image::Image;
use facts::galera::options::{Flag, flags, one_spelling};
use facts::galera::runs;
use objects::Container;

/// How the server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// The official image and its like: option files, so `MYSQL_HOME/my.cnf` is read.
    Official,
    /// Bitnami: `--defaults-file` makes `MYSQL_HOME` void, extra flags travel in `MARIADB_EXTRA_FLAGS`.
    Bitnami,
    /// Not known: the status file cannot be relied on.
    Unknown,
    /// Somebody replaced the command (diagnostic mode): perhaps no server runs at all.
    Replaced,
    /// The user's own option file or status file stands where ours would have to be named.
    Elsewhere,
}

impl Profile {
    /// What `gatera.dev/profile` names, else what the container looks like.
    pub(super) fn of(server: &Container, named: Option<&str>) -> Self {
        let own_home = || server.env.iter().any(|var| var.name == "MYSQL_HOME" && var.value.look() != FOLDER);
        let own_file = |flag: &Flag<'_>| {
            flag.key == "wsrep_status_file"
                && flag.value.as_ref().is_none_or(|value| value.look() != STATUS_FILE)
        };
        match Self::by_looks(server, named) {
            Self::Official if own_home() => Self::Elsewhere,
            Self::Official | Self::Bitnami if flags(server).iter().any(own_file) => Self::Elsewhere,
            profile => profile,
        }
    }

    pub(super) fn by_looks(server: &Container, named: Option<&str>) -> Self {
        match named {
            Some("official") => return Self::Official,
            Some("bitnami") => return Self::Bitnami,
            Some(_) => return Self::Unknown,
            None => {}
        }
        if !runs::starts_as_the_image_does(server) {
            return Self::Replaced;
        }
        let option = |name: &str| {
            let same = |word: &str| {
                one_spelling(word.trim_start_matches('-').split('=').next().unwrap_or_default()) == name
            };
            let words = server.command.iter().chain(&server.args).flat_map(|it| it.look().split_whitespace());
            words.into_iter().any(same)
        };
        let image = Image::read(&server.image);
        match image.name() {
            "mariadb-galera" if is_bitnamis(&image, server) => Self::Bitnami,
            "mariadb"
                if !image.repository.contains("bitnami")
                    && !option("defaults_file")
                    && !option("no_defaults") =>
            {
                Self::Official
            }
            _ => Self::Unknown,
        }
    }

    /// Why a container keeps its probes. `None`: the server writes its status file where the script looks for it.
    pub(super) fn keeps_probes(self) -> Option<&'static str> {
        match self {
            Self::Official | Self::Bitnami => None,
            Self::Replaced => Some("its command is replaced"),
            Self::Elsewhere => Some(
                "it sets MYSQL_HOME or wsrep_status_file itself, so gatera's option file would not count",
            ),
            Self::Unknown => Some("it is not known how its image takes options; set gatera.dev/profile"),
        }
    }
}

/// Others call their images so too. A mirror changes the registry, but not where the image keeps its things.
fn is_bitnamis(image: &Image<'_>, server: &Container) -> bool {
    let its_own = |path: &str| path.starts_with("/bitnami") || path.starts_with("/opt/bitnami");
    image.repository.contains("bitnami")
        || server.volume_mounts.iter().any(|mount| its_own(&mount.mount_path))
        || server.env.iter().any(|var| var.name.starts_with("MARIADB_GALERA_"))
}
