//! The hosts of a cluster address: what each one is, and what is wrong with it.

use super::RULE;
use crate::verdict::{Finding, Findings, Verdict};
use facts::galera::address::{self, Address, Host};
use facts::galera::adopt;
use facts::view::{Cluster, POD_NAME_LABEL, View};
use facts::way_out::{WayOut, say};
use objects::{Service, Workload, ordinal};

/// The largest number of hosts that are read; no cluster has more.
const MOST_HOSTS: usize = 64;

/// Where an address is written.
pub(super) struct AddressPlace {
    /// The beginning of a message: the option, and where it is written.
    pub(super) label: String,
    pub(super) field: String,
}

impl AddressPlace {
    /// Returns the place of an option in a file of the ConfigMap that is judged.
    pub(super) fn in_file(option: &str, key: &str) -> Self {
        Self { label: format!("{option} in {key}"), field: format!("data[{key}].{option}") }
    }

    fn finding(&self, verdict: Verdict, says: &str, why: &str, instead: WayOut) -> Finding {
        RULE.finding(verdict, &*self.field, format!("{} {says}", self.label), why, instead)
    }
}

/// The members that belong in the list.
pub(super) struct ExpectedMembers<'a> {
    pub(super) namespace: &'a str,
    pub(super) workload: &'a Workload,
    pub(super) view: &'a View<'a>,
}

impl ExpectedMembers<'_> {
    fn name(&self) -> &str {
        &self.workload.metadata.name
    }

    /// Returns the name of the governing Service.
    fn service(&self) -> &str {
        &self.workload.spec.service_name
    }

    fn count(&self) -> i64 {
        let ordinals = self.workload.ordinals();
        ordinals.end.saturating_sub(ordinals.start)
    }

    /// Returns whether several members without data would each create a cluster. A single member may create one, and G04 judges
    /// clusters with data.
    pub(super) fn create_several_clusters(&self) -> bool {
        let Self { namespace, workload, view } = *self;
        let claims = || view.claims_of(namespace, workload).iter().any(|claim| claim.bound);
        let data = view.cluster(namespace, self.name()).map_or_else(claims, Cluster::has_data);
        let bootstraps = |name: &str| name == "MARIADB_GALERA_CLUSTER_BOOTSTRAP";
        let mut variables = workload.spec.template.spec.containers.iter().flat_map(|it| &it.env);
        workload.replicas() > 1 && !data && !variables.any(|var| bootstraps(&var.name))
    }

    /// Returns the correct list.
    fn list(&self) -> String {
        address::of_members(self.name(), self.service(), self.workload.ordinals())
    }

    /// Returns the Service in this host name, if the host is a member's name under another Service, which may be the one that the
    /// members were created with.
    fn under_another_service<'h>(&self, host: &'h str) -> Option<&'h str> {
        let view = self.view;
        // The names of running members are known.
        let seen = view.cluster(self.namespace, self.name()).is_some_and(|it| it.pods().next().is_some());
        if seen && !view.from_files {
            return None;
        }
        let Host::Name(pod, rest) = Host::read(host) else { return None };
        let (name, service) = (pod.rsplit_once('-')?.0, rest.split('.').next()?);
        let gives_names = view.service(self.namespace, service).is_none_or(Service::headless);
        (name == self.name() && !service.is_empty() && service != self.service() && gives_names)
            .then_some(service)
    }

    fn set_list(&self) -> WayOut {
        say(format!("set it to {}", self.list()))
    }

    /// Returns the advice to list every member, for a warning: shorter, with the first name only.
    fn list_members(&self) -> WayOut {
        let (name, first, service) = (self.name(), self.workload.ordinals().start, self.service());
        say(format!("list every member by name: {name}-{first}.{service},…"))
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
pub(super) fn judge(place: &AddressPlace, text: &str, members: &ExpectedMembers<'_>) -> Findings {
    let hosts = match Address::read(text) {
        Some(Address::Peers(hosts)) => hosts,
        Some(Address::NewCluster) if members.create_several_clusters() => {
            return vec![founding(place, members)];
        }
        _ => return Findings::new(),
    };
    let hosts: Vec<_> = hosts.iter().take(MOST_HOSTS).map(|host| (&**host, kind_of(host, members))).collect();
    let of_one = hosts.iter().filter_map(|(host, kind)| {
        let (says, why) = wrong_host(host, kind)?;
        let field = format!("{}[{host}]", place.field);
        Some(Finding { field, ..place.finding(Verdict::Deny, &says, why, members.set_list()) })
    });
    let mut found: Findings = of_one.collect();
    if found.is_empty() {
        found.extend(about_list(place, &hosts, members));
    }
    found
}

const ONE_CREATES: &str =
    "let one node create it: add a bootstrap node and its Service, or start with replicas: 1";

/// Returns the finding about an address with which every member creates a cluster.
pub(super) fn founding(place: &AddressPlace, members: &ExpectedMembers<'_>) -> Finding {
    let says = format!("makes each of {} members create a cluster of its own", members.count());
    let why = "a server without a peer to join creates a new cluster; several such clusters never merge";
    place.finding(Verdict::Deny, &says, why, say(ONE_CREATES).then(format!("then write {}", members.list())))
}

fn kind_of(host: &str, members: &ExpectedMembers<'_>) -> HostKind {
    let (first, rest) = match Host::read(host) {
        Host::Localhost => return HostKind::Itself,
        Host::Ip(ip) if ip.is_unspecified() || ip.is_loopback() => return HostKind::Itself,
        Host::Ip(_) => return HostKind::IpAddress,
        Host::Name(first, rest) => (first, rest),
    };
    service(first, rest, members).or_else(|| pod(first, rest, members)).unwrap_or_else(|| {
        let governing = first == members.service() && !first.is_empty();
        if governing { HostKind::Service { headless: true } } else { HostKind::Unknown }
    })
}

/// Returns what `SERVICE` or `SERVICE.NAMESPACE` leads to.
fn service(name: &str, rest: &str, members: &ExpectedMembers<'_>) -> Option<HostKind> {
    let (view, labels) = (members.view, &members.workload.spec.template.metadata.labels);
    let namespace =
        if rest.is_empty() { members.namespace } else { rest.split('.').next().unwrap_or_default() };
    let service = view.service(namespace, name)?;
    let selector = &service.spec.selector;
    // The name of a Service for a single pod is as valid as a name under the governing Service.
    if let Some(pod) = selector.get(POD_NAME_LABEL).filter(|_| namespace == members.namespace) {
        return pod_of(pod, members);
    }
    if namespace == members.namespace && service.selects(labels) {
        return Some(HostKind::Service { headless: service.headless() });
    }
    let other = view.clusters_for(namespace, selector).find(|it| service.selects(it.member_labels()));
    // A bootstrap node of another cluster is as wrong as its members.
    let other = other.or_else(|| {
        view.cluster_of(namespace, selector)
            .filter(|it| (&*it.id.namespace, adopt::instance(labels)) != (members.namespace, it.instance()))
    });
    Some(other.map_or(HostKind::Unknown, |other| HostKind::OtherCluster(other.id.name.clone())))
}

/// Returns what `NAME-ORDINAL.SERVICE` or `NAME-ORDINAL.SERVICE.NAMESPACE…` leads to.
fn pod(pod: &str, rest: &str, members: &ExpectedMembers<'_>) -> Option<HostKind> {
    let (name, ordinal) = pod.rsplit_once('-')?;
    if rest.is_empty() || ordinal.is_empty() || !ordinal.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut labels = rest.split('.');
    let service = labels.next().unwrap_or_default();
    let namespace = labels.next().unwrap_or(members.namespace);
    // `galera-1.NAMESPACE.svc` is a Service that the view does not hold.
    if namespace == "svc" || service == members.namespace && service != members.service() {
        return None;
    }
    if (name, service, namespace) == (members.name(), members.service(), members.namespace) {
        return pod_of(pod, members);
    }
    let own = (namespace, name) == (members.namespace, members.name());
    match members.view.cluster(namespace, name) {
        Some(other) if !own => Some(HostKind::OtherCluster(other.id.name.clone())),
        _ => Some(HostKind::NotAMember),
    }
}

fn pod_of(pod: &str, members: &ExpectedMembers<'_>) -> Option<HostKind> {
    let ordinal = ordinal(pod, members.name())?;
    Some(if ordinal < members.workload.ordinals().end { HostKind::Member } else { HostKind::BeyondReplicas })
}

/// Returns what is wrong with one host, independent of the others, and why.
fn wrong_host(host: &str, kind: &HostKind) -> Option<(String, &'static str)> {
    Some(match kind {
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
    })
}

const SKIPPED: &str = "a name that does not resolve is skipped";
const NO_ANSWER: &str = "a member that starts gets no answer from these names, and restarts repeatedly; a list that gatera injects wins, but a member that starts while gatera is down has only this one";

/// Returns the finding about the list as a whole.
fn about_list(
    place: &AddressPlace,
    hosts: &[(&str, HostKind)],
    members: &ExpectedMembers<'_>,
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
        _ if members.count() < 1 || members.service().is_empty() => None,
        (0, Some(host), None) => {
            let says = format!("lists {host} instead of the members of cluster {}", members.name());
            let instead = match members.under_another_service(host) {
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
            let says = format!("lists no member of cluster {} that gatera knows of", members.name());
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
