//! Two people and random faults. Each person runs everyday commands, one after the other, regardless of the other person.
//! Meanwhile servers, pods, links, kubelets, guards and the API server die, stall or are cut off, at moments chosen by a seed.
//! When no member has served for a minute, a third person runs `gatera recover`. At the end the cluster has kept its identity,
//! all members have the same rows, and every acknowledged row is there.
//!
//! Part of `make drills`; GATERA_MINUTES sets the length in minutes (20), GATERA_SEED the sequence of commands and faults.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::chance::{Chance, env_number, seed};
use crate::galera::Galera;
use crate::guard::{NAMESPACE, guarded, status};
use crate::install::{formed_with, password, try_helm};
use crate::lab::{Output, User};
use crate::outage::until_status_reports;
use crate::power::Program;
use crate::recover::gatera;
use crate::writer::Writer;
use crate::{gate, power};

/// The Helm value that lets members share a node: there are up to five members, and three nodes.
const VALUES: &str = "--set=antiAffinity=false";

/// Counts of answers, by person and kind of answer.
type Tally = Mutex<BTreeMap<String, usize>>;

#[test]
fn two_people_and_random_faults_lose_no_acknowledged_row() {
    let seed = seed();
    let duration = Duration::from_secs(60 * env_number("GATERA_MINUTES").unwrap_or(20));
    println!("GATERA_SEED={seed}, {} minutes", duration.as_secs() / 60);
    let galera = formed_with(guarded(), "day", &[VALUES]);
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    gate::until_identity_is_recorded(&galera, &cluster);
    let writer = Writer::start(&galera, &password(&galera));
    let tally = Tally::default();
    let began = Instant::now();
    let drill = Drill { galera: &galera, tally: &tally, began, ends: began + duration };
    thread::scope(|scope| {
        scope.spawn(|| drill.run_commands("ann", Chance(seed)));
        scope.spawn(|| drill.run_commands("bob", Chance(seed ^ 0xb0b)));
        scope.spawn(|| drill.inject_faults(Chance(seed ^ 0xbad)));
        drill.recover_outages();
    });
    for (what, times) in tally.lock().unwrap().iter() {
        println!("{times:4} × {what}");
    }

    drill.recover_until_whole();
    // The last upgrade may have changed the configuration, which the guard then rolls out.
    until_status_reports(&galera, &["HEALTHY", "Steps of the guard: done"]);
    assert_eq!(galera.until_synced(3, 3), cluster, "GATERA_SEED={seed}: the cluster keeps its identity");
    writer.until_writes();
    power::members_agree(&galera, "shop.t");
    no_guard_panicked(&galera);
    writer.finish(3);
}

/// The cluster under test, and how long commands and faults go on.
struct Drill<'a> {
    galera: &'a Galera<'a>,
    tally: &'a Tally,
    began: Instant,
    ends: Instant,
}

impl Drill<'_> {
    fn is_running(&self) -> bool {
        Instant::now() < self.ends
    }

    fn note(&self, who: &str, what: &str, answer: &str) {
        println!("{:7.1} {who}: {what}: {answer}", self.began.elapsed().as_secs_f64());
        // Digits and further lines are dropped, so answers that differ only in numbers count as one kind.
        let kind = answer.split_once('\n').map_or(answer, |(first, _)| first);
        let kind: String = kind.chars().filter(|it| !it.is_ascii_digit()).take(100).collect();
        *self.tally.lock().unwrap().entry(format!("{who}: {kind}")).or_default() += 1;
    }

    fn helm(&self, verb: &str, more: &[&str]) -> Output {
        try_helm(self.galera, verb, &[&[VALUES], more].concat())
    }

    fn helm_upgrade(&self, who: &str, more: &[&str]) -> Output {
        let upgraded = self.helm("upgrade", more);
        if upgraded.stderr.contains("another operation") {
            // An interrupted upgrade blocks the next one until it is rolled back.
            let rollback = ["rollback", &self.galera.name, "--namespace", &self.galera.namespace];
            self.note(who, "helm rollback", &answer(&self.galera.lab.helm(User::Admin, &rollback)));
        }
        upgraded
    }

    fn run_commands(&self, who: &str, mut chance: Chance) {
        while self.is_running() {
            let (what, output) = self.run_command(who, &mut chance);
            assert!(!output.stderr.contains("panicked"), "{what} panicked: {output}");
            self.note(who, &what, &answer(&output));
            thread::sleep(Duration::from_millis(chance.below(15_000)));
        }
    }

    /// Runs one everyday command. Returns the command and its output.
    fn run_command(&self, who: &str, chance: &mut Chance) -> (String, Output) {
        let (galera, set) = (self.galera, self.galera.stateful_set());
        let pod = galera.member(usize::try_from(chance.below(3)).unwrap());
        let kubectl = |arguments: &[&str]| (arguments.join(" "), galera.kubectl(arguments));
        match chance.below(17) {
            0..=2 => {
                let config = format!("--set=config=innodb_buffer_pool_size = {}M", 32 + 8 * chance.below(3));
                (config.clone(), self.helm_upgrade(who, &[&config]))
            }
            3 => {
                let count = *chance.one(&["--set=nodeCount=3", "--set=nodeCount=5"]);
                (count.to_owned(), self.helm_upgrade(who, &[count]))
            }
            4 => kubectl(&["scale", &set, &format!("--replicas={}", chance.below(6))]),
            5 => kubectl(&["delete", "pod", &pod, "--timeout=40s"]),
            6 => kubectl(&["delete", "pod", "--selector=app=galera", "--timeout=40s"]),
            7 => kubectl(&["rollout", "restart", &set]),
            8 => kubectl(&["rollout", "undo", &set]),
            9 => self.drain(&format!("node-{}", 1 + chance.below(3))),
            10 => kubectl(&["delete", "pvc", &galera.claim(0), "--wait=false"]),
            11 => kubectl(&["delete", &set, "--timeout=40s"]),
            12 => self.apply_again(),
            13 => {
                let patch = r#"--patch={"data":{"galera.cnf":"[mysqld]\nwsrep_on=OFF\n"}}"#;
                kubectl(&["patch", &format!("configmap/{}-nodeconfig", galera.name), "--type=merge", patch])
            }
            14 => {
                galera.set_override(&format!("pod/{pod}"), "G02");
                kubectl(&["delete", "pod", &pod, "--timeout=40s"])
            }
            15 => {
                self.note(who, "gatera stop", &answer(&run_gatera("stop", galera)));
                thread::sleep(Duration::from_millis(chance.below(10_000)));
                ("gatera start".to_owned(), run_gatera("start", galera))
            }
            _ => ("gatera recover".to_owned(), run_gatera("recover", galera)),
        }
    }

    /// Drains a node and makes it schedulable again.
    fn drain(&self, node: &str) -> (String, Output) {
        let drained = self.galera.drain(node, "--timeout=40s");
        self.galera.lab.kubectl(User::Admin, &["uncordon", node]);
        (format!("drain {node}"), drained)
    }

    /// Applies the manifests of the first install again, with the bootstrap node.
    fn apply_again(&self) -> (String, Output) {
        let rendered = self.helm("template", &["--set=bootstrap.enabled=true"]);
        let applied = match rendered.status {
            0 => self.galera.apply(&rendered.stdout),
            _ => rendered,
        };
        ("apply the manifests".to_owned(), applied)
    }

    fn inject_faults(&self, mut chance: Chance) {
        while self.is_running() {
            thread::sleep(Duration::from_millis(chance.below(60_000)));
            let fault = self.inject_fault(&mut chance);
            self.note("faults", &fault, fault.split(' ').next().unwrap_or_default());
        }
    }

    /// Injects one fault. If it lasts for a while, waits until it is over. Returns its description, which begins with its kind.
    fn inject_fault(&self, chance: &mut Chance) -> String {
        let all: Vec<_> = (0..5).map(|ordinal| self.galera.member(ordinal)).collect();
        let some: Vec<_> = all.iter().filter(|_| chance.below(2) == 0).cloned().collect();
        let duration = Duration::from_millis(1000 + chance.below(30_000));
        match chance.below(8) {
            0 => {
                let killed: Vec<_> = some.iter().filter(|pod| power::kill_if_running(pod)).collect();
                format!("servers die: {killed:?}")
            }
            1 => {
                let killed: Vec<_> = some.iter().filter(|pod| power::kill_with_sandbox(pod)).collect();
                format!("sandboxes die: {killed:?}")
            }
            2 => {
                let _paused = power::pause_servers(&some);
                thread::sleep(duration);
                format!("stalled servers for {duration:?}: {some:?}")
            }
            3 => {
                let nodes = [format!("node-{}", 1 + chance.below(3))];
                let _paused = power::pause_kubelets(&nodes);
                thread::sleep(duration);
                format!("kubelet stalls for {duration:?}: {nodes:?}")
            }
            4 => {
                let guards =
                    ["--namespace", NAMESPACE, "delete", "pods", "--all", "--wait=false", "--grace-period=1"];
                self.galera.lab.kubectl(User::Admin, &guards);
                "guards die".to_owned()
            }
            5 => {
                power::kill_api_server(duration);
                format!("API server away for {duration:?}")
            }
            6 => {
                power::stall_api_server(duration);
                format!("API server stalled for {duration:?}")
            }
            _ => {
                let addresses: Vec<_> = some.iter().filter_map(|pod| self.galera.address(pod)).collect();
                if !addresses.is_empty() {
                    let _cut = power::cut_off(&addresses);
                    thread::sleep(duration);
                }
                format!("links are cut for {duration:?}: {addresses:?}")
            }
        }
    }

    /// Recovers the cluster when no member has served for a minute.
    fn recover_outages(&self) {
        // kube-scheduler exits when its cache is inconsistent; elsewhere a kubelet restarts it.
        let scheduler = Program::of("kube-scheduler");
        let mut served = Instant::now();
        while self.is_running() {
            scheduler.ensure_runs();
            thread::sleep(Duration::from_secs(3));
            if (0..5).any(|ordinal| self.serves(ordinal)) {
                served = Instant::now();
            } else if served.elapsed() > Duration::from_secs(60) {
                self.uncordon_and_recover();
                served = Instant::now();
            }
        }
    }

    /// Recovers the cluster after making all nodes schedulable, because a drained node may have been left cordoned.
    fn uncordon_and_recover(&self) {
        self.galera.lab.kubectl(User::Admin, &["uncordon", "--selector=!odd.example/none"]);
        self.note("on call", "gatera recover", &answer(&run_gatera("recover", self.galera)));
    }

    fn serves(&self, ordinal: usize) -> bool {
        self.galera.wsrep(&self.galera.member(ordinal)).is_ok_and(|it| it.component == "Primary")
    }

    /// Recovers and upgrades the cluster until all members are Ready. No faults are injected and no other commands run meanwhile.
    fn recover_until_whole(&self) {
        let began = Instant::now();
        println!("{}", status(self.galera));
        // `--force-conflicts`, because kubectl has applied fields of the release. Kubelets wait up to five minutes before they
        // restart a container that has died often.
        let mut upgraded = false;
        while !(upgraded && (0..3).all(|ordinal| self.galera.is_ready(&self.galera.member(ordinal)))) {
            assert!(
                began.elapsed() < Duration::from_secs(900),
                "not all members are Ready after 15 minutes:\n{}",
                status(self.galera)
            );
            self.uncordon_and_recover();
            upgraded = self.helm_upgrade("on call", &["--force-conflicts"]).status == 0;
            thread::sleep(Duration::from_secs(3));
        }
        for ordinal in 3..5 {
            self.galera.until_gone(&format!("pod/{}", self.galera.member(ordinal)));
        }
        println!("all members are Ready again after {:.1} s", began.elapsed().as_secs_f64());
    }
}

/// Runs a `gatera` command for at most four minutes. In the returned output, `stderr` begins with the last line of stdout.
fn run_gatera(verb: &str, galera: &Galera<'_>) -> Output {
    let command = gatera(verb, galera, &["--yes"]);
    let output = Command::new("timeout")
        .args(["--signal=INT", "--kill-after=30", "240"])
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    println!("{printed}");
    // The last line says how the command ended.
    let last = printed.lines().last().unwrap_or_default();
    Output {
        status: output.status.code().unwrap_or(-1),
        stderr: format!("{last}\n{errors}"),
        stdout: String::new(),
        log: String::new(),
    }
}

/// Returns "done", "refused" and the first line of the refusal, or "failed" and the error.
fn answer(output: &Output) -> String {
    let error = output.stderr.trim();
    match error.split_once("denied the request: ") {
        _ if output.status == 0 => "done".to_owned(),
        Some((_, why)) => format!("refused {}", why.lines().next().unwrap_or_default()),
        None => format!("failed: {error}"),
    }
}

/// Asserts that no running guard has panicked, before its last restart or since.
fn no_guard_panicked(galera: &Galera<'_>) {
    let list = galera.lab.kubectl(User::Admin, &["--namespace", NAMESPACE, "get", "pods", "--output=json"]);
    let list: Value = serde_json::from_str(&list.succeeded()).unwrap();
    for pod in list["items"].as_array().unwrap() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        for which in ["--previous=true", "--previous=false"] {
            let log =
                galera.lab.kubectl(User::Admin, &["--namespace", NAMESPACE, "logs", name, which]).stdout;
            assert!(!log.contains("panicked"), "guard {name} panicked: {log}");
        }
    }
}
