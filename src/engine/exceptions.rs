//! Exceptions: the overrides and the break-glass that count for a review, and the commands that set and end them.
//!
//! Must not know: what any rule finds.

use crate::verdict::Decision;
use facts::marks::overrides::{Invalid, Override};
use facts::marks::{self, BREAK_GLASS, PREFIX};
use facts::review::{self, Operation, Origin, Review};
use facts::view::View;
use objects::{Kind, Meta, Object};

/// The overrides that count: on the object in the request, on the object as it is, and on the StatefulSet of every
/// cluster that the object belongs to or is used by; and, of every rule, on its namespace.
#[derive(Default)]
pub struct Exceptions {
    glass: Option<Override>,
    own: Vec<Override>,
    clusters: Vec<Vec<Override>>,
}

/// The override of this rule on a StatefulSet releases the end of everything its cluster uses: a `helm uninstall` that
/// is half refused is worse than none.
const WHOLE: &str = "G03";
/// The data itself is never part of that.
const DATA: &str = "G07";

/// The command that ends an override.
pub fn take_off(kind: Kind, namespace: &str, name: &str) -> String {
    let kind = kind.name().to_ascii_lowercase();
    let namespace = if namespace.is_empty() { String::new() } else { format!("-n {namespace} ") };
    format!("kubectl {namespace}annotate {kind} {name} gatera.dev/override-")
}

/// The command that mends broken glass.
pub fn mend(namespace: &str) -> String {
    format!("kubectl annotate namespace {namespace} {PREFIX}{BREAK_GLASS}-")
}

/// What stands at the beginning of each warning while the glass of a namespace is broken.
pub fn open_until(namespace: &str, open: &Override) -> String {
    format!("until {} nothing is refused in namespace {namespace}", open.until)
}

/// What breaking the glass releases here, which is said each time. An audit finds what there is to find.
pub fn glass(review: &Review, view: &View<'_>, decision: &mut Decision) -> Option<Override> {
    let ns = &review.namespace;
    let open = view.active_break_glass(ns).filter(|_| review.origin != Origin::Audit)?;
    if review.origin.is_final() {
        let (until, reason) = (open_until(ns, &open), &open.reason);
        decision.remarks.push(format!("{until} (when that is done: {}): {reason}", mend(ns)));
    }
    Some(open)
}

/// This override was there before, and lets the next careless command through as well; it is told until it is gone. One that
/// goes with its object leaves nothing to take off, and an audit tells of each once.
fn lingers(review: &Review, meta: &Meta, kind: Kind) -> bool {
    let mark = |object: &Object| object.meta().mark(marks::OVERRIDE).map(str::to_owned);
    let is_own = (review.kind, &review.name) == (kind, &meta.name);
    match review.origin {
        Origin::Validating | Origin::Live => {
            // A `helm upgrade` writes half a dozen of them beside the StatefulSet, whose own warning is enough.
            let is_beside = matches!(
                review.kind,
                Kind::ConfigMap | Kind::Secret | Kind::Service | Kind::ServiceAccount | Kind::Budget
            );
            if is_beside && !is_own && review.operation != Operation::Delete {
                return false;
            }
            let is_new = is_own && review.old.as_ref().and_then(mark) != review.new.as_ref().and_then(mark);
            !is_new && (!is_own || review.operation != Operation::Delete)
        }
        Origin::Audit => is_own,
        Origin::Mutating | Origin::Check => false,
    }
}

impl Exceptions {
    pub fn of(review: &Review, view: &View<'_>, decision: &mut Decision) -> Self {
        let mut add = |remark: String| {
            if !decision.remarks.contains(&remark) {
                decision.remarks.push(remark);
            }
        };
        let written = review.new.as_ref().and_then(|new| new.meta().mark(marks::OVERRIDE));
        let mut read = |meta: &Meta, kind: Kind| {
            let text = meta.mark(marks::OVERRIDE)?;
            let subject = review::subject(kind, &review.namespace, &meta.name);
            match Override::read(text, view.now) {
                Ok(release) => {
                    if lingers(review, meta, kind) {
                        let take_off = take_off(kind, &review.namespace, &meta.name);
                        add(format!(
                            "{subject} carries an override; when that is done: {take_off} ({release})"
                        ));
                    }
                    Some(release)
                }
                // One with a mistake in it is G18's where it is written.
                Err(problem) if written != Some(text) || matches!(problem, Invalid::Ended(_)) => {
                    add(format!(
                        "the annotation gatera.dev/override of {subject} releases nothing: {problem}"
                    ));
                    None
                }
                Err(_) => None,
            }
        };
        let own = review.objects().filter_map(|object| read(object.meta(), review.kind)).collect();
        let clusters = view.concerned(review).into_iter();
        let clusters =
            clusters.map(|it| read(&it.workload.metadata, Kind::StatefulSet).into_iter().collect());
        let (own, clusters) = (own, clusters.collect());
        let glass = glass(review, view, decision);
        Self { glass, own, clusters }
    }

    /// What releases this rule for this review, if anything does.
    pub fn by(&self, rule: &str, review: &Review) -> Option<&Override> {
        let ends = review.operation == Operation::Delete && rule != DATA;
        let releases = |release: &&Override| release.releases(rule) || ends && release.releases(WHOLE);
        let of_clusters = || {
            let each = self.clusters.iter().map(|overrides| overrides.iter().find(releases));
            // What several clusters use is released by all of them.
            each.collect::<Option<Vec<_>>>()?.into_iter().next()
        };
        self.own.iter().find(releases).or_else(of_clusters).or(self.glass.as_ref())
    }
}

/// The command that confirms what this review is about, for half an hour.
pub fn confirmation(review: &Review, rule: &str, view: &View<'_>) -> String {
    let until = view.half_an_hour_from_now();
    if !review.is_there() {
        return format!(
            "add this annotation to the manifest: gatera.dev/override: \"{rule} until={until} reason=…\""
        );
    }
    // Of a Namespace the namespace is the Namespace itself.
    let place =
        if review.kind.is_cluster_wide() { String::new() } else { format!("-n {} ", review.namespace) };
    let (kind, name) = (review.kind.name().to_ascii_lowercase(), &review.name);
    format!("kubectl {place}annotate {kind} {name} 'gatera.dev/override={rule} until={until} reason=…'")
}
