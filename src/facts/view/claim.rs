//! The claims of a cluster's members: whose each is, and what is known of what is on it.
//!
//! Must not know: pods. A claim outlives its pod, and its StatefulSet.

use super::{Facts, Id};
use crate::marks;
use crate::marks::stopped::Record;
use objects::Workload;

/// A claim of a member, of this life or an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimOf {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub ordinal: i64,
    /// It has a volume.
    pub bound: bool,
    /// The StatefulSet owns it, so it goes with that.
    pub owned: bool,
    /// It is deleted as soon as its pod stops.
    pub going: bool,
    /// What was recorded when its member was stopped.
    pub stopped: Option<Record>,
}

/// Every claim called `<template>-<statefulset>-<ordinal>`, whatever made it.
pub(super) fn of(id: &Id, workload: &Workload, facts: &Facts) -> Vec<ClaimOf> {
    let mut found = Vec::new();
    for template in &workload.spec.volume_claim_templates {
        let prefix = format!("{}-{}-", template.metadata.name, id.name);
        let from = Id { namespace: id.namespace.clone(), name: prefix.clone() };
        let same = |other: &Id| other.namespace == id.namespace && other.name.starts_with(&prefix);
        for (claim_id, claim) in facts.claims.range(from..).take_while(|(other, _)| same(other)) {
            // No member has an ordinal below zero.
            if let Ok(ordinal) = claim_id.name[prefix.len()..].parse::<u32>() {
                found.push(ClaimOf {
                    name: claim_id.name.clone(),
                    ordinal: ordinal.into(),
                    bound: claim.bound(),
                    owned: claim
                        .metadata
                        .owner_references
                        .iter()
                        .any(|owner| owner.kind == "StatefulSet" && *owner.name == *id.name),
                    going: claim.metadata.going(),
                    stopped: claim.metadata.mark(marks::STOPPED).and_then(Record::read),
                });
            }
        }
    }
    found
}
