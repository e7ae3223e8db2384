//! How Bitnami's image starts its server, as far as the step script needs it: the file that puts the step script in front of the
//! server (`inject/bitnami.bash`), and the command line that the image's `run.sh` starts.

use objects::{Container, EnvVar};

use super::data::BITNAMI_DATA;
use super::image::Image;

/// The variable that names a file for bash to read before each script.
pub const BASH_ENV: &str = "BASH_ENV";
/// The file that puts the step script in front of the server.
pub const SCRIPT: &str = "/etc/gatera/bitnami.bash";
/// The variable from which the image takes further options.
pub const EXTRA_FLAGS: &str = "MARIADB_EXTRA_FLAGS";

/// The mounts that decide which option file the image uses, in the order in which the image looks for them, each with the path of
/// a file with the same content. The image copies a mounted file to its own path; if the folder of that path is mounted, the
/// image copies its default file into it.
const OPTION_FILES: [(&str, &str); 3] = [
    ("/bitnami/conf/my.cnf", "/bitnami/conf/my.cnf"),
    ("/bitnami/conf", "/bitnami/conf/my.cnf"),
    ("/opt/bitnami/mariadb/conf", "/opt/bitnami/mariadb/conf.default/my.cnf"),
];
/// The option file of the image if none of these is mounted.
const OPTION_FILE: &str = "/opt/bitnami/mariadb/conf/my.cnf";

/// Returns whether this container has Bitnami's image. Other images have the same name, and some take its variables. A mirror
/// changes the repository, but not the paths in the image, so a mount at one of them counts.
pub fn is_its_image(container: &Container) -> bool {
    let its_own = |path: &str| path.starts_with("/bitnami") || path.starts_with("/opt/bitnami");
    let image = Image::read(&container.image);
    image.name() == "mariadb-galera"
        && (image.repository.contains("bitnami")
            || container.volume_mounts.iter().any(|mount| its_own(&mount.mount_path)))
}

/// Returns whether this variable puts the step script in front of the server.
pub fn is_script(variable: &EnvVar) -> bool {
    variable.name == BASH_ENV && variable.value.look() == SCRIPT
}

/// Returns the command line with which the image would start the server in a container with these mounts and further options. It
/// is for a pod in which the image's scripts do not run.
pub fn server(mounts: &[&str], further: &str) -> Vec<String> {
    let is_mounted = |path: &str| mounts.iter().any(|mount| mount.trim_end_matches('/') == path);
    let option_file = OPTION_FILES.iter().find(|(mount, _)| is_mounted(mount)).map_or(OPTION_FILE, |it| it.1);
    let starts = [
        "/opt/bitnami/mariadb/sbin/mysqld".to_owned(),
        format!("--defaults-file={option_file}"),
        "--basedir=/opt/bitnami/mariadb".to_owned(),
        format!("--datadir={BITNAMI_DATA}"),
    ];
    starts.into_iter().chain(further.split_whitespace().map(str::to_owned)).collect()
}
