//! The rights of the guard's account, as the API server reports them, which knows every role.
//!
//! The table of grants repeats the chart's roles; a test compares the two.

use futures_util::{StreamExt as _, stream};
use inspect::doctor::Right;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::act::telemetry::chain;
use crate::rulebook;

/// A grant in the table: verbs, API group, resources, the name of the only object or `None` for all, and the scope.
pub type RoleGrant =
    (&'static [&'static str], &'static str, &'static [&'static str], Option<&'static str>, GrantScope);

/// The scope of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantScope {
    /// In the whole cluster.
    Everywhere,
    /// In the guard's namespace.
    Own,
}

/// The number of rights that are checked at the same time.
const AT_ONCE: usize = 8;

/// The rights that the guard needs, except those to list and watch the kinds that packs read.
const GRANTS: &[RoleGrant] = &[
    (
        &["list", "watch"],
        "",
        &["pods", "persistentvolumeclaims", "services", "nodes", "namespaces"],
        None,
        GrantScope::Everywhere,
    ),
    (&["get", "list", "watch"], "", &["configmaps"], None, GrantScope::Everywhere),
    (&["list", "watch"], "apps", &["statefulsets", "deployments"], None, GrantScope::Everywhere),
    (&["list", "watch"], "policy", &["poddisruptionbudgets"], None, GrantScope::Everywhere),
    (&["list", "watch"], "autoscaling", &["horizontalpodautoscalers"], None, GrantScope::Everywhere),
    (&["patch"], "apps", &["statefulsets"], None, GrantScope::Everywhere),
    (&["patch"], "", &["pods"], None, GrantScope::Everywhere),
    (&["list"], "", &["events"], None, GrantScope::Everywhere),
    (&["patch", "delete"], "apps", &["deployments"], None, GrantScope::Everywhere),
    (&["patch", "delete"], "", &["services", "configmaps"], None, GrantScope::Everywhere),
    (&["create"], "", &["configmaps", "pods/eviction"], None, GrantScope::Everywhere),
    (&["list"], "apps", &["daemonsets", "replicasets"], None, GrantScope::Everywhere),
    (&["list"], "batch", &["jobs", "cronjobs"], None, GrantScope::Everywhere),
    (&["list"], "", &["replicationcontrollers"], None, GrantScope::Everywhere),
    (
        &["list", "watch", "patch"],
        "admissionregistration.k8s.io",
        &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
        Some("gatera"),
        GrantScope::Everywhere,
    ),
    (&["create", "patch"], "", &["events"], None, GrantScope::Everywhere),
    (
        &["list", "watch", "create", "patch", "update", "delete"],
        "",
        &["secrets"],
        Some("gatera-tls"),
        GrantScope::Own,
    ),
    (&["get", "create", "update"], "coordination.k8s.io", &["leases"], Some("gatera"), GrantScope::Own),
    (&["list"], "discovery.k8s.io", &["endpointslices"], None, GrantScope::Own),
];

/// One right, as the API server is asked about it: verb, API group, resource, the only object or `None` for all, scope.
pub type NeededRight = (&'static str, &'static str, &'static str, Option<&'static str>, GrantScope);

/// Returns every right that the guard needs.
pub fn needed() -> impl Iterator<Item = NeededRight> {
    let own = GRANTS.iter().flat_map(|(verbs, group, resources, name, scope)| {
        resources
            .iter()
            .flat_map(move |resource| verbs.iter().map(move |verb| (*verb, *group, *resource, *name, *scope)))
    });
    let of_packs = rulebook().kinds().watched().flat_map(|kind| {
        ["list", "watch"].map(|verb| (verb, kind.group(), kind.plural(), None, GrantScope::Everywhere))
    });
    own.chain(of_packs)
}

/// Asks the API server which of the rights that the guard needs `user` has.
pub async fn check(client: &Client, namespace: &str, user: &str) -> Vec<Right> {
    let ask = |(verb, group, resource, name, scope): NeededRight| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let spec = SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                name: name.map(str::to_owned),
                namespace: (scope == GrantScope::Own).then(|| namespace.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let slash = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let of = if group.is_empty() { String::new() } else { format!(".{group}") };
        let called = name.map(|name| format!(" {name}")).unwrap_or_default();
        let permission = format!("{verb} {resource}{slash}{of}{called}");
        let api: Api<SubjectAccessReview> = Api::all(client.clone());
        async move {
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            let answer = api.create(&PostParams::default(), &review).await;
            let allowed =
                answer.map(|it| it.status.is_some_and(|it| it.allowed)).map_err(|error| chain(&error));
            Right { permission, allowed }
        }
    };
    stream::iter(needed().map(ask)).buffered(AT_ONCE).collect().await
}
