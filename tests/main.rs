//! All tests that need more than one module of the crate. They form one binary, which needs one link step; this is its table
//! of contents.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "only tests use these modules, and a panic is how a test fails"
)]

mod advice;
mod anything;
mod apply;
mod audit;
mod bootstrap;
mod break_glass;
mod bundle;
mod caller;
mod cases;
mod chart_galera;
mod chart_gatera;
mod chart_wordpress;
mod charts;
mod check;
mod cli;
mod cluster;
mod cpu_time;
mod definitions;
mod derived;
mod docs;
mod doctor;
mod drain;
mod driven;
mod foreign;
mod guarded;
mod hangs;
mod heals;
mod helm;
mod hostile;
mod house;
mod identity;
mod incremental_looks;
mod inject;
mod lab;
mod left_behind;
mod living_cluster;
mod marks;
mod monitoring;
mod outages;
mod owners;
mod packs;
mod password_statement;
mod paths;
mod policy_reports;
mod probe_reports;
mod prose;
mod published_events;
mod quiet_log;
mod recover;
mod recovery_by_hand;
mod reload;
mod reservations;
mod rollout;
mod router;
mod scene;
mod schemas;
mod screen;
mod script;
mod secrets;
mod sim;
mod site;
mod stall;
mod status;
mod stop;
mod too_large;
mod verbosity;
mod webhook_port;
mod wire;
