//! What the step and the probes check about a server's cluster: which servers may found one, what is reported about data of
//! another cluster, and in which cluster a Synced server is Ready.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::pod::{Pod, for_each};
use super::start::{ID, OTHER, ZEROS, line, run, server, started, state};

/// Sets the pod's cluster, as the guard's annotation on the pod names it.
pub(super) fn set_identity(pod: &Pod, identity: &str) {
    pod.write("identity", identity).env("GATERA_IDENTITY", pod.path("identity"));
}

#[track_caller]
fn refused(pod: &Pod, args: &str, by: &str) {
    let outcome = run(pod, args);
    let message = fs::read_to_string(pod.path("termination")).unwrap_or_default();
    let says = format!(
        "gatera did not start the server: it would found a new cluster ({by}), but its cluster exists already: {ID};"
    );
    assert!(outcome.code == Some(1) && message.starts_with(&says), "{args}: {message} {outcome:#?}");
    assert_eq!(started(pod), [""; 0]);
}

#[test]
fn an_existing_cluster_is_not_founded_again() {
    const ADDRESS: &str = "wsrep_cluster_address names no host";
    let rows = [
        ("--wsrep-cluster-address=gcomm://", "", Some(ADDRESS)),
        ("--wsrep_cluster_address gcomm://", "", Some(ADDRESS)),
        ("--wsrep-cluster-addr=gcomm://", "", Some(ADDRESS)),
        ("--loose-wsrep_cluster-address=gcomm://?pc.weight=2", "", Some(ADDRESS)),
        ("--wsrep-cluster-address=gcomm://,", "", Some(ADDRESS)),
        ("--wsrep-cluster-address=gcomm://,a", "", Some(ADDRESS)),
        ("--wsrep-cluster-address=gcomm:///", "", Some(ADDRESS)),
        (
            "--wsrep-cluster-address=gcomm://0.0.0.0:4567",
            "",
            Some("wsrep_cluster_address names 0.0.0.0:4567"),
        ),
        ("--enable-wsrep-new-cluster", "", Some("wsrep_new_cluster")),
        ("--wsrep-new-cluster", "", Some("wsrep_new_cluster")),
        ("--wsrep-new", "", Some("wsrep_new_cluster")),
        ("", "--wsrep_cluster_address=gcomm://", Some(ADDRESS)),
        (
            "--wsrep-on=ON",
            "--wsrep_cluster_address=gcomm://a\n--wsrep_cluster_address=gcomm://",
            Some(ADDRESS),
        ),
        ("--wsrep-cluster-address=gcomm://a", "--wsrep-new-cluster", Some("wsrep_new_cluster")),
        ("--wsrep-cluster-address=gcomm://a,b", "--wsrep_cluster_address=gcomm://", None),
        ("--wsrep-cluster-address=gcomm://[::1]:4567", "", None),
        ("--wsrep-new-cluster --skip-wsrep-new-cluster", "", None),
        ("--wsrep-on=OFF", "--wsrep_cluster_address=gcomm://", None),
        ("--wsrep-cluster-name=gcomm://", "", None),
        ("", "", None),
    ];
    for_each(&rows, |pod, (args, file, by)| {
        server(pod, "");
        pod.tool("my_print_defaults", r#"while read -r line; do echo "$line"; done <"$POD/file""#);
        pod.write("file", format!("{file}\n"));
        let args = format!("mariadbd --datadir=DATA {args}").trim_end().to_owned();
        for data in [false, true] {
            if data {
                // Own data and `safe_to_bootstrap: 1` are not enough: other members may have continued since.
                pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "41", "1"));
            }
            match by {
                Some(by) => {
                    set_identity(pod, ID);
                    refused(pod, &args, by);
                    set_identity(pod, "none");
                    run(pod, &args).exits(1);
                    let message = fs::read_to_string(pod.path("termination")).unwrap();
                    assert!(message.contains("exists already: it lost its identity;"), "{message}");
                }
                None => drop(run(pod, &args).exits(0)),
            }
            for permits in ["", "unknown", "founds", "free"] {
                set_identity(pod, permits);
                run(pod, &args).exits(0);
                fs::remove_file(pod.path("started")).unwrap();
            }
        }
    });
}

/// A container that lost its disk starts again in the same pod, before the guard has recorded the cluster.
#[test]
fn a_pod_remembers_which_cluster_it_was_in() {
    for_each(&[()], |pod, ()| {
        server(pod, "");
        set_identity(pod, "unknown");
        let founds = "mariadbd --datadir=DATA --wsrep-new-cluster";
        run(pod, founds).exits(0);
        pod.write("data/grastate.dat", state(ID, "-1", "0")).state("SYNCED");
        pod.run("started").exits(1);
        pod.run("started").exits(0);
        fs::remove_file(pod.path("started")).unwrap();
        fs::remove_file(pod.path("data/grastate.dat")).unwrap();
        refused(pod, founds, "wsrep_new_cluster");
        for permits in ["founds", "free", ""] {
            set_identity(pod, permits);
            run(pod, founds).exits(0);
        }
        // With its data Galera decides, even after a crash in a DDL.
        set_identity(pod, "unknown");
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ZEROS, "-1", "0"));
        run(pod, founds).exits(0);
    });
}

#[test]
fn data_of_another_cluster_is_reported_before_it_is_replaced() {
    let crashed = || (state(OTHER, "-1", "0"), line(&format!("{OTHER}:9")));
    let rows = [
        (state(OTHER, "41", "0"), String::new(), true),
        (crashed().0, crashed().1, true),
        (state(ZEROS, "-1", "0"), crashed().1, true),
        (state(ID, "41", "0"), String::new(), false),
        (state(ZEROS, "-1", "0"), line(&format!("{ZEROS}:9")), false),
        (state(ZEROS, "-1", "0"), line(&format!("{ID}:9")), false),
    ];
    for_each(&rows, |pod, (state, recovered, named)| {
        server(pod, recovered);
        set_identity(pod, ID);
        pod.env("GATERA_PATIENCE", "0");
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state);
        let outcome = run(pod, "mariadbd --datadir=DATA --wsrep-cluster-address=gcomm://a").exits(0);
        let says =
            format!("is of cluster {OTHER}, but the members' cluster is {ID}: joining replaces the data");
        assert_eq!(outcome.err.contains(&says), *named, "{outcome:#?}");
        assert!(!started(pod).is_empty());
    });
}

#[test]
fn within_a_minute_sigterm_keeps_the_data_of_another_cluster() {
    for_each(&[()], |pod, ()| {
        server(pod, "");
        set_identity(pod, ID);
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state(OTHER, "41", "0"));
        let args = format!("mariadbd --datadir={}", pod.path("data").display());
        let mut step = pod.step(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(step.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line.contains("within 60 s")), "the step did not announce that it waits");
        kill_process(Pid::from_child(&step), Signal::TERM).unwrap();
        assert_eq!(step.wait().unwrap().code(), Some(143));
        assert_eq!(started(pod), [""; 0]);
    });
}

#[test]
fn a_server_synced_in_another_cluster_is_not_ready() {
    let rows = [
        (ID, ID, None),
        (ID, "unknown", None),
        (ID, "founds", None),
        (ID, "", None),
        (ZEROS, ID, None),
        ("garbage", ID, None),
        (
            OTHER,
            ID,
            Some(format!(
                "the server is SYNCED, in another cluster: {OTHER}, but {ID} is recorded; if that is out of date, put the override of G04 on the StatefulSet and delete this pod\n"
            )),
        ),
    ];
    for_each(&rows, |pod, (is, recorded, says)| {
        server(pod, "");
        set_identity(pod, recorded);
        run(pod, "mariadbd --datadir=DATA").exits(0);
        pod.write("data/grastate.dat", state(is, "-1", "0")).state("SYNCED");
        pod.run("started");
        let outcome = pod.run("ready");
        match says {
            Some(says) => drop(outcome.exits(1).prints(says)),
            None => drop(outcome.exits(0)),
        }
    });
}

#[test]
fn members_report_their_cluster_until_the_guard_knows_it() {
    let rows = [
        (ID, "unknown", true),
        (OTHER, ID, true),
        (ID, "founds", true),
        (ID, "free", false),
        (ID, ID, false),
        (ID, "", false),
        (ZEROS, "unknown", false),
    ];
    for_each(&rows, |pod, (is, recorded, reports)| {
        server(pod, "");
        set_identity(pod, recorded);
        pod.env("GATERA_TERMINATION_LOG", pod.path("termination"));
        run(pod, "mariadbd --datadir=DATA").exits(0);
        pod.write("data/grastate.dat", state(is, "-1", "0")).state("JOINING");
        pod.run("started").exits(1).says("the server is JOINING; start of ");
        // If the server gives up now, this is its termination message, even where kubelets drop Events.
        let words = fs::read_to_string(pod.path("termination")).unwrap();
        assert!(words.starts_with("Startup probe failed: the server is JOINING; start of "), "{words}");
        pod.state("SYNCED");
        if *reports {
            pod.run("started").exits(1).prints(&format!("the server is SYNCED; its cluster is {is}\n"));
        }
        pod.run("started").exits(0).prints("the server is SYNCED\n");
        assert_eq!(fs::read_to_string(pod.path("termination")).unwrap(), "");
        if *reports {
            // Kubelets drop Events of pods that have many, so it is reported again later, also by the other probe.
            let uptime = fs::read_to_string("/proc/uptime").unwrap();
            let now: u64 = uptime.split('.').next().unwrap().parse().unwrap();
            pod.write("told", format!("{is} {}\n", now.saturating_sub(330)));
            if *recorded != ID {
                pod.run("ready").exits(1).prints(&format!("the server is SYNCED; its cluster is {is}\n"));
                pod.run("ready").exits(0);
            }
            fs::remove_file(pod.path("told")).unwrap();
            pod.run("started quietly").exits(0).prints("the server is SYNCED\n");
        }
    });
}

/// grastate.dat has zeros also while a DDL runs. Only in a cluster without an id does the head of galera.cache have them, too.
#[test]
fn a_cluster_without_an_id_is_reported_too() {
    let rows = [
        (ZEROS, "unknown", true, true),
        (ZEROS, "founds", true, true),
        // This server was not started by the step.
        (ZEROS, "unknown", false, true),
        (ZEROS, "none", true, false),
        (ZEROS, "free", true, false),
        (ZEROS, ID, true, true),
        (ZEROS, "", true, false),
        (ID, "unknown", true, false),
    ];
    for_each(&rows, |pod, (history, recorded, step, reports)| {
        server(pod, "");
        set_identity(pod, recorded);
        let preamble = format!("Version: 2\nGID: {history}\nsynced: 0\n");
        let data = if *step { "data" } else { "elsewhere" };
        pod.write(
            &format!("{data}/galera.cache"),
            [preamble.as_bytes(), &[0; 4096], b"GID: garbage"].concat(),
        );
        if *step {
            run(pod, "mariadbd --datadir=DATA").exits(0);
        } else {
            let command = format!("mariadbd\0--datadir={}\0--user=mysql\0", pod.path(data).display());
            pod.write("proc/1/cmdline", command);
        }
        pod.write(&format!("{data}/grastate.dat"), state(ZEROS, "-1", "0")).state("SYNCED");
        for question in ["started", "ready"] {
            if *reports {
                pod.run(question).exits(1).prints("the server is SYNCED; its cluster has no id\n");
                fs::remove_file(pod.path("told")).unwrap();
            } else {
                pod.run(question).exits(0).prints("the server is SYNCED\n");
            }
        }
    });
}

/// The server's user may write next to the status file, so content there is never evaluated as arithmetic.
#[test]
fn garbage_beside_the_status_file_does_not_make_a_member_unready() {
    for_each(&["x -", "x 08", "x 5-3", "x", "", "\n", "x a[$(touch)]"], |pod, garbage| {
        server(pod, "");
        set_identity(pod, "unknown");
        run(pod, "mariadbd --datadir=DATA").exits(0);
        pod.write("data/grastate.dat", state(ID, "-1", "0")).state("SYNCED").write("told", garbage);
        pod.run("ready").exits(1).prints(&format!("the server is SYNCED; its cluster is {ID}\n"));
        pod.run("ready").exits(0).prints("the server is SYNCED\n");
    });
}

/// A server starts the cluster only with the guard's permission, from the position that the guard has seen, and once.
#[test]
fn a_cluster_that_is_down_is_started_again_only_from_the_position_that_the_guard_saw() {
    let crashed = line(&format!("{ID}:41"));
    let gtid = line(&format!("{ID}:41,0-1-77"));
    let none = line(&format!("{ZEROS}:-1"));
    let rows = [
        // grastate.dat, the position that the server recovers, the position that the guard saw, whether it starts the cluster
        (state(ID, "41", "0"), "", format!("{ID}:41"), true),
        (state(ID, "41", "1"), "", format!("{ID}:41"), true),
        (state(ID, "-1", "0"), &*crashed, format!("{ID}:41"), true),
        (state(ID, "-1", "0"), &*gtid, format!("{ID}:41"), true),
        // A crash in the middle of a DDL.
        (state(ZEROS, "-1", "0"), &*crashed, format!("{ID}:41"), true),
        (state(ID, "41", "0"), "", format!("{ID}:42"), false),
        (state(ID, "-1", "0"), &*crashed, format!("{ID}:4"), false),
        (state(ID, "41", "0"), "", format!("{OTHER}:41"), false),
        (state(ID, "-1", "0"), &*none, format!("{ID}:41"), false),
    ];
    for_each(&rows, |pod, (state, recovers, saw, starts)| {
        server(pod, recovers);
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state);
        if !recovers.is_empty() {
            pod.write("data/gvwstate.dat", "my_uuid: x\n");
        }
        set_identity(pod, &format!("recovery {saw} until=29991201100000"));
        let outcome = run(pod, "mariadbd --datadir=DATA");
        if !starts {
            outcome.exits(1);
            let message = fs::read_to_string(pod.path("termination")).unwrap();
            let says = format!(
                "gatera did not start the server: it was to start the cluster from {saw}, but its data ends at "
            );
            assert!(message.starts_with(&says), "{message}");
            assert_eq!(
                fs::read_to_string(pod.path("data/grastate.dat")).unwrap(),
                *state,
                "grastate.dat was changed"
            );
            assert_eq!(started(pod), [""; 0]);
            return;
        }
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        assert!(outcome.err.contains(&format!("it starts the cluster again, from {ID}:41")), "{outcome:#?}");
        let written = fs::read_to_string(pod.path("data/grastate.dat")).unwrap();
        let lines: Vec<_> =
            written.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let wanted = [
            "# GALERA saved state",
            "version: 2.1",
            &format!("uuid: {ID}"),
            "seqno: 41",
            "safe_to_bootstrap: 1",
        ];
        assert_eq!(lines, wanted);
        assert_eq!(started(pod).last().map(String::as_str), Some("--wsrep-new-cluster"));
        assert!(
            !fs::exists(pod.path("data/gvwstate.dat")).unwrap(),
            "with its last view, the server would wait for other members"
        );
        // The container is restarted.
        let again = run(pod, "mariadbd --datadir=DATA");
        assert!(again.err.contains("has already started the cluster once"), "{again:#?}");
        assert!(started(pod).iter().all(|word| word != "--wsrep-new-cluster"), "{:?}", started(pod));
    });
}

/// A pod may have waited for a node for hours, and its right may not have been withdrawn, so the right expires.
#[test]
fn the_right_to_start_the_cluster_ends_by_the_clock_of_the_node() {
    let ended =
        ["recovery ID until=20200101000000", "recovery ID until=soon", "recovery ID until=", "recovery ID"];
    for_each(&ended, |pod, right| {
        server(pod, "");
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "41", "0"));
        set_identity(pod, &right.replace("ID", &format!("{ID}:41")));
        run(pod, "mariadbd --datadir=DATA").exits(1);
        let message = fs::read_to_string(pod.path("termination")).unwrap();
        let says =
            format!("gatera did not start the server: it was to start the cluster from {ID}:41 until ");
        assert!(message.starts_with(&says) && message.contains("the clock of its node shows 2"), "{message}");
        assert_eq!(started(pod), [""; 0]);
        assert_eq!(fs::read_to_string(pod.path("data/grastate.dat")).unwrap(), state(ID, "41", "0"));
        // With a right that has not expired, the same member starts the cluster.
        set_identity(pod, &format!("recovery {ID}:41 until=29991201100000"));
        run(pod, "mariadbd --datadir=DATA").exits(0);
        assert_eq!(started(pod).last().map(String::as_str), Some("--wsrep-new-cluster"));
    });
}
