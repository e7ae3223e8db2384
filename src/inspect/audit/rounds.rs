//! The audit, again and again: what was found in a namespace stands until something in it changes, or for a
//! minute.
//!
//! Must not know: metrics, Events, or a clock: times are counted by the caller, from wherever it likes. Of a namespace that was
//! judged only numbers are kept, and what of it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Announced, Audit, Counts, News, namespaces, of};
use engine::rulebook::Rulebook;
use facts::view::{Changed, Freshness, State, View, WorldDiff};

/// Overrides end without anything that changes; and an address may name a Service of another namespace.
const AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// What the leader remembers of its audits.
#[derive(Debug, Default)]
pub struct IncrementalAudit {
    last: WorldDiff,
    places: BTreeMap<String, Place>,
}

/// What was found in a namespace.
#[derive(Debug, Default)]
struct Place {
    clusters: Vec<(State, &'static str)>,
    counts: Counts,
    judged: usize,
    refused: usize,
    warned: usize,
    told: Announced,
    /// Some of it is still to be told.
    held_back: usize,
}

/// What stands after a round.
#[derive(Debug, Default)]
pub struct Round {
    /// The state of every cluster, and in a word how far it is with its configuration.
    pub clusters: Vec<(State, &'static str)>,
    /// Objects by rule and verdict; `None` while the view is not current: what an old one shows is neither found nor gone.
    pub counts: Option<Counts>,
    /// How many objects were judged, now or before.
    pub judged: usize,
    /// How many of them would be refused.
    pub refused: usize,
    /// How many would be allowed with a warning.
    pub warned: usize,
    /// How much more than `most` there was to tell.
    pub held_back: usize,
}

impl IncrementalAudit {
    /// Judges where something changed, and tells what is new, `most` of it. The rest is told by a later round.
    pub fn next(
        &mut self,
        rulebook: &Rulebook,
        view: &View<'_>,
        now: Duration,
        most: usize,
        mut tell: impl FnMut(&News<'_>),
    ) -> Round {
        if view.freshness != Freshness::Current {
            self.last = WorldDiff::default();
            let state = |cluster| (view.state(cluster), leader::plan::rollout::stage(cluster, view).word());
            return Round { clusters: view.world.clusters().map(state).collect(), ..Round::default() };
        }
        let due: BTreeSet<String> = match self.last.changed(view, now, AT_LEAST_EVERY) {
            Changed::Everywhere => {
                let there = namespaces(view);
                self.places.retain(|name, _| there.contains(name));
                there
            }
            Changed::In(mut places) => {
                let waiting = self.places.iter().filter(|(_, place)| place.held_back > 0);
                places.extend(waiting.map(|(name, _)| name.clone()));
                places
            }
        };
        let mut left = most;
        for name in due {
            let audit = of(rulebook, view, &name);
            let place = self.places.entry(name).or_default();
            left -= place.take(&audit, left, &mut tell);
        }
        self.places.retain(|_, place| place.judged > 0 || !place.clusters.is_empty());
        self.sum()
    }

    fn sum(&self) -> Round {
        let mut sum = Round { counts: Some(Counts::new()), ..Round::default() };
        for place in self.places.values() {
            sum.clusters.extend(&place.clusters);
            for (key, count) in &place.counts {
                *sum.counts.get_or_insert_default().entry(*key).or_default() += count;
            }
            sum.judged += place.judged;
            sum.refused += place.refused;
            sum.warned += place.warned;
            sum.held_back += place.held_back;
        }
        sum
    }
}

impl Place {
    /// What was found now, in the place of what was found before. How much of it was told.
    fn take(&mut self, audit: &Audit, most: usize, tell: &mut impl FnMut(&News<'_>)) -> usize {
        let (news, held_back) = self.told.news(audit, most);
        news.iter().for_each(tell);
        let told = news.len();
        self.clusters = audit.clusters.iter().map(|it| (it.state, it.rollout)).collect();
        (self.counts, self.judged, self.held_back) = (audit.counts(), audit.judged, held_back);
        (self.refused, self.warned) = (audit.refused(), audit.warned());
        told
    }
}
