//! The rulebook: every rule, and the function that evaluates them.
//!
//! Owns: [`Rulebook::evaluate`], which makes every decision. The webhook, `gatera check` and the background audit all use it, so
//! the same change gets the same messages everywhere. Must not know: any rule or pack, HTTP, clients, files, output formats.
//! Packs are passed in.
//!
//! *The change is judged, not the state.* A fault that the object had before, in the same field, is only a warning when the
//! object is edited, so it can be improved step by step. A creation is judged completely. An update that changes nothing that a
//! check reads is not judged by it ([`exemptions::changes_nothing`], [`exemptions::keeps_templates`]).

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::exceptions::{self, Exceptions};
use crate::exemptions::{self, unread, users};
use crate::rule::{Check, Page, Rule, Verb};
use crate::rules::{self, UNREADABLE};
use crate::verdict::{Decision, Finding, Verdict, YieldsTo};
use crate::webhooks::{self, Destination, ENTRIES, Endpoint, Entry};
use facts::galera::adopt::Adoption;
use facts::mode::Mode;
use facts::review::{Operation, Review};
use facts::settings::{self, KnownNames, Settings};
use facts::view::{Facts, KeepsDeployment, MODE_LABEL, View, is_cluster};
use objects::{CustomKind, Kind, Kinds, Workload};

/// A pack of rules for another system, on the same engine.
#[derive(Clone, Copy, Debug)]
pub struct Pack {
    /// The name in the settings.
    pub name: &'static str,
    /// A sentence that says what the pack protects.
    pub protects: &'static str,
    /// The custom kinds that the pack reads.
    pub kinds: &'static [&'static CustomKind],
    /// The rules, in the order of their ids.
    pub rules: &'static [Rule],
    /// The webhook entries. An entry about a watched kind is registered while the API server offers that kind.
    pub entries: &'static [Entry],
    /// The function that returns whether the pack protects a Deployment, so that the view keeps it, too.
    pub keeps: KeepsDeployment,
}

/// Galera's rules and those of the packs.
#[derive(Debug)]
pub struct Rulebook {
    packs: &'static [Pack],
    rules: Vec<Rule>,
    ids: Vec<&'static str>,
    kinds: Kinds,
    keeps: Arc<[KeepsDeployment]>,
}

impl Rulebook {
    /// Returns the rulebook with these packs.
    pub fn new(packs: &'static [Pack]) -> Self {
        let of_packs = packs.iter().flat_map(|pack| pack.rules);
        let rules: Vec<_> = rules::GALERA.iter().chain(of_packs).copied().collect();
        let ids = rules.iter().map(|rule| rule.id).collect();
        let kinds = Kinds::with(packs.iter().flat_map(|pack| pack.kinds).copied());
        let keeps = packs.iter().map(|pack| pack.keeps).collect();
        Self { packs, rules, ids, kinds, keeps }
    }

    /// Returns all packs, in the order of their rules' ids.
    pub fn packs(&self) -> &'static [Pack] {
        self.packs
    }

    /// Returns the packs that these settings do not turn off.
    pub fn enabled_packs(&self, settings: &Settings) -> impl Iterator<Item = &'static Pack> {
        self.packs.iter().filter(|pack| !settings.is_without(pack.name))
    }

    /// Returns all rules, in the order of their ids.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns every kind that is read without a pack, and those of the packs.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Returns whether a pack that is turned on reads this kind.
    pub fn reads(&self, kind: Kind, settings: &Settings) -> bool {
        self.enabled_packs(settings).flat_map(|pack| pack.kinds).any(|custom| Kind::Custom(custom) == kind)
    }

    /// Returns the names that a settings file may use.
    pub fn names(&self) -> KnownNames {
        let packs =
            self.packs.iter().map(|pack| (pack.name, pack.rules.iter().map(|rule| rule.id).collect()));
        KnownNames { rules: self.ids.clone(), packs: packs.collect() }
    }

    /// Returns empty facts, for clusters that this adoption selects.
    pub fn facts(&self, adoption: &Adoption) -> Facts {
        Facts::of(adoption).with_kept_deployments(Arc::clone(&self.keeps))
    }

    /// Reads a settings file.
    pub fn settings(&self, yaml: &str) -> Result<Settings, settings::Error> {
        Settings::read(yaml, &self.names())
    }

    /// Returns the `webhooks` list of one of the two configurations. `ca_bundle` is PEM in base64. `served` are the kinds of
    /// packs that the API server offers; an entry of a pack is included if its watched kinds are among them.
    pub fn entries(
        &self,
        endpoint: Endpoint,
        settings: &Settings,
        served: &BTreeSet<Kind>,
        target: &Destination,
        ca_bundle: &str,
    ) -> Vec<Value> {
        let of_packs = self.enabled_packs(settings).flat_map(|pack| pack.entries);
        let of_packs = of_packs.filter(|entry| entry.is_served(served, &self.kinds));
        let rows = ENTRIES.iter().chain(of_packs).filter(|entry| entry.endpoint == endpoint);
        rows.flat_map(|entry| webhooks::rendered(entry, &self.kinds, settings, target, ca_bundle)).collect()
    }

    /// Returns the rule of this id, in upper or lower case.
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.id.eq_ignore_ascii_case(id))
    }

    /// Returns the rule of this id or name, in upper or lower case.
    pub fn rule_named(&self, name: &str) -> Option<&Rule> {
        self.rule(name).or_else(|| self.rules.iter().find(|rule| rule.name.eq_ignore_ascii_case(name)))
    }

    /// Returns all pages, in the order of their ids.
    pub fn pages(&self) -> impl Iterator<Item = Page> {
        [rules::unreadable::PAGE].into_iter().chain(self.rules.iter().map(Rule::page))
    }

    /// Returns the page of this id or name, in upper or lower case.
    pub fn page(&self, name: &str) -> Option<Page> {
        self.pages().find(|page| page.id.eq_ignore_ascii_case(name) || page.name.eq_ignore_ascii_case(name))
    }

    /// Returns the page of a refusal or warning that begins with the id of its rule: `[G07] …`.
    pub fn page_of_message(&self, message: &str) -> Option<Page> {
        let (id, _) = message.strip_prefix('[')?.split_once("] ")?;
        self.pages().find(|page| page.id == id)
    }

    /// Judges one request. Pure: the same review and view give the same decision.
    pub fn evaluate(&self, review: &Review, view: &View<'_>) -> Decision {
        let view = &View { known_rules: &self.ids, ..view.of_namespace(&review.namespace) };
        let mut decision = Decision::default();
        if users::is_exempt(&review.user, review.operation, review.kind) || unread::is_unread(review) {
            return decision;
        }
        if let Some(finding) = rules::unreadable::unreadable_object(review) {
            let exception = exceptions::break_glass(review, view, &mut decision);
            decision.add(finding, Mode::Enforce, false, exception.as_ref());
            return decision;
        }
        if exemptions::is_exempt(review, view) || exemptions::changes_nothing(review) {
            return decision;
        }
        let mode_of = view.modes(&review.namespace);
        let unreadable_mode = mode_of(UNREADABLE);
        if view.busy {
            let exception = exceptions::break_glass(review, view, &mut decision);
            decision.add(rules::unreadable::unread_config_maps(), unreadable_mode, false, exception.as_ref());
            if !decision.allowed() {
                return decision;
            }
        }
        let exceptions = Exceptions::of(review, view, &mut decision);
        // A StatefulSet that takes over running members is judged as a change of the former one.
        let taken_over = view.taken_over(review);
        let review = taken_over.as_ref().unwrap_or(review);
        let Some(verb) = Verb::of(review) else { return decision };
        if unreadable_mode != Mode::Off
            && let Some(finding) = rules::unreadable::unkept_config_maps(review, view)
        {
            decision.add(finding, unreadable_mode, false, None);
        }
        // Computed lazily, because most objects break no rule.
        let before = LazyCell::new(|| review.before(view.adoption()));
        let keeps_templates = exemptions::keeps_templates(review);
        let checks = self.rules.iter().filter_map(|rule| Some((rule, rule.check(review.kind, verb)?)));
        let checks = checks.filter(|(_, check)| !(keeps_templates && matches!(check, Check::OfTemplates(_))));
        for (rule, check) in checks {
            let mode = mode_of(rule.id);
            let is_off = mode == Mode::Off;
            if is_off && review.kind != Kind::Namespace {
                continue;
            }
            let mut findings = check.judge(review, view);
            if is_off {
                findings.retain(|finding| finding.in_every_mode);
            }
            if findings.is_empty() {
                continue;
            }
            let before = before.as_ref().map_or_else(Vec::new, |before| check.judge(before, view));
            // Indexed by field, because a hostile file can have a hundred thousand findings.
            let mut old_by_field = HashMap::<_, Vec<_>>::new();
            for old in &before {
                old_by_field.entry(&*old.field).or_default().push(old);
            }
            let exception = exceptions.for_rule(rule.id, review);
            for finding in findings {
                let in_same_field: &[&Finding] = old_by_field.get(&*finding.field).map_or(&[], |old| old);
                // A warning about an old fault is not repeated at every edit.
                if finding.verdict == Verdict::Warn
                    && in_same_field.iter().any(|old| old.says == finding.says)
                {
                    continue;
                }
                let existed = finding.yields_to != YieldsTo::Nothing
                    && in_same_field.iter().any(|old| old.verdict >= finding.verdict);
                let exception = exception.filter(|exception| match finding.yields_to {
                    // Break-glass suspends refusals, not amendments: it must not start a bootstrap node that a program applies
                    // again.
                    YieldsTo::Exceptions => finding.verdict != Verdict::Amend || !exception.is_break_glass(),
                    YieldsTo::BreakGlass => exception.is_break_glass(),
                    YieldsTo::Nothing => false,
                });
                let mode = if finding.in_every_mode { Mode::Enforce } else { mode };
                decision.add(finding, mode, existed, exception);
            }
        }
        if decision.allowed() {
            decision.remarks.extend(partly_guarded_warning(review, view));
            decision.remarks.extend(rules::restarts::remark(review, view));
        }
        decision.sort();
        decision
    }
}

/// Returns a warning if a cluster is created in a namespace without the mode label.
fn partly_guarded_warning(review: &Review, view: &View<'_>) -> Option<String> {
    let new = review.change::<Workload>().new?;
    let is_partly_guarded = (review.kind, review.operation) == (Kind::StatefulSet, Operation::Create)
        && review.origin.is_final()
        && is_cluster(new, view.adoption())
        && view.namespace_is_unlabelled(&review.namespace);
    let ns = &review.namespace;
    is_partly_guarded.then(|| {
        format!(
            "in namespace {ns} scaling is guarded only while gatera answers, and objects without the cluster's labels not at \
             all; kubectl label namespace {ns} {MODE_LABEL}=enforce makes protection complete"
        )
    })
}
