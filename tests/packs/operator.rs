//! The well-known example of a WordPress operator: it creates six objects with fixed names, in order, each only if it does not
//! exist.
//!
//! It never looks at what it has created, waits for the database before it continues, and stops at the first refusal.

use serde_json::{Value, json};

use crate::lab::{ControlPlane, Output, User};

/// The operator, for one Wordpress object.
pub struct Operator<'a> {
    pub plane: &'a ControlPlane,
    pub ns: &'a str,
    pub name: &'a str,
}

impl Operator<'_> {
    /// Runs one pass of its loop; the error is the refusal that stopped it.
    pub fn reconcile(&self) -> Result<(), Output> {
        let owner = self.get("wordpress", self.name).expect("its Wordpress exists");
        let password = owner["spec"]["sqlrootpassword"].clone();
        self.make(&owner, "PersistentVolumeClaim", "v1", "mysql-pv-claim", &claim())?;
        let mysql = self.deployment_spec(
            "mysql",
            "mysql:5.6",
            "MYSQL_ROOT_PASSWORD",
            &password,
            "/var/lib/mysql",
            "mysql-pv-claim",
        );
        self.make(&owner, "Deployment", "apps/v1", "wordpress-mysql", &mysql)?;
        let selector = json!({ "app": self.name, "tier": "mysql" });
        let service = json!({ "clusterIP": "None", "selector": selector, "ports": [{ "name": self.name, "port": 3306 }] });
        self.make(&owner, "Service", "v1", "wordpress-mysql", &service)?;
        if self.get("deployment", "wordpress-mysql").is_none_or(|it| it["status"]["readyReplicas"] != 1) {
            return Ok(());
        }
        self.make(&owner, "PersistentVolumeClaim", "v1", "wp-pv-claim", &claim())?;
        let site = self.deployment_spec(
            "frontend",
            "wordpress:5.4-apache",
            "WORDPRESS_DB_PASSWORD",
            &password,
            "/var/www/html",
            "wp-pv-claim",
        );
        self.make(&owner, "Deployment", "apps/v1", "wordpress", &site)?;
        let selector = json!({ "app": self.name, "tier": "frontend" });
        let service =
            json!({ "type": "NodePort", "selector": selector, "ports": [{ "name": "port", "port": 80 }] });
        self.make(&owner, "Service", "v1", "wordpress", &service)
    }

    /// Returns one of its objects, or a Wordpress, if it exists.
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let arguments = ["--namespace", self.ns, "get", kind, name, "--output=json", "--ignore-not-found"];
        let text = self.plane.kubectl(User::Admin, &arguments).succeeded();
        (!text.trim().is_empty()).then(|| serde_json::from_str(&text).expect("kubectl prints JSON"))
    }

    /// Creates an object that the Wordpress owns, if it does not exist.
    fn make(&self, owner: &Value, kind: &str, version: &str, name: &str, spec: &Value) -> Result<(), Output> {
        if self.get(kind, name).is_some() {
            return Ok(());
        }
        let reference = json!({ "apiVersion": "example.com/v1", "kind": "Wordpress", "name": self.name, "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true });
        let metadata = json!({ "name": name, "namespace": self.ns, "labels": { "app": self.name }, "ownerReferences": [reference] });
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec });
        let made = self.plane.kubectl_stdin(User::Admin, &["create", "--filename=-"], &object.to_string());
        if made.status == 0 { Ok(()) } else { Err(made) }
    }

    /// Returns the spec of a Deployment with one container and one volume.
    fn deployment_spec(
        &self,
        tier: &str,
        image: &str,
        variable: &str,
        password: &Value,
        path: &str,
        claim: &str,
    ) -> Value {
        let labels = json!({ "app": self.name, "tier": tier });
        let container = json!({
            "name": tier, "image": image,
            "env": [{ "name": variable, "value": password }, { "name": "WORDPRESS_DB_HOST", "value": "wordpress-mysql" }],
            "volumeMounts": [{ "name": "storage", "mountPath": path }],
        });
        let volume = json!({ "name": "storage", "persistentVolumeClaim": { "claimName": claim } });
        json!({
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container], "volumes": [volume] } },
        })
    }
}

fn claim() -> Value {
    json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } } })
}
