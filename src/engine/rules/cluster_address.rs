//! G06: a member joins its own cluster, by names that do not change.
//!
//! Checks the address that takes effect: the command line wins over the environment, the environment over the files, a
//! later file over an earlier one. Refuses literal IP addresses, a Service that is not headless, members of another cluster,
//! a list that names other pods but no member, and, before a cluster has data, an empty list for several members (afterwards
//! G04 refuses it). Warns about a list without a known member, about a name that is not a member's, and about a list that
//! depends on one name. The name of a bootstrap Service may stay: a name that no longer resolves is skipped. Scaling never
//! needs a new list: running members know each other.
//!
//! # Why
//!
//! `wsrep_cluster_address` matters only when a member starts: it joins the first server in the list that answers. If none
//! of them is a member, it waits half a minute, gives up and starts again, endlessly; this goes unnoticed while the others
//! run. If a member of another cluster answers, it discards its data and copies theirs. If the list is empty, it creates a
//! cluster of its own. gatera puts a correct list into the pods it can inject into, and that list wins; a member that
//! starts while gatera is down has only the list written here.
//!
//! # Example
//!
//! ```text
//! wsrep_cluster_address = gcomm://galera-instance-galera-0.galera-instance-hs,…
//! [G06] ConfigMap db/nodeconfig: wsrep_cluster_address in galera.cnf lists galera-instance-galera-0.galera-instance-hs
//! instead of the members of cluster galera-instance-galera-operator
//! ```
//!
//! # What to do instead
//!
//! List every member by its name under the governing Service: `NAME-0.SERVICE,NAME-1.SERVICE,NAME-2.SERVICE`
//! (`SERVICE` is `spec.serviceName` of the StatefulSet; `.NAMESPACE.svc` may follow). The message prints that list. For
//! a first install add the Service of a bootstrap node in front, or start with one member and an empty list.
//!
//! # Exceptions
//!
//! Annotate the ConfigMap or the StatefulSet, for an hour at most:
//! `gatera.dev/override: "G06 until=2026-12-01T10:00:00Z reason=…"`.

mod hosts;

use std::cell::LazyCell;

use crate::rule::{All, Change, Findings, Origin, Review, Rule, View, WRITTEN};
use facts::galera::address::{AddressSource, PlacedAddress};
use facts::galera::{options, runs, server};
use facts::revision;
use facts::view::is_cluster;
use objects::{ConfigMap, Kind, Literal, PodSpec, Workload};

use hosts::{AddressPlace, ExpectedMembers};

pub(super) const RULE: Rule = Rule {
    id: "G06",
    name: "cluster-address",
    judges: &[(Kind::ConfigMap, WRITTEN, All(in_config)), (Kind::StatefulSet, WRITTEN, All(stateful_set))],
    depends_on_state: false,
    source: include_str!("cluster_address.rs"),
};

fn stateful_set(review: &Review, view: &View<'_>) -> Findings {
    let Change { old, new } = review.change::<Workload>();
    let Some(new) = new.filter(|it| is_cluster(it, view.adoption())) else { return Findings::new() };
    // G08 refuses another serviceName; advice about the address would not help.
    if old.is_some_and(|old| old.spec.service_name != new.spec.service_name) {
        return Findings::new();
    }
    let before = LazyCell::new(|| old.and_then(|old| in_template(review, old, view)).unwrap_or_default());
    let mut found = in_template(review, new, view).unwrap_or_default();
    // A fault in a file does not belong to this object, unless this change introduced it.
    found.retain(|finding| !finding.field.starts_with(IN_A_FILE) || !before.contains(finding));
    found
}

/// The field of a finding about a StatefulSet whose address is in a ConfigMap.
const IN_A_FILE: &str = "spec.template.wsrep_cluster_address";

/// Returns findings about a ConfigMap from which members read their address.
fn in_config(review: &Review, view: &View<'_>) -> Findings {
    let (ns, Change { new: Some(map), .. }) = (&review.namespace, review.change::<ConfigMap>()) else {
        return Findings::new();
    };
    let mut found = Findings::new();
    for cluster in view.readers_of(ns, &map.metadata.name) {
        let workload = &cluster.workload;
        let members = ExpectedMembers { namespace: ns, workload, view };
        let seen = revision::reaching(&workload.spec.template.spec).remove(&map.metadata.name);
        let is_seen = |key: &str| seen.as_ref().is_some_and(|keys| keys.contains(key));
        let switch = map.data.iter().find(|(key, text)| is_seen(key) && server::founds_by_file(text.look()));
        if let Some((key, _)) = switch.filter(|_| members.create_several_clusters()) {
            found.push(hosts::founding(&AddressPlace::in_file("wsrep_new_cluster", key), &members));
            continue;
        }
        let Some(PlacedAddress { source: AddressSource::File { map: name, key }, text }) =
            view.with_config_map(map).cluster_address(ns, workload)
        else {
            continue;
        };
        if name == map.metadata.name && !may_be_overridden(&workload.spec.template.spec, Some(name)) {
            found.extend(hosts::judge(&AddressPlace::in_file("wsrep_cluster_address", key), &text, &members));
        }
    }
    found
}

/// Returns findings about the address that a StatefulSet gives its members, from any source.
fn in_template(review: &Review, workload: &Workload, view: &View<'_>) -> Option<Findings> {
    let (ns, template) = (&*review.namespace, &workload.spec.template);
    let server = server::of(template)?;
    let members = ExpectedMembers { namespace: ns, workload, view };
    let container = format!("spec.template.spec.containers[{}]", server.name);
    let switch = options::flags(server).into_iter().find(|flag| flag.key == "wsrep_new_cluster");
    if let Some(flag) = switch.filter(|_| members.create_several_clusters()) {
        let field = format!("{container}.{}.wsrep_new_cluster", flag.field);
        let label = format!("--wsrep-new-cluster in {}", flag.field);
        return Some(vec![hosts::founding(&AddressPlace { label, field }, &members)]);
    }
    let PlacedAddress { source, text } = view.cluster_address(ns, workload)?;
    let (label, field) = match source {
        AddressSource::Word(field, index) => (
            format!("wsrep_cluster_address in {field}[{index}]"),
            format!("{container}.{field}.wsrep_cluster_address"),
        ),
        // `check` judges the ConfigMap itself in the same run.
        AddressSource::File { .. } if review.origin == Origin::Check => return None,
        AddressSource::File { map, .. } if may_be_overridden(&template.spec, Some(map)) => return None,
        AddressSource::Variable(_) if may_be_overridden(&template.spec, None) => return None,
        AddressSource::Variable(name) => (format!("variable {name}"), format!("{container}.env[{name}]")),
        AddressSource::File { map, key } => (format!("key {key} of ConfigMap {map}"), IN_A_FILE.to_owned()),
    };
    Some(hosts::judge(&AddressPlace { label, field }, &text, &members))
}

/// Returns whether the server may read another address than the one found here: a script creates it, or an init container mounts
/// the ConfigMap.
fn may_be_overridden(spec: &PodSpec, map: Option<&str>) -> bool {
    let mut words =
        spec.containers.iter().flat_map(|it| it.command.iter().chain(&it.args)).map(Literal::look);
    let by_script =
        |word: &str| !word.starts_with("--") && word.contains(char::is_whitespace) && word.contains("wsrep");
    let mut mounts = spec.init_containers.iter().flat_map(|container| &container.volume_mounts);
    let refers = |volume: &str| {
        let volume = spec.volumes.iter().find(|it| it.name == volume);
        volume.is_some_and(|it| it.config_map.as_ref().is_some_and(|config| Some(&*config.name) == map))
    };
    let by_a_script_file =
        map.is_some() && server::container(spec, None).is_some_and(runs::starts_by_a_script);
    words.any(by_script) || by_a_script_file || mounts.any(|mount| refers(&mount.name))
}
