//! Random lives of a member: server after server starts from the data that the previous one left, waits, joins or receives a
//! copy, and ends by an orderly stop, by a crash or with its node. Each life runs under every shell.
//!
//! Three properties always hold. A view that could form the cluster again is never removed. A position is reported for whole
//! data, and for no other. No cluster is founded where one is recorded. `GATERA_START_LIVES` sets the number of members.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use super::pod::{Pod, for_each, status};
use super::start::{ID, ZEROS, server, state};

/// The number of consecutive servers of a member.
const LIVES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Data {
    Nothing,
    /// A copy has overwritten a part of it.
    Half,
    /// A part of it was removed before a copy.
    Removed,
    Whole,
}

/// The true state of a member between two servers.
#[derive(Clone, Debug)]
struct Truth {
    data: Data,
    /// Whether `grastate.dat` has the id of the data, so that Galera would use a position.
    compared: bool,
    /// The number of members in the last view, and whether the server that wrote it had joined.
    view: Option<(usize, bool)>,
    /// Whether it has used the right to start the cluster again.
    led: bool,
}

/// What a state transfer copies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Copies {
    Nothing,
    /// Only the transactions that are missing.
    Missing,
    Everything,
    /// Everything, by a script that first removes what exists, in any order; so far it has removed this file.
    AfterRemoval(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Crash,
    CrashInDdl,
    OrderlyStop,
    /// Its node ends.
    Power,
}

/// The behaviour of a server.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    /// Restores its last view, if it has one, and meets no other member.
    Waits(End),
    /// Joins a view of this many members, but its transfer is not completed.
    Fails(Copies, usize, End),
    /// Joins a view of this many members; the flag says whether a probe saw it Synced.
    Joins(Copies, usize, bool, End),
}

/// One server of the member: how it is started, and what it does.
#[derive(Clone, Copy, Debug)]
struct Life {
    behaviour: Behaviour,
    /// The command line that starts the server; `option_file` has its options.
    line: &'static str,
    option_file: &'static [u8],
    /// Whether the command line would found a cluster.
    founds: bool,
    /// The pod's cluster, as the guard's annotation names it.
    identity: &'static str,
}

/// A random number generator that is the same on every platform.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        all[usize::try_from(self.0 >> 33).unwrap() % all.len()]
    }

    fn life(&mut self, truth: &Truth) -> Life {
        use Copies::{AfterRemoval, Everything, Missing, Nothing};
        use End::{Crash, CrashInDdl, OrderlyStop, Power};
        let whole = truth.data == Data::Whole && truth.compared;
        let removes = self.of(&["data/ibdata1", "data/mysql/global_priv.frm", "data/mysql/global_priv.frm"]);
        // Without an id Galera copies everything.
        let copies = if whole {
            self.of(&[Nothing, Missing, Everything, AfterRemoval(removes), AfterRemoval(removes)])
        } else {
            self.of(&[Everything, AfterRemoval(removes)])
        };
        let (members, dies) = (self.of(&[2, 2, 3]), self.of(&[Crash, Power]));
        let behaviour = match self.of(&[0, 1, 2, 2]) {
            0 => Behaviour::Waits(dies),
            1 => Behaviour::Fails(if copies == Nothing { Missing } else { copies }, members, dies),
            _ if self.of(&[true, true, false]) => Behaviour::Joins(
                copies,
                members,
                true,
                self.of(&[Crash, Crash, CrashInDdl, OrderlyStop, Power]),
            ),
            // No crash in a DDL here: the mark of a copy stays until a probe runs, so the position would be lost.
            _ => Behaviour::Joins(copies, members, false, self.of(&[Crash, OrderlyStop, Power])),
        };
        let line = self.of(&[
            "mariadbd",
            "docker-entrypoint.sh mariadbd",
            "tini mariadbd",
            "dumb-init docker-entrypoint.sh mariadbd",
            "tini -g -- docker-entrypoint.sh",
        ]);
        let option_file = self.of(&[
            &b"--max-connections=7\n"[..],
            b"--silent-startup\n",
            b"--init-connect=SET NAMES \xff\xfe\x80\n--\xc3\x28=\xf0\n--silent_startup=1\n",
        ]);
        let identity = self.of(&["unknown", ID, ID, "none", "free", "", "recovery"]);
        Life { behaviour, line, option_file, founds: self.of(&[true, false, false]), identity }
    }
}

/// The stand-in for the server: it prints its position if it is asked for it, and otherwise runs the file `acts`.
const SERVER: &str = r#"for word; do case $word in
        --loose-silent-startup=OFF) rm -f "$POD/silent" ;;
        --wsrep-recover) asked=yes ;;
        --help) exit 0 ;; # as a real one does: it takes its options, and touches no data
    esac; done
    if [ -n "${asked:-}" ]; then
        [ ! -e "$POD/data/ibdata1" ] || echo asked >>"$POD/data/ibdata1"
        [ -e "$POD/silent" ] || while read -r line; do echo "$line"; done <"$POD/recovered" >&2
        exit 0
    fi
    printf '%s\n' "$@" >"$POD/started"
    d=$POD/data
    [ ! -e "$d/gvwstate.dat" ] || echo >"$POD/had-view"
    state() { printf 'uuid: %s\nseqno: %s\nsafe_to_bootstrap: 0\n' "$1" "$2" >"$d/grastate.dat"; }
    show() { mv "$POD/status.$1" "$POD/status.json"; }
    until_is() { i=0; until [ "$1" "$2" ] || [ $i -gt 40 ]; do sleep 0.05; i=$((i+1)); done; }
    until_not() { i=0; while [ -e "$1" ] && [ $i -lt 60 ]; do sleep 0.05; i=$((i+1)); done; }
    . "$POD/acts""#;

impl Behaviour {
    /// Returns the script of the server, and makes `truth` the state after it. `number` is the number of this life.
    fn acts(self, truth: &mut Truth, number: usize) -> String {
        let view = |my: &str, id: usize, members: usize| {
            let members: String = (0..members).map(|it| format!("member: a-{it} 0\\n")).collect();
            format!(
                "printf 'my_uuid: {my}\\n#vwbeg\\nview_id: 3 a {id}\\nbootstrap: 0\\n{members}#vwend\\n' >\"$d/gvwstate.dat\"\n"
            )
        };
        let mut acts = "show DISCONNECTED\n".to_owned();
        // Galera writes a restored view again, with another my_uuid.
        acts += "if [ -e \"$d/gvwstate.dat\" ]; then { read -r my; echo \"my_uuid: again\"; while read -r line; do echo \"$line\"; done; } \
                 <\"$d/gvwstate.dat\" >\"$d/tmp\"; mv \"$d/tmp\" \"$d/gvwstate.dat\"; fi\n";
        let (copies, end, joins) = match self {
            Self::Waits(end) => {
                acts += "sleep 0.3\n";
                (Copies::Nothing, end, None)
            }
            Self::Fails(copies, members, end) => {
                acts += &view("me", number, members);
                truth.view = Some((members, false));
                (copies, end, Some((false, false)))
            }
            Self::Joins(copies, members, seen, end) => {
                acts += &view("me", number, members);
                truth.view = Some((members, true));
                (copies, end, Some((true, seen)))
            }
        };
        if let Some((completes, seen)) = joins {
            acts += "show JOINING\n";
            if copies != Copies::Nothing {
                acts += &format!("sleep 0.02; : >\"$d/sst_in_progress\"; state {ZEROS} -1\n");
                truth.compared = false;
            }
            if copies == Copies::Everything {
                acts += "echo half >\"$d/ibdata1\"; until_is -e \"$d/gatera.sst_in_progress\"\n";
                truth.data = Data::Half;
            }
            if let Copies::AfterRemoval(removes) = copies {
                acts += &format!("mkdir -p \"$d/.sst\"; rm -f \"$POD/{removes}\"\n");
                // When the node ends, the script has no time to remove its file.
                if completes || end != End::Power {
                    acts += "until_is -e \"$d/gatera.sst_in_progress\"\n";
                }
                truth.data = Data::Removed;
            }
            if copies != Copies::Nothing && (completes || end != End::Power) {
                acts += "rm -f \"$d/sst_in_progress\"\n";
            }
            if completes {
                acts += &format!(
                    "mkdir -p \"$d/mysql\"; echo whole >\"$d/ibdata1\"; echo whole >\"$d/mysql/global_priv.frm\"; rm -rf \"$d/.sst\"; \
                     state {ID} -1; show SYNCED\n"
                );
                (truth.data, truth.compared) = (Data::Whole, true);
            }
            if seen {
                acts += "echo SYNCED >\"$POD/joined\"; until_not \"$d/gatera.sst_in_progress\"\n";
            }
        }
        acts + &match end {
            End::Crash => "exit 1\n".to_owned(),
            End::Power => "kill -KILL 0\n".to_owned(),
            End::CrashInDdl => {
                truth.compared = false;
                format!("state {ZEROS} -1; exit 1\n")
            }
            End::OrderlyStop => {
                truth.view = None;
                format!(
                    "state {ID} 41; rm -f \"$d/gvwstate.dat\"; mv \"$POD/status.END\" \"$POD/status.json\"; exit 0\n"
                )
            }
        }
    }
}

/// Prepares everything for a life; returns the truth before it.
fn set_up(pod: &Pod, life: &Life, truth: &mut Truth, number: usize) -> Truth {
    let before = truth.clone();
    for name in ["started", "had-view", "silent"] {
        _ = fs::remove_file(pod.path(name));
    }
    for doing in ["DISCONNECTED", "JOINING", "SYNCED"] {
        pod.write(&format!("status.{doing}"), status(doing, b""));
    }
    pod.write("status.END", status("DISCONNECTED", b""));
    // A half-finished copy has the position of its donor.
    let recovered = format!("[Note] WSREP: Recovered position: {ID}:41\n");
    pod.write("recovered", if before.data == Data::Nothing { "" } else { &recovered });
    pod.write("option-file", life.option_file);
    if life.option_file.windows(6).any(|it| it == b"silent") {
        pod.write("silent", "");
    }
    let identity = life.identity.replace("recovery", &format!("recovery {ID}:41 until=29991201100000"));
    pod.write("identity", identity);
    // Existing files get an older time than those of this life; a difference of one second is enough for every shell.
    let now = SystemTime::now();
    for (name, ago) in [("data/sst_in_progress", 90), ("data/ibdata1", 90)] {
        let half = before.data == Data::Half && name.ends_with("ibdata1");
        if let Ok(file) = File::options().write(true).open(pod.path(name)) {
            let old = name.ends_with("ibdata1") && matches!(before.data, Data::Whole | Data::Removed);
            let ago = if half {
                80
            } else if old {
                100
            } else {
                ago
            };
            file.set_modified(now - Duration::from_secs(ago)).unwrap();
        }
    }
    pod.write("acts", life.behaviour.acts(truth, number));
    before
}

/// Runs one life and checks the three properties.
fn live(pod: &Pod, life: &Life, truth: &mut Truth, number: usize, story: &str) {
    let mut after = truth.clone();
    let before = set_up(pod, life, &mut after, number);
    let founds = if life.founds { " --wsrep-new-cluster" } else { "" };
    let address = "--wsrep-cluster-address=gcomm://galera-0.hs,galera-1.hs,galera-2.hs";
    let data = pod.path("data");
    let args = format!("{} {address} --datadir={}{founds}", life.line, data.display());
    let output = pod.step(&args).process_group(0).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let story = format!("{story}\nbefore: {before:?}\n{said}");

    let right = life.identity == "recovery" && !before.led;
    let recorded = matches!(life.identity, ID | "none") || life.identity == "recovery" && before.led;
    let whole = before.data == Data::Whole;
    let refused = life.founds && recorded || right && !whole;
    let started = fs::read_to_string(pod.path("started")).ok();
    assert_eq!(started.is_none(), refused, "a server was started or refused by mistake: {story}");
    if started.is_some_and(|it| it.contains("--wsrep-new-cluster")) {
        assert!(right && whole || life.founds && !recorded, "it founds a second cluster: {story}");
    }
    if said.contains("start of ") {
        let reported = said.split_once("Z: ").unwrap().1;
        assert_eq!(
            reported.starts_with(&format!("position {ID}:41,")),
            whole,
            "the position of whole data is missing, or other data has one: {story}"
        );
    } else {
        assert!(refused, "nothing is reported: {story}");
    }
    if refused {
        truth.led |= right && whole;
        return;
    }
    let had_view = pod.path("had-view").exists();
    match before.view {
        Some((_, true)) if whole && before.compared && !right => {
            assert!(had_view, "a view that could form the cluster was removed: {story}");
        }
        Some((members, joined)) if members < 3 && !(whole && joined) => {
            assert!(!had_view, "it restores a view that it must not use: {story}");
        }
        _ => {}
    }
    if !had_view && matches!(life.behaviour, Behaviour::Waits(_)) {
        after.view = None;
    }
    if right {
        // Written by the step before it started the cluster.
        after.led = true;
        after.compared |= matches!(life.behaviour, Behaviour::Waits(_));
    }
    let left = data.join("gvwstate.dat").exists();
    if let Some((members, joined)) = after.view {
        assert!(left || !joined, "a view that could form the cluster was removed at its end: {story}");
        assert!(left || members < 3, "a view of all members was removed at its end: {story}");
        if !left {
            after.view = None;
        }
    }
    *truth = after;
}

#[test]
fn a_member_starts_from_what_its_previous_servers_left() {
    let members: u64 = env::var("GATERA_START_LIVES").map_or(8, |it| it.parse().unwrap());
    let seeds: Vec<_> = (1..=members).collect();
    for some in seeds.chunks(10) {
        for_each(some, |pod, &seed| {
            server(pod, "");
            pod.tool("mariadbd", SERVER);
            pod.tool("docker-entrypoint.sh", r#"case $1 in -*) set -- mariadbd "$@" ;; esac; exec "$@""#);
            for wrapper in ["tini", "dumb-init"] {
                pod.tool(wrapper, r#"while :; do case $1 in -*) shift ;; *) exec "$@" ;; esac; done"#);
            }
            pod.tool(
                "my_print_defaults",
                r#"while IFS= read -r line; do printf '%s\n' "$line"; done <"$POD/option-file""#,
            );
            let real = super::program("sleep", true).unwrap();
            pod.tool(
                "sleep",
                &format!("case $1 in 1) exec {0} 0.05 ;; *) exec {0} \"$1\" ;; esac", real.display()),
            );
            pod.env("HOSTNAME", "galera-0").env("GATERA_IDENTITY", pod.path("identity"));
            pod.env("GATERA_PATIENCE", "0");
            let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut truth = if dice.of(&[0, 1, 1]) == 0 {
                Truth { data: Data::Nothing, compared: false, view: None, led: false }
            } else {
                pod.write("data/ibdata1", "whole").write("data/mysql/global_priv.frm", "whole");
                pod.write("data/grastate.dat", state(ID, "-1", "0"));
                Truth { data: Data::Whole, compared: true, view: None, led: false }
            };
            let mut story = format!("member {seed} in {}", pod.shell.display());
            for number in 1..=LIVES {
                let life = dice.life(&truth);
                story += &format!("\n{life:?}");
                live(pod, &life, &mut truth, number, &story);
            }
        });
    }
}
