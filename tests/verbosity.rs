//! `--quiet` and `--verbose`: they print less or more, while exit codes and the output for programs stay the same.

use crate::cli::gatera;

/// With `--quiet` only what decides the exit code is printed, in the usual words; the code is the same.
#[test]
fn quiet_prints_only_what_decides_the_exit_code() {
    let whole = gatera(&["check", "seed.yaml"], b"").out;
    let findings = whole.split("\n\n").filter(|it| it.lines().next().unwrap().ends_with(": refused"));
    let findings: Vec<_> = findings.collect();
    assert_eq!(findings.len(), 9, "{whole}");
    let ran = gatera(&["check", "-q", "seed.yaml"], b"");
    assert_eq!((ran.code, ran.out), (1, findings.join("\n\n") + "\n"));
    let lines = gatera(&["check", "--quiet", "--output=concise", "seed.yaml"], b"").out;
    assert!(lines.lines().count() == 9 && lines.lines().all(|it| it.contains(": refused [G")), "{lines}");
    let table = gatera(&["check", "-q", "--output=markdown", "seed.yaml"], b"").out;
    assert!(table.contains("| refused | G11 ") && !table.contains("| warning | "), "{table}");
}

#[test]
fn quiet_prints_nothing_if_nothing_decides_the_exit_code() {
    let empty = "nothing to judge: no Kubernetes object was found; 1 document without a kind was skipped\n";
    let unread = "-:1:4: not readable\nthis is not YAML: a bracket or a brace is not closed\n";
    for (arguments, stdin, code, says) in [
        (&["galera.yaml"][..], "", 0, ""),
        (&["--output=markdown", "galera.yaml"], "", 0, ""),
        (&["--rule=G15", "seed.yaml"], "", 0, ""),
        (&["--allow-empty", "-"], "a: 1\n", 0, ""),
        // An exit code other than 0 is always explained.
        (&["-"], "a: 1\n", 2, empty),
        (&["-"], "a: [\n", 2, unread),
    ] {
        let ran = gatera(&[&["check", "-q"], arguments].concat(), stdin.as_bytes());
        assert_eq!((ran.code, &*ran.out), (code, says), "{arguments:?}: {}", ran.err);
    }
}

/// With `--quiet` everything that another option turns into an error is still printed.
#[test]
fn quiet_prints_what_another_option_turns_into_an_error() {
    let warned = ["check", "-q", "--rule=G15", "--fail-on=warn", "--output=concise", "seed.yaml"];
    let warned = gatera(&warned, b"");
    assert!(warned.code == 1 && warned.out.contains(": warning [G15]"), "{}", warned.out);
    let odd = b"apiVersion: apps/v1\nkind: statefulset\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let quiet = gatera(&["check", "-q", "-"], odd);
    assert_eq!((quiet.code, &*quiet.out), (0, ""));
    let strict = gatera(&["check", "-q", "--strict", "-"], odd);
    assert!(
        strict.code == 2 && strict.out.contains(": note\nthere is no kind statefulset"),
        "{}",
        strict.out
    );
}

#[test]
fn verbose_also_prints_what_is_fine() {
    let usual = gatera(&["check", "seed.yaml"], b"").out;
    let ran = gatera(&["check", "-v", "seed.yaml"], b"");
    let fine = "seed.yaml:14:1: fine Service default/galera-instance-bootstrap-svc\nseed.yaml:70:1: fine Service default/galera-instance-cs\n";
    let settings =
        "settings: the defaults; there is no .gatera.yaml beside the manifests or in a folder above them\n";
    assert_eq!((ran.code, ran.out), (1, format!("{fine}\n{usual}{settings}")));

    let chosen = tempfile::NamedTempFile::new().unwrap();
    let path = chosen.path().to_str().unwrap();
    let arguments =
        ["check", "--verbose", "--mode=warn", "--config", path, "--output=concise", "galera.yaml"];
    let said = gatera(&arguments, b"").out;
    assert_eq!(said.lines().filter(|it| it.contains(": fine ")).count(), 8, "{said}");
    assert!(said.ends_with(&format!("\nsettings: {path}, as --config says; --mode warn\n")), "{said}");
}

/// Output for programs is always complete; options that exclude each other are refused before anything is done.
#[test]
fn output_for_programs_stays_the_same() {
    let whole = "--quiet shortens text only: leave out --quiet or --output";
    for (arguments, says) in [
        (
            &["check", "-q", "--output=json", "-"][..],
            "--quiet works with --output text, concise or markdown only; other formats are always complete",
        ),
        (
            &["check", "-v", "--output=markdown", "-"],
            "--verbose works with --output text or concise only; other formats are always complete",
        ),
        (&["audit", "-q", "--output=json"], whole),
        (&["doctor", "--quiet", "--output=json"], whole),
    ] {
        let ran = gatera(arguments, b"");
        assert_eq!((ran.code, ran.err), (2, format!("gatera: {says}\n")), "{arguments:?}");
    }
    for (arguments, says) in [
        (&["check", "-q", "-v", "-"][..], "'--quiet' cannot be used with '--verbose'"),
        (&["recover", "galera", "--abort", "--dry-run"], "'--abort' cannot be used with '--dry-run'"),
    ] {
        let ran = gatera(arguments, b"");
        assert!(ran.code == 2 && ran.err.contains(says), "{}", ran.err);
    }
    // A file contains everything, even with --quiet.
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = format!("--output=concise={}", file.path().display());
    assert_eq!(gatera(&["check", "-q", &output, "galera.yaml"], b"").out, "");
    assert!(std::fs::read_to_string(file.path()).unwrap().starts_with("8 objects: "));
}
