//! The structure of the project: crates that decide cannot reach the outside world, and every file says what it is for.

use std::collections::{BTreeMap, BTreeSet};
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

/// The crates that decide, with the crates that each depends on. `cargo` refuses a dependency in the other direction.
const CRATES: [(&str, &[&str]); 10] = [
    ("objects", &[]),
    ("facts", &["objects"]),
    ("engine", &["facts", "objects"]),
    ("packs/kudo", &["engine", "facts", "objects"]),
    ("packs/mariadb", &["engine", "facts", "objects"]),
    ("packs/rds", &["engine", "facts", "objects"]),
    ("packs/wordpress", &["engine", "facts", "objects"]),
    ("leader", &["engine", "facts", "objects"]),
    ("inspect", &["engine", "facts", "leader", "objects"]),
    ("report", &["engine", "facts", "inspect", "leader", "objects"]),
];

/// No crate that decides depends on anything that reaches the outside world: no client, no runtime, no server, no log. None
/// depends on a pack.
#[test]
fn crates_that_decide_depend_on_nothing_that_reaches_the_outside_world() {
    for (name, below) in CRATES {
        let package = format!("--package=gatera-{}", name.trim_start_matches("packs/"));
        let arguments = ["tree", &package, "--edges=normal", "--prefix=none", "--format={p}", "--locked"];
        let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
        let tree = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let names: BTreeSet<_> = tree.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
        let ours: Vec<_> = names.iter().filter_map(|it| it.strip_prefix("gatera-")).collect();
        assert_eq!(ours, *below, "{name} does not depend on the crates that CRATES lists");
        for outside in
            ["gatera", "kube", "kube-client", "k8s-openapi", "tokio", "hyper", "rustls", "tracing", "axum"]
        {
            assert!(!names.contains(&outside), "{name} depends on {outside}:\n{tree}");
        }
    }
}

/// Returns the names that directly follow a prefix in code: `prefix::a`, `prefix::{a, b::c}`.
fn names_after(prefix: &str, text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut names = BTreeSet::new();
    for rest in code.split(prefix).skip(1) {
        let listed = rest.strip_prefix('{').map_or(rest, |rest| rest.split(';').next().unwrap());
        let parts = if rest.starts_with('{') { listed.split([',', '{']).collect() } else { vec![listed] };
        for part in parts {
            let part = part.trim();
            let end = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
            names.insert(part[..end].to_owned());
        }
    }
    names
}

/// The files and folders directly in the folder of a crate, or in `act` or `command`, are its rooms. Their dependencies on each
/// other form no circle.
#[test]
fn rooms_do_not_use_each_other_in_a_circle() {
    let crates = CRATES.map(|(name, _)| (name, "crate::"));
    let rest = [("act", "crate::act::"), ("command", "crate::command::")];
    for (name, prefix) in crates.into_iter().chain(rest) {
        let folder = root().join("src").join(name);
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for path in files(&folder) {
            let inside = path.strip_prefix(&folder).unwrap();
            let room = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
            if room == "lib" || path.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let mut named = names_after(prefix, &text);
            if inside.iter().count() == 1 {
                named.extend(names_after("super::", &text));
            }
            let is_room = |it: &String| folder.join(it).is_dir() || folder.join(format!("{it}.rs")).is_file();
            let own = room.clone();
            uses.entry(room).or_default().extend(named.into_iter().filter(|it| is_room(it) && *it != own));
        }
        assert!(!uses.is_empty(), "{name} has no rooms");
        // Removes the rooms that use no remaining room, until none remains.
        while !uses.is_empty() {
            let (left, before): (BTreeSet<_>, _) = (uses.keys().cloned().collect(), uses.len());
            uses.retain(|_, used| used.iter().any(|it| left.contains(it)));
            assert!(uses.len() < before, "{name}: a circle among {uses:#?}");
        }
    }
}

/// Every crate can call the standard library and jiff's clock, so clippy refuses these functions, with a reason for each.
#[test]
fn crates_that_decide_use_no_clock_and_no_files() {
    let fence = fs::read_to_string(root().join("src/clippy.toml")).unwrap();
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
            "src/clippy.toml does not refuse {path} with a reason"
        );
    }
}

#[test]
fn every_file_begins_with_its_purpose_and_has_at_most_400_lines() {
    for path in files(&root().join("src")).into_iter().chain(files(&root().join("tests"))) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} does not begin with its purpose", path.display());
        let (lines, limit) = (text.lines().count(), 400);
        assert!(lines <= limit, "{} has {lines} lines, but the limit is {limit}: split it", path.display());
    }
}

/// Commands use the clock of the API server, which `site.rs` reads, to judge what they see in a cluster and to compute the times
/// that they write.
#[test]
fn commands_that_look_at_a_cluster_have_no_other_clock() {
    // These are the guard itself, the file that reads the other clock, and the one that prints the time of a line.
    let others = ["command/serve.rs", "command/site.rs", "command/guided.rs"];
    for path in files(&root().join("src/command")) {
        let reads_clock = fs::read_to_string(&path).unwrap().contains("Timestamp::now");
        let is_exception = others.iter().any(|it| path.ends_with(it));
        assert!(!reads_clock || is_exception, "{} uses the clock of this machine", path.display());
    }
}

/// The names that several types have: the options of each command and the errors of each module, which are always written with
/// their module, and the parts of JSON output, which have these names in the published schemas.
const SHARED_NAMES: [&str; 7] =
    ["ClusterItem", "Document", "Error", "FindingItem", "Options", "StartItem", "Summary"];

/// Returns the name of the type that a line of code defines. Types inside `impl` blocks belong to their trait.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let is_type = match words.next()? {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    words.next().filter(|_| is_type)?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// No two types have the same name, except for `SHARED_NAMES`. Types of tests are not compared.
#[test]
fn names_of_types_are_unique() {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let of_tests = |path: &PathBuf| path.ends_with("tests.rs") || path.ends_with("search.rs");
    for path in files(&root().join("src")).into_iter().filter(|path| !of_tests(path)) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for name in code.lines().filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    places.retain(|_, all| all.len() > 1);
    assert!(
        places.keys().eq(SHARED_NAMES),
        "SHARED_NAMES does not list exactly the types with the same name: {places:#?}"
    );
}

/// Every file that a comment names exists.
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
            assert!(
                all.iter().any(|it| it.ends_with(named)),
                "a comment in {} names {named}, which does not exist",
                path.display()
            );
        }
    }
}
