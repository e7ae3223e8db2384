//! The command lines that start a server: injection, which adds the step in front, and the step itself recognize the same ones.
//! The step also looks for the data where the server does.

use std::fs::{self, File};
use std::process::Command;

use facts::galera::start::EntryPoint;
use objects::{Container, Literal};

use super::pod::{STEP, for_each};
use super::start::{ID, line, run, server, started, state};

const WORDS: [&str; 11] = [
    "dumb-init",
    "/usr/bin/env",
    "A=/b/mysqld",
    "/sbin/tini",
    "-g",
    "--",
    "/x/docker-entrypoint.sh",
    "mariadbd",
    "BIN/mysqld",
    "--datadir=/x/mysqld",
    "bash",
];

/// Lists all command lines of one to four of these words.
fn lines() -> Vec<Vec<&'static str>> {
    let mut all = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..4 {
        let end = all.len();
        for shorter in begin..end {
            all.extend(WORDS.map(|word| [&*all[shorter], &[word]].concat()));
        }
        begin = end;
    }
    all.split_off(1)
}

#[test]
fn injection_and_the_step_recognize_the_same_command_lines() {
    let text = fs::read_to_string(STEP).unwrap();
    let (_, rest) = text.split_once("\nsplit_command() {").unwrap();
    let (body, _) = rest.split_once("\n}\n").unwrap();
    let program = format!(
        "split_command() {{{body}\n}}\nset -uf\nwhile IFS='|' read -r a b c d; do set -- $a $b $c $d\n\
         if split_command \"$@\"; then echo $before; else echo; fi; done"
    );
    let lines = lines();
    for_each(&[()], |pod, ()| {
        pod.tool("mariadbd", "").tool("mysqld", "");
        let bin = pod.path("bin").display().to_string();
        let text: String = lines.iter().map(|line| line.join("|").replace("BIN", &bin) + "\n").collect();
        pod.write("lines", text);
        let mut command = Command::new(&pod.shell);
        command.args(pod.in_busybox().then_some("sh")).args(["-c", &program]).env("PATH", &bin);
        let output = command.stdin(File::open(pod.path("lines")).unwrap()).output().unwrap();
        let answers = String::from_utf8(output.stdout).unwrap();
        assert_eq!(answers.lines().count(), lines.len(), "{}", String::from_utf8_lossy(&output.stderr));
        for (line, answer) in lines.iter().zip(answers.lines()) {
            let command = line.iter().map(|word| Literal::from(*word)).collect();
            let container = Container { image: "our/db:1".into(), command, ..Container::default() };
            let front = if answer.is_empty() { EntryPoint::Unknown } else { EntryPoint::Bare };
            assert_eq!(EntryPoint::of(&container), front, "{line:?}: the step says {answer:?}");
            // The words that stand before the server's own arguments are counted.
            if let Ok(before) = answer.parse::<usize>() {
                let own = |word: &&str| word.starts_with('-');
                let server = before > 0 && ["mariadbd", "BIN/mysqld"].contains(&line[before - 1]);
                assert!(server || line.get(before).is_some_and(own), "{line:?}: {before}");
            }
        }
    });
}

#[test]
fn data_is_found_where_the_server_looks_for_it() {
    let rows = [
        ("mariadbd --datadir=DATA", ""),
        ("mariadbd --datadir DATA", ""),
        ("mariadbd --loose-datadir=DATA", ""),
        ("mariadbd -h DATA", ""),
        ("mariadbd -hDATA", ""),
        ("docker-entrypoint.sh --datadir=DATA", ""),
        ("tini -g -- docker-entrypoint.sh mariadbd --datadir=DATA", ""),
        ("tini -- mariadbd --datadir=DATA", ""),
        ("tini mariadbd --datadir=DATA", ""),
        ("tini docker-entrypoint.sh mariadbd --datadir=DATA", ""),
        ("docker-entrypoint.sh mariadbd --datadir=/nowhere --datadir=DATA", "--datadir=/elsewhere"),
        ("mariadbd --defaults-file=/x --wsrep-on=ON", "--datadir=DATA"),
        ("mariadbd --datadir=DATA --wsrep_data-home_dir=DATA/wsrep", ""),
        ("mariadbd", "--datadir=DATA\n--wsrep_data_home_dir=DATA/wsrep"),
    ];
    for_each(&rows, |pod, (args, file)| {
        server(pod, &line(&format!("{ID}:363")));
        pod.tool("docker-entrypoint.sh", r#"case $1 in -*) set -- mariadbd "$@" ;; esac; exec "$@""#);
        pod.tool("tini", r#"while :; do case $1 in -*) shift ;; *) exec "$@" ;; esac; done"#);
        pod.tool(
            "my_print_defaults",
            r#"printf '%s\n' "$@" >"$POD/defaults"; while read -r line; do echo "$line"; done <"$POD/file""#,
        );
        pod.write("file", file.replace("DATA", pod.path("data").to_str().unwrap()) + "\n");
        let home = if args.contains("wsrep") && args.contains("home") || file.contains("home") {
            "data/wsrep"
        } else {
            "data"
        };
        pod.write("data/ibdata1", "x").write(&format!("{home}/grastate.dat"), state(ID, "-1", "0"));
        let outcome = run(pod, args).exits(0);
        assert_eq!(
            started(pod).pop(),
            Some(format!("--wsrep-start-position={ID}:363")),
            "{args}: {outcome:#?}"
        );
        let defaults = fs::read_to_string(pod.path("defaults")).unwrap();
        let expected =
            if args.contains("defaults") { "--defaults-file=/x\n--mysqld\n" } else { "--mysqld\n" };
        assert_eq!(defaults, expected, "{args}: the arguments of my_print_defaults");
    });
}

#[test]
fn other_programs_and_servers_with_a_position_are_left_alone() {
    let rows = [
        ("mariadbd --wsrep-start-position=x:1 --datadir=DATA", "--wsrep-start-position=x:1"),
        ("docker-entrypoint.sh sleeper --datadir=DATA", "--datadir=DATA"),
        ("tini -g -- sleeper --datadir=DATA", "--datadir=DATA"),
        ("sleeper mariadbd --datadir=DATA", "mariadbd"),
    ];
    for_each(&rows, |pod, (args, word)| {
        server(pod, &line(&format!("{ID}:363")));
        pod.tool("docker-entrypoint.sh", r#"exec "$@""#);
        pod.tool("tini", r#"while [ "$1" != -- ]; do shift; done; shift; exec "$@""#);
        pod.tool("sleeper", r#"printf '%s\n' "$@" >"$POD/started""#);
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "-1", "0"));
        run(pod, args).exits(0);
        let started = started(pod);
        let word = word.replace("DATA", pod.path("data").to_str().unwrap());
        assert!(started.contains(&word) && !started.iter().any(|it| it.contains(ID)), "{started:?}");
        assert!(!pod.path("asked").exists(), "{args}: a server was asked for its position");
    });
}
