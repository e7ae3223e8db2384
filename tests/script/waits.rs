//! A member that waits for its state transfer: what its probes report besides its state (the transfer has failed, the disk is
//! full), and when the step ends its server.

use std::fs;

use super::gate::set_identity;
use super::pod::{BOOT, START, for_each, status};
use super::start::{ID, run, server};

/// Returns the record of a server that has been idle for `ago` seconds. `worked` is its CPU time until then, in 1/100 s; `server`
/// is its start time, which identifies it.
fn idle_of(ago: u64, worked: u64, server: u64) -> String {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let now: u64 = uptime.split('.').next().unwrap().parse().unwrap();
    format!("{} {worked} {server}\n", i128::from(now) - i128::from(ago))
}

/// The step and the startup probe run at the same time. If the step sees the server join while the probe still looks at its
/// earlier state, the probe's message does not stay.
#[test]
fn no_outdated_termination_message_is_left() {
    for_each(&[false, true], |pod, joins| {
        let reported = "start of 2026-11-22T01:02:48Z: position 66373a7e-e610-11f1-91b9-7e68ccac15f1:7, stopped in order, safe_to_bootstrap 0";
        pod.state("JOINING").write("start", reported).env("GATERA_TERMINATION_LOG", pod.path("termination"));
        if *joins {
            // The step sees the server join while the probe still asks for the free space of the disk.
            pod.tool("df", r#"echo SYNCED >"$POD/joined""#);
        }
        if *joins && !pod.looks_for("df") {
            return;
        }
        pod.run("started").exits(1);
        let left = fs::read_to_string(pod.path("termination")).unwrap();
        assert_eq!(left.is_empty(), *joins, "{left}");
    });
}

/// A joining server that receives nothing is reported after two minutes.
#[test]
fn a_transfer_that_has_failed_is_reported() {
    const IST: &str = "0100007F:11D8 0200007F:A000 01";
    let idle_since = |ago, worked| idle_of(ago, worked, (START - BOOT) * 100);
    // The idle time, the CPU time at its beginning (it is 23 now), another process, a connection.
    let rows = [
        ("JOINING", None, "bash", None, ""),
        ("JOINING", Some((130, 0)), "bash", None, ", and nothing comes in"),
        ("JOINING", Some((60, 0)), "bash", None, ""),
        ("JOINING", Some((130, 0)), "bash\0-ue\0/usr/bin/wsrep_sst_mariabackup\0--role\0joiner\0", None, ""),
        ("JOINING", Some((130, 0)), "mariadbd\0--wsrep_sst_method=rsync\0", None, ", and nothing comes in"),
        ("JOINING", Some((130, 0)), "bash", Some(IST), ""),
        ("CONNECTED", Some((130, 0)), "bash", None, ""),
    ];
    for_each(&rows, |pod, (doing, idle, beside, connection, says)| {
        pod.state(doing)
            .process(7, "bash", 'S', START)
            .write("proc/7/cmdline", beside)
            .connections("tcp", connection.as_slice());
        if let Some((ago, worked)) = idle {
            pod.write("idle", idle_since(*ago, *worked));
        }
        pod.run("started").exits(1).prints(&format!("the server is {doing}{says}\n"));
        // A server whose transfer begins again is no longer idle.
        let again = doing == &"JOINING" && says.is_empty() && *idle != Some((60, 0));
        if again {
            pod.write("proc/7/cmdline", "bash").connections("tcp", &[]);
            pod.run("started").exits(1).prints(&format!("the server is {doing}\n"));
        }
    });
    // The server itself reports the failure before two minutes have passed.
    for_each(&[("JOINING", ", and nothing comes in"), ("CONNECTED", "")], |pod, (doing, comes)| {
        pod.file(&status(
            doing,
            b"WSREP: Receiving IST failed, node restart required: IST receiver reported",
        ));
        let says = format!("the server is {doing}{comes}; it says: node restart required\n");
        pod.run("started").exits(1).prints(&says);
    });
    // The record of an earlier server of this pod does not count.
    for_each(&[()], |pod, ()| {
        pod.state("JOINING").write("idle", idle_of(130, 0, 7));
        pod.run("started").exits(1).prints("the server is JOINING\n");
    });
    // The server's user may write this file, so its content is never evaluated as arithmetic.
    for_each(&["x y\n", "1 a[$(touch\n", "\n", "-5 3\n", "08 1\n", "1 2,3\n"], |pod, garbage| {
        pod.state("JOINING").write("idle", garbage);
        pod.run("started").exits(1).prints("the server is JOINING\n");
        assert!(
            fs::read_to_string(pod.path("idle"))
                .unwrap()
                .trim()
                .split(' ')
                .all(|it| it.parse::<u64>().is_ok())
        );
    });
    for_each(&[()], |pod, ()| {
        let fields = "S 0 1 1 0 -1 4 5 6 7 8 9000 3000 11 12 20 0 30 0 50000 99 98";
        pod.state("JOINING").write("idle", idle_since(130, 0));
        pod.write("proc/1/stat", format!("1 (mariadbd) {fields}\n"));
        pod.run("started").exits(1).prints("the server is JOINING\n");
    });
}

/// The script of a state transfer listens for its donor endlessly, and the donor may be gone, or busy with another joiner.
#[test]
fn a_joiner_whose_donor_is_gone_is_ended() {
    const LISTENS: &str = "00000000:115C 00000000:0000 0A";
    const COPIES: &str = "0100007F:115C 0200007F:A000 01";
    let rows = [
        // The connections before and later; whether the transfer's script runs; the silence; the longest silence allowed where
        // this pod has waited in vain before; whether the server is ended.
        (&[LISTENS, COPIES][..], &[LISTENS][..], true, 130, Some("1680"), true),
        (&[LISTENS], &[LISTENS], true, 130, None, true),
        (&[LISTENS], &[LISTENS], true, 130, Some("1680"), false),
        (&[LISTENS], &[LISTENS], true, 130, Some("5"), true),
        (&[LISTENS], &[LISTENS], true, 60, None, false),
        (&[LISTENS, COPIES], &[LISTENS, COPIES], true, 130, None, false),
        (&[], &[], true, 130, None, false), // it prepares what it received
        (&[LISTENS], &[LISTENS], false, 130, None, false),
    ];
    for_each(&rows, |pod, &(before, sockets, script, silent, longest, ends)| {
        server(pod, "");
        if longest.is_some() {
            pod.write("waited", "yes\n");
        }
        let hangs =
            "trap '' TERM; sleep 3; mv \"$POD/tcp\" \"$POD/proc/net/tcp\"; mv \"$POD/was\" \"$POD/idle\"
            i=0; while [ $i -lt 12 ]; do sleep 1; i=$((i+1)); done; exit 7";
        pod.tool("mariadbd", hangs).shell_on_path().state("JOINING").connections("tcp", sockets);
        fs::rename(pod.path("proc/net/tcp"), pod.path("tcp")).unwrap();
        pod.connections("tcp", before)
            .env("GATERA_SILENCE", "5")
            .env("GATERA_LONGEST", longest.unwrap_or("1680"));
        pod.write("was", idle_of(silent, 0, (START - BOOT) * 100));
        if script {
            pod.process(7, "bash", 'S', START);
            pod.write("proc/7/cmdline", "bash\0-ue\0/usr/bin/wsrep_sst_rsync\0")
                .write("data/sst_in_progress", "");
        }
        let outcome = run(pod, "mariadbd --datadir=DATA").exits(if ends { 137 } else { 7 });
        assert_eq!(outcome.err.contains("nothing has come in for 2 minutes"), ends, "{outcome:#?}");
        assert_eq!(pod.path("waited").exists(), ends || longest.is_some(), "{outcome:#?}");
    });
}

/// Two members of three are left, the serving one and the joiner: together they are the majority.
#[test]
fn a_joiner_whose_vote_is_needed_stays() {
    const LISTENS: &str = "00000000:115C 00000000:0000 0A";
    const ONE: &str = "0100007F:11D7 0200007F:A000 01";
    const ONE_AGAIN: &str = "0100007F:B000 0200007F:11D7 01";
    const ONE_IN_IPV6: &str =
        "0000000000000000FFFF00000100007F:B000 0000000000000000FFFF00000200007F:11D7 01";
    const ANOTHER: &str = "0100007F:B002 0300007F:11D7 01";
    const GONE: &str = "0100007F:B004 0300007F:11D7 06";
    const SILENT: &[u8] = b"";
    const RESTART: &[u8] = b"WSREP: Receiving IST failed, node restart required: IST receiver";
    let rows = [
        // The connections in IPv4 and in IPv6; the server's state and its message; the known identity of its cluster; whether it
        // is ended.
        (&[LISTENS][..], &[][..], "JOINING", SILENT, ID, true),
        (&[LISTENS, ONE], &[], "JOINING", SILENT, ID, false),
        (&[LISTENS, ONE], &[], "JOINING", SILENT, "unknown", true), // a first install
        (&[LISTENS, ONE, ONE_AGAIN, GONE], &[ONE_IN_IPV6], "JOINING", SILENT, ID, false),
        (&[LISTENS, ONE, ANOTHER], &[], "JOINING", SILENT, ID, true),
        (&[LISTENS, ONE], &[], "JOINING", RESTART, ID, false),
        (&[LISTENS, ONE, ANOTHER], &[], "JOINING", RESTART, ID, true),
        (&[LISTENS, ONE], &[], "CONNECTED", RESTART, ID, true), // no majority that could be lost
    ];
    for_each(&rows, |pod, &(sockets, in_ipv6, state, says, known, ends)| {
        server(pod, "");
        set_identity(pod, known);
        let hangs = format!(
            "trap '' TERM; sleep 3; mv \"$POD/was\" \"$POD/idle\"
            i=0; while [ $i -lt {} ]; do sleep 1; i=$((i+1)); done; exit 7",
            if ends { 60 } else { 12 }
        );
        pod.tool("mariadbd", &hangs).shell_on_path().connections("tcp", sockets).connections("tcp6", in_ipv6);
        pod.file(&status(state, says));
        pod.env("GATERA_SILENCE", "5").write("was", idle_of(130, 0, (START - BOOT) * 100));
        pod.process(7, "bash", 'S', START);
        pod.write("proc/7/cmdline", "bash\0-ue\0/usr/bin/wsrep_sst_rsync\0")
            .write("data/sst_in_progress", "");
        let outcome = run(pod, "mariadbd --datadir=DATA").exits(if ends { 137 } else { 7 });
        let stays = "this member stays until another one is back";
        assert_eq!(outcome.err.matches(stays).count(), usize::from(!ends), "{outcome:#?}");
        assert_eq!(pod.path("waited").exists(), ends && says == SILENT, "{outcome:#?}");
    });
}

#[test]
fn a_full_disk_is_reported() {
    let row = |left: &str| format!("/dev/vda  264212084 264211000   {left}     100% /some where");
    for_each(&[("0", true), ("1023", true), ("1024", false), ("66616960", false)], |pod, (left, full)| {
        if !pod.looks_for("df") {
            return;
        }
        pod.tool("df", &format!("echo Filesystem; echo '{}'", row(left)));
        pod.write("home", "/data\n").state("DISCONNECTED");
        let says = if *full { "; its disk is full" } else { "" };
        pod.run("started").exits(1).prints(&format!("the server is DISCONNECTED{says}\n"));
        pod.state("SYNCED").run("ready").exits(0).prints("the server is SYNCED\n");
    });
}
