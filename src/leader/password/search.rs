//! A search through the possible courses of a password change: two runs of the command, each killed between any two writes or
//! paused with an old view, one of them reversing the change; statements that arrive late, the last ones after the end; pods that
//! restart by themselves; members that are away.
//!
//! The laws: at every moment MariaDB accepts each password that the Secret or a pod holds. After any of these events an
//! undisturbed run completes the change, and then MariaDB accepts no other password.

use std::mem;
use std::sync::LazyLock;

use facts::galera::accounts::hexed;
use jiff::SignedDuration;

use super::*;

const WALKS: u64 = 5_000;
const LONGEST_WALK: u32 = 120;

static CHANGE: LazyLock<PasswordChange> = LazyLock::new(|| PasswordChange {
    account: "root".to_owned(),
    secret: "s".to_owned(),
    key: "root".to_owned(),
    old: Password::new("old").unwrap(),
    new: Password::new("new").unwrap(),
    underway: None,
});

/// The account, by whether it accepts the old password, and the new one.
static ACCOUNTS: LazyLock<[[Account; 2]; 2]> =
    LazyLock::new(|| [false, true].map(|old| [false, true].map(|new| account([old, new]))));

fn account(accepts: [bool; 2]) -> Account {
    let accepted = [&CHANGE.old, &CHANGE.new].into_iter().zip(accepts).filter(|(_, accepts)| *accepts);
    let methods = accepted.map(|(password, _)| {
        format!(r#"{{"plugin":"mysql_native_password","authentication_string":"{}"}}"#, password.hash())
    });
    let row = format!(r#"{{"auth_or":[{}]}}"#, methods.collect::<Vec<_>>().join(","));
    Account::read(&format!("25:{}", hexed(row))).unwrap()
}

/// A run of the command: what it has observed, and how far it is with its step.
#[derive(Clone)]
struct Run {
    seen: Observed,
    secret_version: u64,
    own_version: u64,
    read: u32,
    step: PasswordStep,
    turns_round: bool,
    /// The first of two writes is done.
    half: bool,
    /// Its connection is lost, and its statement arrives later.
    stalls: bool,
}

/// A statement on its way to MariaDB.
#[derive(Clone, Debug)]
struct Statement {
    read: u32,
    accepts: [bool; 2],
}

#[derive(Clone, Debug)]
struct Model {
    accepts: [bool; 2],
    /// The number of writes to the account. It stands for the time in the account's row, which is in seconds, because a run
    /// pauses longer between two steps.
    written: u32,
    late: Vec<Statement>,
    /// Whether a statement changes the account only if it is as it was read.
    compares: bool,
    secret: Which,
    /// The content of the Secret before the last write.
    earlier: Which,
    secret_version: u64,
    mark: Option<(String, Timestamp)>,
    own: Option<Underway>,
    own_version: u64,
    pods: Vec<(Which, Timestamp)>,
    restarting: bool,
    away: bool,
    now: Timestamp,
    turns: u32,
}

fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time + SignedDuration::from_secs(seconds)
}

impl Model {
    fn new(compares: bool) -> Self {
        let now: Timestamp = "2026-12-01T09:00:00Z".parse().unwrap();
        Self {
            accepts: [true, false],
            written: 0,
            late: Vec::new(),
            compares,
            secret: Which::Old,
            earlier: Which::Old,
            secret_version: 1,
            mark: None,
            own: None,
            own_version: 0,
            pods: vec![(Which::Old, after(now, -60)); 3],
            restarting: false,
            away: false,
            now,
            turns: 0,
        }
    }

    fn observed(&self) -> Observed {
        let change = PasswordChange { underway: self.own.clone(), ..CHANGE.clone() };
        let [old, new] = self.accepts.map(usize::from);
        let accounts = vec![ACCOUNTS[old][new].clone()];
        let reader = |(number, (_, created)): (usize, &(Which, Timestamp))| ReadingPod {
            name: format!("g-{number}"),
            created: *created,
            workload: Some(("StatefulSet".to_owned(), "g".to_owned())),
        };
        Observed {
            not_now: self.away.then(|| "a member is away".to_owned()),
            change,
            kept: SecretState { holds: Some(self.secret), written: self.mark.clone() },
            members: vec![OnMember { member: "g-0".to_owned(), accounts, logs_in: self.accepts }],
            readers: self.pods.iter().enumerate().map(reader).collect(),
        }
    }

    fn look(&self, turns_round: bool) -> Run {
        let seen = self.observed();
        let step = next(&seen, self.now);
        let (secret_version, own_version, read) = (self.secret_version, self.own_version, self.written);
        Run { seen, secret_version, own_version, read, step, turns_round, half: false, stalls: false }
    }

    fn turn(&mut self) -> String {
        self.turns += 1;
        self.turns.to_string()
    }

    fn write(&mut self, run: &Run, which: Which, turn: &str) {
        if run.secret_version == self.secret_version {
            self.secret_version += 1;
            self.earlier = self.secret;
            (self.secret, self.mark) = (which, Some((turn.to_owned(), self.now)));
        }
    }

    fn note(&mut self, run: &Run, underway: Option<Underway>) -> bool {
        let current = run.own_version == self.own_version && self.own.is_some();
        if current {
            self.own_version += 1;
            self.own = underway;
        }
        current
    }

    /// Sends a statement; returns whether the run learns that it changed the account.
    fn alter(&mut self, run: &Run, accepts: [bool; 2]) -> bool {
        let statement = Statement { read: run.read, accepts };
        if run.own_version != self.own_version || self.own.is_none() {
            return false;
        }
        if run.stalls {
            self.late.push(statement);
            return false;
        }
        self.arrives(&statement)
    }

    fn arrives(&mut self, Statement { read, accepts }: &Statement) -> bool {
        let changes = *read == self.written || !self.compares;
        if changes {
            self.written += 1;
            self.accepts = *accepts;
        }
        changes
    }

    /// Does what the run decided; `None` means that the run then looks again.
    fn act(&mut self, mut run: Run) -> Option<Run> {
        let underway = run.seen.change.underway.clone();
        if let (true, Some(underway)) = (run.turns_round, &underway) {
            self.turn_round(&run, underway);
            return None;
        }
        match (&run.step, underway) {
            (PasswordStep::Begin, _) if !self.began() && run.secret_version == self.secret_version => {
                self.own_version += 1;
                self.own =
                    Some(Underway { target: Which::New, turn: self.turn(), touched: false, sealed: false });
            }
            (PasswordStep::AcceptBoth(_), _) => {
                self.alter(&run, [true, true]);
            }
            (PasswordStep::Write, Some(underway)) if underway.touched || run.half => {
                self.write(&run, underway.target, &underway.turn);
            }
            (PasswordStep::Write, Some(underway)) => {
                run.half = self.note(&run, Some(Underway { touched: true, ..underway }));
                return run.half.then_some(run);
            }
            (PasswordStep::Restart { .. }, _) => self.restarting = true,
            (PasswordStep::Both | PasswordStep::Seal, Some(underway)) => {
                self.note(&run, Some(Underway { sealed: true, ..underway }));
            }
            (PasswordStep::End(_), Some(underway)) if run.half => {
                self.note(&run, Some(Underway { sealed: true, ..underway }));
            }
            (PasswordStep::End(_), Some(underway)) => {
                let accepts = [underway.target == Which::Old, underway.target == Which::New];
                run.half = self.alter(&run, accepts) && !underway.sealed;
                return run.half.then_some(run);
            }
            (PasswordStep::Finish, _) if run.half => {
                self.note(&run, None);
            }
            (PasswordStep::Finish, _) if run.secret_version == self.secret_version => {
                self.secret_version += 1;
                self.mark = None;
                run.half = true;
                return Some(run);
            }
            _ => {}
        }
        None
    }

    fn turn_round(&mut self, run: &Run, underway: &Underway) {
        if underway.target == Which::New && !underway.sealed {
            let (target, turn) = (Which::Old, self.turn());
            self.note(run, Some(Underway { target, turn, ..underway.clone() }));
        }
    }

    /// Lets something happen that no run causes.
    fn happens(&mut self, what: u64) {
        match what {
            0 => self.now = after(self.now, 1),
            1 => self.now = after(self.now, 7),
            2 | 3 if self.restarting => self.rolls(),
            4 => self.away = !self.away,
            5 => self.recreate(usize::try_from(self.now.as_second()).unwrap() % self.pods.len()),
            6 if !self.late.is_empty() => {
                let statement = self.late.remove(0);
                self.arrives(&statement);
            }
            _ => {}
        }
    }

    /// Replaces the oldest pod, as the controller does, until all are replaced.
    fn rolls(&mut self) {
        let (oldest, _) = self.pods.iter().enumerate().min_by_key(|(_, (_, created))| *created).unwrap();
        self.recreate(oldest);
        let limit = self.mark.as_ref().map(|(_, at)| *at + SETTLED);
        self.restarting = limit.is_some_and(|limit| self.pods.iter().any(|(_, created)| *created <= limit));
    }

    /// Recreates a pod. A kubelet that saw an old Secret provides its value for some seconds.
    fn recreate(&mut self, pod: usize) {
        let fresh = self.mark.as_ref().is_none_or(|(_, at)| self.now > *at + SETTLED);
        self.pods[pod] = (if fresh { self.secret } else { self.earlier }, self.now);
    }

    fn law(&self) -> bool {
        let held = self.pods.iter().map(|(which, _)| which).chain([&self.secret]);
        held.into_iter().all(|which| self.accepts[*which as usize])
    }

    fn began(&self) -> bool {
        self.own_version > 0
    }

    fn is_over(&self) -> bool {
        self.began() && self.own.is_none()
    }

    /// Lets one run complete the change without disturbance.
    fn ends(mut self) -> Result<Self, String> {
        self.away = false;
        for _ in 0..60 {
            if self.is_over() {
                return Ok(self);
            }
            let mut run = Some(self.look(false));
            while let Some(at) = run {
                run = self.act(at);
                if !self.law() {
                    return Err(format!("the law: {self:?}"));
                }
            }
            self.now = after(self.now, 2);
            if self.restarting {
                self.rolls();
            }
        }
        Err(format!("it does not end: {self:?}, {:?}", self.look(false).step))
    }
}

fn walk(seed: u64, compares: bool) -> Result<(), String> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut chance = |of: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % of
    };
    let (mut model, mut runs) = (Model::new(compares), [None, None]);
    for _ in 0..LONGEST_WALK {
        let which = usize::from(chance(3) == 0);
        match chance(12) {
            0..=2 => {
                let (turns_round, stalls) = (which == 1 && chance(6) == 0, chance(4) == 0);
                runs[which] = Some(Run { stalls, ..model.look(turns_round) });
            }
            3..=6 => runs[which] = runs[which].take().and_then(|run| model.act(run)),
            7 => runs[which] = None,
            _ => model.happens(chance(7)),
        }
        if !model.law() {
            return Err(format!("the law: {model:?}"));
        }
        if model.is_over() {
            break;
        }
    }
    let mut end = model.ends()?;
    for statement in mem::take(&mut end.late) {
        end.arrives(&statement);
    }
    let settled = end.accepts[end.secret as usize]
        && end.accepts[end.secret.other() as usize].eq(&false)
        && end.pods.iter().all(|(which, _)| *which == end.secret);
    if settled { Ok(()) } else { Err(format!("it ends in {end:?}")) }
}

#[test]
fn each_password_that_is_held_is_accepted_and_the_change_ends() {
    for seed in 0..WALKS {
        if let Err(why) = walk(seed, true) {
            panic!("walk {seed}: {why}");
        }
    }
}

#[test]
fn turned_round_before_the_secret_was_written_it_restarts_nothing() {
    let mut model = Model::new(true);
    let mut turn = |turns_round| {
        let mut run = Some(model.look(turns_round));
        let step = format!("{:?}", run.as_ref().map(|it| &it.step));
        while let Some(at) = run {
            run = model.act(at);
        }
        step.trim_start_matches("Some(").split(['(', ')']).next().unwrap().to_owned()
    };
    assert_eq!([false, true, false, false].map(&mut turn), ["Begin", "AcceptBoth", "End", "Finish"]);
    assert_eq!((model.accepts, model.secret_version), ([true, false], 2), "only the mark was removed");
}

#[test]
fn a_late_statement_that_compares_nothing_breaks_a_law() {
    assert!((0..WALKS).any(|seed| walk(seed, false).is_err()));
}

#[test]
fn left_alone_it_does_each_step_once() {
    let (mut model, mut steps) = (Model::new(true), Vec::new());
    while !model.is_over() {
        let run = model.look(false);
        let name = format!("{:?}", run.step);
        let name = name.split([' ', '(']).next().unwrap().to_owned();
        if steps.last() != Some(&name) {
            steps.push(name);
        }
        let mut run = Some(run);
        while let Some(at) = run {
            run = model.act(at);
        }
        model.now = after(model.now, 6);
        if model.restarting {
            model.rolls();
        }
    }
    assert_eq!(steps, ["Begin", "AcceptBoth", "Write", "Restart", "Both", "End", "Finish"]);
}
