//! One look at the contents of a cluster, with the rights of the person who runs a command. Several commands share it.
//!
//! Owns: the way from a kubeconfig to a World. `site` provides the settings by which the World is judged. The look lists what the
//! guard's watches list (`act/watch/once.rs`).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use facts::settings::Settings;
use facts::view::{Cluster, Freshness, Id, View, World};
use jiff::SignedDuration;
use kube::Client;
use serde_json::Value;

use super::site::{Clock, Site};
use super::suggest::did_you_mean;
use super::terminal::{Colour, print_note};
use crate::act::connect::{self, ClientOptions};
use crate::act::telemetry::chain;
use crate::act::watch;

/// Options that name the API server and the user.
#[derive(Clone, Debug, Args)]
pub struct ConnectionArgs {
    /// Kubeconfig file [default: as kubectl finds it]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Act as this user
    #[arg(long = "as", value_name = "USER")]
    as_user: Option<String>,
    /// Act as a member of this group; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user")]
    groups: Vec<String>,
    /// Give up on a request after this time, such as 5s
    #[arg(long, value_name = "TIME", value_parser = kubectl_duration)]
    request_timeout: Option<Duration>,
}

impl ConnectionArgs {
    /// Returns a client for the API server that the options name.
    pub async fn client(&self) -> anyhow::Result<Client> {
        connect::person(&self.options()).await
    }

    /// Returns whether one of these options is given.
    pub fn is_given(&self) -> bool {
        self.options() != ClientOptions::default()
    }

    fn options(&self) -> ClientOptions {
        let Self { kubeconfig, context, as_user: user, groups, request_timeout } = self.clone();
        let request_timeout = request_timeout.filter(|it| !it.is_zero());
        ClientOptions { kubeconfig, context, user, groups, request_timeout }
    }
}

/// Reads a duration as kubectl does: with a unit, or in seconds. 0 sets no limit.
fn kubectl_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let time = seconds.or_else(|| Duration::try_from(text.parse::<SignedDuration>().ok()?).ok());
    time.ok_or_else(|| "write it as 5s or 1m".to_owned())
}

/// Options of every look.
#[derive(Clone, Debug, Args)]
pub struct LookArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Look at one namespace only; this needs rights in that namespace only
    #[arg(long, short)]
    namespace: Option<String>,
    /// Look at all namespaces, which is the default
    #[arg(long = "all-namespaces", short = 'A', conflicts_with = "namespace")]
    _all_namespaces: bool,
    /// Settings file: adopt (label selectors), modes (per rule) [default: the guard's]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl LookArgs {
    /// Returns a client for the API server that the options name.
    pub async fn client(&self) -> anyhow::Result<Client> {
        self.connection.client().await
    }

    /// Connects to the API server, reads the settings to judge by, and prints their origin to stderr; if `quiet`, only if they are
    /// a guess.
    pub async fn site(&self, quiet: bool) -> anyhow::Result<Site> {
        let site = Site::for_judging(self.client().await?, self.config.as_deref()).await?;
        if !quiet || site.settings_are_guessed() {
            site.print_source();
        }
        Ok(site)
    }

    /// Returns the namespace that was asked for, if one was.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// Options of commands that print whether many objects are as they should be.
#[derive(Clone, Debug, Args)]
pub struct SurveyArgs {
    #[command(flatten)]
    pub look: LookArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// Print only what is wrong or worth noting; print nothing if all is well
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub colour: Colour,
}

impl SurveyArgs {
    /// Returns the output format. Fails if `--quiet` is used with a format for programs, because programs can filter the output.
    pub fn output(&self) -> anyhow::Result<OutputFormat> {
        anyhow::ensure!(
            !self.quiet || self.is_for_people(),
            "--quiet shortens text only: leave out --quiet or --output"
        );
        Ok(self.output)
    }

    /// Returns whether the output is text for people.
    pub fn is_for_people(&self) -> bool {
        self.output == OutputFormat::Text
    }
}

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Text,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
}

impl OutputFormat {
    /// Returns the output in this format: the text, or the value as JSON or YAML.
    pub fn of(self, text: impl FnOnce() -> String, value: impl FnOnce() -> Value) -> anyhow::Result<String> {
        Ok(match self {
            Self::Text => text(),
            Self::Json => format!("{:#}\n", value()),
            Self::Yaml => serde_saphyr::to_string(&value())?,
        })
    }
}

/// Returns the clusters of this name, or all clusters without a name. Fails if no cluster has the name.
pub fn clusters_named<'w>(
    world: &'w World,
    name: Option<&str>,
    look: &LookArgs,
) -> anyhow::Result<Vec<&'w Cluster>> {
    let (namespace, name) = name.map_or((None, None), |written| {
        let (namespace, name) = namespace_and_name(written);
        (namespace, Some(name))
    });
    let is_called = |cluster: &&Cluster| {
        name.is_none_or(|name| cluster.id.name == name || cluster.instance() == Some(name))
    };
    let wanted = |cluster: &&Cluster| {
        namespace.is_none_or(|namespace| cluster.id.namespace == namespace) && is_called(cluster)
    };
    let all: Vec<_> = world.clusters().filter(wanted).collect();
    if let (Some(name), true) = (name, all.is_empty()) {
        let place = namespace.or(look.namespace.as_deref()).map(|ns| format!(" in namespace {ns}"));
        let meant = match world.clusters().find(is_called) {
            Some(elsewhere) => format!(", did you mean {}?", elsewhere.id),
            None => did_you_mean(name, world.clusters().map(|it| &*it.id.name)),
        };
        let place = place.unwrap_or_default();
        anyhow::bail!("there is no Galera cluster {name}{place}{meant} `gatera status` lists all");
    }
    Ok(all)
}

/// Splits the argument of a command into namespace and name, as users of kubectl write it: `galera`, `db/galera`, `sts/galera`. A
/// namespace with the name of such a kind has to be given with `--namespace`.
fn namespace_and_name(written: &str) -> (Option<&str>, &str) {
    const KINDS: [&str; 4] = ["sts", "statefulset", "statefulsets", "statefulset.apps"];
    match written.split_once('/') {
        Some((kind, name)) if KINDS.contains(&kind) => (None, name),
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, written),
    }
}

/// A cluster as one look shows it.
pub struct ObservedCluster {
    /// The client of the look.
    pub client: Client,
    /// The clock of the API server.
    pub clock: Clock,
    /// The settings by which the cluster is judged.
    pub settings: Settings,
    /// Everything that was listed.
    pub world: World,
    /// Namespace and name of the cluster's StatefulSet.
    pub id: Id,
}

impl ObservedCluster {
    /// Returns the cluster as the look shows it.
    pub fn cluster(&self) -> anyhow::Result<&Cluster> {
        self.world.cluster(&self.id.namespace, &self.id.name).context("its StatefulSet has gone")
    }

    /// Returns the view of everything that was listed, as the guard would judge it now.
    pub fn view(&self) -> View<'_> {
        View::new(&self.world, self.clock.now(), &self.settings)
    }
}

/// Looks once, and returns the only cluster of this name. Fails if there are several, or if its StatefulSet is gone.
pub async fn observe(name: &str, look: &LookArgs, site: &Site) -> anyhow::Result<ObservedCluster> {
    // The clock is read at each look, because this machine may have been suspended since the last one.
    let clock = Clock::ask(&site.client).await?;
    let (world, _) = list_world(look.namespace(), site).await?;
    let clusters = clusters_named(&world, Some(name), look)?;
    let [cluster] = clusters[..] else {
        anyhow::bail!("{} clusters are called {name}; --namespace NS names one", clusters.len());
    };
    let id = cluster.id.clone();
    if cluster.orphaned {
        anyhow::bail!(
            "StatefulSet {id} was deleted, but {} of its pods still exist; apply it again as it was, and it adopts its pods",
            cluster.pods().filter(|pod| pod.orphan_of.is_some()).count()
        );
    }
    Ok(ObservedCluster { client: site.client.clone(), clock, settings: site.settings.clone(), world, id })
}

/// Runs this work to its end on a new runtime with one thread.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(work)
}

/// Lists the objects of all namespaces, or of one. Also returns the kinds that could not be listed.
pub async fn list_world(namespace: Option<&str>, site: &Site) -> anyhow::Result<(World, Vec<&'static str>)> {
    let listed = match watch::once(&site.client, namespace, &site.settings.adoption).await {
        Err(error) if error.forbidden() && namespace.is_none() => {
            anyhow::bail!("{}; --namespace NS needs rights in one namespace only", chain(&error));
        }
        listed => listed?,
    };
    Ok((World::build(listed.facts, Freshness::Current), listed.unseen))
}

/// Prints to stderr which kinds could not be listed.
pub fn print_unlisted(unseen: &[&str]) {
    for plural in unseen {
        print_note(&format!("{plural} could not be listed; what depends on them is not judged"));
    }
}

#[cfg(test)]
mod tests {
    use super::namespace_and_name;

    #[test]
    fn a_cluster_is_named_as_kubectl_names_it() {
        for (written, read) in [
            ("galera", (None, "galera")),
            ("db/galera", (Some("db"), "galera")),
            ("sts/galera", (None, "galera")),
            ("statefulset.apps/galera", (None, "galera")),
        ] {
            assert_eq!(namespace_and_name(written), read);
        }
    }
}
