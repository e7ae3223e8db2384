//! The guard's own user at the API server.
//!
//! Must not know: how its requests are judged.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tracing::{info, warn};

use crate::act::connect;
use crate::act::guard::Guard;
use crate::act::telemetry::{chain, repeated};

/// Returns the guard's own user at the API server, whose writes are not judged.
pub(super) async fn ask(client: &Client) -> Option<String> {
    match connect::user(client).await {
        Ok(user) => Some(user).filter(|it| !it.is_empty()),
        Err(error) => {
            let error = chain(&error);
            if let Some(times) = repeated::times("own user", &error) {
                warn!(
                    error,
                    times,
                    "the guard's own user is unknown, so its own writes are judged like those of other users"
                );
            }
            None
        }
    }
}

/// Asks for the guard's own user until the API server answers: without it, the guard would refuse its own clean-up.
pub(super) async fn learn(client: Client, guard: Arc<Guard>) {
    let user = loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        if let Some(user) = ask(&client).await {
            break user;
        }
    };
    info!(user, "the guard's own user is known");
    guard.settings.rcu(|settings| settings.with_own_user(&user));
}
