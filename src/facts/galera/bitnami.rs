//! How Bitnami's image starts its server, as far as the step needs to know: the file that puts the step in front of the server
//! (`inject/bitnami.bash`), and what the image's `run.sh` starts.

use objects::{Container, EnvVar};

use super::data::BITNAMIS;
use super::image::Image;

/// The variable that names a file for bash to read before each script.
pub const BASH_ENV: &str = "BASH_ENV";
/// The file that puts the step in front of the server.
pub const SCRIPT: &str = "/etc/gatera/bitnami.bash";
/// The variable from which the image takes further options.
pub const EXTRA_FLAGS: &str = "MARIADB_EXTRA_FLAGS";

/// The mounts with the image's option file, in the order in which they are searched, and the path of the file: a mount of its
/// own, which the image copies; a mount over the folder, into which the image copies its defaults.
const OPTION_FILES: [(&str, &str); 3] = [
    ("/bitnami/conf/my.cnf", "/bitnami/conf/my.cnf"),
    ("/bitnami/conf", "/bitnami/conf/my.cnf"),
    ("/opt/bitnami/mariadb/conf", "/opt/bitnami/mariadb/conf.default/my.cnf"),
];
const OPTION_FILE: &str = "/opt/bitnami/mariadb/conf/my.cnf";

/// Returns whether this container has Bitnami's image. Other images have the same name, and some take its variables; a mirror
/// changes the registry, but not the paths in the image.
pub fn is_its_image(container: &Container) -> bool {
    let its_own = |path: &str| path.starts_with("/bitnami") || path.starts_with("/opt/bitnami");
    let image = Image::read(&container.image);
    image.name() == "mariadb-galera"
        && (image.repository.contains("bitnami")
            || container.volume_mounts.iter().any(|mount| its_own(&mount.mount_path)))
}

/// Returns whether this variable puts the step in front of the server.
pub fn is_script(variable: &EnvVar) -> bool {
    variable.name == BASH_ENV && variable.value.look() == SCRIPT
}

/// Returns the command line with which the image starts the server, in a container with these mounts and further options, where
/// the image prepares no data.
pub fn server(mounts: &[&str], further: &str) -> Vec<String> {
    let is_mounted = |path: &str| mounts.iter().any(|mount| mount.trim_end_matches('/') == path);
    let option_file = OPTION_FILES.iter().find(|(mount, _)| is_mounted(mount)).map_or(OPTION_FILE, |it| it.1);
    let starts = [
        "/opt/bitnami/mariadb/sbin/mysqld".to_owned(),
        format!("--defaults-file={option_file}"),
        "--basedir=/opt/bitnami/mariadb".to_owned(),
        format!("--datadir={BITNAMIS}"),
    ];
    starts.into_iter().chain(further.split_whitespace().map(str::to_owned)).collect()
}
