//! StatefulSets that carry the guard's mark although no selector adopts them: they were guarded until the settings or their
//! labels changed. An Event, `/readyz`, `gatera status` and `gatera doctor` name them until they are adopted again, or
//! until the mark is removed.
//!
//! Owns: the texts. Must not know: where they are printed.

use facts::marks::{DATA, PREFIX};
use facts::view::{Id, View};
use facts::way_out::{CommandLine, WayOut, say};

/// What this means for a cluster.
pub const EXPLANATION: &str = "it was guarded before, but no selector in `adopt` matches it now, so the guard neither refuses nor changes anything there";

/// Returns both ways out: guard the cluster again, or drop the mark.
pub fn way_out(Id { namespace, name }: &Id) -> WayOut {
    let annotate = format!("kubectl -n {namespace} annotate statefulset {name} {PREFIX}{DATA}-");
    say("to guard it again, add a selector for its pod template to `adopt` in the guard's settings")
        .or(say("to leave it unguarded: ").run(CommandLine::new(annotate)))
}

/// Returns the line that `/readyz` shows, if there are such StatefulSets.
pub fn summary(view: &View<'_>) -> Option<String> {
    let (first, _) = view.no_longer_adopted().next()?;
    let more = match view.no_longer_adopted().count() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    Some(format!("StatefulSet {first}{more}: {EXPLANATION}; `gatera doctor` says what to do"))
}
