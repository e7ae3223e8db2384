//! G17: a member's server has a known version, and is never older than its data.
//!
//! Refuses a server image without a version (no tag, or a tag such as `latest`, `lts` or `stable`), calls of programs that an
//! image does not have and, where a member has data, another vendor's server, an older series, and a step over several series at
//! once. Refuses an image that is set on a running pod, because that restarts its server at once. Allows the next series with a
//! warning that says how to change to it. Within a series every change is allowed; a release number that can hardly exist gets a
//! warning.
//!
//! # Why
//!
//! A container that restarts may pull the image that its tag names at that time (`imagePullPolicy`, another node). A newer
//! server changes the data files when it starts. Older servers are not designed to read them, but may not say so: 10.11
//! starts on the data of 11.4 and serves, with only an error in its log that the change buffer is corrupted or has been
//! removed. The way back is a full copy from a member that still has the old series, a dump or a backup. Two series in one
//! cluster work as long as a member that restarts catches up from the others' write-set cache. A full copy between them
//! depends on their scripts: 11.4 reads one that 10.11 sends, but 10.11 cannot read one of 11.x. MariaDB's images have no
//! programs called `mysql…` from 11.0 on: a probe that calls one fails on every member at once.
//!
//! # Example
//!
//! ```text
//! $ kubectl set image statefulset galera mariadb=mariadb:11.8
//! [G17] StatefulSet db/galera: container mariadb: mariadb:10.6 -> mariadb:11.8 skips series; 10.11 comes first
//! ```
//!
//! # What to do instead
//!
//! Name a version, preferably with its digest. Upgrade in steps (10.6, 10.11, 11.4, 11.8, 12.3 are the series with long
//! support):
//!
//! 1. Take a backup, and raise `gcache.size` until the cache holds all that clients write during the restart of a member.
//! 2. Set the next image. The members restart one at a time; wait until all are Ready. Until then use no feature that only the
//!    new series has.
//! 3. Run `mariadb-upgrade --user=root --skip-write-binlog` in each member, with the password in `MYSQL_PWD`. They keep serving.
//! 4. Only then take the next step.
//!
//! To go back while at least one member still has the old series:
//!
//! 1. Set `wsrep_sst_donor` to the name of that member's pod, without a comma at the end. G09 warns about the missing comma; here
//!    no other member may be the donor.
//! 2. Set an override of G17 (below; and of G14, if that rule refuses because a member is not Ready), and set the old image
//!    again.
//! 3. Each member that ran the new image must copy everything, even if its old server starts. When the rollout is over, or hangs,
//!    delete its claim (override of G07), then its pod, one member at a time.
//! 4. When all are Ready, remove `wsrep_sst_donor`.
//!
//! When every member has the new series, and also to change to another vendor, restore a dump into a new cluster.
//!
//! An image of another container (a sidecar, an init container) that names no version only gets a warning.
//!
//! Allowed with a warning: a change from or to a reference without a version that can be compared (a digest alone, an image of
//! your own with its own numbering), and a tag that is only a major version (`mariadb:11`).
//!
//! # What was tried
//!
//! `make drills` tries 10.11, 11.4, 11.8 on three members while a client commits rows: up to 11.4 on two of three, one of
//! them with a full copy from 10.11, back to 10.11, then up to 11.8. No acknowledged row is lost. That 10.11 cannot read a
//! copy of 11.x was tried with servers outside Kubernetes. Not tried: `mariadb-upgrade` of 11.4, because the lab's 11.4 has
//! none (its scripts and its `mariadb-backup` are those of 11.8), and the step to 12.3.
//!
//! # Exceptions
//!
//! Annotate the StatefulSet, for an hour at most: `gatera.dev/override: "G17 until=2026-12-01T10:00:00Z reason=…"`.

use super::template;
use crate::rule::{Finding, Findings, OfTemplates, One, Review, Rule, Verb, Verdict, View, WRITTEN};
use facts::galera::image::{Image, VersionChange};
use facts::galera::{programs, server};
use facts::view::Cluster;
use facts::way_out::{CommandLine, WayOut, edit, say};
use objects::{Container, Kind, Pod, Template};

pub(super) const RULE: Rule = Rule {
    id: "G17",
    name: "image",
    judges: &[
        (Kind::StatefulSet, WRITTEN, OfTemplates(check)),
        (Kind::Deployment, WRITTEN, OfTemplates(check)),
        (Kind::Pod, &[Verb::Update], One(in_place)),
    ],
    depends_on_state: true,
    source: include_str!("image.rs"),
};

fn check(review: &Review, view: &View<'_>) -> Findings {
    let Some((new, server)) = template::of(review.new.as_ref(), view) else { return Findings::new() };
    let found = in_template(new, server, view);
    let Some((_, old_server)) = template::of(review.old.as_ref(), view) else { return found };
    let cluster = view.cluster(&review.namespace, &review.name);
    let step = (review.kind == Kind::StatefulSet).then(|| {
        let field = format!("spec.template.spec.containers[{}].image.version", server.name);
        let place = ImagePlace { rule: &RULE, field, prefix: format!("container {}: ", server.name) };
        place.step(&old_server.image, &server.image, cluster, view)
    });
    found.into_iter().chain(step.flatten()).collect()
}

/// Returns a finding if the image of a running pod changes: this restarts its server at once, regardless of the other members.
fn in_place(review: &Review, view: &View<'_>) -> Option<Finding> {
    let (old, new) = review.both::<Pod>()?;
    let cluster = view.cluster_of_pod(&review.namespace, &review.name)?;
    let pod = cluster.pod(&review.name).filter(|pod| pod.running)?;
    let before = server::in_pod(&old.metadata, &old.spec)?;
    let after = server::in_pod(&old.metadata, &new.spec)?;
    (before.name == after.name && before.image != after.image).then(|| {
        let Cluster { id, .. } = cluster;
        let field = format!("spec.containers[{}].image", after.name);
        let says = format!(
            "container {}: {} -> {} in the running pod restarts its server at once ({})",
            after.name,
            before.image,
            after.image,
            view.count(cluster)
        );
        let why = "an image that is set on pods restarts all of them at the same moment, bypasses the StatefulSet, and is \
                   lost with the pod";
        let set = CommandLine::new(format!("kubectl -n {} set image statefulset/{}", id.namespace, id.name));
        let set = edit(
            set.arg(format!("{}={}", after.name, after.image)),
            format!("write image: {} for container {} of StatefulSet {}", after.image, after.name, id.name),
        );
        let in_turn = set.then(format!("{} then gets it when its turn comes", pod.name));
        // Without this, the command could be one that this rule refuses.
        let place = ImagePlace { rule: &RULE, field: field.clone(), prefix: String::new() };
        let written = server::of(&cluster.workload.spec.template).map_or(&before.image, |it| &it.image);
        let step = place.step(written, &after.image, Some(cluster), view);
        let of_set = place.unpinned(&after.image, true).into_iter().chain(step);
        let refused = of_set.into_iter().find(|it| it.verdict == Verdict::Deny);
        RULE.deny(field, says, why, refused.map_or(in_turn, |it| it.instead))
    })
}

/// Returns findings about the new template alone.
fn in_template(template: &Template, server: &Container, view: &View<'_>) -> Findings {
    let mut found: Findings = future_release(server, view).into_iter().collect();
    for (list, container) in template.spec.all_containers() {
        let place = format!("spec.template.spec.{list}[{}].", container.name);
        let prefix = format!("container {}: image ", container.name);
        let image = ImagePlace { rule: &RULE, field: format!("{place}image"), prefix };
        found.extend(image.unpinned(&container.image, std::ptr::eq(container, server)));
        found.extend(missing_programs(&place, container));
    }
    found
}

/// Returns a warning about a release that can hardly exist yet.
fn future_release(server: &Container, view: &View<'_>) -> Option<Finding> {
    let year = view.now.to_zoned(jiff::tz::TimeZone::UTC).year();
    let (release, latest) = Image::read(&server.image).release(year)?;
    let Container { name, image, .. } = server;
    (release > latest).then(|| {
        RULE.warn(
            format!("spec.template.spec.containers[{name}].image.release"),
            format!("container {name}: image {image} names a release that can hardly exist yet"),
            "a member that restarts with an image that cannot be pulled does not come back",
            "compare with https://mariadb.org/mariadb/all-releases/",
        )
    })
}

fn missing_programs(place: &str, container: &Container) -> Findings {
    if !Image::read(&container.image).dropped_old_names() {
        return Findings::new();
    }
    let calls =
        container.command_lines().filter_map(|(field, words)| Some((field, programs::old_name(words)?)));
    let missing = |(field, (old, new)): (&str, (&str, &str))| {
        let Container { name, image, .. } = container;
        RULE.deny(
            format!("{place}{field}"),
            format!("{field} of container {name} calls {old}, which image {image} does not have"),
            "MariaDB's images dropped the old names at 11.0; a probe or hook that calls one fails \
             on every member",
            format!("call {new}; images since 10.5 have it too"),
        )
    };
    calls.map(missing).collect()
}

/// Returns whether no member ever ran the old image, because it could not be pulled; members that ran used the new image.
fn never_ran(cluster: &Cluster, old: &str, new: &str) -> bool {
    let pods = || cluster.members.iter().map(|member| member.pod.as_deref());
    pods().all(|pod| pod.is_some_and(|pod| !pod.has_run || pod.image == new))
        && pods().flatten().any(|pod| pod.image == old && pod.lacks_an_image)
}

/// Where an image is written.
pub struct ImagePlace<'a> {
    /// The rule that judges it.
    pub rule: &'a Rule,
    pub field: String,
    /// The text that precedes the image in a message.
    pub prefix: String,
}

impl ImagePlace<'_> {
    fn finding(&self, verdict: Verdict, says: String, why: &str, instead: impl Into<WayOut>) -> Finding {
        self.rule.finding(verdict, self.field.clone(), says, why.to_owned(), instead)
    }

    /// Returns a finding about an image whose reference can mean another version later. `serves` says whether it is the server's.
    pub fn unpinned(&self, written: &str, serves: bool) -> Option<Finding> {
        let image = Image::read(written);
        let (verdict, fault) = if image.floats() {
            (if serves { Verdict::Deny } else { Verdict::Warn }, "names no version")
        } else if image.is_major_only() && serves {
            (Verdict::Warn, "moves from series to series by itself")
        } else {
            return None;
        };
        let says = format!("{}{written} {fault}", self.prefix);
        let instead = if serves {
            say(format!("write the version: {}:VERSION", image.repository))
                .then("for a running cluster, the one that ")
                .run(CommandLine::new("mariadbd --version"))
                .say(" prints")
        } else {
            say("write the version").then("for a running cluster, the one that runs")
        };
        let why = "a pod that restarts by itself pulls what the tag means then, and a newer server changes the data permanently";
        Some(self.finding(verdict, says, why, instead))
    }

    /// Returns the most severe finding about the version change to the new image, from the image in the old template or from one
    /// that a member runs. A cluster without data may change to any version.
    pub fn step(&self, old: &str, new: &str, cluster: Option<&Cluster>, view: &View<'_>) -> Option<Finding> {
        if old == new || cluster.is_some_and(|cluster| !cluster.has_data()) {
            return None;
        }
        let written = (!cluster.is_some_and(|it| never_ran(it, old, new))).then_some(old);
        let written = written.filter(|image| !image.is_empty());
        let members = cluster.into_iter().flat_map(|it| &it.members).filter_map(|it| it.pod.as_deref());
        // Other webhooks write digests, which show less than the template does.
        let shows_version = |image: &str| Image::read(image).series().is_some();
        let running = members.filter(|pod| pod.has_run && pod.image != new && shows_version(&pod.image));
        let running = running.map(|pod| &*pod.image);
        let steps =
            written.into_iter().chain(running).filter_map(|from| self.step_from(from, new, cluster, view));
        // Of equally severe findings, the first.
        steps.reduce(|worst, it| if it.verdict > worst.verdict { it } else { worst })
    }

    fn step_from(&self, from: &str, to: &str, cluster: Option<&Cluster>, view: &View<'_>) -> Option<Finding> {
        let (was, is) = (Image::read(from), Image::read(to));
        let change = format!("{}{from} -> {to}", self.prefix);
        let seen = cluster.map(|cluster| format!(" ({})", view.describe(cluster))).unwrap_or_default();
        let keep = say(format!("keep {from}"))
            .or("to switch to the other server, dump the data and restore it into a new cluster");
        if let (Some(before), Some(after)) = (was.vendor(), is.vendor())
            && before != after
        {
            let says = format!("{change} would start {after} on data of {before}{seen}");
            let why = "the two do not read each other's data files and do not replicate with each other: the first member that \
                       restarts with it is lost";
            return Some(self.finding(Verdict::Deny, says, why, keep));
        }
        let (Some(before), Some(after), Some(vendor)) = (was.series(), is.series(), is.vendor()) else {
            // `unpinned` has already reported a missing version.
            if is.floats() {
                return None;
            }
            let says = format!("{change}: it is not known whether the server would be older than its data");
            let why = "an older server cannot read what a newer one wrote";
            let version = CommandLine::new("mariadbd --version");
            let instead = say("see what ").run(version).say(" prints in a running member first");
            return Some(self.finding(Verdict::Warn, says, why, instead));
        };
        let found = match vendor.step(before, after) {
            VersionChange::Same => return None,
            VersionChange::Up => self.finding(
                Verdict::Warn,
                format!("{change} is a new series"),
                "a full state transfer between two series can fail, so a member must be back before the write-set cache is full",
                "take a backup, raise gcache.size, and run mariadb-upgrade on each member afterwards",
            ),
            VersionChange::Skips(next) => self.finding(
                Verdict::Deny,
                format!("{change} skips series; {next} comes first{seen}"),
                "servers replicate with and upgrade from the series just before; after a longer step they cannot join old members",
                format!("go to {}:{next}, finish that step on all members, then repeat", is.repository),
            ),
            VersionChange::Down => self.finding(
                Verdict::Deny,
                format!("{change} is older than the data{seen}"),
                "a newer server changes the data files when it starts, and older ones are not designed for them",
                keep.then(say("to undo an upgrade while a member still has the old series: ").page("G17")),
            ),
        };
        Some(found)
    }
}
