//! The clusters that a change concerns: those that its object belongs to, or that use the object.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::facts::Map;
use super::index::{By, instance_labels, label_asked};
use super::{Cluster, Freshness, Id, RolloutRecord, View, claim, within};
use crate::galera::adopt;
use crate::review::{Change, Review};
use crate::revision::Digest;
use objects::{Autoscaler, Budget, ConfigMap, Kind, Labels, Object, Service, Workload};

impl<'a> View<'a> {
    /// Returns the clusters that the object of a request belongs to, or that use it.
    pub fn clusters_concerned(&self, review: &Review) -> Vec<&'a Cluster> {
        let (ns, name) = (&*review.namespace, &*review.name);
        match review.kind {
            Kind::StatefulSet => self.cluster(ns, name).into_iter().collect(),
            Kind::Pod => self.cluster_of_pod(ns, name).into_iter().collect(),
            Kind::Deployment => self.bootstrapped_by(ns, name).into_iter().collect(),
            Kind::Claim => self.clusters_of_claim(ns, name).collect(),
            Kind::ConfigMap => {
                let candidates = Digest::of_snapshot(name).is_some().then(|| self.clusters_in(ns));
                let users = candidates.into_iter().flatten().filter(|it| it.starts_with_snapshot(name));
                self.readers_of(ns, name).chain(users).collect()
            }
            Kind::Secret => self.world.clusters_by(By::SetOfSecret, ns, name).collect(),
            Kind::ServiceAccount => self.clusters_in(ns).filter(|it| it.runs_as(name)).collect(),
            Kind::Service => self.clusters_behind(ns, name, review),
            Kind::Budget => {
                let budget = review.objects().last().and_then(Object::get);
                budget.into_iter().flat_map(|it| self.clusters_protected(ns, it)).collect()
            }
            Kind::Namespace => self.clusters_in(name).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the clusters that this claim belongs to.
    pub fn clusters_of_claim<'b>(
        &self,
        namespace: &'b str,
        claim: &'b str,
    ) -> impl Iterator<Item = &'a Cluster> + use<'a, 'b> {
        let world = self.world;
        let candidates = claim::sets_named_by(claim).filter_map(move |set| world.cluster(namespace, set));
        candidates.filter(move |cluster| cluster.claims.iter().any(|it| it.name == claim))
    }

    /// Returns the cluster whose bootstrap Deployment this is.
    pub fn bootstrapped_by(&self, namespace: &str, deployment: &str) -> Option<&'a Cluster> {
        let mut candidates = self.clusters_named_by(Kind::Deployment, namespace, deployment);
        candidates.find(|it| it.bootstrap.deployments.iter().any(|name| name == deployment))
    }

    /// Returns the clusters of the instance that this object names: a pod or Deployment by its labels, a Service by its
    /// selector, a ConfigMap by the Deployments that read it. If the object belongs to a bootstrap node, that node can
    /// only belong to one of these clusters.
    pub fn clusters_named_by(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = &'a Cluster> {
        let (facts, id) = (&self.world.facts, Id::new(namespace, name));
        let of_deployment = |it: &'a Arc<Workload>| adopt::instance(&it.spec.template.metadata.labels);
        let of_service = |it: &'a Arc<Service>| adopt::instance(&it.spec.selector);
        let instances: BTreeSet<&str> = match kind {
            Kind::Pod => facts.pods.get(&id).and_then(|it| it.instance.as_deref()).into_iter().collect(),
            Kind::Deployment => facts.deployments.get(&id).and_then(of_deployment).into_iter().collect(),
            Kind::Service => facts.services.get(&id).and_then(of_service).into_iter().collect(),
            Kind::ConfigMap => {
                let readers = facts.found(&facts.deployments, By::DeploymentThatReads, namespace, name);
                readers.filter_map(of_deployment).collect()
            }
            _ => BTreeSet::new(),
        };
        let sets_of = |instance| facts.index.names(By::SetOfInstance, namespace, instance);
        let sets: BTreeSet<_> = instances.into_iter().flat_map(sets_of).collect();
        sets.into_iter().filter_map(|name| self.cluster(namespace, name))
    }

    /// Returns whether the bootstrap node of this cluster reads this ConfigMap.
    pub fn bootstrap_reads(&self, cluster: &Cluster, config_map: &str) -> bool {
        let find = |name: &String| self.world.facts.deployments.get(&Id::new(&cluster.id.namespace, name));
        let mut deployments = cluster.bootstrap.deployments.iter().filter_map(find);
        deployments.any(|it| it.spec.template.spec.config_maps().any(|name| name == config_map))
    }

    /// Returns the adopted Deployments of the cluster that these labels name, whether or not its StatefulSet exists.
    pub fn deployments_of(
        &self,
        namespace: &'a str,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a Workload> {
        let facts = &self.world.facts;
        let deployments =
            |instance| facts.found(&facts.deployments, By::DeploymentOfInstance, namespace, instance);
        adopt::instance(labels).into_iter().flat_map(deployments).map(AsRef::as_ref)
    }

    /// Returns the ConfigMap of this name, as far as it is known.
    pub fn config_map(&self, namespace: &str, name: &str) -> Option<&'a ConfigMap> {
        let known = self.world.facts.config_maps.get(&Id::new(namespace, name)).map(AsRef::as_ref);
        let is_it = |map: &&ConfigMap| (&*map.metadata.namespace, &*map.metadata.name) == (namespace, name);
        self.written.filter(is_it).or(known).or_else(|| self.fetched.iter().find(is_it))
    }

    /// Returns the ConfigMaps that a new template reads, as files or as variables, and of which it is unknown whether
    /// they exist or what they contain. A ConfigMap that the old template also read, and for which there is no room, is
    /// left out: it was judged when it was written. If the template is new, a ConfigMap that the view does not show is
    /// included, because it may have been created a moment before.
    pub fn unread_config_maps(&self, review: &Review) -> Vec<String> {
        let Change { old, new: Some(new) } = review.change::<Workload>() else { return Vec::new() };
        if !self.adoption().adopts(&new.spec.template.metadata.labels) {
            return Vec::new();
        }
        let old_spec = old.map(|old| &old.spec);
        // A request that changes nothing makes nothing worse. If the guard read its ConfigMaps, repeated requests would
        // use up the reads that other requests need.
        if old_spec == Some(&new.spec) {
            return Vec::new();
        }
        let old_template = old_spec.map(|spec| &spec.template);
        let names: BTreeSet<_> = new.spec.template.spec.config_maps().collect();
        let old_names: BTreeSet<_> = old_template.into_iter().flat_map(|it| it.spec.config_maps()).collect();
        let may_be_new = self.freshness != Freshness::Current || old_template != Some(&new.spec.template);
        let facts = &self.world.facts;
        let unknown = |name: &&str| {
            let id = Id::new(&review.namespace, name);
            !facts.needs_no_lookup(&id, may_be_new)
                || !old_names.contains(*name) && facts.without_room(&id).is_some()
        };
        names.into_iter().filter(unknown).map(str::to_owned).collect()
    }

    pub fn service(&self, namespace: &str, name: &str) -> Option<&'a Service> {
        self.world.facts.services.get(&Id::new(namespace, name)).map(AsRef::as_ref)
    }

    /// Returns the Services that may select pods with these labels.
    pub fn services_for(
        &self,
        namespace: &str,
        labels: &Labels,
    ) -> impl Iterator<Item = &'a Service> + use<'a> {
        self.selecting(&self.world.facts.services, By::ServiceForLabel, namespace, labels)
    }

    /// Returns the Services whose selectors name this instance.
    pub fn services_of(
        &self,
        namespace: &str,
        instance: &str,
    ) -> impl Iterator<Item = &'a Service> + use<'a> {
        let labels = adopt::INSTANCE_LABELS.map(|key| (key.to_owned(), instance.to_owned()));
        self.services_for(namespace, &labels.into_iter().collect())
    }

    /// Returns the disruption budgets that may protect pods with these labels.
    pub fn budgets_for(&self, namespace: &str, labels: &Labels) -> impl Iterator<Item = &'a Budget> {
        self.selecting(&self.world.facts.budgets, By::BudgetForLabel, namespace, labels)
    }

    /// Returns the objects whose selectors ask for the instance in these labels, or for no instance, sorted by name.
    fn selecting<T>(
        &self,
        known: &'a Map<T>,
        by: By,
        namespace: &str,
        labels: &Labels,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let index_keys = instance_labels(labels).chain([String::new()]);
        let names: BTreeSet<_> =
            index_keys.flat_map(|key| self.world.facts.index.names(by, namespace, &key)).collect();
        let namespace = namespace.to_owned();
        names.into_iter().filter_map(move |name| known.get(&Id::new(&namespace, name)).map(AsRef::as_ref))
    }

    /// Returns the autoscaler that sets the replicas of this StatefulSet, if there is one.
    pub fn autoscaler_of(&self, namespace: &str, stateful_set: &str) -> Option<&'a Autoscaler> {
        within(&self.world.facts.autoscalers, namespace).find(|it| it.scales(stateful_set))
    }

    /// Returns the labels of this cluster's bootstrap nodes, if there are any.
    pub fn bootstrap_labels(&self, cluster: &Cluster) -> impl Iterator<Item = &'a Labels> {
        let (facts, namespace) = (&self.world.facts, &cluster.id.namespace);
        let ids =
            cluster.bootstrap.deployments.iter().map(|name| Id::new(namespace, name)).collect::<Vec<_>>();
        ids.into_iter().filter_map(|id| Some(&facts.deployments.get(&id)?.spec.template.metadata.labels))
    }

    /// Returns whether no Service but this one leads clients to the members. The governing Service does not count.
    pub fn is_last_client_service(&self, cluster: &'a Cluster, service: &str) -> bool {
        let governing = &cluster.workload.spec.service_name;
        let mut others = self
            .services_for(&cluster.id.namespace, cluster.member_labels())
            .filter(|it| it.metadata.name != service);
        !others.any(|it| it.metadata.name != *governing && it.selects(cluster.member_labels()))
    }

    /// Returns the clusters that this Service leads to, or whose members get their names from it.
    fn clusters_behind(&self, ns: &str, name: &str, review: &Review) -> Vec<&'a Cluster> {
        let Some(service) = review.objects().last().and_then(Object::get::<Service>) else {
            return Vec::new();
        };
        let mut clusters = self.governed_by(ns, name);
        clusters.extend(
            self.clusters_for(ns, &service.spec.selector).filter(|it| service.selects(it.member_labels())),
        );
        clusters.sort_by_key(|it| &it.id);
        clusters.dedup_by_key(|it| &it.id);
        clusters
    }

    /// Returns the clusters whose members get their names from this Service.
    pub fn governed_by(&self, namespace: &str, service: &str) -> Vec<&'a Cluster> {
        self.world.clusters_by(By::SetOfService, namespace, service).collect()
    }

    /// Returns the clusters whose members a selector may select: those of the instance that it names, or all of the
    /// namespace.
    pub fn clusters_for(
        &self,
        namespace: &str,
        selector: &Labels,
    ) -> impl Iterator<Item = &'a Cluster> + use<'a> {
        let (world, ns) = (self.world, namespace.to_owned());
        let label = label_asked(selector);
        let all = label.is_empty().then(|| self.clusters_in(namespace));
        let names = self.world.facts.index.names(By::SetOfLabel, namespace, &label);
        let of_instance = names.filter_map(move |name| world.cluster(&ns, name));
        of_instance.chain(all.into_iter().flatten())
    }

    /// Returns the clusters whose members this budget protects.
    pub fn clusters_protected<'b>(
        &self,
        namespace: &str,
        budget: &'b Budget,
    ) -> impl Iterator<Item = &'a Cluster> + use<'a, 'b> {
        let no_labels = Labels::default();
        let selector = budget.spec.selector.as_ref().map_or(&no_labels, |it| &it.match_labels);
        self.clusters_for(namespace, selector).filter(|it| budget.protects(it.member_labels()))
    }
}

impl Cluster {
    /// Returns the labels that every member has.
    pub fn member_labels(&self) -> &Labels {
        &self.workload.spec.template.metadata.labels
    }

    /// Returns whether its members start with this snapshot of a ConfigMap.
    fn starts_with_snapshot(&self, snapshot: &str) -> bool {
        let recorded = self.rollout.iter().flat_map(RolloutRecord::revisions);
        let running = self.pods().filter_map(|pod| pod.revision.as_ref());
        recorded.chain(running).any(|it| it.snapshots().any(|name| name == snapshot))
    }

    /// Returns whether its members run as this ServiceAccount.
    fn runs_as(&self, account: &str) -> bool {
        // Kubernetes re-creates the default ServiceAccount.
        account != "default" && self.workload.spec.template.spec.service_account_name == account
    }

    /// Returns whether the members read this Secret.
    pub fn reads_secret(&self, name: &str) -> bool {
        self.workload.spec.template.spec.secrets().any(|secret| secret == name)
    }
}
