//! Reads the cluster identity that members reported, and records what follows from the reports.
//!
//! Must not know: what follows (`plan/identity.rs` does). The chart's policy (`policy-events.yaml`), which values can switch off,
//! lets only kubelets write the Events that are read here.

use engine::inject;
use facts::galera::identity::IdentityReport;
use facts::marks;
use facts::view::Id;
use leader::plan::PlannedStep;
use leader::plan::identity::{self, Conclusion, conclusion};
use objects::Kind;

use super::apply::{annotate, announce};
use super::{StepContext, StepResult};
use crate::act::watch::member_events::{self, Topic};

/// Lists the Events of the cluster's pods, and records the identity that follows from their reports, if one does. An Event is
/// published about each pod that serves another cluster.
pub(super) async fn record_identity(
    context: &StepContext,
    planned: &PlannedStep,
) -> kube::Result<StepResult> {
    let PlannedStep { id, uid, .. } = planned;
    let pods: Vec<String> = context.with_view(|view| {
        let cluster = view.cluster(&id.namespace, &id.name).into_iter();
        cluster.flat_map(|it| identity::proven(it, view).map(|pod| pod.uid.clone())).collect()
    });
    let mut events = Vec::new();
    for pod in pods {
        events.extend(
            member_events::events(&context.client, Topic::Probes, Some(&id.namespace), Some(&pod)).await?,
        );
    }
    let reports =
        events.into_iter().filter_map(|it| Some((it.uid, (it.at, IdentityReport::read(&it.message)?))));
    let reports: identity::PodReports = reports.collect();
    let found = context.with_view(|view| {
        let cluster = view.cluster(&id.namespace, &id.name).filter(|it| it.workload.metadata.uid == *uid)?;
        let found = conclusion(cluster, view, &reports)?;
        let value = inject::identity::reported_value(cluster, view, found.identity.as_ref()).to_owned();
        Some((found, value, cluster.workload.metadata.resource_version.clone()))
    });
    let Some((Conclusion { identity, is_new, unannotated, events }, value, version)) = found else {
        return Ok(StepResult::Postponed(
            "its members have not reported the id of their cluster, or their reports differ".to_owned(),
        ));
    };
    if is_new {
        let mark = inject::identity::mark_value(identity.as_ref());
        annotate(&context.client, Kind::StatefulSet, id, uid, &version, marks::IDENTITY, Some(mark)).await?;
    }
    for event in events {
        announce(&context.client, planned, &event).await?;
    }
    for (pod, uid) in unannotated {
        let pod = Id::new(&id.namespace, &pod);
        annotate(&context.client, Kind::Pod, &pod, &uid, "", marks::IDENTITY, Some(&value)).await?;
    }
    Ok(StepResult::Done)
}
