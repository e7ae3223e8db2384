//! Members that mariadb-operator manages. To start a cluster again, the operator gives a member an option file
//! (`wsrep_new_cluster`), and its agent writes grastate.dat.

use std::fs;

use super::gate::set_identity;
use super::lives::Dice;
use super::pod::{Pod, for_each};
use super::start::{ID, OTHER, ZEROS, line, run, server, started, state};

/// Values of GATERA_FOUNDING_FILE as injection writes them: one whose end is far in the future, and one whose end has passed.
const RESUME: &str = "resume 29991201100000";
const LATE: &str = "resume 20200101000000";
const START: &str = "mariadbd --datadir=DATA";
const SKIPS: &str = "--skip-wsrep-new-cluster";

/// What the agent writes: without the first line, and without the end of the last one.
fn by_the_agent(id: &str, seqno: &str) -> String {
    format!("version: 2.1\nuuid: {id}\nseqno: {seqno}\nsafe_to_bootstrap: 1")
}

/// Prepares a member of cluster `ID` with the operator's file. The injected variable says whether the member may use the file.
fn member(pod: &Pod, recovered: &str, may: &str) {
    server(pod, recovered);
    pod.tool("my_print_defaults", "echo --wsrep_new_cluster=ON");
    set_identity(pod, ID);
    pod.env("GATERA_FOUNDING_FILE", may).write("data/ibdata1", "x");
}

#[track_caller]
fn refused(pod: &Pod, says: &str) {
    let outcome = run(pod, START);
    let message = fs::read_to_string(pod.path("termination")).unwrap_or_default();
    let begins = format!("gatera did not start the server: {says}");
    assert!(outcome.code == Some(1) && message.starts_with(&begins), "{message} {outcome:#?}");
    assert_eq!(started(pod), [""; 0]);
}

#[track_caller]
fn starts(pod: &Pod, says: &str) {
    let outcome = run(pod, START).exits(0);
    assert!(outcome.err.contains(says), "{outcome:#?}");
}

#[test]
fn the_cluster_is_started_again_from_the_position_of_the_data() {
    for_each(&["41", "99", "-1"], |pod, agents_seqno| {
        member(pod, &line(&format!("{ID}:43")), RESUME);
        pod.write("data/grastate.dat", by_the_agent(ID, agents_seqno)).write("data/gvwstate.dat", "old");
        starts(pod, &format!("starts the cluster again from this member, from {ID}:43"));
        assert!(!started(pod).contains(&SKIPS.to_owned()), "{:?}", started(pod));
        let state = fs::read_to_string(pod.path("data/grastate.dat")).unwrap();
        assert!(state.contains(&format!("uuid:    {ID}\nseqno:   43\nsafe_to_bootstrap: 1")), "{state}");
        assert!(!pod.path("data/gvwstate.dat").exists());
    });
}

#[test]
fn a_member_joins_if_other_members_may_serve() {
    for_each(&["join", LATE, RESUME], |pod, may| {
        member(pod, &line(&format!("{ID}:43")), may);
        pod.write("data/grastate.dat", by_the_agent(ID, "43"));
        if *may == RESUME {
            run(pod, START).exits(0);
            // Its server joined, and the container starts again; the file is still there.
            pod.write("joined", "yes");
        }
        for _ in 0..2 {
            starts(pod, "may be left from an earlier recovery: this member joins its peers");
            assert!(started(pod).contains(&SKIPS.to_owned()), "{:?}", started(pod));
        }
    });
}

#[test]
fn the_cluster_is_not_started_again_from_data_of_another_cluster_or_half_a_copy() {
    for_each(&[()], |pod, ()| {
        member(pod, &line(&format!("{OTHER}:43")), RESUME);
        pod.write("data/grastate.dat", by_the_agent(ID, "43"));
        refused(pod, &format!("it was to start cluster {ID} again, but its data ends at {OTHER}:43;"));
    });
    for_each(&[()], |pod, ()| {
        member(pod, &line(&format!("{ID}:43")), RESUME);
        pod.write("data/grastate.dat", by_the_agent(ID, "43")).write("data/gatera.sst_in_progress", "yes");
        // The next start is refused, too. Without the operator's file the member starts, but its data does not count as whole.
        for _ in 0..2 {
            refused(
                pod,
                "it was to start the cluster again, but its data is an incomplete copy of another member's; let the",
            );
        }
        pod.tool("my_print_defaults", "");
        pod.write("data/grastate.dat", by_the_agent(ID, "43"));
        starts(pod, "a state transfer was not finished");
        assert!(
            !pod.path("data/grastate.dat").exists(),
            "with grastate.dat, the server would not copy everything"
        );
    });
}

#[test]
fn an_address_without_hosts_is_refused_beside_the_operators_file_too() {
    for_each(&["join", RESUME], |pod, may| {
        member(pod, "", may);
        pod.write("data/grastate.dat", state(ID, "43", "1"));
        let outcome = run(pod, &format!("{START} --wsrep-cluster-address=gcomm://")).exits(1);
        assert!(outcome.err.contains("would found a new cluster"), "{outcome:#?}");
    });
}

/// The agent may name a later position than that of the data, so the step asks the server.
#[test]
fn the_agents_position_is_checked_with_the_server() {
    for_each(&["join"], |pod, may| {
        member(pod, &line(&format!("{ID}:43")), may);
        pod.write("data/grastate.dat", by_the_agent(ID, "99"));
        starts(pod, &format!("position {ID}:43, recovered after a crash"));
    });
}

#[test]
fn a_state_file_written_by_galera_means_a_complete_copy() {
    for_each(&[()], |pod, ()| {
        member(pod, "", "join");
        pod.write("data/grastate.dat", state(ID, "43", "0")).write("data/gatera.sst_in_progress", "yes");
        starts(pod, &format!("position {ID}:43, stopped in order"));
    });
}

#[test]
fn a_member_may_found_if_no_cluster_is_recorded_but_not_if_the_cluster_lost_its_identity() {
    for_each(&[("unknown", true), ("founds", true), ("none", false)], |pod, (identity, founds)| {
        member(pod, &line(&format!("{ID}:43")), "join");
        set_identity(pod, identity);
        run(pod, START).exits(i32::from(!founds));
        let skips = started(pod).contains(&SKIPS.to_owned());
        assert_eq!(
            skips,
            *founds,
            "{identity}: a server beside others must ignore the file: {:?}",
            started(pod)
        );
        _ = fs::remove_file(pod.path("started"));
        pod.env("GATERA_FOUNDING_FILE", RESUME);
        set_identity(pod, identity);
        pod.write("data/grastate.dat", by_the_agent(ID, "43"));
        run(pod, START).exits(i32::from(!founds));
        assert!(!started(pod).contains(&SKIPS.to_owned()));
    });
}

/// An event in the life of a member.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A new pod, created while another member was Ready or while none was.
    Pod(&'static str),
    /// The agent writes the position of the data, which may be wrong, and the operator's file appears.
    AgentWrites(&'static str, &'static str),
    /// The operator's file is removed.
    AgentRemoves,
    /// The server starts, and then joins, receives half a copy, or dies before either.
    Start(&'static str),
}

const EVENTS: [Event; 12] = [
    Event::Pod(RESUME),
    Event::Pod(RESUME),
    Event::Pod(LATE),
    Event::Pod("join"),
    Event::AgentWrites(ID, "43"),
    Event::AgentWrites(ID, "99"),
    Event::AgentWrites(OTHER, "43"),
    Event::AgentRemoves,
    Event::Start("joins"),
    Event::Start("joins"),
    Event::Start("copies"),
    Event::Start("dies"),
];

/// The stand-in for the server in this search. It records how it was started.
const SERVER: &str = r#"case " $* " in *" --wsrep-recover "*) while read -r line; do echo "$line"; done <"$POD/recovered" >&2; exit 0 ;; *" --help "*) exit 0 ;; esac
    printf '%s\n' "$@" >"$POD/started"
    state() { printf '# GALERA saved state\nuuid: %s\nseqno: -1\nsafe_to_bootstrap: 0\n' "$1" >"$POD/data/grastate.dat"; }
    while read -r act; do case $act in
        joins) state "$ID"; rm -f "$POD/data/gatera.sst_in_progress"; echo SYNCED >"$POD/joined" ;;
        copies) state "$ZEROS"; echo yes >"$POD/data/gatera.sst_in_progress" ;;
    esac; done <"$POD/act"
    exit 1"#;

/// Events in random order. A member founds by the operator's file only in a pod that was created while no member was Ready,
/// before a server of that pod joined, from whole data of the cluster, and with the data's own position. Half a copy never counts
/// as whole.
#[test]
fn in_any_order_of_events_a_member_founds_only_when_it_may() {
    let seeds: u64 = std::env::var("GATERA_START_LIVES").map_or(6, |it| it.parse().unwrap());
    let seeds: Vec<_> = (1..=seeds).collect();
    for_each(&seeds, |pod, seed| {
        server(pod, &line(&format!("{ID}:43")));
        pod.tool("mariadbd", SERVER);
        pod.tool("my_print_defaults", r#"[ ! -e "$POD/founding-file" ] || echo --wsrep_new_cluster=ON"#);
        set_identity(pod, ID);
        pod.env("ID", ID).env("ZEROS", ZEROS).env("GATERA_PATIENCE", "0").env("GATERA_FOUNDING_FILE", "join");
        pod.write("data/ibdata1", "x").write("data/grastate.dat", state(ID, "-1", "0"));
        let (mut may, mut has_joined, mut half, mut file) = ("join", false, false, false);
        let mut story = format!("seed {seed}");
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(*seed));
        for _ in 0..14 {
            let event = dice.of(&EVENTS);
            story += &format!("\n{event:?}");
            match event {
                Event::Pod(created) => {
                    (may, has_joined) = (created, false);
                    pod.env("GATERA_FOUNDING_FILE", may);
                    for name in ["joined", "resumed", "view", "start", "waited"] {
                        let path = pod.path(name);
                        _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
                    }
                }
                Event::AgentWrites(id, seqno) => {
                    pod.write("data/grastate.dat", by_the_agent(id, seqno)).write("founding-file", "");
                    file = true;
                }
                Event::AgentRemoves => {
                    _ = fs::remove_file(pod.path("founding-file"));
                    file = false;
                }
                Event::Start(act) => {
                    _ = fs::remove_file(pod.path("started"));
                    pod.write("act", format!("{act}\n"));
                    let said = run(pod, START).err;
                    let begun = fs::read_to_string(pod.path("started")).ok();
                    let story = format!("{story}\n{said}");
                    let may_found = may == RESUME && !has_joined && !half;
                    let founds = begun.as_ref().is_some_and(|it| file && !it.contains(SKIPS));
                    assert!(!founds || may_found, "it founds, but may not: {story}");
                    assert_eq!(
                        begun.is_none(),
                        file && may == RESUME && !has_joined && half,
                        "a server was started or refused by mistake: {story}"
                    );
                    assert!(
                        !founds || said.contains(&format!("from {ID}:43")),
                        "it founds from another position than that of its data: {story}"
                    );
                    assert!(
                        !half || begun.is_none() || said.contains("a state transfer was not finished"),
                        "half a copy counts as whole: {story}"
                    );
                    if begun.is_some() {
                        has_joined |= act == "joins";
                        half = act == "copies" || half && act != "joins";
                    }
                }
            }
        }
    });
}
