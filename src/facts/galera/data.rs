//! Where a server keeps its data: in which volume, and in which folder of it.
//!
//! Owns: how that follows from options, image and mounts. Must not know: rules, or the contents of a volume. Options
//! win over the image's defaults; the mount nearest to the data directory counts. What a manifest does not show (a
//! script that chooses the folder, an unknown image) is not guessed.

use std::fmt;

use super::image::Image;
use super::options::{flags, last};
use super::reading::ConfigMapFile;
use super::runs;
use super::server::DATA_DIRECTORIES;
use objects::{Container, Literal, Mount, Workload};

/// The folder of a volume in which a server keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFolder {
    /// The data directory, as the server sees it.
    pub directory: String,
    /// The volume that is mounted there, or above it.
    pub backing: Backing,
    /// The volume, by the name that mounts use; `None`: no volume.
    pub volume: Option<String>,
    /// The folder in the volume, without slashes at its ends; empty: all of it.
    pub folder: String,
    /// Whether each pod has a different folder.
    pub of_each: bool,
}

/// The storage of the data. A claim or a folder of the node identifies it, not the name of the volume, because a template may
/// rename the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// The claim of each member from this template.
    Template(String),
    /// One claim, by its name.
    Claim(String),
    /// A folder of the node, by its path.
    Node(String),
    /// A volume of another kind, by its name.
    Volume(String),
    /// The container's own file system: no volume is mounted.
    Container,
}

impl DataFolder {
    /// Returns where the server of this workload keeps its data; `None`: unknown.
    pub fn of(workload: &Workload, server: &Container, files: &[ConfigMapFile<'_>]) -> Option<Self> {
        Some(Self::at(workload, server, directory(server, files)?))
    }

    /// Returns the storage of this data directory. `directory` is the path that the server sees.
    pub fn at(workload: &Workload, server: &Container, directory: String) -> Self {
        let (mount, rest) = covering(&server.volume_mounts, &directory);
        let Some(mount) = mount else {
            let folder = String::new();
            return Self { directory, backing: Backing::Container, volume: None, folder, of_each: false };
        };
        let varies = |name: &str| {
            let mut of_pods = server.env.iter().filter(|var| var.name == name);
            of_pods.any(|var| var.value_from.as_ref().is_some_and(|from| from.field_ref.is_some()))
        };
        let mut variables = mount.sub_path_expr.split("$(").skip(1).filter_map(|it| it.split_once(')'));
        let within = if mount.sub_path.is_empty() { &mount.sub_path_expr } else { &mount.sub_path };
        let parts = [within.trim_matches('/'), rest].into_iter().filter(|part| !part.is_empty());
        Self {
            folder: parts.collect::<Vec<_>>().join("/"),
            backing: backing(workload, &mount.name),
            volume: Some(mount.name.clone()),
            of_each: variables.any(|(name, _)| varies(name)),
            directory,
        }
    }

    /// Returns whether both are the same folder of the same storage, even if it is mounted elsewhere.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.backing, &self.folder) == (&other.backing, &other.folder)
    }
}

impl fmt::Display for DataFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.folder.is_empty() {
            write!(f, "folder {} of ", self.folder)?;
        }
        match &self.backing {
            Backing::Template(name) => write!(f, "each member's claim from template {name}"),
            Backing::Claim(name) => write!(f, "claim {name}"),
            Backing::Node(path) => write!(f, "folder {path} of its node"),
            Backing::Volume(name) => write!(f, "volume {name}"),
            Backing::Container => f.write_str("no volume at all"),
        }
    }
}

/// The data directory of Bitnami's image, which is the folder `data` of the volume mounted above it.
pub const BITNAMI_DATA: &str = "/bitnami/mariadb/data";

const DATADIR: &str = "datadir";

/// Returns the data directory, without a slash at its end.
fn directory(server: &Container, files: &[ConfigMapFile<'_>]) -> Option<String> {
    let plain = |path: &str| Some(path.trim_end_matches('/').to_owned()).filter(|it| it.starts_with('/'));
    let mut chosen = flags(server).into_iter().filter(|flag| flag.key == DATADIR);
    if let Some(flag) = chosen.next_back() {
        return plain(flag.value.as_ref()?.look());
    }
    // A script may choose another directory, and pass it as an option.
    let words = || server.command.iter().chain(&server.args).map(Literal::look);
    let in_a_script = |word: &str| !word.starts_with('-') && word.contains(DATADIR);
    if runs::starts_by_a_script(server) || words().any(in_a_script) {
        return None;
    }
    let by_file = files.iter().rev().find_map(|file| last(file.text, DATADIR));
    match by_file {
        Some(setting) => plain(setting.look()),
        None => by_image(server).map(str::to_owned),
    }
}

/// Returns the image's default data directory.
fn by_image(server: &Container) -> Option<&'static str> {
    let [official, bitnami] = DATA_DIRECTORIES;
    let mounts =
        |path: &str| server.volume_mounts.iter().any(|it| it.mount_path.trim_end_matches('/') == path);
    let image = Image::read(&server.image);
    let bitnamis = image.repository.contains("bitnami");
    let officials = image.is_official() && image.name() == "mariadb";
    match () {
        () if bitnamis || mounts(bitnami) && !officials => Some(BITNAMI_DATA),
        () if image.vendor().is_some() || mounts(official) => Some(official),
        () => None,
    }
}

/// Returns the mount that is nearest to this folder, and the path from there.
fn covering<'a>(mounts: &'a [Mount], directory: &'a str) -> (Option<&'a Mount>, &'a str) {
    let way = |mount: &'a Mount| {
        let rest = directory.strip_prefix(mount.mount_path.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then_some((mount, rest.trim_matches('/')))
    };
    let nearest = mounts.iter().filter_map(way).min_by_key(|(_, rest)| rest.len());
    nearest.map_or((None, ""), |(mount, rest)| (Some(mount), rest))
}

fn backing(workload: &Workload, volume: &str) -> Backing {
    let is = |it: &str| it == volume;
    if workload.spec.volume_claim_templates.iter().any(|it| is(&it.metadata.name)) {
        return Backing::Template(volume.to_owned());
    }
    let mut volumes = workload.spec.template.spec.volumes.iter();
    let found = volumes.find(|it| is(&it.name));
    match found.map(|it| (&it.persistent_volume_claim, &it.host_path)) {
        Some((Some(claim), _)) => Backing::Claim(claim.claim_name.clone()),
        Some((_, Some(folder))) => Backing::Node(folder.path.clone()),
        _ => Backing::Volume(volume.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use objects::{Kind, Object};

    fn place(image: &str, server: &str, volumes: &str, file: &str) -> Option<String> {
        let json = format!(
            r#"{{"metadata":{{"name":"g"}},"spec":{{
                "template":{{"spec":{{"containers":[{{"name":"s","image":"{image}",{server}}}],"volumes":[{volumes}]}}}},
                "volumeClaimTemplates":[{{"metadata":{{"name":"data"}}}}]}}}}"#
        );
        let Ok(Object::StatefulSet(set)) = Object::read(Kind::StatefulSet, &json) else { panic!("{json}") };
        let container = &set.spec.template.spec.containers[0];
        DataFolder::of(&set, container, &[ConfigMapFile { map: "c", key: "my.cnf", text: file }])
            .map(|it| format!("{}: {it}", it.directory))
    }

    const HERE: &str = r#""volumeMounts":[{"name":"data","mountPath":"/var/lib/mysql"}]"#;

    #[test]
    fn options_win_and_the_nearest_mount_counts() {
        let mounts =
            |more: &str| format!(r#""volumeMounts":[{{"name":"data","mountPath":"/var/lib/mysql/"{more}"#);
        let args = |args: &str| format!(r#"{HERE},"args":[{args}]"#);
        let claim = r#"{"name":"other","persistentVolumeClaim":{"claimName":"one"}}"#;
        for (image, server, file, is) in [
            ("mariadb:10.11", HERE.to_owned(), "", "/var/lib/mysql: each member's claim from template data"),
            (
                "mariadb:10.11",
                mounts(r#","subPath":"db/"}]"#),
                "",
                "/var/lib/mysql: folder db of each member's claim from template data",
            ),
            (
                "mariadb:10.11",
                mounts(r#","subPathExpr":"$(POD_NAME)"}]"#),
                "",
                "/var/lib/mysql: folder $(POD_NAME) of each member's claim from template data",
            ),
            (
                "mariadb:10.11",
                args(r#""mariadbd","--datadir=/var/lib/mysql/data/""#),
                "[mysqld]\ndatadir=/nowhere\n",
                "/var/lib/mysql/data: folder data of each member's claim from template data",
            ),
            (
                "mariadb:10.11",
                HERE.to_owned(),
                "[mysqld]\ndatadir = /data\n",
                "/data: no volume at all",
            ),
            (
                "mariadb:10.11",
                mounts(r#"},{"name":"other","mountPath":"/var/lib"}]"#),
                "",
                "/var/lib/mysql: each member's claim from template data",
            ),
            (
                "mariadb:10.11",
                r#""volumeMounts":[{"name":"other","mountPath":"/var/lib"},{"name":"data","mountPath":"/var/lib/mysql2"}]"#.to_owned(),
                "",
                "/var/lib/mysql: folder mysql of claim one",
            ),
            (
                "docker.io/bitnami/mariadb-galera:10.11",
                r#""volumeMounts":[{"name":"data","mountPath":"/bitnami/mariadb"}]"#.to_owned(),
                "",
                "/bitnami/mariadb/data: folder data of each member's claim from template data",
            ),
        ] {
            assert_eq!(place(image, &server, claim, file).as_deref(), Some(is), "{server} {file}");
        }
    }

    #[test]
    fn a_folder_of_the_node_is_identified_by_its_path() {
        let volume = r#"{"name":"disk","hostPath":{"path":"/srv/db"}}"#;
        let mounts = r#""volumeMounts":[{"name":"disk","mountPath":"/var/lib/mysql"}]"#;
        let is = "/var/lib/mysql: folder /srv/db of its node";
        assert_eq!(place("mariadb:10.11", mounts, volume, "").as_deref(), Some(is));
    }

    #[test]
    fn a_folder_that_a_field_of_the_pod_names_differs_for_each_pod() {
        let of_each = |name: &str, from: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"g"}},"spec":{{"template":{{"spec":{{"containers":[{{"name":"s","image":"mariadb:10.11",
                    "env":[{{"name":"WHO",{from}}}],
                    "volumeMounts":[{{"name":"d","mountPath":"/var/lib/mysql","subPathExpr":"a/$({name})"}}]}}]}}}}}}}}"#
            );
            let Ok(Object::StatefulSet(set)) = Object::read(Kind::StatefulSet, &json) else {
                panic!("{json}")
            };
            DataFolder::of(&set, &set.spec.template.spec.containers[0], &[]).unwrap().of_each
        };
        let field = r#""valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}"#;
        assert!(of_each("WHO", field));
        assert!(!of_each("WHO", r#""value":"all""#));
        assert!(!of_each("OTHER", field));
    }

    #[test]
    fn a_data_directory_that_the_manifest_does_not_show_is_unknown() {
        let script = r#""command":["bash","-c","exec /start.sh"],"volumeMounts":[{"name":"data","mountPath":"/var/lib/mysql"}]"#;
        assert_eq!(place("mariadb:10.11", script, "", ""), None);
        let elsewhere = r#""volumeMounts":[{"name":"data","mountPath":"/data"}]"#;
        assert_eq!(place("example.com/db:1", elsewhere, "", ""), None);
        let chosen = r#""args":["sh","-c","exec mariadbd --datadir=$D"],"volumeMounts":[{"name":"data","mountPath":"/var/lib/mysql"}]"#;
        assert_eq!(place("mariadb:10.11", chosen, "", ""), None);
        let relative = r#""args":["mariadbd","--datadir=data"]"#;
        assert_eq!(place("mariadb:10.11", relative, "", ""), None);
    }
}
