//! A search through the possible courses of a password change: two runs of the command, each killed between any two writes or
//! paused with an old view, one of them reversing the change; statements that arrive late, the last ones after the end; pods that
//! restart by themselves; members that are away.
//!
//! The laws: at every moment MariaDB accepts each password that the Secret or a pod holds. After any of these events an
//! undisturbed run completes the change, and then MariaDB accepts only the password that the Secret holds.

use std::mem;
use std::sync::LazyLock;

use facts::galera::accounts::hexed;
use jiff::SignedDuration;

use super::*;

const WALKS: u64 = 5_000;
const MAX_WALK_STEPS: u32 = 120;

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

/// A run of the command: what it has observed, its next step, and how much of the step is done.
#[derive(Clone)]
struct CommandRun {
    seen: Observed,
    secret_version: u64,
    own_version: u64,
    read: u32,
    step: PasswordStep,
    reverses: bool,
    /// Whether the first of the step's two writes is done.
    half: bool,
    /// Whether the connection is lost, so that a statement arrives later.
    stalls: bool,
}

/// A statement on its way to MariaDB.
#[derive(Clone, Debug)]
struct Statement {
    read: u32,
    accepts: [bool; 2],
}

#[derive(Clone, Debug)]
struct ChangeModel {
    accepts: [bool; 2],
    /// The number of writes to the account. The real row holds the time of the last write instead, in seconds; that is enough,
    /// because a run pauses for longer between two steps.
    written: u32,
    late: Vec<Statement>,
    /// Whether a statement changes the account only if the account has not changed since it was read.
    compares: bool,
    secret: WhichPassword,
    /// The content of the Secret before the last write.
    earlier: WhichPassword,
    secret_version: u64,
    mark: Option<(String, Timestamp)>,
    own: Option<Underway>,
    own_version: u64,
    pods: Vec<(WhichPassword, Timestamp)>,
    restarting: bool,
    away: bool,
    now: Timestamp,
    turns: u32,
}

fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time + SignedDuration::from_secs(seconds)
}

impl ChangeModel {
    fn new(compares: bool) -> Self {
        let now: Timestamp = "2026-12-01T09:00:00Z".parse().unwrap();
        Self {
            accepts: [true, false],
            written: 0,
            late: Vec::new(),
            compares,
            secret: WhichPassword::Old,
            earlier: WhichPassword::Old,
            secret_version: 1,
            mark: None,
            own: None,
            own_version: 0,
            pods: vec![(WhichPassword::Old, after(now, -60)); 3],
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
        let reader = |(number, (_, created)): (usize, &(WhichPassword, Timestamp))| ReadingPod {
            name: format!("g-{number}"),
            created: *created,
            workload: Some(("StatefulSet".to_owned(), "g".to_owned())),
        };
        Observed {
            not_now: self.away.then(|| "a member is away".to_owned()),
            change,
            secret_state: SecretState { holds: Some(self.secret), written: self.mark.clone() },
            members: vec![AccountOnMember { member: "g-0".to_owned(), accounts, logs_in: self.accepts }],
            readers: self.pods.iter().enumerate().map(reader).collect(),
        }
    }

    fn look(&self, reverses: bool) -> CommandRun {
        let seen = self.observed();
        let step = next(&seen, self.now);
        let (secret_version, own_version, read) = (self.secret_version, self.own_version, self.written);
        CommandRun { seen, secret_version, own_version, read, step, reverses, half: false, stalls: false }
    }

    fn turn(&mut self) -> String {
        self.turns += 1;
        self.turns.to_string()
    }

    fn write(&mut self, run: &CommandRun, which: WhichPassword, turn: &str) {
        if run.secret_version == self.secret_version {
            self.secret_version += 1;
            self.earlier = self.secret;
            (self.secret, self.mark) = (which, Some((turn.to_owned(), self.now)));
        }
    }

    fn record(&mut self, run: &CommandRun, underway: Option<Underway>) -> bool {
        let current = run.own_version == self.own_version && self.own.is_some();
        if current {
            self.own_version += 1;
            self.own = underway;
        }
        current
    }

    /// Sends a statement. Returns whether the run learns that the statement changed the account.
    fn alter(&mut self, run: &CommandRun, accepts: [bool; 2]) -> bool {
        let statement = Statement { read: run.read, accepts };
        if run.own_version != self.own_version || self.own.is_none() {
            return false;
        }
        if run.stalls {
            self.late.push(statement);
            return false;
        }
        self.execute(&statement)
    }

    fn execute(&mut self, Statement { read, accepts }: &Statement) -> bool {
        let changes = *read == self.written || !self.compares;
        if changes {
            self.written += 1;
            self.accepts = *accepts;
        }
        changes
    }

    /// Does what the run decided; `None` means that the run then looks again.
    fn carry_out(&mut self, mut run: CommandRun) -> Option<CommandRun> {
        let underway = run.seen.change.underway.clone();
        if let (true, Some(underway)) = (run.reverses, &underway) {
            self.reverse(&run, underway);
            return None;
        }
        match (&run.step, underway) {
            (PasswordStep::Begin, _) if !self.has_begun() && run.secret_version == self.secret_version => {
                self.own_version += 1;
                self.own = Some(Underway {
                    target: WhichPassword::New,
                    turn: self.turn(),
                    touched: false,
                    sealed: false,
                });
            }
            (PasswordStep::AcceptBoth(_), _) => {
                self.alter(&run, [true, true]);
            }
            (PasswordStep::Write, Some(underway)) if underway.touched || run.half => {
                self.write(&run, underway.target, &underway.turn);
            }
            (PasswordStep::Write, Some(underway)) => {
                run.half = self.record(&run, Some(Underway { touched: true, ..underway }));
                return run.half.then_some(run);
            }
            (PasswordStep::Restart { .. }, _) => self.restarting = true,
            (PasswordStep::Both | PasswordStep::Seal, Some(underway)) => {
                self.record(&run, Some(Underway { sealed: true, ..underway }));
            }
            (PasswordStep::End(_), Some(underway)) if run.half => {
                self.record(&run, Some(Underway { sealed: true, ..underway }));
            }
            (PasswordStep::End(_), Some(underway)) => {
                let accepts = [underway.target == WhichPassword::Old, underway.target == WhichPassword::New];
                run.half = self.alter(&run, accepts) && !underway.sealed;
                return run.half.then_some(run);
            }
            (PasswordStep::Finish, _) if run.half => {
                self.record(&run, None);
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

    fn reverse(&mut self, run: &CommandRun, underway: &Underway) {
        if underway.target == WhichPassword::New && !underway.sealed {
            let (target, turn) = (WhichPassword::Old, self.turn());
            self.record(run, Some(Underway { target, turn, ..underway.clone() }));
        }
    }

    /// Lets something happen that no run causes.
    fn external_event(&mut self, what: u64) {
        match what {
            0 => self.now = after(self.now, 1),
            1 => self.now = after(self.now, 7),
            2 | 3 if self.restarting => self.replace_oldest_pod(),
            4 => self.away = !self.away,
            5 => self.recreate(usize::try_from(self.now.as_second()).unwrap() % self.pods.len()),
            6 if !self.late.is_empty() => {
                let statement = self.late.remove(0);
                self.execute(&statement);
            }
            _ => {}
        }
    }

    /// Replaces the oldest pod, as the controller does, until all are replaced.
    fn replace_oldest_pod(&mut self) {
        let (oldest, _) = self.pods.iter().enumerate().min_by_key(|(_, (_, created))| *created).unwrap();
        self.recreate(oldest);
        let limit = self.mark.as_ref().map(|(_, at)| *at + KUBELET_DELAY);
        self.restarting = limit.is_some_and(|limit| self.pods.iter().any(|(_, created)| *created <= limit));
    }

    /// Recreates a pod. A kubelet that saw an old Secret provides its value for some seconds.
    fn recreate(&mut self, pod: usize) {
        let fresh = self.mark.as_ref().is_none_or(|(_, at)| self.now > *at + KUBELET_DELAY);
        self.pods[pod] = (if fresh { self.secret } else { self.earlier }, self.now);
    }

    fn obeys_law(&self) -> bool {
        let held = self.pods.iter().map(|(which, _)| which).chain([&self.secret]);
        held.into_iter().all(|which| self.accepts[*which as usize])
    }

    fn has_begun(&self) -> bool {
        self.own_version > 0
    }

    fn is_over(&self) -> bool {
        self.has_begun() && self.own.is_none()
    }

    /// Lets one run complete the change without disturbance.
    fn completed(mut self) -> Result<Self, String> {
        self.away = false;
        for _ in 0..60 {
            if self.is_over() {
                return Ok(self);
            }
            let mut run = Some(self.look(false));
            while let Some(at) = run {
                run = self.carry_out(at);
                if !self.obeys_law() {
                    return Err(format!("a password that is held is not accepted: {self:?}"));
                }
            }
            self.now = after(self.now, 2);
            if self.restarting {
                self.replace_oldest_pod();
            }
        }
        Err(format!("the change does not end: {self:?}, {:?}", self.look(false).step))
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
    let (mut model, mut runs) = (ChangeModel::new(compares), [None, None]);
    for _ in 0..MAX_WALK_STEPS {
        let which = usize::from(chance(3) == 0);
        match chance(12) {
            0..=2 => {
                let (reverses, stalls) = (which == 1 && chance(6) == 0, chance(4) == 0);
                runs[which] = Some(CommandRun { stalls, ..model.look(reverses) });
            }
            3..=6 => runs[which] = runs[which].take().and_then(|run| model.carry_out(run)),
            7 => runs[which] = None,
            _ => model.external_event(chance(7)),
        }
        if !model.obeys_law() {
            return Err(format!("a password that is held is not accepted: {model:?}"));
        }
        if model.is_over() {
            break;
        }
    }
    let mut end = model.completed()?;
    for statement in mem::take(&mut end.late) {
        end.execute(&statement);
    }
    let settled = end.accepts[end.secret as usize]
        && end.accepts[end.secret.other() as usize].eq(&false)
        && end.pods.iter().all(|(which, _)| *which == end.secret);
    if settled { Ok(()) } else { Err(format!("the change ends in {end:?}")) }
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
fn a_change_reversed_before_the_secret_was_written_restarts_nothing() {
    let mut model = ChangeModel::new(true);
    let mut turn = |reverses| {
        let mut run = Some(model.look(reverses));
        let step = format!("{:?}", run.as_ref().map(|it| &it.step));
        while let Some(at) = run {
            run = model.carry_out(at);
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
fn an_undisturbed_change_does_each_step_once() {
    let (mut model, mut steps) = (ChangeModel::new(true), Vec::new());
    while !model.is_over() {
        let run = model.look(false);
        let name = format!("{:?}", run.step);
        let name = name.split([' ', '(']).next().unwrap().to_owned();
        if steps.last() != Some(&name) {
            steps.push(name);
        }
        let mut run = Some(run);
        while let Some(at) = run {
            run = model.carry_out(at);
        }
        model.now = after(model.now, 6);
        if model.restarting {
            model.replace_oldest_pod();
        }
    }
    assert_eq!(steps, ["Begin", "AcceptBoth", "Write", "Restart", "Both", "End", "Finish"]);
}
