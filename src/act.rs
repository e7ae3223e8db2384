//! What reaches the world: clients, sockets, files, the clock. Each room does one thing; what is right is decided in the crates beside it.
//!
//! * A request: [`answer`] takes it from a socket to an answer; [`guard`] is what all of them share; [`reserve`] and
//!   [`config_maps`] are asked for what it cannot be answered without.
//! * What is known: [`watch`] fills the World, [`reload`] follows the settings.
//! * The leader: [`lease`] says who it is, [`reconcile`] does its steps. Replicas agree through a [`lease_store`].
//! * The guard itself: [`certs`] and [`register`] show API servers the way here, [`ownership`] says whose its objects are.
//! * All of them: [`connect`], [`api`], [`events`], [`exec`], [`telemetry`].
//!
//! Must not know: the command line.

pub mod answer;
pub mod api;
pub mod certs;
pub mod config_maps;
pub mod connect;
pub mod events;
pub mod exec;
pub mod guard;
pub mod lease;
pub mod lease_store;
pub mod ownership;
pub mod reconcile;
pub mod register;
pub mod reload;
pub mod reserve;
pub mod telemetry;
pub mod watch;
