//! What one step of the way back does, with the rights of whoever asks.
//!
//! Must not know: which step comes next, and what is told of it. Each is done to what was looked at, and to nothing else.

use std::collections::BTreeSet;

use anyhow::Context as _;
use decide::marks::recovery::Recovery;
use decide::marks::{PREFIX, RECOVER, RECOVERY};
use decide::recovery::{self, Step};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::command::look::Seen;
use crate::command::walk::{MANAGER, params};

/// For so long a member may start first; the transfers that follow need no permission.
const VALID: SignedDuration = SignedDuration::from_mins(30);
/// For so long a member may be asked where its data ends.
const ASKED: SignedDuration = SignedDuration::from_mins(5);

/// Does it.
pub(super) async fn act(seen: &Seen, step: &Step) -> anyhow::Result<()> {
    match step {
        Step::Scale { to } => seen.scale(*to).await,
        Step::Create { ordinal, .. } => create(seen, *ordinal).await,
        Step::Read { member, .. } => read(seen, member).await,
        Step::StopReading { reader, uid, .. } => delete(seen, reader, uid).await,
        Step::Restart { member, uid, .. } => restart(seen, member, uid).await,
        Step::Ask { member, at, loss } => {
            let (member, position, loss) = (member.clone(), at.clone(), loss.clone());
            let asked = Recovery { member, position, until: seen.in_time(VALID)?, loss };
            ask(seen, &asked.to_string()).await
        }
        Step::TakeBack(_) => take_off(seen).await,
        Step::Finish { .. } => {
            // Until all of that is done a recovery is under way, and whoever comes after goes on with it.
            let recorded = seen.cluster()?.claims.iter().filter(|claim| claim.stopped.is_some());
            seen.record(&recorded.map(|claim| claim.name.clone()).collect::<Vec<_>>(), None).await?;
            take_off(seen).await
        }
        Step::Serves | Step::Wait(_) | Step::Refuse { .. } | Step::Cannot(_) => Ok(()),
    }
}

/// What the guard did not repeat counts for nobody; what it granted to somebody else stays.
async fn ask(seen: &Seen, asked: &str) -> anyhow::Result<()> {
    let set = seen.annotate(json!({ format!("{PREFIX}{RECOVER}"): asked })).await?;
    let granted = set.annotations().get(&format!("{PREFIX}{RECOVERY}")).cloned();
    if granted.as_deref() != Some(asked) {
        let back = json!({ format!("{PREFIX}{RECOVER}"): granted });
        let done = seen.annotate_version(set.metadata.resource_version.as_deref(), back).await;
        done.context("taking back what the guard did not confirm")?;
        anyhow::bail!(
            "the guard did not confirm it, and nobody starts without its word: it is away, or it only warns (gatera.dev/mode of the \
             namespace, or the mode of G20) and has not heard yet what members told"
        );
    }
    Ok(())
}

/// The guard's mark goes with what was asked for.
pub(super) async fn take_off(seen: &Seen) -> anyhow::Result<()> {
    let nothing = json!({ format!("{PREFIX}{RECOVER}"): null, format!("{PREFIX}{RECOVERY}"): null });
    seen.annotate(nothing).await.map(drop)
}

/// Whoever made it first, it is one pod: a name is given once.
async fn create(seen: &Seen, ordinal: i64) -> anyhow::Result<()> {
    let mut set = serde_json::to_value(seen.sets().get(&seen.id.name).await?)?;
    if let Some(older) = seen.cluster()?.workload.makes_older(ordinal) {
        let kept: Api<ControllerRevision> = Api::namespaced(seen.client.clone(), &seen.id.namespace);
        let data = kept.get(older).await.context("reading the template that it has not replaced yet")?.data;
        let data = serde_json::to_value(data)?;
        set =
            recovery::at_revision(set, older, &data).with_context(|| format!("{older} holds no template"))?;
    }
    let pod = recovery::member_pod(&set, ordinal).context("it is no StatefulSet")?;
    make(seen, pod).await
}

/// The pod that reads what a member has. An image that cannot be had is the one that all others run, if they run the same.
async fn read(seen: &Seen, member: &str) -> anyhow::Result<()> {
    let (cluster, pods) = (seen.cluster()?, seen.pods());
    let server = cluster.server().context("its template has no server")?.1.name.clone();
    let own = pods.get(member).await?;
    let mut images = BTreeSet::new();
    if cluster.member(member).and_then(|it| it.pod.as_deref()).is_some_and(|pod| pod.lacks_an_image) {
        for other in cluster.members.iter().filter(|it| it.pod.as_deref().is_some_and(|pod| pod.has_run)) {
            let containers =
                pods.get(&other.name).await?.spec.map(|spec| spec.containers).unwrap_or_default();
            images.extend(containers.into_iter().find(|it| it.name == server).and_then(|it| it.image));
        }
    }
    let image = images.first().filter(|_| images.len() == 1).map(String::as_str);
    make(seen, recovery::reader_pod(&serde_json::to_value(&own)?, &server, image)?).await
}

/// A name is given once: whoever was first made it.
async fn make(seen: &Seen, pod: Value) -> anyhow::Result<()> {
    let pod: Pod = serde_json::from_value(pod)?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match seen.pods().create(&params, &pod).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(drop).map_err(anyhow::Error::from),
    }
}

/// The very pod that was looked at. Before anything is asked for, the guard would keep a server that runs, and rightly: so the
/// person's word stands on the pod, and goes with it.
async fn restart(seen: &Seen, member: &str, uid: &str) -> anyhow::Result<()> {
    let pods = seen.pods();
    if seen.cluster()?.recovery().is_none() {
        let release = seen.release("G02", ASKED, "gatera recover asks it where its data ends")?;
        let patch = json!({ "metadata": { "uid": uid, "annotations": release } });
        pods.patch(member, &params(), &Patch::Merge(&patch)).await?;
    }
    delete(seen, member, uid).await
}

async fn delete(seen: &Seen, pod: &str, uid: &str) -> anyhow::Result<()> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match seen.pods().delete(pod, &params).await {
        // It has gone, or is another one by now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result.map(drop).map_err(anyhow::Error::from),
    }
}
