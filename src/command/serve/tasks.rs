//! The tasks that make up the guard, by name. When one of them ends, all of them do.
//!
//! Owns: starting them, and noticing that one has ended, for any reason. A guard without one of its tasks would continue to
//! answer from outdated facts; a process that ends is restarted. Must not know: what the tasks do.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{Id, JoinError, JoinSet};

/// All running tasks. Dropping this ends them.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
    #[cfg(test)]
    handles: HashMap<&'static str, tokio::task::AbortHandle>,
}

/// The end of a task that the guard needs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guard's task \"{name}\" ended: {why}; the guard cannot work without it, so it stops")]
pub(super) struct EndedTask {
    /// The name of the task.
    pub(super) name: &'static str,
    /// The reason why it ended.
    pub(super) why: String,
}

/// The reason of a task that returned by itself.
const RETURNED: &str = "it returned";

impl Tasks {
    /// Starts a task.
    pub(super) fn start(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.running.spawn(task);
        self.names.insert(handle.id(), name);
        #[cfg(test)]
        self.handles.insert(name, handle);
    }

    /// Returns the names of the running tasks.
    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.names.values().copied().collect()
    }

    /// Ends a task from outside.
    #[cfg(test)]
    pub(super) fn end(&self, name: &'static str) {
        self.handles[name].abort();
    }

    /// Waits for the first task that ends. While all of them run, it does not return.
    pub(super) async fn ended(&mut self) -> EndedTask {
        let Some(end) = self.running.join_next_with_id().await else { std::future::pending().await };
        let (id, why) = match end {
            Ok((id, ())) => (id, RETURNED.to_owned()),
            Err(error) => (error.id(), failure(error)),
        };
        EndedTask { name: self.names.remove(&id).unwrap_or("?"), why }
    }

    /// Waits for these tasks, which were asked to end. Returns all tasks that crashed or were cancelled meanwhile.
    pub(super) async fn finish(mut self, names: &[&'static str]) -> Vec<EndedTask> {
        let mut broken = Vec::new();
        while names.iter().any(|name| self.names.values().any(|running| running == name)) {
            let end = self.ended().await;
            if end.why != RETURNED {
                broken.push(end);
            }
        }
        broken
    }
}

fn failure(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "it was cancelled".to_owned() };
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("it crashed: {}", message.unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    async fn first_end(task: impl Future<Output = ()> + Send + 'static) -> EndedTask {
        let mut tasks = Tasks::default();
        tasks.start("one", pending());
        tasks.start("two", task);
        tasks.start("three", pending());
        tasks.ended().await
    }

    #[tokio::test]
    async fn the_name_of_a_task_that_ends_and_the_reason_are_reported() {
        let returned = ready(());
        let broke = async { panic!("member {}", "g-1") };
        for (end, why) in [
            (first_end(returned).await, "it returned"),
            (first_end(broke).await, "it crashed: member g-1"),
            (first_end(async { panic!("plain") }).await, "it crashed: plain"),
        ] {
            assert_eq!(end, EndedTask { name: "two", why: why.to_owned() });
        }
    }

    #[tokio::test]
    async fn a_stop_waits_only_for_tasks_that_must_finish() {
        let mut tasks = Tasks::default();
        tasks.start("forever", pending());
        tasks.start("lease", ready(()));
        tasks.start("admission", async { panic!("late") });
        let broken = tasks.finish(&["lease", "admission"]).await;
        assert_eq!(broken, [EndedTask { name: "admission", why: "it crashed: late".into() }]);
    }
}
