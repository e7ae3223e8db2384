//! Tests that need real pods: MariaDB Galera on three real nodes, with the guard installed by Helm. `make e2e` runs the faster
//! ones and `make drills` the slow ones, both inside `tests/lab/machines/enter.sh`.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "no other crate uses the modules of a test, and a panic is how a test fails"
)]

mod advice;
mod argo_cd;
mod bitnami;
mod browser;
mod chance;
mod day;
mod drills;
mod driven;
mod figures;
mod flux;
mod foreign;
mod from_before;
mod galera;
mod gate;
mod gitops;
mod guard;
mod guard_life;
mod hangs;
mod healthcheck;
mod held;
mod install;
mod kudo;
#[path = "../lab/mod.rs"]
mod lab;
mod mariadb_operator;
mod metrics;
mod nodes;
mod odd;
mod odd_ends;
mod orphaned;
mod outage;
mod page;
mod passwd;
mod password;
mod power;
mod race;
mod real_operator;
mod recover;
mod restricted;
mod rolling;
mod scarce;
mod seed;
mod shop;
mod tls;
mod transfer;
mod unguarded;
mod upgrade;
mod volumes;
mod weather;
mod webdriver;
mod wordpress;
mod writer;
