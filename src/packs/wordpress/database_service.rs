//! W07: the database of a WordPress is reachable only from inside the cluster, through its own Service.
//!
//! Refuses a Service of the database that is not headless, opens a port on the nodes or outside (NodePort, LoadBalancer), or leads to
//! pods that are not the database's.
//!
//! # Why
//!
//! WordPress logs in as a user who may change everything, with the example's operator as root, and attackers find a database with a
//! port on every node within hours. A Service that leads to the site's pods sends the database's clients there.
//!
//! # Example
//!
//! ```text
//! $ kubectl patch service wordpress-mysql -p '{"spec":{"type":"NodePort"}}'
//! [W07] Service web/wordpress-mysql: type NodePort opens the database to every client that can reach a node
//! ```
//!
//! # What to do instead
//!
//! Use `kubectl port-forward deployment/wordpress-mysql 3306` for access from outside.
//!
//! # Exceptions
//!
//! Annotate the Service, for an hour at most: `gatera.dev/override: "W07 until=TIME reason=…"`.

use super::{Tier, part};
use engine::rule::{All, Findings, Review, Rule, View, WRITTEN};
use facts::way_out::{CommandLine, run, say};
use objects::{Kind, Service};

pub(super) const RULE: Rule = Rule {
    id: "W07",
    name: "wp-service",
    judges: &[(Kind::Service, WRITTEN, All(check))],
    depends_on_state: false,
    source: include_str!("database_service.rs"),
};

/// The name of the operator's Deployment and Service of the database.
const DEPLOYMENT: &str = "wordpress-mysql";

fn check(review: &Review, _: &View<'_>) -> Findings {
    let Some(service) = review.change::<Service>().new else { return Findings::new() };
    let of_database = match part(&service.metadata) {
        Some(Tier::Database) => true,
        // The tier label may have been changed.
        Some(Tier::Site | Tier::Backup) => service.metadata.name.ends_with(DEPLOYMENT),
        None => false,
    };
    if !of_database {
        return Findings::new();
    }
    let mut findings = Findings::new();
    let mut add = |field: &str, says: String, why: &str| {
        // The chart's Service and Deployment have the same name, and a prefix if several are in one namespace.
        let name = Some(&*review.name).filter(|it| it.ends_with(DEPLOYMENT)).unwrap_or(DEPLOYMENT);
        let forward = format!("kubectl -n {} port-forward deployment/{name} 3306", review.namespace);
        let forward = run(CommandLine::new(forward));
        let instead =
            say("leave type out, and write clusterIP: None and the selector tier: mysql; for access from outside: ").and(forward);
        findings.push(RULE.deny(field, says, why, instead));
    };
    let service_type = &service.spec.kind;
    if matches!(&**service_type, "NodePort" | "LoadBalancer") {
        add(
            "spec.type",
            format!(
                "type {service_type} opens the database to every client that can reach {}",
                if service_type == "NodePort" { "a node" } else { "its address" }
            ),
            "WordPress logs in as a user who may change everything, and attackers find open ports within hours",
        );
    } else if !service.headless() && service_type != "ExternalName" {
        add(
            "spec.clusterIP",
            "it is not headless".to_owned(),
            "the clusterIP of a Service cannot change later, and the operator creates this one with None",
        );
    }
    // The operator's Service selects by the tier.
    let tier = service.spec.selector.get("tier").map(String::as_str);
    if tier != Some("mysql") {
        add(
            "spec.selector",
            "without tier: mysql in its selector it leads to pods that are not the database's".to_owned(),
            "clients of the database would connect to those pods",
        );
    }
    findings
}
