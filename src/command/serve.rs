//! `gatera serve`: starts the parts of the guard, and stops them in order.
//!
//! Owns: the options of the command and the order of start and stop. Each part is a module of its own: `watch` fills the world,
//! `register` maintains certificates and webhook entries, `lease` elects the leader, `reconcile` does the leader's chores,
//! `answer` answers requests.

mod listen;
mod own_user;
mod signals;
mod tasks;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use axum::http::Uri;
use clap::Args;
use engine::webhooks::Destination;
use facts::settings::Settings;
use facts::view::World;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch as channel;
use tracing::{info, warn};

use crate::act::answer::{ServingPort, ShutdownStage, Tls, accept, admission, operations};
use crate::act::certs::{Leaf, Lifetimes};
use crate::act::config_maps::ConfigMaps;
use crate::act::guard::Guard;
use crate::act::register::{Registrar, Registration};
use crate::act::reserve::ReservationStore;
use crate::act::{connect, events, lease, reconcile, reload, telemetry, watch};

use signals::Signals;
use tasks::Tasks;

/// Options of `gatera serve`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Settings file: adopt (label selectors), modes (per rule); reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig file, for a guard outside the cluster [default: the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address of the webhooks
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8443")]
    listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8080")]
    operations: SocketAddr,
    /// The guard's own namespace, which is never guarded
    #[arg(long, env = "POD_NAMESPACE", hide_env_values = true, default_value = "gatera")]
    namespace: String,
    /// The guard's own name among its replicas [default: the host name]
    #[arg(long, env = "POD_NAME", hide_env_values = true, hide_default_value = true, default_value = "")]
    identity: String,
    /// Helm release that owns the Secret and the Lease if the guard has to create them again [default: none]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    release: String,
    /// Service through which API servers reach the guard
    #[arg(long, default_value = "gatera")]
    service: String,
    /// Register this URL instead of the Service, for a guard outside the cluster
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Name of both webhook configurations, which must exist
    #[arg(long, default_value = "gatera")]
    configuration: String,
    /// Secret in which the guard keeps its certificates
    #[arg(long, default_value = "gatera-tls")]
    secret: String,
    /// Use tls.crt, tls.key and ca.crt of this folder instead of that Secret (cert-manager, your own CA)
    #[arg(long, value_name = "FOLDER")]
    tls_folder: Option<PathBuf>,
    /// Answer only clients with a certificate of a CA in this file (PEM); reloaded when it changes
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Lifetime of the CA that the guard makes; may be a fraction
    #[arg(long, value_name = "DAYS", default_value_t = 365.0)]
    ca_days: f64,
    /// Lifetime of the certificate that the guard makes; may be a fraction
    #[arg(long, value_name = "DAYS", default_value_t = 90.0)]
    certificate_days: f64,
    /// Memory limit; objects that users write may take a share of it
    #[arg(long, value_name = "BYTES", env = "GATERA_MEMORY", hide_env_values = true, default_value_t = 128 << 20)]
    memory: usize,
    /// Seconds to keep serving after SIGTERM, while not ready, until API servers no longer call this replica
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    lame_duck: u64,
    /// Further seconds for requests that have already begun
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(options: Options, settings: Settings) -> anyhow::Result<()> {
    telemetry::init_logging();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(serve(options, settings))
}

async fn serve(options: Options, mut settings: Settings) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let registration = registration(&options)?;
    let client = connect::guard(options.kubeconfig.as_deref()).await?;
    settings.own_user = tokio::select! {
        user = own_user::ask(&client) => user,
        () = signals.next() => return Ok(()),
    };
    let webhooks = listen::at(options.listen).await?;
    let probes = listen::at(options.operations).await?;
    info!(webhooks = %webhooks.local_addr()?, operations = %probes.local_addr()?, user = settings.own_user, "the guard is listening");

    let (stage, stages) = channel::channel(ShutdownStage::Serving);
    let (close, closing) = channel::channel(false);
    let (mut tasks, guard) =
        start(&options, settings, client, registration, [webhooks, probes], stages, closing)?;

    tokio::select! {
        () = signals.next() => {}
        end = tasks.ended() => return Err(end.into()),
    }
    info!(
        seconds = options.lame_duck,
        "the guard is stopping: it reports that it is not ready, and still answers requests"
    );
    guard.ready.leaving.store(true, Ordering::Relaxed);
    stage.send_replace(ShutdownStage::Leaving);
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(options.lame_duck)) => {}
        () = signals.next() => {}
        end = tasks.ended() => return Err(end.into()),
    }
    stage.send_replace(ShutdownStage::Closing);
    close.send_replace(true);
    tokio::select! {
        broken = tasks.finish(&[ADMISSION, LEASE]) => {
            for end in broken {
                warn!(error = %end, "the guard stops");
            }
            info!("the guard has stopped");
        }
        () = signals.next() => info!("the guard has stopped immediately, because it received another signal"),
    }
    Ok(())
}

/// The task that answers admission requests. When the guard stops, it waits for this task to end.
const ADMISSION: &str = "admission";
/// The task that holds the Lease. When the guard stops, it waits for this task to end.
const LEASE: &str = "lease";

/// Starts every task that runs as long as the process. No other function starts one.
fn start(
    options: &Options,
    settings: Settings,
    client: Client,
    registration: Registration,
    [webhooks, probes]: [TcpListener; 2],
    stages: channel::Receiver<ShutdownStage>,
    closing: channel::Receiver<bool>,
) -> anyhow::Result<(Tasks, Arc<Guard>)> {
    let mut tasks = Tasks::default();
    let (sender, notices) = events::channel();
    let world = Arc::new(ArcSwap::from_pointee(World::default()));
    let mut guard = Guard::new(world, settings, Timestamp::now);
    guard.events = Some(sender);
    guard.reservations =
        ReservationStore::shared(client.clone(), &registration.namespace, &registration.release);
    guard.config_maps = ConfigMaps::new(client.clone());
    guard.memory = options.memory;
    let guard = Arc::new(guard);
    let leaf = Leaf::default();
    let (changed, world_changed) = channel::channel(0);
    let (seat, leading) = lease::seat(guard.metrics.leader.clone());
    let (adopted, adoption) = channel::channel(guard.settings.load().adoption.clone());

    match options.config.clone() {
        Some(file) => {
            tasks.start("settings", reload::follow(file, Arc::clone(&guard), adopted, changed.clone()));
        }
        // Without a settings file adoption never changes. This task only keeps the sender open, because its receivers would take
        // a closed channel for the end.
        None => tasks.start("settings", never_ending(async move { adopted.closed().await })),
    }
    if guard.settings.load().own_user.is_none() {
        tasks.start("own-user", never_ending(own_user::learn(client.clone(), Arc::clone(&guard))));
    }
    tasks.start("watch", watch::keep(client.clone(), Arc::clone(&guard), changed, adoption));
    let registrar = Registrar::new(client.clone(), Arc::clone(&guard), leaf.clone(), registration.clone());
    tasks.start("registration", registrar.run(leading.clone(), world_changed.clone()));
    tasks.start(
        "audit",
        reconcile::audit::run(client.clone(), Arc::clone(&guard), leading.clone(), world_changed.clone()),
    );
    tasks.start("reconcile", reconcile::run(client.clone(), Arc::clone(&guard), leading, world_changed));
    let me = identity(options);
    tasks.start("events", events::publish(client.clone(), me.clone(), notices));
    tasks.start(LEASE, lease::hold(client, registration.namespace, registration.release, me, seat, closing));

    let tls = Tls::new(leaf, options.client_ca.clone())?;
    tasks.start("client-ca", Arc::clone(&tls).follow());
    let port = ServingPort::operations(probes, operations(Arc::clone(&guard)));
    // Probes are answered until the process ends, so this port stays in the stage `Serving`.
    let (_, always_serving) = channel::channel(ShutdownStage::Serving);
    tasks.start("operations", accept(port, Arc::clone(&guard), always_serving, Duration::ZERO));
    let port = ServingPort::webhooks(webhooks, tls, admission(Arc::clone(&guard)));
    let drain = Duration::from_secs(options.drain);
    tasks.start(ADMISSION, accept(port, Arc::clone(&guard), stages, drain));
    Ok((tasks, guard))
}

/// Waits for `work`, and then never returns: the end of a task would end the guard.
async fn never_ending(work: impl Future<Output = ()>) {
    work.await;
    std::future::pending::<()>().await;
}

fn identity(options: &Options) -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let name = if options.identity.is_empty() { host() } else { options.identity.clone() };
    // The process id differs, so that two processes with the same name are never both the leader.
    format!("{name}_{}", std::process::id())
}

fn registration(options: &Options) -> anyhow::Result<Registration> {
    let Options { namespace, release, service, secret, configuration, webhook_url, .. } = options.clone();
    let folder = options.tls_folder.clone();
    let (target, names) = match webhook_url {
        Some(url) => {
            let base = url.trim_end_matches('/').to_owned();
            let names = vec![host(&base)?];
            (Destination::Url { base, namespace: namespace.clone() }, names)
        }
        None => {
            let names = [".svc", ".svc.cluster.local"]
                .map(|suffix| format!("{service}.{namespace}{suffix}"))
                .to_vec();
            (Destination::Service { namespace: namespace.clone(), name: service }, names)
        }
    };
    let lifetimes = Lifetimes { ca: days(options.ca_days)?, leaf: days(options.certificate_days)? };
    Ok(Registration { namespace, release, secret, configuration, target, names, lifetimes, folder })
}

/// Returns the host of the URL, for which the certificate is made. An IP address is written in the form in which it is read back
/// from certificates, because otherwise no leaf would ever match.
fn host(url: &str) -> anyhow::Result<String> {
    let url: Uri = url.parse().context("--webhook-url is not a URL")?;
    anyhow::ensure!(url.scheme_str() == Some("https"), "--webhook-url must begin with https://");
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    anyhow::ensure!(!host.is_empty(), "--webhook-url names no host");
    Ok(host.parse::<IpAddr>().map_or_else(|_| host.to_owned(), |address| address.to_string()))
}

fn days(days: f64) -> anyhow::Result<SignedDuration> {
    let lifetime = SignedDuration::try_from_secs_f64(days * 86_400.0)
        .context("reading the lifetime of a certificate")?;
    anyhow::ensure!(lifetime.is_positive(), "the lifetime must be more than 0 days");
    Ok(lifetime)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::act::certs::Material;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// Starts all tasks of a guard whose API server cannot be reached.
    async fn all_tasks() -> (Tasks, channel::Sender<bool>, channel::Sender<ShutdownStage>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = Line::parse_from(["serve", "--webhook-url=https://127.0.0.1:1"]).options;
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let listener = || TcpListener::bind("127.0.0.1:0");
        let listeners = [listener().await.unwrap(), listener().await.unwrap()];
        let (stage, stages) = channel::channel(ShutdownStage::Serving);
        let (close, closing) = channel::channel(false);
        let registration = registration(&options).unwrap();
        let (tasks, _) =
            start(&options, Settings::default(), client, registration, listeners, stages, closing).unwrap();
        (tasks, close, stage)
    }

    #[tokio::test]
    async fn the_end_of_any_task_is_reported_with_its_name() {
        let (tasks, _close, _stage) = all_tasks().await;
        let mut names = tasks.names();
        names.sort_unstable();
        let known = [
            "admission",
            "audit",
            "client-ca",
            "events",
            "lease",
            "operations",
            "own-user",
            "reconcile",
            "registration",
            "settings",
            "watch",
        ];
        assert_eq!(names, known);
        for name in names {
            let (mut tasks, _close, _stage) = all_tasks().await;
            tasks.end(name);
            let end = tokio::time::timeout(Duration::from_secs(10), tasks.ended()).await.expect(name);
            assert!(
                end.to_string()
                    .starts_with(&format!("the guard's task \"{name}\" ended: it was cancelled; ")),
                "{end}"
            );
        }
    }

    /// The name must be read back from the leaf unchanged: otherwise every check of the certificates would make a new leaf.
    #[test]
    fn the_host_of_a_url_is_what_its_certificate_says() {
        for (url, name) in [
            ("https://gatera.example:8443/hooks", "gatera.example"),
            ("https://127.0.0.1", "127.0.0.1"),
            ("https://[::1]", "::1"),
            ("https://[2001:DB8:0:0::1]:8443", "2001:db8::1"),
            ("https://[::ffff:192.0.2.1]:8443/", "::ffff:192.0.2.1"),
        ] {
            assert_eq!(host(url).unwrap(), name, "{url}");
            let (names, lifetimes) = ([name.to_owned()], Lifetimes::default());
            let made = Material::new(&names, lifetimes, Timestamp::now()).unwrap();
            assert_eq!(made.next(None, &names, lifetimes, None, Timestamp::now()).unwrap(), None, "{url}");
        }
        for url in ["http://a", "https://", "https://:8443", "a", "https://[::1", ""] {
            assert!(host(url).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn no_task_ends_by_itself() {
        let (mut tasks, _close, _stage) = all_tasks().await;
        let end = tokio::time::timeout(Duration::from_secs(3), tasks.ended()).await;
        assert!(end.is_err(), "{end:?}");
    }
}
