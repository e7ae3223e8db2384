//! Which command lines start a server: injection, which puts the step in front, and the step itself say the same.

use std::fs::{self, File};
use std::process::Command;

use decide::galera::start::Front;
use decide::object::{Container, Literal};

use super::pod::{STEP, for_each};

const WORDS: [&str; 9] = [
    "dumb-init",
    "/sbin/tini",
    "-g",
    "--",
    "/x/docker-entrypoint.sh",
    "mariadbd",
    "BIN/mysqld",
    "--datadir=/x/mysqld",
    "bash",
];

/// Every line of up to four words.
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
fn injection_and_the_step_know_the_same_command_lines() {
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
            let front = if answer.is_empty() { Front::Unknown } else { Front::Bare };
            assert_eq!(Front::of(&container), front, "{line:?}: the step says {answer:?}");
            // Behind these words stand the server's own.
            if let Ok(before) = answer.parse::<usize>() {
                let own = |word: &&str| word.starts_with('-');
                let server = before > 0 && ["mariadbd", "BIN/mysqld"].contains(&line[before - 1]);
                assert!(server || line.get(before).is_some_and(own), "{line:?}: {before}");
            }
        }
    });
}
