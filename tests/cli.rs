//! The command line as a pipeline uses it: the real program, its output and its exit codes.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gatera::rulebook;
use serde_json::json;

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs the program in the folder of the fixtures, so that snapshots contain no path of the machine.
pub fn gatera(args: &[&str], stdin: &[u8]) -> Ran {
    gatera_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"), args, stdin)
}

/// Runs the program in this folder.
pub fn gatera_in(folder: &Path, args: &[&str], stdin: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatera"))
        .args(args)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that reads no input may have ended already.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "fixtures" }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn the_seed_documents_are_refused_line_by_line() {
    let ran = gatera(&["check", "seed.yaml"], b"");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(!ran.out.contains("admin"), "the password of the seeds is printed");
    snapshot("check-seed", &ran.out);
}

/// The manifests are the seed documents verbatim, a variant of them, the operator derived from them, and releases of popular
/// charts.
#[test]
fn documents_of_others_are_judged_line_by_line() {
    for (name, code) in [
        ("seed-verbatim", 1),
        ("seed-004", 1),
        ("seed-operator", 1),
        ("bitnami-like", 0),
        ("cloudpirates-like", 0),
    ] {
        let ran = gatera(&["check", &format!("{name}.yaml")], b"");
        assert_eq!(ran.code, code, "{name}: {}{}", ran.out, ran.err);
        assert!(!ran.out.contains("-padmin") && !ran.out.contains("change-me"), "{name} prints a password");
        snapshot(&format!("check-{name}"), &ran.out);
    }
}

#[test]
fn the_repaired_seed_documents_pass() {
    let ran = gatera(&["check", "galera.yaml"], b"");
    assert_eq!(
        (ran.code, &*ran.out),
        (0, "8 objects: 0 would be refused, 0 allowed with a warning, 8 fine; 1 Galera cluster\n"),
        "{}",
        ran.err
    );
}

#[test]
fn an_unreadable_input_exits_with_2() {
    for (stdin, words) in [
        (&b"kind: [\n"[..], "-:1:7: not readable\nthis is not YAML: a bracket or a brace is not closed\n"),
        (b"a: 1\n\tb: 2\n", "-:1:4: not readable\nthis is not YAML: "),
        (b"\xff\xfe\x00", "-: not readable\nthis is UTF-16, which kubectl does not read; save it as UTF-8\n"),
        (b"a: 1\n\xff\n", "-: not readable\nthis is not text (line 2 is not UTF-8), so it is not YAML\n"),
    ] {
        let ran = gatera(&["check", "-", "seed.yaml"], stdin);
        assert_eq!(ran.code, 2, "{}", ran.out);
        assert!(ran.out.contains(words), "{words:?} is not in {}", ran.out);
        assert!(ran.out.contains("[G11]"), "the other file was not judged: {}", ran.out);
    }
    let ran = gatera(&["check", "nowhere.yaml"], b"");
    assert_eq!(ran.code, 2);
    assert!(
        ran.out.contains("nowhere.yaml: not readable\ncannot be read: there is no such file\n"),
        "{}",
        ran.out
    );
}

#[test]
fn documents_come_from_standard_input_lists_and_templates() {
    let text = b"---\n# Source: chart\n---\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {gatera.dev/cluster: x}}, data: {c.cnf: \"[client]\\npassword=x\"}}\n---\nreplicas: 3\n";
    let ran = gatera(&["check", "--namespace", "db", "-"], text);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.out.contains("[G11] ConfigMap db/a: c.cnf line 2 contains a password in plain text\n"),
        "{}",
        ran.out
    );
    assert!(
        ran.out.ends_with(
            "1 object: 1 would be refused, 0 allowed with a warning; no Galera cluster among them; 1 document without a kind was skipped\n"
        ),
        "{}",
        ran.out
    );
}

#[test]
fn an_object_that_cannot_be_read_is_refused() {
    let ran = gatera(
        &["check", "-"],
        b"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\nspec: {replicas: three}\n",
    );
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("-:4:18: refused\n  4 | spec: …\n    |       ^\n[G00] StatefulSet default/a: cannot be read as a StatefulSet: spec.replicas: expected a whole number, found a string\n"), "{}", ran.out);
}

#[test]
fn settings_change_the_mode() {
    let settings = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(settings.path(), "modes: {G09: warn, G11: warn}\n").unwrap();
    let path = settings.path().to_str().unwrap();
    let ran = gatera(&["check", "--config", path, "seed.yaml"], b"");
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.contains("  only a warning: not enforced here: mode warn\n"), "{}", ran.out);
    std::fs::write(settings.path(), "modes: {G99: warn}\n").unwrap();
    let ran = gatera(&["check", "--config", path, "seed.yaml"], b"");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("there is no rule G99; `gatera explain` lists them"), "{}", ran.err);
}

/// A program that cannot start prints the reason once, and never quotes a file that contains a token.
#[test]
fn a_failed_start_prints_the_reason_once() {
    let no_kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(no_kubeconfig.path(), "users:\n- token: hunter2\n   oops\n").unwrap();
    let path = no_kubeconfig.path().to_str().unwrap();
    let contexts = tempfile::NamedTempFile::new().unwrap();
    let text = json!({
        // As `kubectl config unset current-context` leaves it.
        "current-context": "",
        "clusters": [
            { "name": "far", "cluster": { "server": "https://127.0.0.1:1" } },
            { "name": "nowhere", "cluster": { "server": "https://127.0.0.1:1", "certificate-authority": "/nowhere/ca.crt" } },
            { "name": "userinfo", "cluster": { "server": "https://me:hunter2@127.0.0.1:1" } },
        ],
        "contexts": [
            { "name": "far", "context": { "cluster": "far", "user": "a" } },
            { "name": "lost", "context": { "cluster": "gone", "user": "a" } },
            { "name": "nowhere", "context": { "cluster": "nowhere", "user": "a" } },
            { "name": "userinfo", "context": { "cluster": "userinfo", "user": "a" } },
        ],
        "users": [{ "name": "a", "user": { "token": "hunter2" } }],
    });
    std::fs::write(contexts.path(), text.to_string()).unwrap();
    let contexts = contexts.path().to_str().unwrap();
    for (args, words) in [
        (
            &["serve", "--kubeconfig", "/nowhere"][..],
            "reading the kubeconfig /nowhere: No such file or directory\n".to_owned(),
        ),
        (&["serve", "--kubeconfig", path], format!("{path} is not a kubeconfig\n")),
        (
            &["status", "--kubeconfig", contexts],
            format!(
                "{contexts} has no current context; choose one with --context: far, lost, nowhere, userinfo\n"
            ),
        ),
        (
            &["--context", "near", "status", "--kubeconfig", contexts],
            format!("there is no context near in {contexts}; it has far, lost, nowhere, userinfo\n"),
        ),
        (
            &["status", "--context=lost", "--kubeconfig", contexts],
            format!("context lost of {contexts}: it names the cluster gone, which is not defined\n"),
        ),
        (
            &["status", "--context=nowhere", "--kubeconfig", contexts],
            format!(
                "context nowhere of {contexts}: reading its certificate authority /nowhere/ca.crt: No such file"
            ),
        ),
        (
            &["status", "--context=far", "--kubeconfig", contexts, "--request-timeout=5"],
            format!(
                "asking the API server for its version: the API server does not answer: \
                 https://127.0.0.1:1 (context far of {contexts}): Connection refused\n"
            ),
        ),
        (
            &["status", "--context=userinfo", "--kubeconfig", contexts],
            format!(
                "asking the API server for its version: the API server does not answer: \
                 https://127.0.0.1:1 (context userinfo of {contexts}): Connection refused\n"
            ),
        ),
        (
            &["check", "seed.yaml", "--context", "far"],
            "only --live asks a cluster: add it, or leave out the options that name a cluster or a user\n"
                .to_owned(),
        ),
        (&["serve", "--webhook-url", "http://x"], "--webhook-url must begin with https://\n".to_owned()),
        (&["serve", "--certificate-days", "0"], "the lifetime must be more than 0 days\n".to_owned()),
        (
            &["check", "--config", "seed.yaml", "-"],
            "settings file seed.yaml: the settings cannot be read: ".to_owned(),
        ),
    ] {
        let ran = gatera(args, b"");
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with(&format!("gatera: {words}")), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("hunter2"), "{}", ran.err);
    }
}

/// kubectl finds its plugins by their names.
#[cfg(unix)]
#[test]
fn a_link_makes_the_program_a_plugin_of_kubectl() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubectl-gatera");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gatera"), &link).unwrap();
    let says = |program: &Path| {
        let output = Command::new(program).args(["recover", "--help"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let completes = folder.path().join("kubectl_complete-gatera");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gatera"), &completes).unwrap();
    let output = Command::new(&completes).args(["explain", "W01"]).output().unwrap();
    let offered = String::from_utf8(output.stdout).unwrap();
    assert!(offered.starts_with("W01\t") && offered.ends_with("\n:4\n"), "{offered}");
    assert!(says(&link).contains("\nUsage: kubectl gatera recover [OPTIONS] <CLUSTER>\n"), "{}", says(&link));
    assert!(says(Path::new(env!("CARGO_BIN_EXE_gatera"))).contains("\nUsage: gatera recover "));
}

/// Returns a page without the times that follow `until=`, because the program takes them from the clock.
fn without_times(page: &str) -> String {
    let mut parts = page.split("until=");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.get("2026-12-01T10:00:00Z".len()..).unwrap_or_default());
    rest.fold(first, |text, part| text + "until=" + part)
}

#[test]
fn rules_are_listed_and_explained() {
    let ran = gatera(&["explain"], b"");
    assert_eq!(ran.code, 0);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines.len(), rulebook().rules().len());
    for rule in rulebook().rules() {
        let page = gatera(&["explain", &rule.id.to_lowercase()], b"").out;
        assert_eq!(without_times(&page), without_times(&format!("{}\n", rule.page().text())));
    }
    let ran = gatera(&["explain", "G99"], b"");
    let lists = "`gatera explain` lists them\n";
    assert_eq!((ran.code, ran.err), (2, format!("gatera: there is no rule G99; {lists}")));
    let ran = gatera(&["explain", "scale"], b"");
    assert_eq!(ran.err, format!("gatera: there is no rule scale, did you mean scale-order? {lists}"));
    let by = |name: &str| without_times(&gatera(&["explain", name], b"").out);
    assert_eq!(by("Second-Bootstrap"), by("G04"));
    assert!(by("g00").starts_with("G00: an object that cannot be read is refused.\n"));
    let shown = gatera(&["explain", "--color=always", "G00"], b"").out;
    assert!(shown.contains("\n\u{1b}[1mWhy\u{1b}[0m\n"), "{shown}");
}

#[test]
fn removed_commands_name_their_replacement() {
    for (asked, replacement) in [
        (
            &["simulate", "-n", "db", "--", "kubectl", "delete", "pod", "x"][..],
            "add --dry-run=server to the kubectl command",
        ),
        (&["rules", "--output", "json"], "`gatera explain` lists them"),
        (
            &["selftest", "--patience=60", "-n", "db"],
            "`gatera doctor --canary --wait 60` sends the same dry run",
        ),
    ] {
        let ran = gatera(asked, b"");
        assert!(ran.code == 2 && ran.err.contains(replacement), "{asked:?}: {} {}", ran.code, ran.err);
    }
}

/// The list is printed as JSON for other programs and as Markdown for the documentation.
#[test]
fn rules_are_listed_for_programs_as_well() {
    let json: serde_json::Value =
        serde_json::from_str(&gatera(&["explain", "--output=json"], b"").out).unwrap();
    let rules = &json["rules"];
    assert_eq!((&json["version"], rules.as_array().unwrap().len()), (&json!(1), rulebook().rules().len()));
    assert_eq!(rules[0]["id"], "G01");
    assert_eq!(rules[0]["touches"][0]["kind"], "StatefulSet");
    let table = gatera(&["explain", "-omarkdown"], b"").out;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules/README.md");
    let page = std::fs::read_to_string(page).unwrap();
    for row in table.lines().skip(2) {
        let (id, rest) = row.strip_prefix("| ").and_then(|row| row.split_once(' ')).unwrap();
        assert!(page.contains(&format!("| [{id}]({id}.md) {rest}")), "{row}");
    }
}

/// Lists the commands on the first page of help.
fn commands() -> Vec<String> {
    let help = gatera(&["help"], b"").out;
    let names = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|it| !it.is_empty() && !it.starts_with('-')).map(str::to_owned).collect()
}

/// Completions and man pages are generated from the program's own table of commands.
#[test]
fn completions_and_man_pages_name_every_command() {
    let names = commands();
    assert!(names.len() > 12 && names.contains(&"check".to_owned()), "{names:?}");
    for shell in ["bash", "zsh", "fish"] {
        let text = gatera(&["completions", shell], b"").out;
        assert!(text.contains("COMPLETE") && text.contains("gatera"), "{shell}: {text}");
    }
    let offered = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatera"));
        command.env("COMPLETE", "fish").env("KUBECONFIG", "/nowhere").arg("--").arg("gatera").args(words);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let all = offered(&[""]);
    assert!(names.iter().all(|name| all.contains(&**name)), "{all}");
    assert!(offered(&["check", "--aga"]).starts_with("--against\t"));
    assert!(offered(&["explain", "G0"]).starts_with("G01\tscale-order\n"));
    let page = gatera(&["man"], b"").out;
    assert!(
        names.iter().all(|name| page.contains(&format!("gatera\\-{}(1)", name.replace('-', "\\-")))),
        "{page}"
    );
    let page = gatera(&["man", "check"], b"").out;
    assert!(page.contains(".TH gatera-check 1") && page.contains("\\-\\-against"), "{page}");
    let ran = gatera(&["man", "chekc"], b"");
    assert_eq!((ran.code, &*ran.err), (2, "gatera: there is no command chekc; `gatera help` lists them\n"));
    let version = gatera(&["version"], b"").out;
    assert!(version.starts_with(&format!("gatera {}\ncommit ", env!("CARGO_PKG_VERSION"))), "{version}");
}

/// Splits a line as a shell does: text between quotes is one word.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split('\'').enumerate().flat_map(|(number, text)| {
        let parted = if number % 2 == 0 { text.split([' ', ')']).collect() } else { vec![text] };
        parted.into_iter()
    })
}

/// The help of every command shows what to type, and the program accepts every example.
#[test]
fn every_command_shows_examples_that_the_program_accepts() {
    let names: Vec<_> = commands().into_iter().filter(|it| it != "version").collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let help = gatera(&[&name, "--help"], b"").out;
        let (_, examples) =
            help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{name} shows no example: {help}"));
        for line in examples.lines().map_while(|line| line.strip_prefix("  ")) {
            let (_, typed) = line.split_once("gatera ").unwrap();
            let words = words(typed).take_while(|it| !["|", ">"].contains(it)).filter(|it| !it.is_empty());
            // With --help the example is parsed but not run. The arguments after -- belong to another program.
            let words: Vec<_> = words.take_while(|it| *it != "--").collect();
            let ran = gatera(&[&words[..], &["--help"]].concat(), b"");
            assert_eq!(ran.code, 0, "{line}: {}", ran.err);
        }
    }
}

#[test]
fn the_help_is_as_in_its_snapshot() {
    let mut text = String::new();
    let all = commands();
    for args in [vec![]].into_iter().chain(all.iter().map(|name| vec![&**name])) {
        let args = [&args[..], &["--help"]].concat();
        text.push_str(&format!("$ gatera {}\n{}\n", args.join(" "), gatera(&args, b"").out));
    }
    snapshot("help", &text);
}
