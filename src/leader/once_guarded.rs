//! StatefulSets that carry the guard's mark although no selector adopts them: they were guarded until the settings or their
//! labels changed. An Event, `/readyz`, `gatera status` and `gatera doctor` name them until they are adopted again, or until
//! somebody takes the mark off.
//!
//! Owns: the words. Must not know: where they are printed.

use facts::marks::{DATA, PREFIX};
use facts::view::{Id, View};

/// What this means.
pub const SAYS: &str = "it was guarded and no selector in `adopt` selects it now: the guard refuses nothing and changes nothing there";

/// The way out, either way.
pub fn instead(Id { namespace, name }: &Id) -> String {
    format!(
        "to guard it again, add a selector for its pod template to `adopt` in the guard's settings; if it is not to be guarded: \
         kubectl -n {namespace} annotate statefulset {name} {PREFIX}{DATA}-"
    )
}

/// For one line of `/readyz`.
pub fn line(view: &View<'_>) -> Option<String> {
    let (first, _) = view.no_longer_adopted().next()?;
    let more = match view.no_longer_adopted().count() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    Some(format!("StatefulSet {first}{more}: {SAYS}; `gatera doctor` says what to do"))
}
