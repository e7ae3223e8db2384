//! The step in front of a server, in a simulated pod: for each content of the data directory, the arguments of the server, the
//! report, and what happens to the last view. The server is a stand-in; the real one is in `tests/e2e`.

use std::fs;
use std::time::{Duration, SystemTime};

use super::pod::{Outcome, Pod, for_each, status};

pub(super) const ID: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1";
pub(super) const OTHER: &str = "7a2c1d10-0000-11f1-91b9-7e68ccac15f1";
pub(super) const ZEROS: &str = "00000000-0000-0000-0000-000000000000";
pub(super) const VIEW: &str =
    "my_uuid: a-b\n#vwbeg\nview_id: 3 a-b 4\nbootstrap: 0\nmember: a-b 0\nmember: c-d 0\n#vwend\n";

/// Adds a server that records its arguments, or prints `recovered` if it is asked for its position.
pub(super) fn server(pod: &Pod, recovered: &str) {
    pod.write("recovered", recovered);
    pod.tool(
        "mariadbd",
        r#"for word; do case $word in --wsrep-recover)
            printf '%s\n' "$@" >"$POD/asked"; while read -r line; do echo "$line"; done <"$POD/recovered" >&2; exit 0 ;; esac; done
        printf '%s\n' "$@" >"$POD/started""#,
    );
    pod.write("proc/self/status", "Name:\tsh\nUid:\t999\t999\t999\t999\nCapEff:\t0000000000000000\n");
    fs::create_dir_all(pod.path("data")).unwrap();
}

pub(super) fn line(position: &str) -> String {
    format!(
        "2026-11-22  1:02:48 0 [Note] Plugin 'FEEDBACK' is disabled.\n2026-11-22  1:02:48 0 [Note] WSREP: Recovered position: {position}\n"
    )
}

pub(super) fn state(uuid: &str, seqno: &str, safe: &str) -> String {
    format!(
        "# GALERA saved state\nversion: 2.1\nuuid:    {uuid}\nseqno:   {seqno}\nsafe_to_bootstrap: {safe}\n"
    )
}

pub(super) fn run(pod: &Pod, args: &str) -> Outcome {
    let args = args.replace("DATA", pod.path("data").to_str().unwrap());
    Outcome::of(&pod.step(&args).output().unwrap())
}

pub(super) fn started(pod: &Pod) -> Vec<String> {
    let text = fs::read_to_string(pod.path("started")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn reported(pod: &Pod) -> String {
    let line = fs::read_to_string(pod.path("start")).unwrap();
    assert_eq!(line, fs::read_to_string(pod.path("termination")).unwrap());
    line.trim_end().split_once("Z: ").unwrap().1.to_owned()
}

struct Case {
    what: &'static str,
    state: Option<String>,
    view: Option<&'static str>,
    data: bool,
    /// A state transfer has begun: `copied` if data has come since, `untouched` if not.
    transfer: Option<&'static str>,
    recovered: String,
    position: Option<String>,
    says: String,
    keeps_view: bool,
    /// The number of members in the address.
    hosts: usize,
    /// What the previous server of this pod, which wrote the view, did: joined, copied, or restored this view and waited.
    before: &'static str,
}

fn crashed() -> Case {
    Case {
        what: "a crash",
        state: Some(state(ID, "-1", "0")),
        view: Some(VIEW),
        data: true,
        transfer: None,
        recovered: line(&format!("{ID}:363")),
        position: Some(format!("{ID}:363")),
        says: format!("position {ID}:363, recovered after a crash, safe_to_bootstrap 0"),
        keeps_view: true,
        hosts: 3,
        before: "",
    }
}

fn in_ddl() -> Case {
    Case {
        what: "a crash in a DDL",
        state: Some(state(ZEROS, "-1", "0")),
        position: None,
        says: format!("position {ID}:363, in a DDL or grastate.dat was lost, safe_to_bootstrap 0"),
        keeps_view: false,
        ..crashed()
    }
}

fn cases() -> Vec<Case> {
    let unknown =
        |what| Case { what, says: in_ddl().says.replace("bootstrap 0", "bootstrap unknown"), ..in_ddl() };
    vec![
        crashed(),
        Case {
            what: "an orderly stop",
            state: Some(state(ID, "41", "1")),
            view: None,
            position: None,
            says: format!("position {ID}:41, stopped in order, safe_to_bootstrap 1"),
            ..crashed()
        },
        Case {
            what: "an orderly stop, in a file that another program wrote, without the end of its last line",
            state: Some(state(ID, "41", "1").trim_end().to_owned()),
            view: None,
            position: None,
            says: format!("position {ID}:41, stopped in order, safe_to_bootstrap 1"),
            ..crashed()
        },
        Case {
            what: "a state that is cut short",
            state: Some(format!("uuid: {ID}\nseqno: 4")),
            says: crashed().says.replace("bootstrap 0", "bootstrap unknown"),
            ..crashed()
        },
        Case { what: "a crash after a lock paused the server", state: Some(state(ID, "999", "0")), ..crashed() },
        Case {
            what: "a position with wsrep_gtid_mode",
            recovered: line(&format!("{ID}:363,0-1-77")),
            position: Some(format!("{ID}:363,0-1-77")),
            says: format!("position {ID}:363,0-1-77, recovered after a crash, safe_to_bootstrap 0"),
            ..crashed()
        },
        Case {
            what: "two lines: the last counts",
            recovered: line(&format!("{ID}:1")) + &line(&format!("{ID}:363")),
            ..crashed()
        },
        in_ddl(),
        Case { state: None, ..unknown("grastate.dat lost") },
        Case { state: Some(String::new()), ..unknown("grastate.dat empty") },
        Case {
            state: Some("uuid: \u{fffd}garbage\nseqno: 5\n".repeat(100)),
            ..unknown("grastate.dat garbage")
        },
        Case { state: Some(state(&ID[..20], "12", "7")), ..unknown("an id that is cut short") },
        Case { what: "grastate.dat of another history", state: Some(state(OTHER, "-1", "0")), ..in_ddl() },
        Case {
            what: "data that was never in a cluster",
            recovered: line(&format!("{ZEROS}:-1")),
            position: None,
            says: "position unknown: InnoDB holds none, safe_to_bootstrap 0".into(),
            keeps_view: false,
            ..crashed()
        },
        Case {
            what: "a cluster that was formed without an identity",
            state: Some(state(ZEROS, "-1", "0")),
            recovered: line(&format!("{ZEROS}:4")),
            position: None,
            says: "position unknown: its cluster was formed without an identity (transaction 4), safe_to_bootstrap 0".into(),
            keeps_view: false,
            ..crashed()
        },
        Case {
            what: "no Galera",
            recovered: "[Note] WSREP: disabled, skipping position recovery\n".into(),
            position: None,
            says: "position unknown, because wsrep is off, safe_to_bootstrap 0".into(),
            ..crashed()
        },
        Case { what: "a view that is cut short", view: Some(&VIEW[..60]), keeps_view: false, ..crashed() },
        Case { what: "an empty view", view: Some(""), keeps_view: false, ..crashed() },
        Case { what: "a crash of a server that had joined", before: "joined", ..crashed() },
        Case { what: "a crash while it waited for its last view", before: "waited", ..crashed() },
        Case { what: "a crash of one that had joined before a probe saw it", before: "joined unseen", ..crashed() },
        Case { what: "a crash while it copied", before: "copied", keeps_view: false, ..crashed() },
        Case { what: "the same, in a view of all members", before: "copied", hosts: 2, ..crashed() },
        Case {
            what: "an id in grastate.dat, and data without a sequence number",
            recovered: line(&format!("{ID}:-1")),
            position: Some(format!("{ID}:-1")),
            says: format!("position {ID}:-1, recovered after a crash, safe_to_bootstrap 0"),
            keeps_view: false,
            ..crashed()
        },
    ]
}

/// Cases without a whole database. Two such members, left alone by their donor, would form a cluster without data.
fn without_a_database() -> Vec<Case> {
    let unfinished = || Case {
        what: "a transfer that was not finished",
        state: Some(state(ZEROS, "-1", "0")),
        transfer: Some("copied"),
        position: None,
        says: "a state transfer was not finished, safe_to_bootstrap 0".into(),
        keeps_view: false,
        ..crashed()
    };
    vec![
        unfinished(),
        Case { what: "the same, in a view of all members", hosts: 2, keeps_view: true, ..unfinished() },
        Case { what: "the same, and nothing is known of the members", hosts: 0, ..unfinished() },
        Case {
            what: "a transfer of what was missing, before it came",
            transfer: Some("untouched"),
            says: in_ddl().says,
            ..unfinished()
        },
        Case {
            what: "a transfer that had hardly begun",
            data: false,
            state: None,
            transfer: Some("copied"),
            position: None,
            says: "a state transfer was not finished, safe_to_bootstrap unknown".into(),
            ..unfinished()
        },
        Case {
            what: "an empty volume that has a view",
            state: None,
            data: false,
            says: "empty, safe_to_bootstrap unknown".into(),
            transfer: None,
            ..unfinished()
        },
        Case {
            what: "an empty volume",
            state: None,
            view: None,
            data: false,
            position: None,
            says: "empty, safe_to_bootstrap unknown".into(),
            ..crashed()
        },
    ]
}

#[test]
fn the_server_starts_from_the_position_of_its_data() {
    let all: Vec<_> = cases().into_iter().chain(without_a_database()).collect();
    for_each(&all, |pod, case| {
        let aged = |name: &str, seconds| {
            let file = fs::File::options().write(true).open(pod.path(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        server(pod, &case.recovered);
        if let Some(state) = &case.state {
            pod.write("data/grastate.dat", state);
        }
        if let Some(view) = case.view {
            pod.write("data/gvwstate.dat", view);
        }
        if case.data {
            pod.write("data/ibdata1", "x");
        }
        if case.transfer.is_some() {
            pod.write("data/sst_in_progress", "");
        }
        if case.transfer.is_some() && case.data {
            let untouched = case.transfer == Some("untouched");
            aged("data/sst_in_progress", if untouched { 50 } else { 60 });
            aged("data/ibdata1", if untouched { 60 } else { 50 });
        }
        if !case.before.is_empty() {
            let at_its_start =
                if case.before == "waited" { "3 a-b 4 a-b 0 c-d 0\n" } else { "2 a-b 3 a-b 0\n" };
            pod.write("start", "…").write("view", at_its_start);
            pod.write("joined", if case.before == "joined" { "SYNCED\n" } else { "" });
        }
        let says = if case.before == "joined unseen" { "SYNCED" } else { "JOINING" };
        pod.write("status.json", status(says, b""));
        let mut hosts: Vec<_> = (0..case.hosts).map(|it| format!("galera-{it}.hs")).collect();
        // The bootstrap node may have been removed long ago, and is not a member.
        hosts.insert(0, "galera-bootstrap-svc".to_owned());
        pod.env("HOSTNAME", "galera-0");
        let address = format!("--wsrep-cluster-address=gcomm://{}?gmcast.segment=1,2", hosts.join(","));
        let address = if case.hosts == 0 { "--wsrep-on=ON".to_owned() } else { address };
        let outcome = run(pod, &format!("mariadbd {address} --datadir=DATA")).exits(0);
        assert_eq!(reported(pod), case.says, "{}: {outcome:#?}", case.what);
        let mut expected = vec![address, format!("--datadir={}", pod.path("data").display())];
        expected.extend(case.position.iter().map(|it| format!("--wsrep-start-position={it}")));
        assert_eq!(started(pod), expected, "{}: {outcome:#?}", case.what);
        let kept = pod.path("data/gvwstate.dat").exists();
        assert_eq!(kept, case.view.is_some() && case.keeps_view, "{}: gvwstate.dat", case.what);
        let aside = pod.path("data/gvwstate.dat.set-aside").exists();
        assert_eq!(aside, case.view.is_some() && !case.keeps_view, "{}: the view set aside", case.what);
    });
}

#[test]
fn a_server_whose_position_cannot_be_recovered_is_not_started() {
    for_each(
        &[
            ("", "could not be recovered"),
            ("[ERROR] Found 2 prepared transactions! It means\n", "prepared transactions"),
            ("WSREP: Recovered position: $(id)\n", "could not be recovered"),
            (
                "[ERROR] mariadbd: Error writing file './ddl_recovery.log' (Errcode: 28 \"No space left on device\")\n",
                "cannot be written (its disk is full), so the server could not read its position;",
            ),
            ("[ERROR] InnoDB: Operating system error number 30 in a file operation.\n", "(it is read-only)"),
            ("[Note] InnoDB: Rollback of non-prepared transactions completed\n", "could not be recovered"),
            (
                "[ERROR] InnoDB: preallocating 12582912 bytes for file ./ibtmp1 failed with error 28\n",
                "(its disk is full)",
            ),
        ],
        |pod, (recovered, says)| {
            server(pod, recovered);
            pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "-1", "0"));
            let outcome = run(pod, "mariadbd --datadir=DATA").exits(1);
            let message = fs::read_to_string(pod.path("termination")).unwrap();
            assert!(
                message.starts_with("gatera did not start the server: ") && message.contains(says),
                "{message}"
            );
            assert!(outcome.err.contains(recovered.trim_end()), "{outcome:#?}");
            assert_eq!(started(pod), [""; 0]);
        },
    );
}

/// The way out of damaged data: without an id the server takes no position, and copies everything before it opens its data.
#[test]
fn a_member_whose_grastate_was_removed_copies_everything() {
    for_each(&[()], |pod, ()| {
        server(pod, "[ERROR] InnoDB: Corrupted page\n");
        pod.write("data/ibdata1", "x").write("data/gvwstate.dat", VIEW);
        run(pod, "mariadbd --datadir=DATA").exits(0);
        assert_eq!(
            reported(pod),
            "position unknown: the server could not be asked, and grastate.dat has no id, safe_to_bootstrap unknown"
        );
        assert_eq!(started(pod).len(), 1, "the server must get no position: {:?}", started(pod));
        assert!(!pod.path("data/gvwstate.dat").exists(), "the last view is still in use");
    });
}

/// On a full disk the line about this start cannot be written, but the record of the previous server is removed all the same.
#[test]
fn the_join_record_of_an_earlier_server_is_removed() {
    for_each(&[()], |pod, ()| {
        server(pod, "");
        pod.write("joined", "SYNCED\n").write("start/in", "its way");
        run(pod, "mariadbd --datadir=DATA").exits(0);
        assert!(!pod.path("joined").exists(), "the record of the previous server is left");
    });
}

/// If neither the folder of the status file nor the termination message can be written, nothing is reported; the server starts.
#[test]
fn a_server_starts_where_nothing_can_be_written() {
    for_each(&[()], |pod, ()| {
        server(pod, &line(&format!("{ID}:363")));
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "-1", "0"));
        let args = format!("mariadbd --datadir={}", pod.path("data").display());
        let mut step = pod.step(&args);
        step.env("TMPDIR", pod.root.path());
        step.env("GATERA_TERMINATION_LOG", "/nowhere/log").env("GATERA_STATUS_FILE", "/nowhere/status.json");
        Outcome::of(&step.output().unwrap()).exits(0);
        assert_eq!(started(pod).pop(), Some(format!("--wsrep-start-position={ID}:363")));

        pod.write("start", "start of 2026-11-22T01:02:48Z: empty, safe_to_bootstrap unknown\n");
        pod.env("GATERA_TERMINATION_LOG", "/nowhere/log").state("SYNCED");
        pod.run("started").exits(0);
        pod.run("ready").exits(0);
    });
}
