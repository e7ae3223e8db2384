//! The states of a cluster, and their names.

/// The state of a cluster, as far as Kubernetes shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every member is Ready and none is being deleted.
    Healthy,
    /// A member is missing, is being deleted, or will not become Ready by waiting; or the cluster has no identity, or no
    /// StatefulSet.
    Degraded,
    /// Members are starting, and will become Ready by waiting; none reports a state transfer.
    Joining,
    /// Like [`State::Joining`], and a member reports that it receives a state transfer.
    Transfer,
    /// No member ever had data: a first install.
    Forming,
    /// There is data, and no member is Ready.
    Down,
    /// The cluster was stopped in order, and nothing of it runs.
    Stopped,
    /// The view is incomplete or stale.
    Unknown,
}

impl State {
    /// All states, for metrics that list them.
    pub const ALL: [State; 8] = [
        Self::Healthy,
        Self::Degraded,
        Self::Joining,
        Self::Transfer,
        Self::Forming,
        Self::Down,
        Self::Stopped,
        Self::Unknown,
    ];

    /// Returns the name, as messages and test cases write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "HEALTHY",
            Self::Degraded => "DEGRADED",
            Self::Joining => "JOINING",
            Self::Transfer => "TRANSFER",
            Self::Forming => "FORMING",
            Self::Down => "DOWN",
            Self::Stopped => "STOPPED",
            Self::Unknown => "UNKNOWN",
        }
    }
}
