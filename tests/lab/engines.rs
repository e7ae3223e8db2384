//! The real GitOps engines, which apply what is in a repository: Flux and Argo CD, as processes beside the control plane, with
//! the accounts that they have in their own installations.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::control_plane::{ControlPlane, free_port};
use super::error::{Doing, Error};
use super::supervise::Component;
use super::tools::{Tools, sources_of};
use super::users::User;

const FLUX: [&str; 3] = ["source-controller", "kustomize-controller", "helm-controller"];

/// The processes of one engine, which run until dropped.
pub(crate) struct Engine(Vec<Component>);

impl ControlPlane {
    /// Starts Flux: the controllers for sources, for manifests and for Helm.
    pub(crate) fn start_flux(&self) -> Engine {
        for name in FLUX {
            let module = format!("github.com/fluxcd/{name}");
            self.define(&sources_of("flux", &module).join("config/crd/bases"));
        }
        self.create(
            &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "flux-system" } }),
        );
        let run = |name: &'static str| -> Result<Component, Error> {
            let mut flags = vec![
                "--enable-leader-election=false".to_owned(),
                "--metrics-addr=0".to_owned(),
                "--health-addr=0".to_owned(),
                "--watch-all-namespaces".to_owned(),
            ];
            if name == "source-controller" {
                let (address, folder) = (format!("127.0.0.1:{}", free_port()?), self.folder().join("flux"));
                fs::create_dir_all(&folder).doing(|| format!("making {}", folder.display()))?;
                flags.push(format!("--storage-addr={address}"));
                flags.push(format!("--storage-adv-addr={address}"));
                flags.push(format!("--storage-path={}", folder.display()));
            }
            let kubeconfig = self.account("flux-system", name)?;
            let set = [
                ("KUBECONFIG", kubeconfig.display().to_string()),
                ("RUNTIME_NAMESPACE", "flux-system".to_owned()),
            ];
            self.run_beside(name, &Tools::also(name)?, &set, &flags)
        };
        Engine(FLUX.map(|name| run(name).unwrap_or_else(|error| panic!("{error}"))).into())
    }

    /// Starts Argo CD without its web server: the controller, the repo server, and the cache that they share.
    pub(crate) fn start_argo_cd(&self) -> Engine {
        let module = "github.com/argoproj/argo-cd/v3";
        self.define(&sources_of("argocd", module).join("manifests/crds"));
        let part = json!({ "app.kubernetes.io/part-of": "argocd" });
        let named = |name: &str| json!({ "name": name, "namespace": "argocd", "labels": part });
        self.create(&json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "argocd" } },
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": named("argocd-cm") },
            { "apiVersion": "v1", "kind": "Secret", "metadata": named("argocd-secret"), "stringData": { "server.secretkey": "for-a-test" } },
            { "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": named("default"), "spec": {
                "sourceRepos": ["*"],
                "destinations": [{ "server": "*", "namespace": "*" }],
                "clusterResourceWhitelist": [{ "group": "*", "kind": "*" }],
            } },
        ] }));
        Engine(self.run_argo_cd().unwrap_or_else(|error| panic!("{error}")))
    }

    fn run_argo_cd(&self) -> Result<Vec<Component>, Error> {
        let [cache, renderer, metrics, controller_metrics] =
            [free_port()?, free_port()?, free_port()?, free_port()?];
        let flags = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let cache_flags = flags(format!("--bind 127.0.0.1 --port {cache} --save  --appendonly no"));
        let redis = self.run_beside("redis", Path::new("redis-server"), &[], &cache_flags)?;
        let program = Tools::also("argocd")?;
        let folder = self.folder().join("argocd");
        fs::create_dir_all(&folder).doing(|| format!("making {}", folder.display()))?;
        let helm = Tools::also("helm")?.parent().map(|it| it.display().to_string()).unwrap_or_default();
        let path = format!("{helm}:{}", std::env::var("PATH").unwrap_or_default());
        let run = |name: &str, flags: &[String]| -> Result<Component, Error> {
            let kubeconfig = self.account("argocd", name)?;
            let variables = [
                ("ARGOCD_BINARY_NAME", name.to_owned()),
                ("KUBECONFIG", kubeconfig.display().to_string()),
                ("ARGOCD_FAKE_IN_CLUSTER", "true".to_owned()),
                ("ARGOCD_GPG_ENABLED", "false".to_owned()),
                ("ARGOCD_TLS_DATA_PATH", folder.display().to_string()),
                ("ARGOCD_SSH_DATA_PATH", folder.display().to_string()),
                ("TMPDIR", folder.display().to_string()),
                ("PATH", path.clone()),
            ];
            self.run_beside(name, &program, &variables, flags)
        };
        let repo_server_flags = flags(format!(
            "--redis 127.0.0.1:{cache} --address 127.0.0.1 --port {renderer} --metrics-address 127.0.0.1 --metrics-port {metrics} --disable-tls \
             --revision-cache-expiration 5s"
        ));
        let controller_flags = flags(format!(
            "--namespace argocd --redis 127.0.0.1:{cache} --repo-server 127.0.0.1:{renderer} --repo-server-plaintext --metrics-port {controller_metrics} \
             --app-resync 20 --self-heal-timeout-seconds 5"
        ));
        Ok(vec![
            redis,
            run("argocd-repo-server", &repo_server_flags)?,
            run("argocd-application-controller", &controller_flags)?,
        ])
    }

    /// Creates the CustomResourceDefinitions in a folder.
    fn define(&self, folder: &Path) {
        let files = fs::read_dir(folder).expect("the sources have definitions");
        let files =
            files.filter_map(|it| Some(it.ok()?.path())).filter(|it| !it.ends_with("kustomization.yaml"));
        let files: Vec<_> = files.map(|it| format!("--filename={}", it.display())).collect();
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        self.kubectl(User::Admin, &[&["apply", "--server-side"], &files[..]].concat()).succeeded();
        self.until_defined();
    }

    /// Creates a service account that may do everything, as the installations of the engines do. Returns its kubeconfig.
    fn account(&self, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
        let subject = json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace });
        self.create(&json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace } },
            { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
                "roleRef": role, "subjects": [subject] },
        ] }));
        let create = ["create", "token", name, "--namespace", namespace, "--duration=24h"];
        let token = self.kubectl(User::Admin, &create).succeeded();
        self.files().account_kubeconfig(&self.url(), name, token.trim())
    }

    fn run_beside(
        &self,
        name: &str,
        program: &Path,
        variables: &[(&str, String)],
        flags: &[String],
    ) -> Result<Component, Error> {
        let set = variables.iter().map(|(key, value)| format!("{key}={value}"));
        let arguments: Vec<_> =
            set.chain([program.display().to_string()]).chain(flags.iter().cloned()).collect();
        Component::start(self.folder(), name, Path::new("env"), &arguments)
    }
}
