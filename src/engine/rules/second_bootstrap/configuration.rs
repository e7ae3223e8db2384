//! The part of G04 about a ConfigMap with which members create a cluster at their next restart, by a file or by variables.

use super::{data_of, member_refused};
use crate::verdict::Finding;
use facts::galera::address::{Address, AddressSource, PlacedAddress};
use facts::galera::server;
use facts::review::Review;
use facts::revision;
use facts::view::{Cluster, View};
use objects::ConfigMap;

pub(super) fn founds(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (ns, new) = (&review.namespace, review.change::<ConfigMap>().new?);
    let mut clusters = view.readers_of(ns, &new.metadata.name).filter(|cluster| cluster.has_data());
    let by = |cluster| by_file(ns, new, cluster, view).or_else(|| by_variables(ns, new, cluster, view));
    let (cluster, (field, by)) = clusters.find_map(|cluster| Some((cluster, by(cluster)?)))?;
    member_refused(&by, &field, data_of(cluster, view), &cluster.workload)
}

/// The field of the ConfigMap, and the switch in it.
type FoundingSwitch = (String, String);

fn by_file(ns: &str, new: &ConfigMap, cluster: &Cluster, view: &View<'_>) -> Option<FoundingSwitch> {
    let found = |key: &str, what: &str| Some((format!("data[{key}]"), format!("{what} in key {key}")));
    let read = revision::reaching(&cluster.workload.spec.template.spec).remove(&new.metadata.name)?;
    let mut files = new.data.iter().filter(|(key, _)| read.contains(key));
    if let Some((key, _)) = files.find(|(_, text)| server::founds_by_file(text.look())) {
        return found(key, "wsrep_new_cluster");
    }
    let with = view.with_config_map(new);
    let PlacedAddress { source, text } = with.cluster_address(ns, &cluster.workload)?;
    let AddressSource::File { map, key } = source else { return None };
    let founds = map == new.metadata.name && Address::read(&text) == Some(Address::NewCluster);
    if founds { found(key, "wsrep_cluster_address=gcomm://") } else { None }
}

fn by_variables(ns: &str, new: &ConfigMap, cluster: &Cluster, view: &View<'_>) -> Option<FoundingSwitch> {
    let template = &cluster.workload.spec.template;
    let founds = |view: &View<'_>| view.founds_new_cluster(ns, &template.metadata, &template.spec);
    let by = founds(&view.with_config_map(new)).filter(|_| founds(view).is_none())?;
    Some(("data".to_owned(), by))
}
