//! What reaches the outside world: clients, sockets, files, the clock. Each module does one thing; the crates beside this one
//! decide what is right.
//!
//! * Requests: [`answer`] takes a request from its socket to its answer; [`guard`] is the state that all requests share;
//!   [`reserve`] and [`config_maps`] ask the API server for what some answers depend on.
//! * The view: [`watch`] fills the World, [`reload`] follows the settings.
//! * The leader: [`lease`] elects it, [`reconcile`] carries out its steps. Replicas agree through a [`lease_store`].
//! * The guard's own objects: [`certs`] and [`register`] direct API servers to the guard, [`ownership`] keeps the objects in the
//!   Helm release.
//! * Used by all of them: [`connect`], [`api`], [`events`], [`exec`], [`telemetry`].
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
