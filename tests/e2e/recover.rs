//! The way back by one command: every member has stopped, rows were written between, and `gatera recover` finds the newest,
//! starts from it, and brings the others back. Every acknowledged row is there.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::galera::Galera;
use crate::guard::guarded;
use crate::install::{formed, password};
use crate::lab::User;
use crate::writer::Writer;
use crate::{gate, power};

fn recover(galera: &Galera<'_>, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatera"));
    command
        .args(["recover", &galera.name, "--namespace", &galera.namespace, "--kubeconfig"])
        .arg(galera.lab.kubeconfig(User::Admin))
        .args(more);
    command
}

/// A person takes the responsibility, against every advice.
fn made_to_leave(galera: &Galera<'_>, pod: &str) {
    let until = Timestamp::now() + Duration::from_secs(600);
    let release = format!("gatera.dev/override=G02 until={until:.0} reason=a drill");
    galera.kubectl(&["annotate", "--overwrite", "pod", pod, &release]).succeeded();
    galera.kubectl(&["delete", "pod", pod, "--timeout=120s"]).succeeded();
}

/// Nothing starts on a node while this is held.
struct Cordoned<'a>(&'a Galera<'a>);

impl<'a> Cordoned<'a> {
    fn all(galera: &'a Galera<'a>) -> Self {
        galera.lab.kubectl(User::Admin, &["cordon", "--selector=!odd.example/none"]).succeeded();
        Self(galera)
    }
}

impl Drop for Cordoned<'_> {
    fn drop(&mut self) {
        self.0.lab.kubectl(User::Admin, &["uncordon", "--selector=!odd.example/none"]);
    }
}

/// Runs it again and again; it is killed as soon as it says something new. Returns all that it said, at its end.
fn killed_after_every_line(galera: &Galera<'_>) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        assert!(Instant::now() < deadline, "{said:#?}");
        let mut child = recover(galera, &["--yes"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Without the time of day.
        let mut words =
            lines.map(|line| line.unwrap().split_once(' ').map(|it| it.1.to_owned()).unwrap_or_default());
        match words.find(|line| !said.contains(line)) {
            Some(line) => {
                said.push(line);
                // What it says it does next; then it is gone.
                child.kill().unwrap();
                child.wait().unwrap();
            }
            None => {
                assert!(child.wait().unwrap().success(), "{said:#?}");
                return said;
            }
        }
    }
}

#[test]
fn a_cluster_that_is_down_comes_back_by_one_command() {
    let galera = formed(guarded(), "back");
    let cluster = galera.until_synced(3, 3);
    gate::it_is_recorded(&galera, &cluster);
    galera.fill();
    let writer = Writer::start(&galera, &password(&galera));
    let set = || {
        let set = galera.lab.get(&galera.namespace, "statefulset/back-galera");
        (set["spec"].clone(), set["metadata"]["annotations"].clone())
    };
    let before = set();

    // One leaves after the other, and rows are written between: the newest is neither the first nor the last by number.
    {
        let _cordoned = Cordoned::all(&galera);
        for ordinal in [0, 2, 1] {
            writer.until_writes();
            made_to_leave(&galera, &galera.member(ordinal));
        }
    }
    let plan = recover(&galera, &["--dry-run"]).output().unwrap();
    let plan = String::from_utf8(plan.stdout).unwrap();
    println!("{plan}");
    assert!(plan.contains("next would be: "), "{plan}");
    let said = killed_after_every_line(&galera);
    println!("{}", said.join("\n"));
    galera.until_ready(3);
    assert_eq!(galera.until_synced(3, 3), cluster, "its history goes on");
    let newest =
        format!("{}: asking the guard whether it may start the cluster from {cluster}:", galera.member(1));
    assert!(said.iter().any(|line| line.starts_with(&newest)), "{said:#?}");
    assert_eq!(set(), before, "the StatefulSet is as it was");
    writer.until_writes();

    // The first of the two everyday commands, by somebody who does not listen.
    for ordinal in 0..3 {
        let until = Timestamp::now() + Duration::from_secs(600);
        let release = format!("gatera.dev/override=G02 until={until:.0} reason=a drill");
        galera.kubectl(&["annotate", "--overwrite", "pod", &galera.member(ordinal), &release]).succeeded();
    }
    galera.kubectl(&["delete", "pod", "--selector=app=galera", "--timeout=120s"]).succeeded();
    let began = Instant::now();
    let output = recover(&galera, &["--yes"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}after {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(galera.until_synced(3, 3), cluster, "its history goes on");
    writer.until_writes();
    power::members_agree(&galera, "shop.t");
    let (acknowledged, failed) = writer.finish(3);
    println!("back: {acknowledged} rows acknowledged, none lost; {failed} were tried again");
}
