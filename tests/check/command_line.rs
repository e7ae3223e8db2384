//! The command line of `gatera check`, and its exit codes, on which pipelines depend.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::CLUSTER;
use crate::cli::{Ran, gatera_in};

/// Returns a cluster with a plain password, which would be refused.
fn with_password() -> String {
    CLUSTER.replace("binlog_format = ROW\n    innodb_autoinc", "wsrep_sst_auth = root:x\n    innodb_autoinc")
}

/// Runs `gatera check` in a folder; returns the exit code, standard output and standard error.
fn check(folder: &Path, arguments: &[&str], stdin: &str) -> (i32, String, String) {
    let Ran { code, out, err } = gatera_in(folder, &[&["check"][..], arguments].concat(), stdin.as_bytes());
    (code, out, err)
}

/// Without a path the current folder is judged, even if standard input is a pipe. Standard error says so, because the caller may
/// have forgotten the `-`.
#[test]
fn without_a_path_the_current_folder_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("open.yaml"), with_password()).unwrap();
    let (code, out, err) = check(folder.path(), &[], CLUSTER);
    assert!(code == 1 && out.contains("[G11]") && out.contains("open.yaml"), "{code} {out} {err}");
    let said = "gatera: no path given: judging the current folder; for standard input, pass -\n";
    assert!(err.starts_with(said), "{err}");
    let (code, _, err) = check(folder.path(), &["--quiet"], CLUSTER);
    assert!(code == 1 && !err.contains("no path given"), "{code} {err}");
}

#[test]
fn the_exit_code_depends_on_the_worst_finding() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("fine.yaml", CLUSTER);
    put("open.yaml", &with_password());
    put("two.yaml", &CLUSTER.replace("replicas: 3", "replicas: 2"));
    put("empty.yaml", "---\n# nothing\n---\n");
    put("values.yaml", "replicaCount: 3\n");
    put(
        "odd.yaml",
        &format!("{CLUSTER}\n---\napiVersion: apps/v1\nkind: statefulset\nmetadata: {{name: a}}\n"),
    );
    put("broken.yaml", "kind: [\n");
    fs::create_dir(folder.path().join("nothing")).unwrap();
    for (arguments, code, why) in [
        (&["fine.yaml"][..], 0, "nothing would be refused"),
        (&["open.yaml"], 1, "an object would be refused"),
        (&["two.yaml"], 0, "only a warning"),
        (&["two.yaml", "--fail-on=warn"], 1, "a warning counts"),
        (&["fine.yaml", "--fail-on=warn"], 0, "there is no warning"),
        (&["empty.yaml"], 2, "nothing to judge"),
        (&["values.yaml"], 2, "nothing to judge"),
        (&["nothing"], 2, "nothing to judge"),
        (&["empty.yaml", "--allow-empty"], 0, "an empty input is allowed"),
        (&["broken.yaml", "--allow-empty"], 2, "--allow-empty does not allow an unreadable file"),
        (&["odd.yaml"], 0, "a note"),
        (&["odd.yaml", "--strict"], 2, "a note counts"),
        (&["fine.yaml", "--strict"], 0, "there is no note"),
        (&["broken.yaml", "open.yaml"], 2, "an unreadable file takes precedence"),
        (&["nowhere.yaml", "fine.yaml"], 2, "a missing file takes precedence, too"),
        (&["open.yaml", "--mode=warn"], 0, "as in a guard that warns"),
        (&["open.yaml", "--mode=warn", "--fail-on=warn"], 1, "and the warning counts"),
        (&["open.yaml", "--rule=G01"], 0, "only another rule is applied"),
        (&["open.yaml", "--rule=G01,plain-password"], 1, "a rule may be given by its name"),
    ] {
        let (seen, out, err) = check(folder.path(), arguments, "");
        assert_eq!(seen, code, "{arguments:?}: {why}: {out}{err}");
    }
    let (code, out, _) = check(folder.path(), &["."], "");
    assert_eq!(code, 2);
    assert!(out.contains("./open.yaml:66:5: refused\n"), "the other files are not judged: {out}");
}

/// As in `gatera check … | head -1` under `set -o pipefail`: the output is no longer read, but the exit code is still right.
#[test]
fn a_closed_pipe_does_not_change_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("open.yaml"), with_password()).unwrap();
    for (arguments, code) in [(&["open.yaml"][..], 1), (&["open.yaml", "--mode=off"], 0), (&["nowhere"], 2)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gatera"))
            .arg("check")
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*output.stderr), (Some(code), &b""[..]), "{arguments:?}");
    }
}

#[test]
fn several_formats_at_once_go_to_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("open.yaml"), with_password()).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let outputs = ["open.yaml", "--output=sarif=a.sarif", "--output", "junit=b.xml", "-o", "github"];
    let (code, out, _) = check(folder.path(), &outputs, "");
    assert_eq!(code, 1);
    assert!(out.starts_with("::error file=open.yaml,line=66,"), "{out}");
    assert!(read("a.sarif").contains("\"version\": \"2.1.0\"") && read("b.xml").starts_with("<?xml"));
    let (_, out, _) = check(folder.path(), &["open.yaml", "--output=json=c.json"], "");
    assert!(out.starts_with("open.yaml:66:5: refused\n"), "standard output has no text for people: {out}");
    for (arguments, words) in [
        (
            &["open.yaml", "-ojson", "-osarif"][..],
            "gatera: only one format can go to standard output; give the others a file, as in --output sarif=gatera.sarif\n",
        ),
        (&["open.yaml", "-ojson=nowhere/a"], "gatera: writing nowhere/a: No such file or directory\n"),
        (
            &["open.yaml", "-oyaml"],
            "there is no format yaml; there are text, concise, json, sarif, junit, github, gitlab, markdown",
        ),
        (&["open.yaml", "-ojson="], "name a file after the =, or leave out the ="),
        (&["open.yaml", "--rule=G99"], "there is no rule G99; `gatera explain` lists them"),
        (&["open.yaml", "--mode=maybe"], "choose enforce, warn, audit or off"),
    ] {
        let (code, out, err) = check(folder.path(), arguments, "");
        assert_eq!((code, &*out), (2, ""), "{arguments:?}");
        assert!(err.contains(words), "{arguments:?}: {err}");
    }
}

/// Settings are found beside the manifests, or above them up to the top of the repository; other settings do not count.
#[test]
fn settings_are_found_in_folders_above() {
    let outside = tempfile::tempdir().unwrap();
    let mild = "modes: {G11: warn}\n";
    fs::write(outside.path().join(".gatera.yaml"), mild).unwrap();
    let top = outside.path().join("repository");
    fs::create_dir_all(top.join("apps/db")).unwrap();
    fs::create_dir_all(top.join("apps/web")).unwrap();
    fs::write(top.join("apps/db/open.yaml"), with_password()).unwrap();
    fs::write(top.join("apps/web/open.yaml"), with_password()).unwrap();
    let code = |folder: &str, arguments: &[&str]| check(&top.join(folder), arguments, "").0;
    assert_eq!(code(".", &["apps/db"]), 1, "outside of a repository, settings above the folder do not count");
    fs::create_dir(top.join(".git")).unwrap();
    assert_eq!(code(".", &["apps/db"]), 1, "nor do settings above the repository");
    fs::write(top.join(".gatera.yaml"), mild).unwrap();
    for (folder, path) in
        [(".", "apps/db"), ("apps/db", "open.yaml"), ("apps/web", "../db/open.yaml"), ("apps/db", ".")]
    {
        assert_eq!(code(folder, &[path]), 0, "{folder} {path}");
    }
    assert_eq!(
        check(&top.join("apps"), &["-"], &with_password()).0,
        0,
        "for a pipe, the settings of the current folder apply"
    );
    fs::remove_dir_all(top.join("apps/db")).unwrap();
    assert!(
        check(&top, &["apps/db"], "").1.contains("; settings of "),
        "for a folder that is gone, the settings of the place where it was apply"
    );
    fs::create_dir(top.join("apps/db")).unwrap();
    fs::write(top.join("apps/db/open.yaml"), with_password()).unwrap();
    fs::write(top.join("apps/web/.gatera.yaml"), "mode: enforce\n").unwrap();
    assert_eq!(code(".", &["apps/web"]), 1, "the nearest one counts");
    let (code, _, err) = check(&top, &["apps/db", "apps/web"], "");
    assert_eq!(code, 2);
    assert!(
        err.starts_with("gatera: these paths have different settings (")
            && err.ends_with("; --config names one file\n"),
        "{err}"
    );
    assert_eq!(check(&top, &["apps/db", "apps/web", "--config=.gatera.yaml"], "").0, 0);
}

/// Each file that cannot be read is reported in one line, with the position of the mistake, and all other files are judged.
#[test]
fn every_unreadable_file_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let crlf = format!("\u{feff}{}", with_password().replace('\n', "\r\n"));
    put("a-crlf.yaml", crlf.as_bytes());
    put("b-quote.yaml", b"a: \"x\nkind: 1\n");
    put("c-tab.yaml", b"kind:\n\tb: 1\n");
    put("d-twice.yaml", b"a: 1\nkind: 2\na: 3\n");
    put("e-template.yaml", b"kind: {{ .Values.kind }}\n");
    put("f-sixteen.yaml", &[&b"\xff\xfe"[..], b"k\0i\0"].concat());
    put("g-bytes.yaml", b"a: 1\nb: \xff\n");
    put("h-anchor.yaml", b"kind: *nobody\n");
    let huge = fs::File::create(folder.path().join("i-huge.yaml")).unwrap();
    huge.set_len(100 << 20).unwrap();
    #[cfg(unix)]
    for (to, name) in
        [("..", "l-out"), (".", "m-loop"), ("nowhere", "j-dangling.yaml"), ("/dev/zero", "k-device.yaml")]
    {
        std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    }
    fs::create_dir(folder.path().join("n.yaml")).unwrap();
    let (code, out, err) = check(folder.path(), &[".", "--output=concise"], "");
    assert_eq!((code, &*err), (2, ""));
    let lines: Vec<_> = out.lines().take_while(|line| line.starts_with("./")).collect();
    assert_eq!(
        lines,
        [
            "./a-crlf.yaml:66:5: refused [G11] ConfigMap default/galera-instance-nodeconfig: galera.cnf line 6 contains the password of wsrep_sst_auth in plain text",
            "./b-quote.yaml:2:1: not readable: this is not YAML: a quote is not closed",
            "./c-tab.yaml:2:2: not readable: this is not YAML: a tab where YAML needs spaces",
            "./d-twice.yaml:3:1: not readable: this is not YAML: key a occurs twice in the same map, on lines 1 and 3",
            "./e-template.yaml:1:8: note: this is a template, not a manifest; judge its output: helm template CHART | gatera check -",
            "./f-sixteen.yaml: not readable: this is UTF-16, which kubectl does not read; save it as UTF-8",
            "./g-bytes.yaml: not readable: this is not text (line 2 is not UTF-8), so it is not YAML",
            "./h-anchor.yaml:1:7: not readable: this is not YAML: it refers to an anchor that does not exist",
            "./i-huge.yaml: not readable: has more than 64 MiB, which is too large; split it",
            "./j-dangling.yaml: not readable: cannot be read: there is no such file",
            "./k-device.yaml: not readable: is a symbolic link to a place outside this folder, so it was not followed; name its target as well",
            "./l-out: not readable: is a symbolic link to a place outside this folder, so it was not followed; name its target as well",
        ],
        "{out}"
    );
}

/// Names can be any text, and runners of pipelines look for commands in a job's output.
#[test]
fn names_cannot_be_commands_of_a_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let name = "##vso[task.setvariable variable=PATH]/evil ##[stop-commands]x";
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: '{name}', labels: {{gatera.dev/cluster: x}}}}\ndata: {{c.cnf: \"[client]\\npassword=x\"}}\n"
    );
    fs::write(folder.path().join("::add-mask::a.yaml"), text).unwrap();
    for format in ["text", "concise", "github"] {
        let (code, out, _) = check(folder.path(), &["::add-mask::a.yaml", "-o", format], "");
        assert_eq!(code, 1, "{out}");
        assert!(!out.contains("##[") && !out.contains("##vso["), "{out}");
        let commands = out.lines().filter(|line| line.starts_with("::")).count();
        assert_eq!(commands, usize::from(format == "github"), "{out}");
    }
}

/// Colours are printed only on a terminal, unless `--color` says otherwise.
#[test]
fn output_into_a_pipe_is_coloured_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("open.yaml"), with_password()).unwrap();
    let coloured = |arguments: &[&str]| check(folder.path(), arguments, "").1.contains('\u{1b}');
    assert!(!coloured(&["open.yaml"]), "a pipe is not a terminal");
    assert!(coloured(&["open.yaml", "--color=always"]));
    assert!(!coloured(&["open.yaml", "--color=never"]));
    assert!(!coloured(&["open.yaml", "--color=always", "-ojson"]));
}
