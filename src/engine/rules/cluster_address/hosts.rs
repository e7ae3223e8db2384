//! The hosts of a cluster address: what each one is, and what is wrong with it.

use std::ops::Range;

use super::RULE;
use crate::verdict::{Finding, Findings, Verdict};
use facts::galera::address::{self, Address, Host};
use facts::galera::adopt;
use facts::view::{POD_NAME_LABEL, View};
use facts::way_out::{WayOut, say};
use objects::{Labels, Service, Workload, ordinal};

/// The largest number of hosts that are read; no cluster has more.
const MOST_HOSTS: usize = 64;

/// Where an address is written.
pub(super) struct AddressPlace {
    /// The beginning of a message: the option, and where it is written.
    pub(super) label: String,
    pub(super) field: String,
}

impl AddressPlace {
    fn finding(&self, verdict: Verdict, says: &str, why: &str, instead: WayOut) -> Finding {
        RULE.finding(verdict, &*self.field, format!("{} {says}", self.label), why, instead)
    }
}

/// The members that belong in the list.
pub(super) struct ExpectedMembers<'a> {
    namespace: &'a str,
    name: &'a str,
    service: &'a str,
    labels: &'a Labels,
    ordinals: Range<i64>,
}

impl<'a> ExpectedMembers<'a> {
    pub(super) fn of(namespace: &'a str, workload: &'a Workload) -> Self {
        Self {
            namespace,
            name: &workload.metadata.name,
            service: &workload.spec.service_name,
            labels: &workload.spec.template.metadata.labels,
            ordinals: workload.ordinals(),
        }
    }

    fn count(&self) -> i64 {
        self.ordinals.end.saturating_sub(self.ordinals.start)
    }

    /// Returns the correct list.
    fn list(&self) -> String {
        address::of_members(self.name, self.service, self.ordinals.clone())
    }

    /// Returns the Service in this host name, if the host names a member under a Service that is not the governing one, but may
    /// have been.
    fn under_another_service<'h>(&self, host: &'h str, view: &View<'_>) -> Option<&'h str> {
        // The names of members that run are known.
        let seen = view.cluster(self.namespace, self.name).is_some_and(|it| it.pods().next().is_some());
        if seen && !view.from_files {
            return None;
        }
        let Host::Name(pod, rest) = Host::read(host) else { return None };
        let (name, service) = (pod.rsplit_once('-')?.0, rest.split('.').next()?);
        let gives_names = view.service(self.namespace, service).is_none_or(Service::headless);
        (name == self.name && !service.is_empty() && service != self.service && gives_names)
            .then_some(service)
    }

    fn set_list(&self) -> WayOut {
        say(format!("set it to {}", self.list()))
    }

    /// Returns the advice to list every member, in the shorter form for a warning.
    fn list_members(&self) -> WayOut {
        say(format!("list every member by name: {}-{}.{},…", self.name, self.ordinals.start, self.service))
    }
}

/// A host of an address, by what its name leads to.
enum HostKind {
    Member,
    /// A member beyond the current replicas: it may be listed, but does not replace a member.
    BeyondReplicas,
    /// The name of a pod that is not a member.
    NotAMember,
    /// A Service that selects the members: headless, or with an address of its own.
    Service {
        headless: bool,
    },
    /// A member of this other cluster.
    OtherCluster(String),
    /// An address that changes with every restart.
    IpAddress,
    /// The pod itself.
    Itself,
    /// The bootstrap node, an external host, or a name that no longer exists: skipped if it does not resolve.
    Unknown,
}

/// Returns findings about this address for these members.
pub(super) fn judge(
    place: &AddressPlace,
    text: &str,
    members: &ExpectedMembers<'_>,
    view: &View<'_>,
    founds_too_many: impl Fn() -> bool,
) -> Findings {
    let hosts = match Address::read(text) {
        Some(Address::Peers(hosts)) => hosts,
        Some(Address::NewCluster) if founds_too_many() => return vec![founding(place, members)],
        _ => return Findings::new(),
    };
    let hosts: Vec<_> =
        hosts.iter().take(MOST_HOSTS).map(|host| (&**host, kind_of(host, members, view))).collect();
    let mut found: Findings =
        hosts.iter().filter_map(|(host, kind)| about_host(place, host, kind, members)).collect();
    if found.is_empty() {
        found.extend(about_list(place, &hosts, members, view));
    }
    found
}

const ONE_CREATES: &str =
    "let one node create it: add a bootstrap node and its Service, or start with replicas: 1";

/// Returns the finding about an address with which every member creates a cluster.
pub(super) fn founding(place: &AddressPlace, members: &ExpectedMembers<'_>) -> Finding {
    let says = format!("makes each of {} members create a cluster of its own", members.count());
    let why = "a server without a peer to join creates a new cluster; several such clusters never merge";
    place.finding(Verdict::Deny, &says, why, say(ONE_CREATES).then(format!("then {}", members.list())))
}

fn kind_of(host: &str, members: &ExpectedMembers<'_>, view: &View<'_>) -> HostKind {
    let (first, rest) = match Host::read(host) {
        Host::Localhost => return HostKind::Itself,
        Host::Ip(ip) if ip.is_unspecified() || ip.is_loopback() => return HostKind::Itself,
        Host::Ip(_) => return HostKind::IpAddress,
        Host::Name(first, rest) => (first, rest),
    };
    service(first, rest, members, view).or_else(|| pod(first, rest, members, view)).unwrap_or_else(|| {
        let governing = first == members.service && !first.is_empty();
        if governing { HostKind::Service { headless: true } } else { HostKind::Unknown }
    })
}

/// Returns what `SERVICE` or `SERVICE.NAMESPACE` leads to.
fn service(name: &str, rest: &str, members: &ExpectedMembers<'_>, view: &View<'_>) -> Option<HostKind> {
    let namespace =
        if rest.is_empty() { members.namespace } else { rest.split('.').next().unwrap_or_default() };
    let service = view.service(namespace, name)?;
    let selector = &service.spec.selector;
    let leads_to = |labels: &Labels| {
        !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    // A Service of one pod is as valid a name as one under the governing Service.
    if let Some(pod) = selector.get(POD_NAME_LABEL).filter(|_| namespace == members.namespace) {
        return pod_of(pod, members);
    }
    if namespace == members.namespace && leads_to(members.labels) {
        return Some(HostKind::Service { headless: service.headless() });
    }
    let other = view
        .clusters_for(namespace, selector)
        .find(|it| leads_to(&it.workload.spec.template.metadata.labels));
    // A bootstrap node of another cluster is as wrong as its members.
    let other = other.or_else(|| {
        view.cluster_of(namespace, selector).filter(|it| {
            (&*it.id.namespace, adopt::instance(members.labels)) != (members.namespace, it.instance())
        })
    });
    Some(other.map_or(HostKind::Unknown, |other| HostKind::OtherCluster(other.id.name.clone())))
}

/// Returns what `NAME-ORDINAL.SERVICE` or `NAME-ORDINAL.SERVICE.NAMESPACE…` leads to.
fn pod(pod: &str, rest: &str, members: &ExpectedMembers<'_>, view: &View<'_>) -> Option<HostKind> {
    let (name, ordinal) = pod.rsplit_once('-')?;
    if rest.is_empty() || ordinal.is_empty() || !ordinal.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut labels = rest.split('.');
    let service = labels.next().unwrap_or_default();
    let namespace = labels.next().unwrap_or(members.namespace);
    // `galera-1.NAMESPACE.svc` is a Service that the view does not hold.
    if namespace == "svc" || service == members.namespace && service != members.service {
        return None;
    }
    if (name, service, namespace) == (members.name, members.service, members.namespace) {
        return pod_of(pod, members);
    }
    let own = (namespace, name) == (members.namespace, members.name);
    match view.cluster(namespace, name) {
        Some(other) if !own => Some(HostKind::OtherCluster(other.id.name.clone())),
        _ => Some(HostKind::NotAMember),
    }
}

fn pod_of(pod: &str, members: &ExpectedMembers<'_>) -> Option<HostKind> {
    let ordinal = ordinal(pod, members.name)?;
    Some(if ordinal < members.ordinals.end { HostKind::Member } else { HostKind::BeyondReplicas })
}

/// Returns the finding about one host, independent of the others.
fn about_host(
    place: &AddressPlace,
    host: &str,
    kind: &HostKind,
    members: &ExpectedMembers<'_>,
) -> Option<Finding> {
    let (says, why) = match kind {
        HostKind::IpAddress => (
            format!("lists {host}, an address that a pod loses when it restarts"),
            "after the next restart no pod answers there, or another one does, perhaps of another cluster",
        ),
        HostKind::Itself => (
            format!("lists {host}, which is the pod itself"),
            "a member cannot join itself: if no other host answers, it fails and restarts repeatedly",
        ),
        HostKind::Service { headless: false } => (
            format!("lists Service {host}, which leads to any Ready pod behind it"),
            "a Service leads to members only while they are Ready: after a full stop none is Ready, so none can start",
        ),
        HostKind::OtherCluster(cluster) => (
            format!("lists {host}, which belongs to cluster {cluster}"),
            "a member joins the first host that answers: if that is another cluster with the same wsrep_cluster_name (by default all have one name), it discards its data and copies theirs",
        ),
        HostKind::Member
        | HostKind::BeyondReplicas
        | HostKind::NotAMember
        | HostKind::Service { .. }
        | HostKind::Unknown => return None,
    };
    let field = format!("{}[{host}]", place.field);
    Some(Finding { field, ..place.finding(Verdict::Deny, &says, why, members.set_list()) })
}

const SKIPPED: &str = "a name that does not resolve is skipped";
const NO_ANSWER: &str = "a member that starts gets no answer from these names, and restarts repeatedly; a list that gatera injects wins, but a member that starts while gatera is down has only this one";

/// Returns the finding about the list as a whole.
fn about_list(
    place: &AddressPlace,
    hosts: &[(&str, HostKind)],
    members: &ExpectedMembers<'_>,
    view: &View<'_>,
) -> Option<Finding> {
    let warning = |says: &str, why| Some(place.finding(Verdict::Warn, says, why, members.list_members()));
    let first =
        |is: &dyn Fn(&HostKind) -> bool| hosts.iter().find(|(_, kind)| is(kind)).map(|(host, _)| *host);
    let count = hosts.iter().filter(|(_, kind)| matches!(kind, HostKind::Member)).count();
    let not_a_member = first(&|kind| {
        matches!(kind, HostKind::NotAMember) || count == 0 && matches!(kind, HostKind::BeyondReplicas)
    });
    let service = first(&|kind| matches!(kind, HostKind::Service { .. }));
    match (count, not_a_member, service) {
        _ if members.count() < 1 || members.service.is_empty() => None,
        (0, Some(host), None) => {
            let says = format!("lists {host} instead of the members of cluster {}", members.name);
            let instead = match members.under_another_service(host, view) {
                Some(service) => say(format!(
                    "keep spec.serviceName: {service} if members run with it, because it cannot change ("
                ))
                .page("G08")
                .say(")")
                .or(format!("for a new cluster, set wsrep_cluster_address to {}", members.list())),
                None => members.set_list(),
            };
            Some(place.finding(Verdict::Deny, &says, NO_ANSWER, instead))
        }
        (0, _, Some(host)) => {
            let says = format!("lists no member by name; {host} leads to a random one");
            warning(&says, "only one address of a name is tried, and that may be the member's own")
        }
        (0, None, None) => {
            let says = format!("lists no member of cluster {} that gatera knows of", members.name);
            warning(&says, NO_ANSWER)
        }
        (_, Some(host), _) => warning(&format!("lists {host}, which is not a member"), SKIPPED),
        (1, None, _) if members.count() > 2 => {
            let says = format!("lists one of {} members", members.count());
            warning(&says, "while that member is down, no other can start")
        }
        _ => None,
    }
}
