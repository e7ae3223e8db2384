//! The pack for KUDO: the Instance of an operator, with which users change the parameters of a Galera cluster.
//!
//! Owns: `Instance` and `OperatorVersion`, and which Instances belong to a Galera cluster. Galera's rules judge the objects that
//! KUDO creates; a finding about the Instance reaches the user who changes it, before a plan is half done. Must not know: KUDO's
//! plans beyond their names.

mod anti_affinity;
mod deploy_again;
mod end;
mod node_count;
mod plain_password;

use std::collections::BTreeMap;

use serde::Deserialize;

use engine::rulebook::Pack;
use engine::webhooks::{Entry, Only};
use facts::review::Review;
use facts::view::View;
use objects::scalar::{self, Listed, Scalar};
use objects::{CustomKind, CustomResource, Kind, KindNames, Object, ReadCustom};

pub const PACK: Pack = Pack {
    name: "kudo",
    protects: "a Galera cluster from changes of its KUDO Instance that would create it a second time or remove its majority, and from being deleted with the Instance",
    kinds: &[INSTANCE_KIND, OPERATOR_VERSION_KIND],
    rules: &[deploy_again::RULE, node_count::RULE, anti_affinity::RULE, plain_password::RULE, end::RULE],
    entries: ENTRIES,
    keeps: |_| false,
};

const fn kind(name: &'static str, plural: &'static str, read: ReadCustom) -> CustomKind {
    let names = KindNames { group: "kudo.dev", version: "v1beta1", name, plural };
    CustomKind { names, watched: true, cluster_wide: false, read }
}

const INSTANCE_KIND: &CustomKind = &kind("Instance", "instances", CustomKind::read_into::<Instance>);
/// The kind of an installed operator, with the values of its parameters.
const INSTANCE: Kind = Kind::Custom(INSTANCE_KIND);
const OPERATOR_VERSION_KIND: &CustomKind =
    &kind("OperatorVersion", "operatorversions", CustomKind::read_into::<OperatorVersion>);
/// The kind of one version of an operator, with its plans and parameters.
const OPERATOR_VERSION: Kind = Kind::Custom(OPERATOR_VERSION_KIND);

/// The CEL condition that the spec or the owners change; KUDO often writes the status and the finalizers.
const ANOTHER_SPEC: &str = "oldObject == null || !has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec || has(object.metadata.ownerReferences) && (!has(oldObject.metadata.ownerReferences) || object.metadata.ownerReferences != oldObject.metadata.ownerReferences)";
/// The CEL condition for an Instance, or the definition of all Instances.
const OURS: &str = "request.resource.resource != 'customresourcedefinitions' || oldObject != null && oldObject.metadata.name == 'instances.kudo.dev'";

const ENTRIES: &[Entry] = &[
    // The parameters of a cluster, before KUDO acts on them.
    Entry {
        name: "kudo-instances",
        requests: &[("kudo.dev", "instances", &["CREATE", "UPDATE"])],
        only: Only::When("another-spec", ANOTHER_SPEC),
        ..Entry::VALIDATING
    },
    // A cluster is deleted with its Instance, and all Instances with their definition.
    Entry {
        name: "kudo-ends",
        requests: &[
            ("kudo.dev", "instances", &["DELETE"]),
            ("apiextensions.k8s.io", "customresourcedefinitions", &["DELETE"]),
        ],
        only: Only::When("kudo", OURS),
        ..Entry::VALIDATING
    },
];

/// An installed operator, with the values of its parameters.
type Instance = CustomResource<InstanceSpec>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InstanceSpec {
    #[serde(deserialize_with = "scalar::map")]
    operator_version: OperatorRef,
    #[serde(deserialize_with = "scalar::map")]
    parameters: BTreeMap<String, Scalar>,
    #[serde(deserialize_with = "scalar::map")]
    plan_execution: PlanExecution,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct OperatorRef {
    name: Scalar,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PlanExecution {
    plan_name: Scalar,
}

/// An operator's plans, and the plan that each parameter runs.
type OperatorVersion = CustomResource<VersionSpec>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct VersionSpec {
    parameters: Listed<Parameter>,
    #[serde(deserialize_with = "scalar::map")]
    plans: BTreeMap<String, Scalar>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct Parameter {
    name: Scalar,
    default: Scalar,
    trigger: Scalar,
}

impl InstanceSpec {
    /// Returns the names of parameters that changed.
    fn changed<'i>(&'i self, old: &'i Self) -> impl Iterator<Item = &'i str> {
        let [was, is] = [&old.parameters, &self.parameters];
        let names = is.keys().chain(was.keys().filter(|it| !is.contains_key(*it)));
        names.filter(|name| was.get(*name) != is.get(*name)).map(String::as_str)
    }

    /// Returns the version of its operator, if it is known.
    fn version<'a>(&self, namespace: &str, view: &View<'a>) -> Option<&'a VersionSpec> {
        let name = self.operator_version.name.look();
        let mut all = view.resources(OPERATOR_VERSION, namespace).filter_map(Object::get::<OperatorVersion>);
        all.find(|it| it.metadata.name == name).map(|it| &it.spec)
    }
}

impl VersionSpec {
    fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.all().iter().find(|it| it.name.look() == name)
    }

    /// Returns the plan that runs when this parameter changes.
    fn plan_of(&self, parameter: &str) -> &str {
        let trigger = self.parameter(parameter).map(|it| it.trigger.look()).filter(|it| !it.is_empty());
        trigger.unwrap_or_else(|| self.first_of(&["update", "deploy"]))
    }

    /// Returns the first of these plans that exists, or the last one.
    fn first_of<'p>(&self, plans: &[&'p str]) -> &'p str {
        let there = |plan: &&&str| self.plans.contains_key(**plan);
        plans.iter().find(there).or(plans.last()).copied().unwrap_or_default()
    }
}

/// Returns a name for messages, shortened and without control characters.
fn shown(name: &str) -> String {
    name.chars().filter(|it| !it.is_control()).take(60).collect()
}

/// Returns the Instance, and the new value of this parameter if the write changes it. A removed parameter has the operator's
/// default.
fn changed_parameter<'r>(
    review: &'r Review,
    view: &View<'r>,
    name: &str,
) -> Option<(&'r Instance, &'r Scalar)> {
    let (old, new) = written(review, view)?;
    let Some(old) = old else { return Some((new, new.spec.parameters.get(name)?)) };
    let default =
        |it: &'r Instance| Some(&it.spec.version(&review.namespace, view)?.parameter(name)?.default);
    let value = |it: &'r Instance| it.spec.parameters.get(name).or_else(|| default(it));
    let now = value(new)?;
    (value(old) != Some(now)).then_some((new, now))
}

/// Returns the Instance before and after a write, if the name of its OperatorVersion contains `galera`, or a cluster has its name.
fn written<'r>(review: &'r Review, view: &View<'_>) -> Option<(Option<&'r Instance>, &'r Instance)> {
    let new: &Instance = review.new.as_ref()?.get()?;
    let old = review.old.as_ref().and_then(Object::get);
    let is_of_galera = new.spec.operator_version.name.look().contains("galera")
        || view.cluster_called(&review.namespace, &new.metadata.name).is_some();
    is_of_galera.then_some((old, new))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            let key = prop_oneof![
                Just("parameters"),
                Just("plans"),
                Just("operatorVersion"),
                Just("planExecution"),
                Just("name")
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..4)
                    .prop_map(|all| all.into_iter().map(|(key, it)| (key.to_owned(), it)).collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_content_is_read(spec in any_json()) {
            let json = serde_json::json!({ "metadata": { "name": "a" }, "spec": spec }).to_string();
            prop_assert!(serde_json::from_str::<Instance>(&json).is_ok());
            prop_assert!(serde_json::from_str::<OperatorVersion>(&json).is_ok());
        }
    }
}
