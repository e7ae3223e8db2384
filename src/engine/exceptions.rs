//! Exceptions: the overrides and the break-glass that apply to a request, and the commands that set and end them.
//!
//! Must not know: what any rule finds.

use crate::verdict::Decision;
use facts::marks::overrides::{InvalidException, Override};
use facts::marks::{self, BREAK_GLASS, PREFIX};
use facts::review::{self, Operation, Origin, Review};
use facts::view::View;
use facts::way_out::{CommandLine, WayOut, except, say};
use objects::{Kind, Meta, Object};

/// The overrides that apply: on the new and the old object of the request, and on the StatefulSet of every cluster that the
/// object belongs to or is used by; and the break-glass of its namespace, which covers all rules.
#[derive(Default)]
pub struct Exceptions {
    break_glass: Option<Override>,
    own: Vec<Override>,
    clusters: Vec<Option<Override>>,
}

/// The rule whose override on a StatefulSet covers the deletion of everything the cluster uses: a `helm uninstall` that is
/// partly refused is worse than one that is refused completely.
const WHOLE_STOP: &str = "G03";
/// The rule that protects the data, which such an override does not cover.
const MEMBER_DATA: &str = "G07";

/// Returns the command that ends an override.
pub fn end_override_command(kind: Kind, namespace: &str, name: &str) -> CommandLine {
    let kind = kind.name().to_ascii_lowercase();
    let namespace = if namespace.is_empty() { String::new() } else { format!("-n {namespace} ") };
    CommandLine::new(format!("kubectl {namespace}annotate {kind} {name} gatera.dev/override-"))
}

/// Returns the command that ends a break-glass.
pub fn end_break_glass_command(namespace: &str) -> CommandLine {
    CommandLine::new(format!("kubectl annotate namespace {namespace} {PREFIX}{BREAK_GLASS}-"))
}

/// Returns the beginning of each warning during a break-glass.
pub fn break_glass_notice(namespace: &str, open: &Override) -> String {
    format!("until {} refusals are suspended in namespace {namespace}", open.until)
}

/// Returns the break-glass that applies, and adds a warning about it to the decision. Audits ignore it.
pub fn break_glass(review: &Review, view: &View<'_>, decision: &mut Decision) -> Option<Override> {
    let ns = &review.namespace;
    let open = view.active_break_glass(ns).filter(|_| review.origin != Origin::Audit)?;
    if review.origin.is_final() {
        let (notice, end) = (break_glass_notice(ns, &open), end_break_glass_command(ns));
        decision.remarks.push(format!("{notice} (to end it: {end}): {}", open.reason));
    }
    Some(open)
}

/// Returns whether an earlier override is still set, and would also allow the next careless command: each request gets a warning
/// until it is removed. An override that is deleted with its object needs none, and an audit reports each once.
fn lingers(review: &Review, meta: &Meta, kind: Kind) -> bool {
    let mark = |object: &Object| object.meta().mark(marks::OVERRIDE).map(str::to_owned);
    let is_own = (review.kind, &review.name) == (kind, &meta.name);
    match review.origin {
        Origin::Validating | Origin::Live => {
            // A `helm upgrade` writes half a dozen such objects beside the StatefulSet, about which one warning is enough.
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
                Ok(exception) => {
                    if lingers(review, meta, kind) {
                        let end = end_override_command(kind, &review.namespace, &meta.name);
                        add(format!(
                            "{subject} has an override; remove it when you are done: {end} ({exception})"
                        ));
                    }
                    Some(exception)
                }
                // G18 reports a mistake in an override that is written.
                Err(problem) if written != Some(text) || matches!(problem, InvalidException::Ended(_)) => {
                    add(format!("the annotation gatera.dev/override of {subject} has no effect: {problem}"));
                    None
                }
                Err(_) => None,
            }
        };
        let own = review.objects().filter_map(|object| read(object.meta(), review.kind)).collect();
        let clusters = view.clusters_concerned(review).into_iter();
        let clusters = clusters.map(|it| read(&it.workload.metadata, Kind::StatefulSet)).collect();
        let break_glass = break_glass(review, view, decision);
        Self { break_glass, own, clusters }
    }

    /// Returns the exception that suspends this rule for this request, if any.
    pub fn for_rule(&self, rule: &str, review: &Review) -> Option<&Override> {
        let deletes = review.operation == Operation::Delete && rule != MEMBER_DATA;
        let suspends =
            |exception: &&Override| exception.suspends(rule) || deletes && exception.suspends(WHOLE_STOP);
        let of_clusters = || {
            let each = self.clusters.iter().map(|it| it.as_ref().filter(suspends));
            // An object that several clusters use needs an override on each.
            each.collect::<Option<Vec<_>>>()?.into_iter().next()
        };
        self.own.iter().find(suspends).or_else(of_clusters).or(self.break_glass.as_ref())
    }
}

/// Returns the advice that sets an override of this rule on the object of this request, for half an hour.
pub fn confirmation(review: &Review, rule: &str, view: &View<'_>) -> WayOut {
    let until = view.example_override_end();
    if !review.exists() {
        let annotation = format!("gatera.dev/override: \"{rule} until={until} reason=…\"");
        return except(rule, say(format!("add this annotation to the manifest: {annotation}")));
    }
    // A request about a Namespace has the name of that Namespace as its namespace.
    let place =
        if review.kind.is_cluster_wide() { String::new() } else { format!("-n {} ", review.namespace) };
    let (kind, name) = (review.kind.name().to_ascii_lowercase(), &review.name);
    let annotate = CommandLine::new(format!("kubectl {place}annotate {kind} {name}"));
    except(rule, annotate.arg(format!("gatera.dev/override={rule} until={until} reason=…")))
}
