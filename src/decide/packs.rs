//! Packs: rules for other systems on the same engine, a folder each.
//!
//! Owns: [`PACKS`]. A pack brings the kinds that it reads, its rules, and its rows of webhook entries. What a rule asks beside its review
//! are the objects of the pack's kinds, which the view keeps as they are read ([`View::kept`](crate::view::View::kept)). Where a cluster
//! does not serve a kind, nothing of it is watched or registered; a pack can be switched off in the settings. Must not know: watches.

pub mod kudo;
pub mod rds;
pub mod wordpress;

use crate::rulebook::Pack;

/// Every pack, in the order of their rules' ids.
pub const PACKS: &[Pack] = &[kudo::PACK, rds::PACK, wordpress::PACK];
