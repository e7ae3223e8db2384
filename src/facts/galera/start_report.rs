//! A member's report of its start: the line that `start-member.sh` writes, as a termination message or the output of a startup
//! probe contains it.
//!
//! Any program in the container can write such a line, and its position is the one that the member *started* from, which may be
//! out of date. So nothing is decided by this report alone.

use std::fmt;

use jiff::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartReport {
    /// The server started, and had not joined when it reported.
    Started(Start),
    /// The step script did not start the server.
    Refused(String),
}

/// A start of a server that has not joined yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The time of the start, by the member's own clock.
    pub at: Timestamp,
    /// The position that it starts from.
    pub from: StartPosition,
    /// The value in `grastate.dat`.
    pub safe_to_bootstrap: Option<bool>,
    /// The phase that a probe last observed.
    pub phase: Option<JoinPhase>,
    /// Why the server ended, if the cause is an option that it does not accept.
    pub ended: Option<String>,
}

/// The phase of a server that runs and is not Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinPhase {
    /// The server reaches no peer that is in a Primary component.
    Looks,
    /// The server is in a component without a majority: some members of the last view that it restored are missing, or it
    /// has lost the others.
    Waits,
    /// The server receives a state transfer.
    Receives,
    /// The server waits for a state transfer, and nothing arrives.
    Stalls,
    /// The server's disk is full; this outranks every other phase.
    Full,
    /// The server is Synced in another cluster than the recorded one.
    Strays,
    /// The server's port is open, but the server does not answer.
    Freezes,
}

impl JoinPhase {
    /// Reads the output of `wait-for-sync.sh`, as a kubelet repeats it.
    pub fn read(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("probe failed: the server ")?;
        if rest.trim_end() == "does not answer on its port" {
            return Some(Self::Freezes);
        }
        let rest = rest.strip_prefix("is ")?;
        if rest.contains(", in another cluster: ") {
            return Some(Self::Strays);
        }
        let mut parts = rest.split(';').map(str::trim);
        let state = parts.next()?;
        if parts.next() == Some("its disk is full") {
            return Some(Self::Full);
        }
        match state {
            "JOINING, and nothing comes in" => Some(Self::Stalls),
            "DISCONNECTED" => Some(Self::Looks),
            "CONNECTED" => Some(Self::Waits),
            "JOINING" => Some(Self::Receives),
            _ => None,
        }
    }

    /// Returns the name in machine-readable output.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// Returns the name, and the words for people.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Looks => ("looks", "looks for members that serve"),
            Self::Waits => ("waits", "waits for the members of its last view"),
            Self::Receives => ("receives", "receives a copy"),
            Self::Stalls => ("stalls", "joins and receives nothing"),
            Self::Full => ("full", "its disk is full"),
            Self::Strays => ("strays", "is Synced in another cluster"),
            Self::Freezes => ("freezes", "does not answer"),
        }
    }
}

/// The position that a member starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// The position of its last transaction, and how the position is known.
    Position(Position, String),
    /// Any other start, in the words of the script.
    Words(String),
}

/// A transaction: the history, and its number in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The id of the history, which is the same for all members of a cluster.
    pub id: String,
    pub seqno: u64,
}

impl Position {
    /// Reads a text that is exactly `ID:SEQNO`.
    pub fn read(text: &str) -> Option<Self> {
        let (id, seqno) = text.split_once(':')?;
        let is_uuid = id.len() == 36 && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        // `parse` accepts a sign, too.
        let is_unsigned = seqno.bytes().all(|byte| byte.is_ascii_digit());
        let seqno = seqno.parse().ok().filter(|_| is_unsigned)?;
        is_uuid.then(|| Self { id: id.to_owned(), seqno })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.seqno)
    }
}

/// The beginning of the report if the step script did not start the server.
pub const REFUSED: &str = "gatera did not start the server: ";
/// The text before the reason why the server ended.
const ENDED: &str = "; the server ended: ";
/// The largest length of a report, in bytes: the script writes short lines, so a longer one is not its own.
const LONGEST_REPORT: usize = 1000;

impl StartReport {
    /// Reads the report from a text that may contain one.
    pub fn read(text: &str) -> Option<Self> {
        let line = |prefix: &str| {
            let (_, rest) = text.split_once(prefix)?;
            let line = rest.lines().next()?;
            (line.len() <= LONGEST_REPORT && !line.contains(char::is_control)).then_some(line)
        };
        if let Some(why) = text.starts_with(REFUSED).then(|| line(REFUSED)).flatten() {
            return Some(Self::Refused(why.to_owned()));
        }
        let (at, rest) = line("start of ")?.split_once(": ")?;
        let (words, safe) = rest.rsplit_once(", safe_to_bootstrap ")?;
        let (safe, ended) =
            safe.split_once(ENDED).map_or((safe, None), |(safe, reason)| (safe, Some(reason.to_owned())));
        let safe_to_bootstrap = match safe {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        let from = position(words).unwrap_or_else(|| StartPosition::Words(words.to_owned()));
        let at = at.parse().ok()?;
        Some(Self::Started(Start { at, from, safe_to_bootstrap, phase: JoinPhase::read(text), ended }))
    }

    /// Returns whether Galera will compare the position: no DDL was under way, and `grastate.dat` belongs to the data.
    pub fn is_compared(&self) -> bool {
        let from = self.start().map(|start| &start.from);
        matches!(from, Some(StartPosition::Position(_, how)) if !how.contains("DDL"))
    }

    /// Returns the start, unless the step script did not start the server.
    pub fn start(&self) -> Option<&Start> {
        if let Self::Started(start) = self { Some(start) } else { None }
    }

    /// Returns the phase that a probe last observed.
    pub fn phase(&self) -> Option<JoinPhase> {
        self.start()?.phase
    }

    /// Returns why the server ended, if the cause is an option that it does not accept.
    pub fn ended(&self) -> Option<&str> {
        self.start()?.ended.as_deref()
    }

    /// Returns the report without the phase, and without the reason of the server's end.
    #[must_use]
    pub fn without_phase(self) -> Self {
        match self {
            Self::Started(start) => Self::Started(Start { phase: None, ended: None, ..start }),
            refused @ Self::Refused(_) => refused,
        }
    }

    /// Returns whether its data comes from a cluster that was formed without an identity.
    pub fn has_no_identity(&self) -> bool {
        let from = self.start().map(|start| &start.from);
        matches!(from, Some(StartPosition::Words(words)) if words.contains("formed without an identity"))
    }

    /// Returns the position, if one is known.
    pub fn position(&self) -> Option<&Position> {
        match &self.start()?.from {
            StartPosition::Position(position, _) => Some(position),
            StartPosition::Words(_) => None,
        }
    }
}

/// Reads the position of a member's data from the step script's report of an orderly stop.
pub fn stop_position(text: &str) -> Option<Position> {
    let line = text.strip_prefix("stop of ").filter(|rest| rest.len() <= LONGEST_REPORT)?;
    let (_, words) = line.split_once(": position ")?;
    Position::read(words.split_once(", safe_to_bootstrap ")?.0)
}

fn position(words: &str) -> Option<StartPosition> {
    let (text, how) = words.strip_prefix("position ")?.split_once(", ")?;
    // With wsrep_gtid_mode, MariaDB's own position (a GTID) follows after a comma.
    let position = Position::read(text.split(',').next()?)?;
    Some(StartPosition::Position(position, how.to_owned()))
}

impl fmt::Display for StartReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "gatera's step script did not start the server: {why}"),
            Self::Started(Start { at, from, safe_to_bootstrap, phase, ended }) => {
                match from {
                    StartPosition::Position(position, how) => write!(f, "at {position}, {how}")?,
                    StartPosition::Words(words) => f.write_str(words)?,
                }
                if let Some(safe) = safe_to_bootstrap {
                    write!(f, ", safe_to_bootstrap {}", u8::from(*safe))?;
                }
                write!(f, "; reported at {at:.0}")?;
                phase.map_or(Ok(()), |phase| write!(f, "; {}", phase.words().1))?;
                ended.as_ref().map_or(Ok(()), |ended| write!(f, "{ENDED}{ended}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "66373a7e-e610-11f1-91b9-7e68ccac15f1";

    #[test]
    fn the_report_of_the_step_script_is_read() {
        let reported = |words: &str| StartReport::read(&format!("start of 2026-11-22T01:02:48Z: {words}\n"));
        for (words, shown, seqno) in [
            (
                format!("position {ID}:363, recovered after a crash, safe_to_bootstrap 0"),
                format!(
                    "at {ID}:363, recovered after a crash, safe_to_bootstrap 0; reported at 2026-11-22T01:02:48Z"
                ),
                Some(363),
            ),
            (
                format!("position {ID}:41, stopped in order, safe_to_bootstrap 1"),
                format!(
                    "at {ID}:41, stopped in order, safe_to_bootstrap 1; reported at 2026-11-22T01:02:48Z"
                ),
                Some(41),
            ),
            (
                format!("position {ID}:41,0-1-77, recovered after a crash, safe_to_bootstrap 0"),
                format!(
                    "at {ID}:41, recovered after a crash, safe_to_bootstrap 0; reported at 2026-11-22T01:02:48Z"
                ),
                Some(41),
            ),
            (
                "empty, safe_to_bootstrap unknown".into(),
                "empty; reported at 2026-11-22T01:02:48Z".into(),
                None,
            ),
        ] {
            let reported = reported(&words).unwrap();
            assert_eq!(reported.position().map(|it| it.seqno), seqno, "{words}");
            assert_eq!(reported.to_string(), shown);
        }
        let probe = format!(
            "Startup probe failed: the server is DISCONNECTED; start of 2026-11-22T01:02:48Z: position {ID}:7, stopped in order, safe_to_bootstrap 1\n"
        );
        let probed = StartReport::read(&probe).unwrap();
        assert_eq!((probed.position().unwrap().seqno, probed.phase()), (7, Some(JoinPhase::Looks)));
        let shown = "at 66373a7e-e610-11f1-91b9-7e68ccac15f1:7, stopped in order, safe_to_bootstrap 1; reported at 2026-11-22T01:02:48Z; looks for members that serve";
        assert_eq!(probed.to_string(), shown);
        assert_eq!(StartReport::read(&probe.replace("DISC", "C")).unwrap().phase(), Some(JoinPhase::Waits));
        assert_eq!(StartReport::read(&probe.replace("DISCONNECTED", "EVIL")).unwrap().phase(), None);
        let ended = reported(&format!(
            "position {ID}:41, stopped in order, safe_to_bootstrap 1; the server ended: unknown variable max_conections"
        ));
        let ended = ended.unwrap();
        assert_eq!(ended.ended(), Some("unknown variable max_conections"));
        assert!(ended.to_string().ends_with("safe_to_bootstrap 1; reported at 2026-11-22T01:02:48Z; the server ended: unknown variable max_conections"), "{ended}");
        let refused = StartReport::read("gatera did not start the server: there are prepared transactions\n");
        assert_eq!(refused, Some(StartReport::Refused("there are prepared transactions".into())));
    }

    #[test]
    fn a_text_of_another_form_is_not_a_report() {
        for text in [
            "",
            "OOMKilled",
            "start of yesterday: empty, safe_to_bootstrap 0",
            "start of 2026-11-22T01:02:48Z: empty",
            "start of 2026-11-22T01:02:48Z: \u{1b}[2Jempty, safe_to_bootstrap 0",
            "said: gatera did not start the server: x",
        ] {
            assert_eq!(StartReport::read(text), None, "{text}");
        }
        assert_eq!(
            StartReport::read(&format!(
                "start of 2026-11-22T01:02:48Z: {}, safe_to_bootstrap 0",
                "x".repeat(2000)
            )),
            None
        );
    }
}
