//! The files of a folder that are judged, apart from those that git ignores, that the user excludes, or that are not manifests.

use std::process::Command;

use super::CLUSTER;
use super::base::Repository;

/// A mistake in a manifest counts, even if a text in the manifest is a template.
#[test]
fn a_manifest_that_contains_a_template_is_still_a_manifest() {
    let it = Repository::new();
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  page: |\n    {{ range . }}\n    {{ end }}\n";
    it.put("apps/map.yaml", &format!("{template}  a: 1\n  b: 2\n  c: 3\n broken: [\n"));
    let (code, said) = it.check(".", &["apps"]);
    assert!(code == 2 && said.contains("apps/map.yaml") && said.contains("not readable"), "{code}: {said}");
}

/// A folder that git ignores is judged if it is named; and nothing is left out where git is not installed.
#[test]
fn ignored_files_are_judged_if_they_are_named_or_git_is_not_installed() {
    let it = Repository::new();
    it.put(".gitignore", "/rendered/*\n");
    it.put("rendered/galera.yaml", "kind: [\n");
    assert_eq!(it.check(".", &["."]).0, 0);
    assert_eq!(it.check(".", &["rendered"]).0, 2, "an ignored folder that is named was left out");
    let without_git = Command::new(env!("CARGO_BIN_EXE_gatera"))
        .args(["check", "."])
        .current_dir(it.path())
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(without_git.status.code(), Some(2), "{}", String::from_utf8_lossy(&without_git.stdout));
}

/// A file that git ignores is not a manifest unless it was committed; a file that the user excludes counts neither before nor
/// after a change.
#[test]
fn ignored_and_excluded_files_are_not_judged() {
    let it = Repository::new();
    let one = CLUSTER.replace("replicas: 3", "replicas: 1");
    it.put(".gitignore", "build/\n*.local.yaml\n");
    it.put("apps/kept.local.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\n");
    it.git(&["add", "--force", "apps/kept.local.yaml"]);
    it.commit();
    it.put("build/deep/galera.yaml", "kind: [\n");
    it.put("apps/mine.local.yaml", "kind: [\n");
    let (code, said) = it.check(".", &[".", "--against=git:HEAD"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("10 objects:") && said.contains("10 unchanged"),
        "the committed file is not judged: {said}"
    );
    assert_eq!(it.check(".", &["apps/mine.local.yaml"]).0, 2, "an ignored file that is named was left out");

    it.put("vendor/galera.yaml", &one);
    it.put("apps/db/galera.yaml", &one);
    assert_eq!(it.check(".", &["vendor", "--exclude=vendor/", "--allow-empty"]).0, 0);
    assert_eq!(it.check(".", &[".", "--against=git:HEAD", "--exclude=/vendor", "--exclude", "db/"]).0, 0);
    assert_eq!(it.check(".", &[".", "--against=git:HEAD", "--exclude=[z-a]"]).0, 2);
    it.put(".gatera.yaml", "exclude: [vendor/, apps/db]\n");
    let (code, said) = it.check(".", &[".", "--against=git:HEAD"]);
    assert_eq!(code, 1, "an exclusion applies to the change that adds it: {said}");
    assert_eq!(it.check(".", &["."]).0, 0);
    it.commit();
    it.put("apps/db/galera.yaml", CLUSTER);
    assert_eq!(it.check("apps", &[".", "--against=git:HEAD"]).0, 0);
}

/// Files that are not manifests are reported in one line for each kind of file, and do not change the exit code.
#[test]
fn foreign_files_and_templates_are_reported_in_one_line_for_each_kind() {
    let it = Repository::new();
    for number in 0..5 {
        it.put(&format!("ci/{number}.yaml"), "on: push\njobs: {}\n");
        it.put(&format!("tmpl/{number}.yaml"), "kind: {{ .Values.kind }}\n{{ if x }}\n");
        it.put(&format!("odd/{number}.json"), "// settings\n{ \"a\": [1, }\n");
        it.put(&format!("over/{number}/kustomization.yaml"), "resources: [../../apps]\n");
        it.put(&format!("charts/{number}/Chart.yaml"), "name: x\n");
        it.put(&format!("charts/{number}/templates/x.yaml"), "{{ x }}\n");
    }
    it.put("kudo/operator.yaml", "apiVersion: kudo.dev/v1beta1\nname: galera\noperatorVersion: 0.1.0\n");
    let (code, said) = it.check(".", &["."]);
    assert_eq!(code, 0, "{said}");
    let notes: Vec<_> = said.lines().filter(|it| it.contains(": note: ")).collect();
    assert_eq!(
        notes,
        [
            "./charts/0/templates: note: the templates of 5 charts were not judged: ./charts/0/templates, ./charts/1/templates, ./charts/2/templates and 2 more; judge the output of each: helm template ./charts/0 | gatera check -",
            "./kudo/operator.yaml:1:1: note: this is a KUDO package, which only KUDO renders, in a cluster: what it creates is judged there",
            "./odd/0.json:2:6: note: 5 files are not YAML that kubectl reads, and do not look like manifests, so they were not judged: ./odd/0.json, ./odd/1.json, ./odd/2.json and 2 more",
            "./over/0/kustomization.yaml:1:1: note: 5 kustomizations were not built, so their files were judged as they are: ./over/0/kustomization.yaml, ./over/1/kustomization.yaml, ./over/2/kustomization.yaml and 2 more; judge the output of each: kubectl kustomize ./over/0 | gatera check -",
            "./tmpl/0.yaml:1:8: note: 5 files are templates, not manifests: ./tmpl/0.yaml, ./tmpl/1.yaml, ./tmpl/2.yaml and 2 more; judge their output: helm template CHART | gatera check -",
        ],
        "{said}"
    );
    assert!(said.contains("10 documents without a kind were skipped: ./charts/0/Chart.yaml, ./charts/1/Chart.yaml, ./charts/2/Chart.yaml and 7 more, which --verbose lists\n"), "{said}");
    assert!(it.check(".", &[".", "--verbose"]).1.contains("./ci/4.yaml: not a Kubernetes manifest\n"));
    assert_eq!(it.check(".", &[".", "--strict"]).0, 2);
}
