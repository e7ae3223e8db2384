//! What probes said when they failed: kubelets make Events of it, which last an hour.
//!
//! Listed when somebody needs it, not watched: API servers keep no cache of Events, and in a large cluster most of them are
//! of this kind. Who may write such Events is for a policy of the chart to say (`policy-events.yaml`).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};

use super::PAGE;
use crate::view::Id;

/// One of them.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whose.
    pub pod: Id,
    /// The pod's uid.
    pub uid: String,
    /// When it last said so, by the kubelet's clock.
    pub at: Timestamp,
    /// What the probe printed, and the kubelet's own words before it.
    pub message: String,
}

/// All that are remembered, oldest first.
pub async fn outcomes(client: &Client, namespace: Option<&str>) -> kube::Result<Vec<Outcome>> {
    let api: Api<Event> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut params = ListParams::default().fields("reason=Unhealthy,involvedObject.kind=Pod").limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items.into_iter().map(|event| {
            let about = event.involved_object;
            let pod = Id::new(&about.namespace.unwrap_or_default(), &about.name.unwrap_or_default());
            let (uid, message) = (about.uid.unwrap_or_default(), event.message.unwrap_or_default());
            let at = event.last_timestamp.map(|at| at.0).unwrap_or_default();
            Outcome { pod, uid, at, message }
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    found.sort_by_key(|outcome| outcome.at);
    Ok(found)
}
