//! The cluster that `--live` compares with: what of the manifests is there, and all that the guard would know.
//!
//! Owns: asking for it, read-only, with the rights of whoever asks. Must not know: what changes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;
use decide::config::Settings;
use decide::object::Kind;
use decide::view::{Freshness, Id, World};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;

use crate::act::{connect, watch};
use crate::command::look::block_on;

/// How many objects are asked for at once.
const AT_ONCE: usize = 8;

/// Which cluster.
#[derive(Clone, Debug, Args)]
pub(super) struct Which {
    /// Judge what would change in the cluster of the current kubeconfig; nothing is written there
    #[arg(long, conflicts_with = "against")]
    pub(super) live: bool,
    /// Another context of the kubeconfig
    #[arg(long, value_name = "NAME", requires = "live")]
    context: Option<String>,
    /// Kubeconfig [default: as kubectl finds it]
    #[arg(long, value_name = "FILE", requires = "live")]
    kubeconfig: Option<PathBuf>,
}

/// The cluster as it is.
pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) objects: BTreeMap<(Kind, Id), Value>,
}

/// Looks at all of it, or, for whoever may not, at the namespace that all of these objects are in.
pub(super) fn look(options: &Which, settings: &Settings, names: Vec<(Kind, Id)>) -> anyhow::Result<Cluster> {
    block_on(async {
        let client = connect::person_in(options.kubeconfig.as_deref(), options.context.as_deref()).await?;
        let listed = match watch::once(&client, None, &settings.adoption).await {
            Err(error) if error.forbidden() => {
                let mut namespaces: Vec<_> =
                    names.iter().map(|(_, id)| &*id.namespace).filter(|it| !it.is_empty()).collect();
                namespaces.sort_unstable();
                namespaces.dedup();
                ensure!(
                    namespaces.len() == 1,
                    "{error}; check the objects of one namespace at a time, which needs rights there only"
                );
                watch::once(&client, namespaces.first().copied(), &settings.adoption).await?
            }
            listed => listed?,
        };
        let found = stream::iter(names).map(|(kind, id)| get(&client, kind, id)).buffer_unordered(AT_ONCE);
        let objects = found.try_filter_map(|found| async { Ok(found) }).try_collect().await?;
        Ok(Cluster { world: World::build(listed.facts, Freshness::Current), objects })
    })
}

async fn get(client: &Client, kind: Kind, id: Id) -> anyhow::Result<Option<((Kind, Id), Value)>> {
    let version = if kind == Kind::Autoscaler { "v2" } else { "v1" };
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(kind.group(), version, kind.name()),
        &kind.plural(),
    );
    let api: Api<DynamicObject> = match kind {
        Kind::Namespace | Kind::Node => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), &id.namespace, &resource),
    };
    let found = api.get_opt(&id.name).await.with_context(|| format!("reading {} {id}", kind.name()))?;
    found.map(|object| Ok(((kind, id), serde_json::to_value(object)?))).transpose()
}
