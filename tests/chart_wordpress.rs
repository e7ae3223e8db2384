//! The chart of WordPress, as Helm renders it and an API server accepts it: what it contains, which values it refuses with which
//! messages, and what an uninstallation leaves. Its pods are tested in `e2e/wordpress.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::lab::{self, ControlPlane, Output, User};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/wordpress");

fn template(flags: &[&str]) -> Output {
    lab::shared().helm(User::Ci, &[&["template", "blog", CHART, "--namespace=web"], flags].concat())
}

/// A namespace in which releases are installed and uninstalled.
struct Place {
    plane: &'static ControlPlane,
    ns: String,
}

impl Place {
    fn new() -> Self {
        let plane = lab::shared();
        Self { plane, ns: plane.namespace("web") }
    }

    fn helm(&self, arguments: &[&str]) -> Output {
        self.plane.helm(User::Ci, &[arguments, &["--namespace", &self.ns]].concat())
    }

    fn install(&self, name: &str, flags: &[&str]) -> Output {
        self.helm(&[&["install", name, CHART], flags].concat())
    }

    fn names(&self, kinds: &str) -> BTreeSet<String> {
        let get = ["get", kinds, "--namespace", &self.ns, "--output=name"];
        let names = self.plane.kubectl(User::Admin, &get).succeeded();
        names.lines().filter(|it| !it.contains("kube-root-ca")).map(str::to_owned).collect()
    }

    fn passwords(&self) -> Value {
        self.plane.get(&self.ns, "secret/wordpress-secret")["data"].clone()
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn helm_lint_passes() {
    let said = lab::shared().helm(User::Ci, &["lint", CHART, "--strict"]).succeeded();
    assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{said}");
}

/// The snapshot contains everything, with the chart's own database and with a Galera cluster. Generated passwords would differ
/// in every run, so both use an existing Secret.
#[test]
fn the_rendered_chart_is_as_in_its_snapshot() {
    let own = template(&["--set=auth.existingSecret=mine"]).succeeded();
    let galera = template(&["--set=auth.existingSecret=mine,database.galera=shop"]).succeeded();
    if lab::is_helm_3() {
        return;
    }
    let last_deployment = |text: &str| {
        text.split("---\n").filter(|it| it.contains("kind: Deployment")).last().map(str::to_owned)
    };
    let backup = template(&["--set=auth.existingSecret=mine,backup.enabled=true"]).succeeded();
    let backup = backup.split("# Source: ").filter(|it| it.starts_with("wordpress/templates/backup.yaml"));
    let backup = backup.collect::<Vec<_>>().join("---\n");
    let text = format!(
        "{own}\n=== database.galera=shop\n{}\n=== backup.enabled=true\n{backup}",
        last_deployment(&galera).unwrap()
    );
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!("chart-wordpress", text);
    });
    assert!(
        !galera.contains("wordpress-mysql"),
        "with database.galera, the chart still has its own database:\n{galera}"
    );
}

/// Each row has a bad value and the message that it must produce.
#[test]
fn bad_values_are_refused_with_an_explanation() {
    for (flag, words) in [
        (
            "image.tag=latest",
            "image.tag \"latest\" is not a version: a pod that restarts another day would run another version; set image.tag to a version",
        ),
        ("database.image.tag=", "database.image.tag \"\" is not a version"),
        (
            "namePrefix=Blog-",
            "namePrefix \"Blog-\": Services are named after it, so it must begin with a letter and hold at most 41 of a-z, 0-9 and -",
        ),
        (
            "database.user=root",
            "database.user root is an account of the server with rights of its own: choose another name",
        ),
        (
            "database.galeraSecret=x",
            "database.galeraSecret is set, and database.galera names no cluster; name it, or take database.galeraSecret out",
        ),
        ("database.name=a-b", "at '/database/name': 'a-b' does not match pattern"),
        ("volumeSize=ten", "at '/volumeSize': 'ten' does not match pattern"),
        (
            "service.type=None",
            "at '/service/type': value must be one of 'NodePort', 'LoadBalancer', 'ClusterIP'",
        ),
        ("volumesize=1Gi", "additional properties 'volumesize' not allowed"),
        ("backup.keep=0", "at '/backup/keep': minimum: got 0, want 1"),
    ] {
        let output = template(&[&format!("--set={flag}")]);
        assert_ne!(output.status, 0, "{flag} is accepted");
        assert!(output.stderr.contains(words), "{flag}: {words:?} is not in:\n{}", output.stderr);
    }
}

#[test]
fn data_outlives_the_release_and_is_used_again() {
    let place = Place::new();
    place.install("blog", &[]).succeeded();
    let passwords = place.passwords();
    let all = "deployments,services,persistentvolumeclaims,secrets";
    assert_eq!(
        place.names("deployments,services,persistentvolumeclaims"),
        set(&[
            "deployment.apps/wordpress",
            "deployment.apps/wordpress-mysql",
            "service/wordpress",
            "service/wordpress-mysql",
            "persistentvolumeclaim/wp-pv-claim",
            "persistentvolumeclaim/mysql-pv-claim",
        ])
    );
    place.helm(&["upgrade", "blog", CHART, "--set=service.type=ClusterIP"]).succeeded();
    assert_eq!(place.passwords(), passwords, "the upgrade has changed the passwords");

    place.helm(&["uninstall", "blog"]).succeeded();
    assert_eq!(
        place.names(all),
        set(&[
            "persistentvolumeclaim/mysql-pv-claim",
            "persistentvolumeclaim/wp-pv-claim",
            "secret/wordpress-secret",
        ])
    );
    place.install("blog", &[]).succeeded();
    assert_eq!(place.passwords(), passwords, "these are not the passwords of the database on the volume");
    place.helm(&["uninstall", "blog"]).succeeded();

    // Without the Secret, the passwords of the database on the volume would be unknown.
    let delete = ["delete", "secret/wordpress-secret", "--namespace", &place.ns];
    place.plane.kubectl(User::Admin, &delete).succeeded();
    let refused = place.install("blog", &[]);
    assert_ne!(refused.status, 0);
    let words = format!(
        "PersistentVolumeClaim {}/mysql-pv-claim is left from an earlier installation, and Secret wordpress-secret is not there",
        place.ns
    );
    assert!(refused.stderr.contains(&words), "{refused}");
}

#[test]
fn a_second_release_in_a_namespace_needs_a_name_prefix() {
    let place = Place::new();
    place.install("blog", &[]).succeeded();
    let refused = place.install("news", &[]);
    let words = format!(
        "Deployment {}/wordpress is there already, and release blog made it: a second WordPress in a namespace needs its own names: --set namePrefix=news-",
        place.ns
    );
    assert!(refused.status != 0 && refused.stderr.contains(&words), "{refused}");
    place.install("news", &["--set=namePrefix=news-,backup.enabled=true"]).succeeded();
    let labels = &place.plane.get(&place.ns, "cronjob/news-wp-backup")["spec"]["jobTemplate"]["spec"]["template"]
        ["metadata"]["labels"];
    assert_eq!(labels["tier"], "backup", "a Service would select the pods of backups");
    place.plane.get(&place.ns, "pvc/news-wp-backup-claim");
    let service = place.plane.get(&place.ns, "service/news-wordpress");
    assert_eq!(
        service["spec"]["selector"]["app"], "news",
        "the Service of release news would select the pods of release blog"
    );
}

/// The posts of a release stay in the database to which it wrote them.
#[test]
fn a_release_does_not_move_to_another_database_by_a_value() {
    let place = Place::new();
    place.install("blog", &[]).succeeded();
    let refused = place.helm(&["upgrade", "blog", CHART, "--set=database.galera=shop"]);
    let words =
        "database.galera: WordPress would move from wordpress-mysql to shop-cs, where its posts are not.";
    assert!(refused.status != 0 && refused.stderr.contains(words), "{refused}");
}

/// Runs the script of the CronJob, with a database dump that succeeds or fails.
fn back_up(folder: &Path, works: bool) -> std::process::Output {
    let programs = folder.join("programs");
    fs::create_dir_all(&programs).unwrap();
    let dump = programs.join("mariadb-dump");
    fs::write(&dump, format!("#!/bin/sh\necho half of it\nexit {}\n", i32::from(!works))).unwrap();
    fs::set_permissions(&dump, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let variables =
        [("DB_HOST", "h"), ("DB_USER", "u"), ("DB_NAME", "n"), ("DB_PASSWORD", "p"), ("KEEP", "2")];
    let mut shell = Command::new("sh");
    shell.arg(format!("{CHART}/files/backup.sh")).envs(variables).env("PATH", path);
    shell.env("BACKUPS", folder.join("backups")).env("SITE", folder.join("site")).output().unwrap()
}

#[test]
fn a_failed_backup_leaves_nothing_and_the_latest_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let backups = folder.path().join("backups");
    fs::create_dir_all(folder.path().join("site")).unwrap();
    fs::write(folder.path().join("site/photo.jpg"), "a photo").unwrap();
    for old in ["2026-01-01T02-17-00Z", "2026-01-02T02-17-00Z"] {
        fs::create_dir_all(backups.join(old)).unwrap();
    }
    let names = || -> BTreeSet<_> {
        let all = fs::read_dir(&backups).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        all.filter(|it| it != ".unfinished").collect()
    };
    let failed = back_up(folder.path(), false);
    assert!(!failed.status.success() && names().len() == 2, "{failed:?}");
    let made = back_up(folder.path(), true);
    let text = String::from_utf8_lossy(&made.stdout);
    assert!(text.contains("backup 2026-01-01T02-17-00Z is deleted: 2 are kept\n"), "{made:?}");
    let names = names();
    assert!(names.len() == 2 && names.contains("2026-01-02T02-17-00Z"), "{names:?}");
    let latest = backups.join(names.last().unwrap());
    let list = Command::new("tar").arg("-tzf").arg(latest.join("files.tar.gz")).output().unwrap();
    assert!(String::from_utf8_lossy(&list.stdout).contains("./photo.jpg"), "{list:?}");
    let dump = Command::new("gzip").arg("-dc").arg(latest.join("database.sql.gz")).output().unwrap();
    assert_eq!(dump.stdout, b"half of it\n");
}

#[test]
fn no_container_is_root_without_volume_permissions() {
    let flags = [
        "--set=volumePermissions.enabled=false,backup.enabled=true,podLabels.c=d",
        "--set=auth.existingSecret=own",
    ];
    let text = template(&flags).succeeded();
    assert!(!text.contains("runAsUser: 0") && !text.contains("CHOWN"), "{text}");
    assert_eq!(text.matches("c: d").count(), 3, "site, database and backup: {text}");
    let roots = template(&["--set=backup.enabled=true", "--set=auth.existingSecret=own"]).succeeded();
    assert_eq!(roots.matches("runAsUser: 0").count(), 3);
}
