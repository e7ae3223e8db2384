//! The claims of a cluster's members: the member that each belongs to, and what is known of its data.
//!
//! Must not know: pods. A claim outlives its pod and its StatefulSet.

use super::{Facts, Id};
use crate::marks;
use crate::marks::stopped::StopRecord;
use objects::{Owner, Workload};

/// A claim of a member that exists or existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberClaim {
    pub name: String,
    /// The ordinal of its member.
    pub ordinal: i64,
    pub bound: bool,
    /// The StatefulSet owns the claim, so the claim is deleted with it.
    pub owned: bool,
    /// The claim is deleted as soon as its pod stops.
    pub terminating: bool,
    /// The record of its member's orderly stop.
    pub stopped: Option<StopRecord>,
}

/// Returns the names of the StatefulSets that may have a claim of this name. A claim is called TEMPLATE-STATEFULSET-ORDINAL, and
/// the first two parts may contain hyphens.
pub(super) fn sets_named_by(claim: &str) -> impl Iterator<Item = &str> {
    let rest = claim.rsplit_once('-').map_or("", |(rest, _)| rest);
    rest.match_indices('-').map(|(at, _)| &rest[at + 1..])
}

/// Returns every claim called `<template>-<statefulset>-<ordinal>`, no matter what created it.
pub(super) fn of(id: &Id, workload: &Workload, facts: &Facts) -> Vec<MemberClaim> {
    let is_set = |owner: &Owner| owner.kind == "StatefulSet" && owner.name == id.name;
    let mut found = Vec::new();
    for template in &workload.spec.volume_claim_templates {
        let prefix = format!("{}-{}-", template.metadata.name, id.name);
        let from = Id { namespace: id.namespace.clone(), name: prefix.clone() };
        let same = |other: &Id| other.namespace == id.namespace && other.name.starts_with(&prefix);
        for (claim_id, claim) in facts.claims.range(from..).take_while(|(other, _)| same(other)) {
            // No member has an ordinal below zero.
            if let Ok(ordinal) = claim_id.name[prefix.len()..].parse::<u32>() {
                found.push(MemberClaim {
                    name: claim_id.name.clone(),
                    ordinal: ordinal.into(),
                    bound: claim.bound(),
                    owned: claim.metadata.owner_references.iter().any(is_set),
                    terminating: claim.metadata.is_terminating(),
                    stopped: claim.metadata.mark(marks::STOPPED).and_then(StopRecord::read),
                });
            }
        }
    }
    found
}
