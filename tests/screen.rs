//! What users see: the program on a narrow, a usual and a wide terminal. `script`, which every Linux has, provides the terminal.
#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use gatera::command::terminal::{WIDEST, wrap};
use inspect::doctor::DoctorRow;

/// The characters that clear the progress line.
const CLEAR: &str = "\r\u{1b}[K";
const WIDTHS: [usize; 3] = [40, 80, 200];

struct Seen {
    code: i32,
    text: String,
}

/// Runs a command line in a shell on a terminal with this number of columns, in the folder of the fixtures.
fn at(columns: usize, typed: &str) -> Seen {
    let program = Path::new(env!("CARGO_BIN_EXE_gatera"));
    let typed =
        format!("stty cols {columns} rows 50; PATH='{}':$PATH; {typed}", program.parent().unwrap().display());
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &typed, "/dev/null"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"))
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .expect("util-linux has `script`");
    // The terminal writes \r\n at the end of a line.
    let text = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
    Seen { code: output.status.code().unwrap(), text }
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({
        prepend_module_to_snapshot => false,
        omit_expression => true,
        snapshot_path => "fixtures",
        // On pages the end of an override is half an hour from now.
        filters => vec![(r"until=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z", "until=TIME")],
    }, { insta::assert_snapshot!(name, text) });
}

/// Returns the text without the progress lines that were cleared: on a slow machine there are some.
fn remaining(text: &str) -> String {
    let mut screen = String::new();
    for written in text.split(CLEAR) {
        screen.truncate(screen.rfind('\n').map_or(0, |end| end + 1));
        screen += written;
    }
    screen
}

#[test]
fn cleared_lines_are_not_kept() {
    let text = format!("one\n{CLEAR}reading …{CLEAR}judging …{CLEAR}two\nthree");
    assert_eq!(remaining(&text), "one\ntwo\nthree");
}

/// Returns the output of a command line on terminals of all widths, one below the other.
fn on_each_terminal(typed: &str) -> String {
    let mut all = String::new();
    for columns in WIDTHS {
        let _ = writeln!(all, "# {columns} columns\n{}", remaining(&at(columns, typed).text));
    }
    all
}

#[test]
fn output_is_folded_at_the_width_of_the_terminal() {
    snapshot("screen-check", &on_each_terminal("NO_COLOR=1 gatera check seed-operator.yaml"));
    snapshot("screen-rules", &on_each_terminal("gatera explain"));
    snapshot("screen-explain", &on_each_terminal("NO_COLOR=1 gatera explain G05"));
}

/// The rows and the tree are like those that `gatera doctor` and `gatera status` print.
#[test]
fn rows_and_trees_are_folded_too() {
    let well = "19 entries of ValidatingWebhookConfiguration gatera, as the guard writes them";
    let wrong = "no replica leads, so webhook entries are not renewed, bootstrap nodes not removed, and configurations not rolled out";
    let rows = [
        DoctorRow::well("webhooks", well),
        DoctorRow::wrong(
            "leader",
            wrong,
            "kubectl -n gatera get pods; a ready replica takes over within seconds",
        ),
        DoctorRow::remark(
            "namespaces",
            "namespace db has no label gatera.dev/mode, so what carries no labels is not guarded",
            "kubectl label namespace db gatera.dev/mode=enforce",
        ),
        DoctorRow::not_asked("view", "nodes could not be listed; what depends on them is not judged"),
    ];
    let tree = include_str!("fixtures/status-waits.snap").split("\n\n").next().unwrap();
    let tree = tree.split_once("\n---\n").unwrap().1;
    let text = report::doctor::text(&rows, false) + "\n" + tree;
    let mut all = String::new();
    for columns in WIDTHS {
        let _ = writeln!(all, "# {columns} columns");
        for line in text.lines() {
            let _ = writeln!(all, "{}", wrap::fold(line, columns.min(WIDEST)));
        }
        all.push('\n');
    }
    snapshot("screen-rows", &all);
}

#[test]
fn rows_that_are_well_can_be_left_out() {
    let rows = [
        DoctorRow::well("CA", "fine"),
        DoctorRow::not_asked("view", "nodes may not be listed"),
        DoctorRow::remark("a", "b", "c"),
    ];
    assert_eq!(
        report::doctor::needing_attention(&rows, false),
        "?      view  nodes may not be listed\nnote   a     b\n             do: c\n"
    );
    assert_eq!(report::doctor::needing_attention(&rows[..1], false), "");
}

/// Output that is not for a person is not laid out for the terminal.
#[test]
fn output_for_programs_is_the_same_on_a_terminal() {
    let piped = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatera"));
        command
            .args(arguments.split(' '))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for format in ["concise", "json", "sarif", "junit", "github", "gitlab", "markdown"] {
        let arguments = format!("check seed.yaml --color never --output {format}");
        assert_eq!(at(40, &format!("gatera {arguments} 2>/dev/null")).text, piped(&arguments), "{format}");
    }
    for arguments in ["explain --output json", "explain --output markdown", "completions bash", "man check"] {
        assert_eq!(at(40, &format!("gatera {arguments} 2>/dev/null")).text, piped(arguments), "{arguments}");
    }
    // Lines that fit are not changed, and a pipe is not a terminal.
    let text = piped("check seed.yaml");
    assert!(text.lines().any(|line| line.len() > 120), "no line of the output is too long for the terminal");
    assert_eq!(at(40, "gatera check seed.yaml | cat").text, text);
    let short = "check bitnami-like.yaml --color never --rule G01";
    assert_eq!(at(120, &format!("gatera {short} 2>/dev/null")).text, piped(short));
}

#[test]
fn colours_do_not_change_the_layout() {
    // Standard error is left out, because a busy machine shows a progress line there.
    let seen = at(80, "gatera check seed.yaml 2>/dev/null");
    assert_eq!(seen.code, 1, "{}", seen.text);
    assert!(seen.text.contains("\u{1b}[1;31mrefused\u{1b}[0m\n"), "{}", seen.text);
    let mut plain = seen.text;
    for code in ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[1;31m", "\u{1b}[1;33m", "\u{1b}[0m"] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, at(80, "NO_COLOR=1 gatera check seed.yaml 2>/dev/null").text);
}

/// The terminal does not report its width.
#[test]
fn nothing_is_folded_if_the_width_is_unknown() {
    let seen = at(0, "NO_COLOR=1 gatera check seed.yaml </dev/null 2>/dev/null").text;
    assert!(seen.lines().any(|line| line.len() > 120), "{seen}");
}

/// After a second of waiting, a progress line shows what is being done. It is cleared before the result is printed.
#[test]
fn a_progress_line_shows_what_is_being_done() {
    let folder = tempfile::tempdir().unwrap();
    let (file, pipe) = (folder.path().join("a.yaml"), folder.path().join("pipe"));
    fs::write(&file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").unwrap();
    let (file, pipe) = (file.display(), pipe.display());
    let slow =
        format!("mkfifo {pipe}; (sleep 4; echo 'a: 1' >{pipe}) & gatera check {file} {pipe} --color never");
    let reported = at(80, &slow).text;
    let (_, after) =
        reported.split_once(&format!("{CLEAR}reading: 1 file …")).unwrap_or_else(|| panic!("{reported}"));
    let (_, printed) = after.rsplit_once(CLEAR).unwrap();
    assert!(printed.starts_with("1 object: 0 would be refused"), "{reported}");

    let awaited = at(80, &format!("(sleep 2; echo 'a: 1') | gatera check {file} - --color never")).text;
    assert!(
        awaited.starts_with("1 object: 0 would be refused"),
        "a progress line was printed while standard input was awaited: {awaited}"
    );
    let elsewhere = at(80, &format!("rm {pipe}; {slow} 2>/dev/null")).text;
    assert!(
        elsewhere.starts_with("1 object: 0 would be refused"),
        "a progress line was printed although stderr is not a terminal: {elsewhere}"
    );
}

/// The API server accepts a connection and does not answer.
#[test]
fn a_progress_line_shows_the_request_that_has_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "{{clusters: [{{name: c, cluster: {{server: '{server}'}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}], current-context: c, users: [{{name: u, user: {{}}}}]}}"
    );
    fs::write(kubeconfig.path(), text).unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            thread::sleep(Duration::from_secs(4));
            drop(connection);
        }
    });
    let seen = at(80, &format!("gatera doctor --kubeconfig {}", kubeconfig.path().display()));
    let (reported, failed) = seen.text.rsplit_once(CLEAR).unwrap_or_else(|| panic!("{}", seen.text));
    assert_eq!(reported, format!("{CLEAR}asking the API server for its version …"));
    assert!(failed.starts_with("gatera: asking the API server for its version: "), "{failed}");
    assert_eq!(seen.code, 2);
}
