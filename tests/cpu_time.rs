//! Measures the CPU time of a piece of work, for limits that hold on a busy machine, too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time that this work takes in this thread.
pub fn of(work: impl FnOnce()) -> Duration {
    let used =
        || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("CPU time is not negative");
    let before = used();
    work();
    used().saturating_sub(before)
}
