//! The house: what decides cannot reach the world, and every file says what it is for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// What decides depends on nothing that reaches the world: no client, no runtime, no server, nothing that logs.
#[test]
fn what_decides_cannot_reach_the_world() {
    let arguments = ["tree", "--package=gatera-decide", "--edges=normal", "--prefix=none", "--format={p}"];
    let output =
        Command::new(env!("CARGO")).args(arguments).arg("--locked").current_dir(root()).output().unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"gatera-decide") && names.contains(&"serde_json"), "{tree}");
    for outside in
        ["gatera", "kube", "kube-client", "k8s-openapi", "tokio", "hyper", "rustls", "tracing", "axum"]
    {
        assert!(!names.contains(&outside), "the crate that decides depends on {outside}:\n{tree}");
    }
}

/// The standard library is there for everybody, and so is jiff's clock: those are refused by clippy, with a reason.
#[test]
fn what_decides_has_no_clock_and_no_files() {
    let fence = fs::read_to_string(root().join("src/decide/clippy.toml")).unwrap();
    for path in [
        "std::fs::read_to_string",
        "std::time::SystemTime",
        "std::time::Instant",
        "std::env::var",
        "jiff::Timestamp::now",
        "jiff::Zoned::now",
    ] {
        assert!(
            fence.contains(&format!("path = \"{path}\", reason = \"")),
            "{path} is not refused, or without a reason"
        );
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for path in files(&root().join("src")).into_iter().chain(files(&root().join("tests"))) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} does not open with what it owns", path.display());
        let (lines, limit) = (text.lines().count(), 400);
        assert!(lines <= limit, "{} has {lines} lines: it wants a second room", path.display());
    }
}

/// The clock of the API server counts, as `site.rs` asks for it: where what is seen there is judged, and where an end is written.
#[test]
fn commands_that_look_at_a_cluster_have_no_other_clock() {
    // The guard itself, the place where the other clock is asked for, and the time at which a line was printed.
    let others = ["command/serve.rs", "command/site.rs", "command/guided.rs"];
    for path in files(&root().join("src/command")) {
        let asks = fs::read_to_string(&path).unwrap().contains("Timestamp::now");
        let may = others.iter().any(|it| path.ends_with(it));
        assert!(!asks || may, "{} takes the time of this machine", path.display());
    }
}

/// A comment that names a file names one that is there.
#[test]
fn files_that_comments_name_exist() {
    let all: Vec<_> = files(&root().join("src")).into_iter().chain(files(&root().join("tests"))).collect();
    for path in &all {
        let text = fs::read_to_string(path).unwrap();
        let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, comment)| comment));
        let words = comments.flat_map(|comment| comment.split('`').skip(1).step_by(2));
        for named in words
            .filter(|word| Path::new(word).extension().is_some_and(|it| it == "rs") && !word.contains(' '))
        {
            assert!(all.iter().any(|it| it.ends_with(named)), "{} names {named}", path.display());
        }
    }
}
