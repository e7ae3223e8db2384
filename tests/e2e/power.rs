//! Power failures and other faults: servers, sandboxes, kubelets, the network and the API server are killed, paused or cut off.
//! Afterwards rows are compared member by member, because a Ready pod proves nothing about them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::galera::{Galera, patiently};
use crate::lab::ends_with_this_process;

/// Kills servers without an orderly stop. All are found first, so that they die at nearly the same moment. The servers are
/// processes of this machine, on which the lab's pods run.
pub fn kill_servers(pods: &[&str]) {
    let found: Vec<_> = pods.iter().map(|pod| server_of(pod)).collect();
    for pid in found {
        kill_process(pid, Signal::KILL).unwrap();
    }
}

/// Kills the server of a pod. Returns false if none runs at the moment.
pub fn kill_if_running(pod: &str) -> bool {
    find_process(|path| is_server(path, pod))
        .is_some_and(|server| kill_process(pid(&server), Signal::KILL).is_ok())
}

/// Kills the server of a pod and the pod's sandbox. Returns whether both were killed.
pub fn kill_with_sandbox(pod: &str) -> bool {
    let server = find_process(|path| is_server(path, pod));
    let sandbox = server.as_ref().and_then(|server| find_process(|path| is_sandbox_of(path, server)));
    let killed = sandbox.iter().chain(&server).filter(|it| kill_process(pid(it), Signal::KILL).is_ok());
    killed.count() == 2
}

/// Which processes die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// The servers; their containers are restarted in the same pods.
    Servers,
    /// The servers and the sandboxes of their pods, and with these their addresses.
    Sandboxes,
}

/// Kills these processes one after the other, with pauses of `between`. Returns when every server runs again.
pub fn kill_until_restarted(galera: &Galera<'_>, what: Kill, pods: &[&str], between: Duration) {
    let before = uids_and_restarts(galera);
    // A server may be between two starts.
    let found = pods.iter().map(|pod| {
        let find_server = || find_process(|path| is_server(path, pod)).ok_or_else(String::new);
        let server = patiently("the server runs", find_server);
        let sandbox = find_process(|path| is_sandbox_of(path, &server));
        (server, sandbox)
    });
    let found: Vec<_> = found.collect();
    for (server, sandbox) in found {
        let sandbox = sandbox.filter(|_| what == Kill::Sandboxes);
        for path in sandbox.iter().chain([&server]) {
            kill_process(pid(path), Signal::KILL).unwrap();
        }
        thread::sleep(between);
    }
    until_started_again(galera, &before, pods);
}

/// Pauses the server of a pod until it is killed.
pub fn pause_server(pod: &str) {
    kill_process(server_of(pod), Signal::STOP).unwrap();
}

/// Processes that are paused until this value is dropped. Paused kubelets restart no container on their nodes.
pub struct Paused(Vec<Pid>);

impl Paused {
    fn stop(processes: Vec<Pid>) -> Self {
        for process in &processes {
            // The process may have ended just now.
            let _ = kill_process(*process, Signal::STOP);
        }
        Self(processes)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for process in &self.0 {
            // The process may have ended with the lab.
            let _ = kill_process(*process, Signal::CONT);
        }
    }
}

/// Pauses the kubelets of these pods' nodes.
pub fn pause_kubelets_of(galera: &Galera<'_>, pods: &[String]) -> Paused {
    let node = |pod: &String| galera.pod(pod).unwrap()["spec"]["nodeName"].as_str().unwrap().to_owned();
    pause_kubelets(&pods.iter().map(node).collect::<Vec<_>>())
}

pub fn pause_kubelets(nodes: &[String]) -> Paused {
    let kubelet = |node: &String| {
        let node = format!("--hostname-override={node}");
        let is_its = |path: &Path| {
            let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
            read("comm").trim() == "kubelet" && read("cmdline").split('\0').any(|word| word == node)
        };
        pid(&find_process(is_its).expect("the kubelet of the node runs"))
    };
    Paused::stop(nodes.iter().map(kubelet).collect())
}

/// Pauses those servers of these pods that run at the moment.
pub fn pause_servers(pods: &[String]) -> Paused {
    Paused::stop(
        pods.iter().filter_map(|pod| find_process(|path| is_server(path, pod))).map(|it| pid(&it)).collect(),
    )
}

/// Addresses that only their own node can reach, until this value is dropped.
pub struct CutOff;

/// Cuts these addresses off the network, until the returned value is dropped.
pub fn cut_off(addresses: &[String]) -> CutOff {
    let all = addresses.join(", ");
    nft(&format!(
        "table ip drill {{\n chain cut {{\n  type filter hook forward priority -10\n  ip saddr {{ {all} }} drop\n  ip daddr {{ {all} }} drop\n }}\n}}"
    ));
    CutOff
}

impl Drop for CutOff {
    fn drop(&mut self) {
        nft("delete table ip drill");
    }
}

fn nft(rules: &str) {
    let status = Command::new("nft").arg(rules).status().unwrap();
    assert!(status.success(), "{rules}");
}

/// A program of the control plane, with its folder and its command line.
pub struct Program {
    folder: PathBuf,
    command_line: String,
    comm: String,
}

impl Program {
    pub fn of(comm: &str) -> Self {
        let it = Self::runs(comm).expect("the program runs");
        Self {
            folder: fs::read_link(it.join("cwd")).unwrap(),
            command_line: fs::read_to_string(it.join("cmdline")).unwrap(),
            comm: comm.to_owned(),
        }
    }

    fn runs(comm: &str) -> Option<PathBuf> {
        find_process(|path| fs::read_to_string(path.join("comm")).unwrap_or_default().trim() == comm)
    }

    /// Starts the program as before, unless it runs. The new process lives until the end of all tests.
    pub fn ensure_runs(&self) {
        if Self::runs(&self.comm).is_some() {
            return;
        }
        let (program, arguments) = self.command_line.trim_end_matches('\0').split_once('\0').unwrap();
        let log = fs::File::create(self.folder.join(format!("{}-again.log", self.comm))).unwrap();
        let restarted = ends_with_this_process(Path::new(program))
            .args(arguments.split('\0'))
            .current_dir(&self.folder)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        std::mem::forget(restarted);
    }
}

const API_SERVER: &str = "kube-apiserver";

/// Pauses the API server for this time: it accepts connections but answers no request.
pub fn stall_api_server(duration: Duration) {
    let _paused = Paused::stop(vec![pid(&Program::runs(API_SERVER).expect("the program runs"))]);
    thread::sleep(duration);
}

/// Kills the API server, and starts it as before after this time.
pub fn kill_api_server(duration: Duration) {
    let program = Program::of(API_SERVER);
    kill_process(pid(&Program::runs(API_SERVER).expect("the program runs")), Signal::KILL).unwrap();
    thread::sleep(duration);
    program.ensure_runs();
}

/// Checks that all these servers run a DDL, during which `grastate.dat` holds zeros. The error is the number of servers that do.
pub fn all_run_a_ddl(pods: &[String]) -> Result<(), String> {
    let runs_a_ddl = |pod: &&String| {
        let server = find_process(|path| is_server(path, pod));
        let state = server.and_then(|it| fs::read_to_string(it.join("root/var/lib/mysql/grastate.dat")).ok());
        state.is_some_and(|text| text.contains("00000000-0000-0000-0000-000000000000"))
    };
    let count = pods.iter().filter(runs_a_ddl).count();
    if count == pods.len() { Ok(()) } else { Err(count.to_string()) }
}

fn server_of(pod: &str) -> Pid {
    pid(&find_process(|path| is_server(path, pod)).expect("the server of the pod runs"))
}

fn pid(path: &Path) -> Pid {
    Pid::from_raw(path.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap()
}

/// Finds a process of this machine. Returns its folder in /proc.
fn find_process(wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    fs::read_dir("/proc").unwrap().flatten().map(|it| it.path()).find(|path| wanted(path))
}

fn is_server(path: &Path, pod: &str) -> bool {
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
    matches!(read("comm").trim(), "mariadbd" | "mysqld") && read("root/etc/hostname").trim() == pod
}

/// Returns whether this process is the sandbox that holds the network of the server.
fn is_sandbox_of(path: &Path, server: &Path) -> bool {
    let network = |path: &Path| fs::read_link(path.join("ns/net")).ok();
    let comm = fs::read_to_string(path.join("comm")).unwrap_or_default();
    comm.trim() == "pause" && network(path).is_some() && network(path) == network(server)
}

/// Returns how often the server's container of each member was restarted.
pub fn restarts(galera: &Galera<'_>) -> Vec<u64> {
    uids_and_restarts(galera).into_iter().map(|(_, restarts)| restarts).collect()
}

/// Returns the uid of each member's pod, and how often its server's container was restarted.
pub fn uids_and_restarts(galera: &Galera<'_>) -> Vec<(String, u64)> {
    let run = |pod: String| {
        let pod = galera.pod(&pod).unwrap_or_default();
        let all = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        let server = all.iter().find(|it| it["name"] == "mariadb");
        let restarts = server.and_then(|it| it["restartCount"].as_u64()).unwrap_or_default();
        (pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), restarts)
    };
    (0..3).map(|ordinal| run(galera.member(ordinal))).collect()
}

/// Waits until the servers of these members have started again, in the same pods or in new ones.
fn until_started_again(galera: &Galera<'_>, before: &[(String, u64)], pods: &[&str]) {
    patiently("every server is started again", || {
        let now = uids_and_restarts(galera);
        let again = |ordinal: usize| {
            let ((uid, restarts), (uid_before, restarts_before)) = (&now[ordinal], &before[ordinal]);
            !uid.is_empty() && (uid != uid_before || restarts > restarts_before)
        };
        let all = (0..3).all(|it| again(it) || !pods.contains(&&*galera.member(it)));
        if all { Ok(()) } else { Err(format!("{before:?}, now {now:?}")) }
    });
}

/// Sets `publishNotReadyAddresses`, as G16 demands. Without it, members from the seed documents do not find each other after a
/// power failure.
pub fn publish_not_ready_addresses(galera: &Galera<'_>) {
    let patch = r#"{"spec":{"publishNotReadyAddresses":true}}"#;
    galera.kubectl(&["patch", "service", &format!("{}-hs", galera.name), "--patch", patch]).succeeded();
}

/// Kills all servers at once, while a backup's read lock keeps the last member ten acknowledged rows behind the other members.
/// Returns when every server runs again.
pub fn kill_all_while_one_is_behind(galera: &Galera<'_>) {
    let pods = [0, 1, 2].map(|ordinal| galera.member(ordinal));
    galera.ask(&pods[0], "CREATE OR REPLACE TABLE shop.late (id INT PRIMARY KEY)");
    for pod in &pods {
        galera.ask(pod, "SET SESSION wsrep_sync_wait=15; SELECT COUNT(*) FROM shop.late");
    }
    let before = uids_and_restarts(galera);
    let behind = &pods[2];
    thread::scope(|scope| {
        scope.spawn(|| galera.sql(behind, "FLUSH TABLES WITH READ LOCK; SELECT SLEEP(600)"));
        patiently("the last member applies nothing", || {
            let seen = galera.wsrep(behind)?;
            if seen.state.starts_with("Donor") { Ok(()) } else { Err(format!("{seen:?}")) }
        });
        for id in 0..10 {
            galera.ask(&pods[0], &format!("INSERT INTO shop.late VALUES ({id})"));
        }
        patiently("the second member has all ten rows", || match late_rows(galera, 1) {
            Some(10) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert_eq!(late_rows(galera, 2), Some(0), "the last member is behind");
        kill_servers(&pods.each_ref().map(String::as_str));
    });
    until_started_again(galera, &before, &pods.each_ref().map(String::as_str));
}

/// Returns how many of the ten rows in `shop.late` a member has, or `None` if it does not serve.
pub fn late_rows(galera: &Galera<'_>, ordinal: usize) -> Option<u64> {
    let count =
        galera.sql(&galera.member(ordinal), "SET SESSION wsrep_sync_wait=0; SELECT COUNT(*) FROM shop.late");
    if count.status == 0 { count.stdout.trim().parse().ok() } else { None }
}

/// Checks that, with the step script, the member that is behind receives what it missed, and the cluster keeps its identity.
pub fn a_power_failure_loses_nothing(galera: &Galera<'_>, cluster: &str) {
    kill_all_while_one_is_behind(galera);
    assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
    assert_eq!(
        [0, 1, 2].map(|ordinal| late_rows(galera, ordinal)),
        [Some(10); 3],
        "late rows of each member"
    );
    each_log_shows_a_recovery(galera);
    members_agree(galera, "shop.t, shop.late");
}

/// Asserts that these tables are the same on all members.
pub fn members_agree(galera: &Galera<'_>, tables: &str) {
    let checksum = format!("SET SESSION wsrep_sync_wait=15; CHECKSUM TABLE {tables}");
    let sums: Vec<_> = (0..3).map(|ordinal| galera.ask(&galera.member(ordinal), &checksum)).collect();
    assert!(sums.iter().all(|sum| *sum == sums[0]), "members differ in {tables}: {sums:#?}");
}

/// Asserts that each member's log shows a recovery. The state of a member that has joined no longer shows it.
fn each_log_shows_a_recovery(galera: &Galera<'_>) {
    for ordinal in 0..3 {
        let log = galera.kubectl(&["logs", &galera.member(ordinal), "--container=mariadb"]).stdout;
        assert!(
            log.contains("recovered after a crash"),
            "the log of member {ordinal} shows no recovery: {log}"
        );
    }
}

/// Checks that a joiner stops within seconds when its pod is deleted, although its server does not react to SIGTERM.
pub fn a_joiner_leaves_within_seconds(galera: &Galera<'_>, pod: &str) {
    let began = Instant::now();
    galera.kubectl(&["delete", "pod", pod, "--wait=true", "--timeout=120s"]).succeeded();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{pod} left only after {took:?}");
    println!("{pod} left after {:.1} s", took.as_secs_f64());
}
