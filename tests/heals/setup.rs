//! A control plane of its own with one or two replicas behind a stand-in for a Service, the means to damage their objects, and a
//! client that keeps sending a request that must be refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gatera::act::certs::Material;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::harm::{Harm, OwnObject};
use crate::guarded::{Guard, Start, install, program};
use crate::lab::{ControlPlane, User, eventually};
use crate::wire::Balancer;

/// The number of replicas, and whether they run during the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    One,
    Two,
    /// One replica, which is stopped while the damage is done.
    Restarted,
}

/// A control plane with its guards, and a loop that sends the forbidden request.
pub struct Setup {
    // Declared before the control plane, because it sends requests until it is dropped.
    request_loop: RequestLoop,
    pub guards: Vec<Guard>,
    service: Balancer,
    replicas: Replicas,
    runtime: Runtime,
    client: Client,
    /// The intended entries, mutating and validating, without their CA.
    intended: [Value; 2],
    pub plane: ControlPlane,
}

/// Returns the object of the forbidden request: a Galera StatefulSet with a password in plain text.
fn forbidden() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db", "namespace": "default" },
        "spec": { "serviceName": "db", "selector": { "matchLabels": { "gatera.dev/cluster": "db" } }, "template": {
            "metadata": { "labels": { "gatera.dev/cluster": "db" } },
            "spec": { "containers": [{ "name": "mariadb", "image": "mariadb:10.11", "env": [{ "name": "MARIADB_ROOT_PASSWORD", "value": "x" }] }] },
        } },
    })
}

async fn client(plane: &ControlPlane) -> Client {
    let file = Kubeconfig::read_from(plane.kubeconfig(User::Admin)).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

impl Setup {
    pub fn start(replicas: Replicas) -> Self {
        // Only the first installation in a process succeeds.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let plane = ControlPlane::start();
        install(&plane);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(client(&plane));
        let service = Balancer::start();
        let request_loop = RequestLoop::start(&plane);
        let intended = [Value::Null, Value::Null];
        let mut setup =
            Self { request_loop, guards: Vec::new(), service, replicas, runtime, client, intended, plane };
        setup.start_guards();
        setup.guards.iter().for_each(Guard::until_registered);
        setup.intended = setup.entries();
        assert!(
            setup.intended.iter().all(|it| it.as_array().is_some_and(|it| it.len() > 1)),
            "too few entries: {:?}",
            setup.intended
        );
        setup.until_healed("the start");
        setup
    }

    fn start_guards(&mut self) {
        let identities: &[&str] = if self.replicas == Replicas::Two { &["one", "two"] } else { &["one"] };
        let start = |identity: &&str| {
            let arguments = ["--release=gatera", "--lame-duck=0", "--drain=1"].map(str::to_owned).into();
            let url = Some(format!("https://{}", self.service.address));
            let start = Start { identity: (*identity).to_owned(), arguments, url, ..Start::default() };
            Guard::start(&self.plane, &program(), &start)
        };
        self.guards = identities.iter().map(start).collect();
        self.service.set_backends(&self.guards.iter().map(|it| it.webhooks).collect::<Vec<_>>());
    }

    /// Does the damage while the guards run, or, with [`Replicas::Restarted`], between their stop and their restart.
    pub fn damage(&mut self, harm: impl FnOnce(&Self)) {
        if self.replicas == Replicas::Restarted {
            for guard in self.guards.drain(..) {
                guard.terminate();
                guard.until_ended(Duration::from_secs(20));
            }
        }
        harm(self);
        if self.replicas == Replicas::Restarted {
            self.start_guards();
        }
    }

    fn api(&self, object: OwnObject) -> (Api<DynamicObject>, &'static str) {
        let client = self.client.clone();
        let own = |kind: ApiResource| Api::namespaced_with(client.clone(), "gatera", &kind);
        match object {
            OwnObject::Secret => (own(ApiResource::erase::<Secret>(&())), "gatera-tls"),
            OwnObject::Lease => (own(ApiResource::erase::<Lease>(&())), "gatera"),
            OwnObject::Mutating => {
                let kind = ApiResource::erase::<MutatingWebhookConfiguration>(&());
                (Api::all_with(client, &kind), "gatera")
            }
            OwnObject::Validating => {
                let kind = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
                (Api::all_with(client, &kind), "gatera")
            }
        }
    }

    /// Returns the object as it is now, if it exists.
    pub fn object(&self, object: OwnObject) -> Option<Value> {
        let (api, name) = self.api(object);
        let found = self.runtime.block_on(api.get_opt(name)).unwrap();
        found.map(|it| serde_json::to_value(it).unwrap())
    }

    pub fn do_harm(&self, object: OwnObject, harm: Harm) {
        let (api, name) = self.api(object);
        let done = async {
            if harm == Harm::Deleted {
                return api.delete(name, &DeleteParams::default()).await.map(drop);
            }
            let now = serde_json::to_value(api.get(name).await?).unwrap();
            let mut patch = harm.patch(object, &now);
            if harm != Harm::ForeignConditions {
                return api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop);
            }
            patch["apiVersion"] = now["apiVersion"].clone();
            patch["kind"] = now["kind"].clone();
            let stranger = PatchParams::apply("stranger").force();
            api.patch(name, &stranger, &Patch::Apply(&patch)).await.map(drop)
        };
        self.runtime.block_on(done).unwrap_or_else(|error| panic!("{object:?} {harm:?}: {error}"));
    }

    /// Waits until everything is as it was, and requests are judged.
    pub fn until_healed(&self, what: &str) {
        for guard in &self.guards {
            eventually(&format!("{what}: the guard to register its webhooks"), || {
                let (status, text) = guard.get("/readyz")?;
                let well = text.contains("webhooks: registered\n") && !text.contains("trying again");
                (status == 200 && well && self.is_intact()).then_some(())
            });
        }
        eventually(&format!("{what}: the forbidden request to be refused"), || {
            self.refusal().filter(|it| it.contains("[G11]")).map(drop)
        });
    }

    fn is_intact(&self) -> bool {
        let holder = self
            .object(OwnObject::Lease)
            .and_then(|it| Some(it["spec"]["holderIdentity"].as_str()?.to_owned()));
        let held = holder.is_some_and(|it| it.starts_with("one_") || it.starts_with("two_"));
        held && self.secret_is_sound() && self.entries() == self.intended && self.is_trusted()
    }

    fn secret(&self) -> Option<(Secret, Material)> {
        let secret: Secret = serde_json::from_value(self.object(OwnObject::Secret)?).unwrap();
        let material = Material::read(&secret)?;
        Some((secret, material))
    }

    /// Returns whether the Secret is valid and still belongs to the chart.
    pub fn secret_is_sound(&self) -> bool {
        self.secret().is_some_and(|(secret, material)| {
            let labels = secret.metadata.labels.unwrap_or_default();
            let of_the_chart = labels.get("app.kubernetes.io/managed-by").is_some_and(|it| it == "Helm");
            of_the_chart && material.check(Timestamp::now()).is_ok()
        })
    }

    /// Returns whether all entries contain the CA bundle that belongs to the Secret.
    fn is_trusted(&self) -> bool {
        let Some((_, material)) = self.secret() else { return false };
        [OwnObject::Mutating, OwnObject::Validating].into_iter().all(|object| {
            let entries = self.object(object).unwrap_or_default()["webhooks"].as_array().cloned();
            entries.unwrap_or_default().iter().all(|entry| {
                let bundle = entry["clientConfig"]["caBundle"].as_str().unwrap_or_default();
                String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap() == material.bundle()
            })
        })
    }

    fn entries(&self) -> [Value; 2] {
        [OwnObject::Mutating, OwnObject::Validating].map(|object| {
            let mut entries = self.object(object).map(|it| it["webhooks"].clone()).unwrap_or_default();
            for entry in entries.as_array_mut().into_iter().flatten() {
                entry["clientConfig"].as_object_mut().unwrap().remove("caBundle");
            }
            entries
        })
    }

    /// Returns the message with which the forbidden request is refused; `None` if it is admitted.
    pub fn refusal(&self) -> Option<String> {
        self.runtime.block_on(ForbiddenRequest::new(self.client.clone()).refusal())
    }

    /// Returns how often the forbidden request was admitted.
    pub fn admitted(&self) -> usize {
        self.request_loop.admitted.load(Ordering::SeqCst)
    }

    /// Returns how often the forbidden request was sent.
    pub fn sent(&self) -> usize {
        self.request_loop.sent.load(Ordering::SeqCst)
    }
}

/// The forbidden request, as a dry run.
struct ForbiddenRequest {
    api: Api<StatefulSet>,
    object: StatefulSet,
    dry: PostParams,
}

impl ForbiddenRequest {
    fn new(client: Client) -> Self {
        let object = serde_json::from_value(forbidden()).unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        Self { api: Api::namespaced(client, "default"), object, dry }
    }

    async fn refusal(&self) -> Option<String> {
        self.api.create(&self.dry, &self.object).await.err().map(|it| it.to_string())
    }
}

/// A thread that keeps sending the forbidden request.
struct RequestLoop {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    admitted: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl RequestLoop {
    fn start(plane: &ControlPlane) -> Self {
        let (stop, sent, admitted) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (stopped, sends, admits) = (Arc::clone(&stop), Arc::clone(&sent), Arc::clone(&admitted));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(client(plane));
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let request = ForbiddenRequest::new(client);
                while !stopped.load(Ordering::SeqCst) {
                    let refusal = request.refusal().await;
                    sends.fetch_add(1, Ordering::SeqCst);
                    admits.fetch_add(usize::from(refusal.is_none()), Ordering::SeqCst);
                    // Leaves CPU time for the other processes: the machine may have only two cores.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        });
        Self { stop, sent, admitted, thread: Some(thread) }
    }
}

impl Drop for RequestLoop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
