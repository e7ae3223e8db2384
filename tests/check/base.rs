//! The bases of `--against`, with the real program and the real git: earlier files, and revisions of a repository.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::CLUSTER;

/// A repository in a folder of its own, without personal settings.
pub struct Repository(tempfile::TempDir);

impl Repository {
    pub fn new() -> Self {
        let it = Self(tempfile::tempdir().unwrap());
        it.git(&["init", "--quiet", "--initial-branch=main"]);
        it.put("apps/db/galera.yaml", CLUSTER);
        it.put("apps/web/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n");
        it.put("apps/values.txt", "kind: [\n");
        it.commit();
        it
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn git(&self, arguments: &[&str]) {
        let output = Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .current_dir(self.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn put(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message=x"]);
    }

    /// Runs `gatera check` in a folder of the repository; returns the exit code and all output.
    pub fn check(&self, folder: &str, arguments: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_gatera"))
            .args(["check", "--output=concise"])
            .args(arguments)
            .current_dir(self.path().join(folder))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout) + &text(stderr))
    }
}

#[test]
fn a_revision_is_compared_with_the_current_files() {
    let it = Repository::new();
    let same = "9 objects: 0 would be refused, 0 allowed with a warning, 9 unchanged; 1 Galera cluster\n";
    for (folder, path) in [(".", "apps"), (".", "./apps/"), ("apps", "."), ("apps/db", "..")] {
        assert_eq!(it.check(folder, &[path, "--against=git:HEAD"]), (0, same.to_owned()), "{folder} {path}");
    }
    it.put("apps/db/galera.yaml", &CLUSTER.replace("replicas: 3", "replicas: 1"));
    let refused = "galera.yaml:91:13: refused [G01] StatefulSet default/galera-instance-galera: 3 -> 1 replicas would leave 1 of 3 members; 2 is the smallest next step\n";
    for (folder, path, prefix) in [
        (".", "apps", "apps/db/"),
        (".", "apps/db/galera.yaml", "apps/db/"),
        ("apps/db", ".", "./"),
        ("apps/db", "galera.yaml", ""),
        ("apps/web", "../db", "../db/"),
    ] {
        let (code, said) = it.check(folder, &[path, "--against=git:HEAD"]);
        assert_eq!(
            (code, said.lines().next().unwrap()),
            (1, format!("{prefix}{}", refused.trim_end()).as_str()),
            "{said}"
        );
    }
    it.commit();
    assert_eq!(it.check(".", &["apps", "--against=git:main"]), (0, same.to_owned()));
    assert_eq!(it.check(".", &["apps", "--against=git:HEAD~1"]).0, 1);
}

#[test]
fn removals_are_judged_in_folders_and_in_files() {
    let it = Repository::new();
    let gone = "refused [G03] StatefulSet default/galera-instance-galera: deleting it stops every member at once (3 of 3 members Synced, assumed here)";
    fs::remove_dir_all(it.path().join("apps/db")).unwrap();
    for path in ["apps", "apps/db", "apps/db/galera.yaml"] {
        let (code, said) = it.check(".", &[path, "--against=git:HEAD"]);
        assert_eq!(code, 1, "{said}");
        assert!(said.starts_with(&format!("apps/db/galera.yaml:86:1 (in the base): {gone}\n")), "{said}");
        assert!(!said.contains("not readable"), "{said}");
    }
    // Objects in a file that was moved are the same objects.
    it.put("apps/elsewhere/all.yaml", CLUSTER);
    assert_eq!(it.check(".", &["apps", "--against=git:HEAD"]).0, 0);
}

/// An unreadable file is not a removal: the mistake in the file is the finding, and its objects are not taken for deleted.
#[test]
fn a_file_that_cannot_be_read_was_not_removed() {
    for broken in [&b"kind: [\n"[..], b"\xff\xfek", b"password: \xff\n"] {
        let it = Repository::new();
        fs::write(it.path().join("apps/db/galera.yaml"), broken).unwrap();
        let before = tempfile::tempdir().unwrap();
        fs::create_dir(before.path().join("db")).unwrap();
        fs::write(before.path().join("db/galera.yaml"), CLUSTER).unwrap();
        let files = format!("--against={}", before.path().display());
        for arguments in [
            &["apps", "--against=git:HEAD"][..],
            &["apps/db/galera.yaml", "--against=git:HEAD"],
            &["apps", &files],
        ] {
            let (code, said) = it.check(".", arguments);
            assert_eq!(code, 2, "{said}");
            assert!(said.starts_with("apps/db/galera.yaml") && said.contains(": not readable"), "{said}");
            assert!(!said.contains("[G") && said.contains("1 finding: 1 that cannot be read\n"), "{said}");
        }
    }
}

/// An object that is missing from another file counts as removed, although one file cannot be read.
#[test]
fn removals_from_other_files_are_judged_beside_an_unreadable_one() {
    let it = Repository::new();
    let is_map = |document: &&str| document.contains("name: galera-instance-nodeconfig}\ndata");
    let (map, rest): (Vec<_>, Vec<_>) = CLUSTER.split("\n---\n").partition(is_map);
    fs::remove_file(it.path().join("apps/db/galera.yaml")).unwrap();
    it.put("apps/db/map.yaml", &map.join("\n---\n"));
    it.put("apps/db/set.yaml", &rest.join("\n---\n"));
    it.commit();
    fs::remove_file(it.path().join("apps/db/map.yaml")).unwrap();
    it.put("apps/db/set.yaml", "kind: [\n");
    let (code, said) = it.check(".", &["apps", "--against=git:HEAD"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("[G10]") && !said.contains("[G03]"), "{said}");
}

/// An odd document does not hide a removal. Where a file cannot be read completely, it is unknown whether an object was removed,
/// and a message says so.
#[test]
fn a_removal_is_never_silent() {
    let without_the_set: Vec<_> =
        CLUSTER.split("\n---\n").filter(|it| !it.contains("kind: StatefulSet")).collect();
    let rest = without_the_set.join("\n---\n");
    let it = Repository::new();
    it.put("apps/db/galera.yaml", &format!("{rest}\n---\nmetadata: {{name: odd}}\nspec: {{}}\n"));
    let (code, said) = it.check(".", &["apps", "--against=git:HEAD"]);
    assert!(code == 1 && said.contains("[G03]"), "{code}: {said}");
    it.put("apps/db/galera.yaml", &format!("{rest}\n---\n{{{{ if x }}}}\nkind: [\n{{{{ end }}}}\n"));
    let (code, said) = it.check(".", &["apps", "--against=git:HEAD"]);
    let words = "is missing from the new manifests, but a file that may hold it could not be read completely";
    assert!(code == 2 && said.contains("StatefulSet") && said.contains(words), "{code}: {said}");
}

/// The output has the API server's message, and an edit in place of a command.
#[test]
fn a_change_says_what_it_does_and_the_way_out_is_an_edit() {
    let it = Repository::new();
    it.put(
        "apps/db/galera.yaml",
        &CLUSTER.replace(
            "    innodb_buffer_pool_size = 122M",
            "    innodb_buffer_pool_size = 122M\n    innodb_log_file_size = 1G\n    max_conections = 5",
        ),
    );
    let (code, said) = it.check(".", &["apps", "--against=git:HEAD"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(": warning: this change restarts 3 members of galera-instance-galera, one at a time: "),
        "{said}"
    );
    assert!(said.contains("apps/db/galera.yaml:70:5: warning [G09] "), "the line of the option: {said}");
    it.put("apps/db/galera.yaml", &CLUSTER.replace("replicas: 3", "replicas: 1"));
    let output = |arguments: &[&str]| it.check(".", &[&["--output=json=out.json"], arguments].concat());
    output(&["apps", "--against=git:HEAD"]);
    let said = fs::read_to_string(it.path().join("out.json")).unwrap();
    assert!(said.contains("\"instead\": \"write replicas: 2, wait until"), "{said}");
    fs::remove_dir_all(it.path().join("apps/db")).unwrap();
    output(&["apps", "--against=git:HEAD"]);
    let said = fs::read_to_string(it.path().join("out.json")).unwrap();
    assert!(
        said.contains("# gatera: waive G03 reason=… above the object, in a commit before this one"),
        "{said}"
    );
    assert!(!said.contains("annotate"), "{said}");
    assert!(said.contains("\"shownAt\": {\n        \"file\": \"apps/web/web.yaml\""), "{said}");
}

/// Objects that a chart renders are left out, before and after the change; a note says so, and the exit code stays 0.
#[test]
fn templates_of_charts_are_left_out_with_a_note() {
    let it = Repository::new();
    it.put("charts/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    it.put("charts/web/templates/deep/web.yaml", "kind: {{ .Values.kind }}\n");
    it.put("charts/web/values.yaml", "kind: Deployment\n");
    it.commit();
    for arguments in [&["."][..], &[".", "--against=git:HEAD"]] {
        let (code, said) = it.check(".", arguments);
        assert_eq!(code, 0, "{said}");
        let left = "./charts/web/templates: note: these are templates of a chart, so they were not judged; judge their output: helm template ./charts/web | gatera check -\n";
        assert!(said.starts_with(left), "{said}");
    }
    assert_eq!(it.check(".", &[".", "--strict"]).0, 2);
    assert_eq!(
        it.check(".", &["charts/web/templates/deep/web.yaml"]).0,
        2,
        "a template that is named was left out"
    );
}

#[test]
fn earlier_files_can_be_the_base() {
    let it = Repository::new();
    it.put("before.yaml", CLUSTER);
    it.put("after.yaml", &CLUSTER.replace("replicas: 3", "replicas: 2"));
    let (code, said) = it.check(".", &["after.yaml", "--against=before.yaml"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("warning [G01] "), "{said}");
    assert_eq!(it.check(".", &["after.yaml", "--against=before.yaml", "--fail-on=warn"]).0, 1);
}

/// Each error is one line that names what is missing, with exit code 2.
#[test]
fn a_missing_base_is_reported() {
    let it = Repository::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a.yaml"), CLUSTER).unwrap();
    let outside = outside.path().join("a.yaml").display().to_string();
    for (arguments, words) in [
        (&["apps", "--against=git:nowhere"][..], "gatera: --against git:nowhere: the repository of apps has no such revision; if the clone is shallow, `git fetch` it first\n".to_owned()),
        (&["apps", "--against=git:--help"], "gatera: --against git:--help: the repository of apps has no such revision; if the clone is shallow, `git fetch` it first\n".to_owned()),
        (&["apps", "--against=git:HEAD:apps"], "gatera: --against git:HEAD:apps: the repository of apps has no such revision; if the clone is shallow, `git fetch` it first\n".to_owned()),
        (&[&outside, "--against=git:HEAD"], format!("gatera: --against git:HEAD: {outside}: not a git repository (or any of the parent directories): .git\n")),
        (&["-", "--against=git:HEAD"], "gatera: standard input has no earlier revision in git; to compare it with a file, use --against FILE\n".to_owned()),
    ] {
        assert_eq!(it.check(".", arguments), (2, words));
    }
    let (code, said) = it.check(".", &["apps", "--against=nowhere.yaml"]);
    assert_eq!(code, 2);
    assert!(
        said.contains("nowhere.yaml (in the base): not readable: cannot be read: there is no such file\n"),
        "{said}"
    );
    let (code, said) = it.check(".", &["apps", "--against=git:"]);
    assert_eq!(code, 2);
    assert!(said.contains("write git: and a revision, for example git:origin/main"), "{said}");
}

/// Changes of a pull request that are not plain edits: moved files and links.
#[test]
fn moved_files_and_links_are_reported() {
    let it = Repository::new();
    it.git(&["mv", "apps/db/galera.yaml", "apps/db/moved.yaml"]);
    it.commit();
    let (code, said) = it.check(".", &["apps/db/moved.yaml", "--against=git:HEAD~1"]);
    let note = "apps/db/moved.yaml (in the base): note: does not exist in the base, so all of it was judged as new; if it was moved, name its folder instead\n";
    assert!(code == 0 && said.contains(note), "{said}");
    assert_eq!(it.check(".", &["apps/db/moved.yaml", "--against=git:HEAD~1", "--strict"]).0, 2);
    assert_eq!(
        it.check(".", &["apps", "--against=git:HEAD~1", "--strict"]).0,
        0,
        "in the folder, the moved file is found"
    );
    std::os::unix::fs::symlink("db/moved.yaml", it.path().join("apps/link.yaml")).unwrap();
    it.commit();
    let (_, said) = it.check(".", &["apps/link.yaml", "--against=git:HEAD"]);
    assert!(
        said.contains(
            "apps/link.yaml (in the base): note: is a symbolic link in the base, so its earlier content is unknown; "
        ),
        "{said}"
    );
}

/// Git passes its own repository to hooks in variables, which may not be the repository of the manifests.
#[test]
fn git_variables_of_hooks_are_ignored() {
    let (it, other) = (Repository::new(), Repository::new());
    it.put("apps/db/galera.yaml", &CLUSTER.replace("replicas: 3", "replicas: 1"));
    let output = Command::new(env!("CARGO_BIN_EXE_gatera"))
        .args(["check", "apps/db", "--against=git:HEAD", "--output=concise"])
        .env("GIT_DIR", other.path().join(".git"))
        .env("GIT_INDEX_FILE", "nowhere")
        .current_dir(it.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("[G01] "), "{output:?}");
}

/// Changes that were merged meanwhile are not changes of the branch.
#[test]
fn a_branch_is_compared_with_its_merge_base() {
    let it = Repository::new();
    it.git(&["checkout", "--quiet", "-b", "change"]);
    it.put("apps/web/more.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n");
    it.commit();
    it.git(&["checkout", "--quiet", "main"]);
    it.put("apps/second.yaml", &CLUSTER.replace("galera-instance", "second"));
    it.commit();
    it.git(&["checkout", "--quiet", "change"]);
    assert_eq!(
        it.check(".", &["apps", "--against=git:main"]).0,
        1,
        "compared with main itself, the branch seems to remove what was merged meanwhile"
    );
    for revision in ["git:main...", "git:main...HEAD", "git:main...change"] {
        let (code, said) = it.check(".", &["apps", &format!("--against={revision}")]);
        assert_eq!(code, 0, "{said}");
        assert!(said.ends_with("10 objects: 0 would be refused, 0 allowed with a warning, 1 fine, 9 unchanged; 1 Galera cluster\n"), "{said}");
    }
}

/// A change that makes the settings milder is itself judged by the earlier settings.
#[test]
fn milder_settings_do_not_hide_findings_of_the_same_change() {
    let it = Repository::new();
    it.put(".gatera.yaml", "modes: {G01: audit, G03: off}\n");
    it.put("apps/db/galera.yaml", &CLUSTER.replace("replicas: 3", "replicas: 1"));
    assert_eq!(it.check(".", &["apps", "--against=git:HEAD"]).0, 1);
    it.commit();
    it.put("apps/db/galera.yaml", &CLUSTER.replace("replicas: 3", "replicas: 0"));
    let (code, said) = it.check(".", &["apps", "--against=git:HEAD"]);
    assert_eq!(code, 0, "the settings of the base do not apply: {said}");
    assert!(said.contains(": note [G01] "), "a finding in mode audit is not a note: {said}");
}
