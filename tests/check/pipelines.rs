//! A pull request that scales a cluster to one member: the commands of the GitHub Action, of the GitLab job and of the pre-commit
//! hook are read from their files and run in its repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::CLUSTER;
use super::base::Repository;

const REFUSED: &str =
    "StatefulSet default/galera-instance-galera: 3 -> 1 replicas would leave 1 of 3 members";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a YAML file of this repository as JSON.
fn yaml(name: &str) -> Value {
    let text = fs::read_to_string(root().join(name)).unwrap();
    inspect::manifest::read(&text).remove(0).unwrap().json()
}

/// Returns a repository with manifests and a chart, on a branch whose only commit scales the cluster to one member.
fn pull_request() -> Repository {
    let it = Repository::new();
    it.put("charts/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    it.put("charts/web/templates/web.yaml", "kind: {{ .Values.kind }}\n");
    it.commit();
    it.git(&["checkout", "--quiet", "-b", "change"]);
    it.put("apps/db/galera.yaml", &CLUSTER.replace("replicas: 3", "replicas: 1"));
    it.commit();
    it
}

/// Runs bash as the runner starts it, with the program on the path.
fn bash(folder: &Path, script: &str, variables: &[(&str, &str)]) -> Output {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_gatera"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    Command::new("bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn the_github_action_annotates_a_pull_request_and_fails() {
    let (it, temp) = (pull_request(), tempfile::tempdir().unwrap());
    let action = yaml("action.yml");
    let inputs = |name: &str| action["inputs"][name]["default"].as_str().unwrap().to_owned();
    let steps = action["runs"]["steps"].as_array().unwrap();
    let script: String = steps.iter().map(|step| format!("{}\n", step["run"].as_str().unwrap())).collect();
    let run = |against: &str, sarif: &str| {
        let (summary, path) = (temp.path().join("summary.md"), temp.path().join("path"));
        let _ = fs::remove_file(&summary);
        let variables = [
            ("GITHUB_ACTION_PATH", root().to_str().unwrap()),
            ("GITHUB_PATH", path.to_str().unwrap()),
            ("GATERA_URL", "https://github.com/OWNER/gatera"),
            ("GATERA_REVISION", "main"),
            ("GITHUB_STEP_SUMMARY", summary.to_str().unwrap()),
            ("RUNNER_TEMP", temp.path().to_str().unwrap()),
            ("GATERA_PATHS", &inputs("paths")),
            ("GATERA_AGAINST", against),
            ("GATERA_FAIL_ON", &inputs("fail-on")),
            ("GATERA_ARGUMENTS", &inputs("arguments")),
            ("GATERA_SARIF", sarif),
        ];
        let output = bash(it.path(), &script, &variables);
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text, fs::read_to_string(&summary).unwrap())
    };
    let (code, text, summary) = run("git:HEAD^1", "gatera.sarif");
    assert_eq!(code, 1, "{text}");
    let annotation =
        format!("::error file=apps/db/galera.yaml,line=91,col=13,title=G01 scale-order::[G01] {REFUSED}; ");
    assert!(text.contains(&annotation), "{text}");
    assert!(summary.starts_with("### gatera: 1 of 9 objects would be refused\n"), "{summary}");
    assert!(fs::read_to_string(it.path().join("gatera.sarif")).unwrap().contains("\"ruleId\": \"G01\""));
    let (code, text, _) = run("git:HEAD", "");
    assert_eq!(code, 0, "the manifests are unchanged: {text}");
    // All inputs are passed in the environment, so none of them can become part of the script.
    assert!(!script.contains("${{"), "{script}");
    for (name, of) in [("GATERA_PATHS", "paths"), ("GATERA_AGAINST", "against"), ("GATERA_SARIF", "sarif")] {
        assert_eq!(steps[1]["env"][name], format!("${{{{ inputs.{of} }}}}"));
    }
}

#[test]
fn the_gitlab_job_reports_a_merge_request_and_fails() {
    let it = pull_request();
    let job = &yaml("ci/gitlab.yml")["gatera"];
    let script = job["script"][0].as_str().unwrap();
    let base = Command::new("git").args(["rev-parse", "HEAD~1"]).current_dir(it.path()).output().unwrap();
    let base = String::from_utf8(base.stdout).unwrap();
    let paths = job["variables"]["GATERA_PATHS"].as_str().unwrap();
    let variables = [("GATERA_PATHS", paths), ("CI_MERGE_REQUEST_DIFF_BASE_SHA", base.trim())];
    let output = bash(it.path(), script, &variables);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    for report in ["codequality", "junit"] {
        let name = job["artifacts"]["reports"][report].as_str().unwrap();
        let report = fs::read_to_string(it.path().join(name)).unwrap().replace("&gt;", ">");
        assert!(report.contains(REFUSED), "{name}: {report}");
    }
}

#[test]
fn the_pre_commit_hook_judges_what_is_committed() {
    let it = pull_request();
    let hook = &yaml(".pre-commit-hooks.yaml");
    let hook = hook.as_array().map_or(hook, |all| &all[0]);
    let arguments: Vec<_> = hook["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let entry = root().join(hook["entry"].as_str().unwrap());
    let script = format!("{} {}", entry.display(), arguments.join(" "));
    let run = || bash(it.path(), &script, &[]).status.code();
    assert_eq!(run(), Some(0), "nothing has changed since the last commit");
    it.put("apps/db/galera.yaml", CLUSTER);
    assert_eq!(run(), Some(0), "a change from one member to three is allowed");
    it.commit();
    it.put("apps/db/galera.yaml", &CLUSTER.replace("replicas: 3", "replicas: 0"));
    assert_eq!(run(), Some(1));
}

/// Runs `ci/get.sh` where no gatera is on the path; returns its exit code and all output.
fn get(home: &Path, url: &str, tag: &str) -> (i32, String) {
    let mut command = Command::new(root().join("ci/get.sh"));
    command.args([url, tag]).env("XDG_CACHE_HOME", home).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), text.trim().to_owned())
}

#[test]
fn a_release_is_downloaded_once_and_only_with_its_checksum() {
    let temp = tempfile::tempdir().unwrap();
    let at = |path: &str| temp.path().join(path);
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let (name, release) = (format!("gatera-1.2.3-{target}"), at("releases/download/v1.2.3"));
    fs::create_dir_all(release.join(&name)).unwrap();
    fs::write(release.join(&name).join("gatera"), "#!/bin/sh\necho it runs\n").unwrap();
    let pack = format!(
        "chmod +x {name}/gatera; tar -czf {name}.tar.gz {name}; sha256sum {name}.tar.gz >SHA256SUMS; rm -r {name}"
    );
    assert!(bash(&release, &pack, &[]).status.success());
    let url = format!("file://{}", temp.path().display());

    let (code, text) = get(&at("home"), &url, "main");
    assert!(code == 3 && text.starts_with("There is no release of gatera for main on "), "{code} {text}");
    let (code, text) = get(&at("home"), &url, "v1.2.4");
    assert!(
        code == 3 && text.ends_with(&format!("gatera 1.2.4 could not be downloaded from {url}")),
        "{code} {text}"
    );

    let (code, program) = get(&at("home"), &url, "v1.2.3");
    assert_eq!(code, 0, "{program}");
    assert_eq!(Command::new(&program).output().unwrap().stdout, b"it runs\n");
    fs::write(release.join("SHA256SUMS"), format!("{}  {name}.tar.gz\n", "0".repeat(64))).unwrap();
    assert_eq!(
        get(&at("home"), &url, "v1.2.3"),
        (0, program),
        "a release that is installed already is downloaded again"
    );

    let refused =
        format!("The checksum of {name}.tar.gz is not the one in SHA256SUMS: it was not installed.");
    assert_eq!(get(&at("another-home"), &url, "v1.2.3"), (1, refused.clone()));
    fs::write(release.join("SHA256SUMS"), "").unwrap();
    assert_eq!(get(&at("another-home"), &url, "v1.2.3"), (1, refused), "a file without a checksum");
    let left: Vec<_> = fs::read_dir(at("another-home/gatera/releases")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// pre-commit fetches one commit of a repository, and no tags.
#[test]
fn a_checkout_without_tags_knows_its_release() {
    let temp = tempfile::tempdir().unwrap();
    let set_up = format!(
        r#"mkdir -p ours/ci; cp {get} ours/ci/; cd ours; printf 'version = "1.2.3"\n' >Cargo.toml
        git init --quiet; git add --all; git -c user.name=a -c user.email=a@b commit --quiet --message=x; git tag v1.2.3
        name=gatera-1.2.3-{arch}-unknown-linux-gnu; mkdir -p releases/download/v1.2.3/$name; cd releases/download/v1.2.3
        touch $name/gatera; chmod +x $name/gatera; tar -czf $name.tar.gz $name; sha256sum $name.tar.gz >SHA256SUMS
        cd ../../../..; git init --quiet theirs; cd theirs; git remote add origin "file://$PWD/../ours"
        git fetch --quiet --depth=1 origin v1.2.3; git checkout --quiet FETCH_HEAD"#,
        get = root().join("ci/get.sh").display(),
        arch = std::env::consts::ARCH,
    );
    let output = bash(temp.path(), &set_up, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let get = || {
        let mut command = Command::new(temp.path().join("theirs/ci/get.sh"));
        command.env("XDG_CACHE_HOME", temp.path().join("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.output().unwrap().status.code()
    };
    assert_eq!(get(), Some(0));
    let later = "cd theirs; git -c user.name=a -c user.email=a@b commit --quiet --allow-empty --message=y";
    assert!(bash(temp.path(), later, &[]).status.success());
    assert_eq!(get(), Some(3), "a commit after the release is not a release");
}
