//! The states of a cluster, and what they are called.

/// How a cluster is, as far as Kubernetes can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every member is Ready and none is going.
    Healthy,
    /// A member is missing, going, or will not become Ready by waiting; or the cluster has lost its identity.
    Degraded,
    /// A member is starting: it looks for the others, waits for them, or copies what it lacks.
    Joining,
    /// A member receives a copy from another.
    Transfer,
    /// No member ever had data: a first install.
    Forming,
    /// There is data, and no member is Ready.
    Down,
    /// It was stopped in order, and nothing of it runs.
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

    /// As messages and test cases write it.
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
