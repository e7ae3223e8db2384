//! The cluster that `--live` compares with: which objects of the manifests exist there, and everything else that the guard sees.
//!
//! Owns: reading the cluster with the rights of the person who runs the command; nothing is written. `inspect::check` judges what
//! would change.

use std::collections::BTreeSet;
use std::io::{self, Write as _};

use anyhow::Context as _;
use clap::Args;
use facts::galera::adopt::Adoption;
use facts::view::{Freshness, Id, World};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use inspect::check::{self, Checked, Input, Live, LiveObject};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use objects::Kind;
use objects::visible;

use super::Options;
use super::settings::ChosenSettings;
use crate::act::api::Fault;
use crate::act::telemetry::chain;
use crate::act::watch::{self, Listing};
use crate::command::look::{ConnectionArgs, block_on};
use crate::command::site::Site;
use crate::command::terminal::progress::Progress;

/// The number of objects that are read at the same time.
const AT_ONCE: usize = 8;

/// Options that name the cluster of `--live`.
#[derive(Clone, Debug, Args)]
pub(super) struct LiveArgs {
    /// Compare with the cluster of the kubeconfig, and judge what would change there; nothing is written
    #[arg(long, conflicts_with = "against")]
    pub(super) live: bool,
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// Judges what these texts would change in the cluster. Also returns the settings that count: `beside`, or those of the guard.
pub(super) fn check(
    options: &Options,
    new: &[Input],
    beside: ChosenSettings,
    progress: &Progress,
) -> anyhow::Result<(Checked, ChosenSettings)> {
    block_on(async {
        let client = options.live.connection.client().await?;
        let site = &Site::for_judging(client, options.config.as_deref()).await?;
        let (client, chosen) = (&site.client, beside.or_of_guard(site));
        // `--verbose` prints the origin of the settings at the end. If the guard may judge by others, it is always printed.
        if site.settings_are_guessed() {
            writeln!(io::stderr(), "gatera: {}", visible(&chosen.origin_line(None)))?;
        }
        let namespace = options.namespace.as_deref().unwrap_or_else(|| client.default_namespace());
        let settings = options.with_mode(&chosen.settings);
        let judging = options.check_options(&settings, namespace, site.clock.now());
        let names = check::names(new, &judging);
        progress.show(|| "listing the objects of the cluster …".to_owned());
        let listed = list(client, &chosen.settings.adoption, &names, namespace).await?;
        let (all, mut asked) = (names.len(), 0);
        let found = stream::iter(names).map(|(kind, id)| get(client, kind, id)).buffer_unordered(AT_ONCE);
        let found = found.inspect(|_| {
            asked += 1;
            progress.show(|| format!("reading existing objects: {asked} of {all} …"));
        });
        let objects = found.try_filter_map(|found| async { Ok(found) }).try_collect().await?;
        let world = World::build(listed.facts, Freshness::Current);
        progress.show(|| "judging …".to_owned());
        let live = Live { world: &world, objects: &objects, unseen: &listed.unseen };
        Ok((check::run_live(new, live, &judging), chosen))
    })
}

/// Lists the whole cluster, or, without the right to do so, the namespace that all of these objects are in (`fallback` if none
/// of them is in one).
async fn list(
    client: &Client,
    adoption: &Adoption,
    names: &BTreeSet<(Kind, Id)>,
    fallback: &str,
) -> anyhow::Result<Listing> {
    match watch::once(client, None, adoption).await {
        Err(error) if error.forbidden() => {
            let namespaces = names.iter().map(|(_, id)| &*id.namespace).filter(|it| !it.is_empty());
            let namespaces: BTreeSet<_> = namespaces.collect();
            anyhow::ensure!(
                namespaces.len() < 2,
                "{error}; check the objects of one namespace at a time, which needs rights there only"
            );
            let only = namespaces.first().copied().unwrap_or(fallback);
            Ok(watch::once(client, Some(only), adoption).await?)
        }
        listed => Ok(listed?),
    }
}

/// Reads one object. If that is forbidden, the other objects are still judged.
async fn get(client: &Client, kind: Kind, id: Id) -> anyhow::Result<Option<((Kind, Id), LiveObject)>> {
    // Other characters would change the meaning of the path in the request.
    if !id.name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._:".contains(&it)) {
        let why = format!("{:?} is not a valid name of an object", id.name);
        return Ok(Some(((kind, id), LiveObject::Unknown(why))));
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
        Ok(Some(object)) => LiveObject::Exists(serde_json::to_value(object)?),
        Err(error) if Fault::of(&error) == Fault::Forbidden => LiveObject::Unknown(chain(&error)),
        Err(error) => return Err(error).with_context(|| format!("reading {} {id}", kind.name())),
    };
    Ok(Some(((kind, id), found)))
}
