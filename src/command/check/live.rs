//! The cluster that `--live` compares with: what of the manifests is there, and all that the guard would know.
//!
//! Owns: asking for it, read-only, with the rights of the person who runs it. Must not know: what changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};

use anyhow::Context as _;
use clap::Args;
use facts::view::{Freshness, Id, World};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use inspect::check::Found;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use objects::Kind;
use objects::visible;

use super::Options;
use super::settings::Chosen;
use crate::act::api::Fault;
use crate::act::telemetry::chain;
use crate::command::look::{Access, all_or_one, block_on};
use crate::command::site::Site;
use crate::command::terminal::progress::Progress;

/// How many objects are asked for at once.
const AT_ONCE: usize = 8;

/// Options that name the cluster of `--live`.
#[derive(Clone, Debug, Args)]
pub(super) struct LiveArgs {
    /// Compare with the cluster of the kubeconfig, and judge what would change there; nothing is written
    #[arg(long, conflicts_with = "against")]
    pub(super) live: bool,
    #[command(flatten)]
    pub(super) access: Access,
}

/// The cluster as it is.
pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) objects: BTreeMap<(Kind, Id), Found>,
    /// What could not be listed.
    pub(super) unseen: Vec<&'static str>,
    /// The namespace of objects that name none.
    pub(super) namespace: String,
    /// What time it is there.
    pub(super) now: Timestamp,
    /// By these settings it was looked at.
    pub(super) chosen: Chosen,
}

/// Looks at the whole cluster, or, without the right to, at the namespace that all of these objects are in. `names` are theirs, in the
/// namespace that kubectl would take if `namespace` is none.
pub(super) fn look(
    options: &Options,
    beside: Chosen,
    names: impl FnOnce(&Chosen, &str, Timestamp) -> BTreeSet<(Kind, Id)>,
    progress: &Progress,
) -> anyhow::Result<Cluster> {
    block_on(async {
        let client = options.live.access.client().await?;
        let site = &Site::that_judges(client, options.config.as_deref()).await?;
        let (client, now, chosen) = (&site.client, site.clock.now(), beside.or_of(site));
        // With --verbose it is said whose settings count, and always where they may not be the guard's.
        if site.guesses() {
            writeln!(io::stderr(), "gatera: {}", visible(&chosen.says(None)))?;
        }
        let namespace = options.namespace.as_deref().unwrap_or_else(|| client.default_namespace()).to_owned();
        let names = names(&chosen, &namespace, now);
        progress.says(|| "asking what the cluster holds …".to_owned());
        let namespaces = names.iter().map(|(_, id)| &*id.namespace).filter(|it| !it.is_empty()).collect();
        let listed =
            all_or_one(client, &chosen.settings, &namespaces, &namespace, "check the objects of").await?;
        let (all, mut asked) = (names.len(), 0);
        let found = stream::iter(names).map(|(kind, id)| get(client, kind, id)).buffer_unordered(AT_ONCE);
        let found = found.inspect(|_| {
            asked += 1;
            progress.says(|| format!("asking for what is there: {asked} of {all} …"));
        });
        let objects = found.try_filter_map(|found| async { Ok(found) }).try_collect().await?;
        let world = World::build(listed.facts, Freshness::Current);
        Ok(Cluster { world, objects, unseen: listed.unseen, namespace, now, chosen })
    })
}

/// One object. The rest is judged also if this one may not be read.
async fn get(client: &Client, kind: Kind, id: Id) -> anyhow::Result<Option<((Kind, Id), Found)>> {
    // In a path it would mean something else.
    if !id.name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._:".contains(&it)) {
        let words = format!("{:?} is not a name that an API server takes", id.name);
        return Ok(Some(((kind, id), Found::Unseen(words))));
    }
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(kind.group(), kind.version(), kind.name()),
        kind.plural(),
    );
    let api: Api<DynamicObject> = match kind {
        kind if kind.is_cluster_wide() => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), &id.namespace, &resource),
    };
    let found = match api.get_opt(&id.name).await {
        Ok(None) => return Ok(None),
        Ok(Some(object)) => Found::There(serde_json::to_value(object)?),
        Err(error) if Fault::of(&error) == Fault::Forbidden => Found::Unseen(chain(&error)),
        Err(error) => return Err(error).with_context(|| format!("reading {} {id}", kind.name())),
    };
    Ok(Some(((kind, id), found)))
}
