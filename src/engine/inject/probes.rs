//! Probes and the preStop hook: all of them ask the server's status file, none needs a password.

use serde_json::{Value, json};

use super::InjectTarget;
use super::edit;
use super::files::SCRIPT;
use facts::galera::options;
use facts::galera::ports::USUAL;
use facts::marks;
use objects::{Container, Handler, Literal, Meta};

/// How long a member may take to copy the whole database before it is given up, unless `gatera.dev/startup-limit`
/// (seconds) says more.
const STARTUP_LIMIT: i64 = 3600;
/// By so much Ready lags behind the end of joining, and the next member waits for it.
const STARTUP_PERIOD: i64 = 2;
/// Thirty days: the API server refuses numbers that do not fit 32 bits.
const LONGEST_START: i64 = 30 * 24 * 3600;

/// The member waits until nobody needs it as a donor. A hook of the user's own stays.
pub(super) fn add_pre_stop(container: &mut Value, seconds: i64) {
    if !container["lifecycle"]["preStop"].is_object() || is_ours(&container["lifecycle"]["preStop"]) {
        edit::set(
            container,
            &["lifecycle", "preStop"],
            json!({ "exec": { "command": [SCRIPT, "leave", seconds.to_string()] } }),
        );
    }
}

/// The three probes, where it is known how the server is started. Returns whether Ready will mean Synced.
pub(super) fn add(
    container: &mut Value,
    server: &Container,
    patient: &InjectTarget<'_>,
    remarks: &mut Vec<String>,
) -> bool {
    if let Some(why) = patient.profile.keeps_probes() {
        remarks.push(format!("container {} keeps its probes: {why}", server.name));
        return false;
    }
    startup(container, server, patient, remarks);
    liveness(container, server, patient, remarks);
    readiness(container, server, patient, remarks)
}

fn readiness(
    container: &mut Value,
    server: &Container,
    patient: &InjectTarget<'_>,
    remarks: &mut Vec<String>,
) -> bool {
    if server.readiness_probe.as_ref().is_some_and(sees_galera) {
        return true;
    }
    if patient.mark(marks::READINESS) == Some("keep") {
        remarks.push(format!(
            "container {} keeps its readiness probe: Ready does not prove Synced",
            server.name
        ));
        return false;
    }
    if let Some(why) = replaces_readiness(server, &patient.read.metadata) {
        remarks.push(format!(
            "readinessProbe of container {} {why} is replaced; gatera.dev/readiness: keep keeps it",
            server.name
        ));
    }
    let mut command = vec![SCRIPT, "ready"];
    if donor_blocks(patient) {
        command.push("blocking");
    }
    edit::set(
        container,
        &["readinessProbe"],
        json!({ "exec": { "command": command }, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 2 }),
    );
    true
}

/// What is wrong with a readiness probe of the user's own that ours takes the place of, where injection puts in probes.
pub(super) fn replaces_readiness(server: &Container, meta: &Meta) -> Option<&'static str> {
    let kept = meta.mark(marks::READINESS) == Some("keep");
    let own = server.readiness_probe.as_ref().filter(|probe| !kept && !sees_galera(probe))?;
    Some(if own.http_get.is_some() {
        "asks over HTTP, and gatera cannot know whether the answer depends on Galera's state: it"
    } else {
        "cannot see Galera's state and"
    })
}

/// A probe that asks for Galera's state, by our script wherever a chart puts it, or by another way. The seed documents'
/// script of that name takes no argument, and only waits.
pub(super) fn sees_galera(probe: &Handler) -> bool {
    let words: Vec<_> = probe.exec.command.iter().map(Literal::look).collect();
    let command = words.join(" ");
    ["wsrep", "galera_online", SCRIPT, "/wait-for-sync.sh ready"].iter().any(|known| command.contains(known))
}

/// rsync and mysqldump block the donor while it sends; every other method leaves it answering.
fn donor_blocks(patient: &InjectTarget<'_>) -> bool {
    let texts = patient.view.option_files(patient.namespace, &patient.read.spec);
    let method = texts.filter_map(|text| options::effective(text, "wsrep_sst_method")).last();
    method.is_some_and(|method| matches!(method.look(), "rsync" | "rsync_wan" | "mysqldump"))
}

/// How long a member may take to start, in seconds.
fn startup_limit(meta: &Meta) -> i64 {
    let said = meta.mark(marks::STARTUP_LIMIT).and_then(|text| text.parse().ok());
    said.unwrap_or(0).clamp(STARTUP_LIMIT, LONGEST_START)
}

/// How long a startup probe of the user's own waits, and how long the one that takes its place: it stays if it waits as long.
pub(super) fn replaces_startup(server: &Container, meta: &Meta) -> Option<(i64, i64)> {
    let ours = |probe: &Handler| probe.exec.command.first().is_some_and(|it| it.look() == SCRIPT);
    let own = server.startup_probe.as_ref().filter(|probe| !ours(probe))?;
    let (patience, limit) = (own.patience(), startup_limit(meta));
    (patience < limit).then_some((patience, limit))
}

/// The other two wait until joining is over.
fn startup(container: &mut Value, server: &Container, patient: &InjectTarget<'_>, remarks: &mut Vec<String>) {
    let meta = &patient.read.metadata;
    let limit = startup_limit(meta);
    if let Some((patience, _)) = replaces_startup(server, meta) {
        remarks.push(format!("startupProbe of container {} gives up after {patience}s and is replaced by one that waits {limit}s for a member to join", server.name));
    } else if container["startupProbe"].is_object() && !is_ours(&container["startupProbe"]) {
        return;
    }
    edit::set(
        container,
        &["startupProbe"],
        json!({
            "exec": { "command": [SCRIPT, "started"] },
            "periodSeconds": STARTUP_PERIOD,
            "timeoutSeconds": 5,
            "failureThreshold": (limit + STARTUP_PERIOD - 1) / STARTUP_PERIOD,
        }),
    );
}

/// A command that has to do with the database; replacing one too many does no harm.
pub(super) fn asks_the_database(probe: &Handler) -> bool {
    let asks = |word: &str| {
        ["mysql", "mariadb", "wsrep", "healthcheck.sh", "wait-for-sync.sh"]
            .iter()
            .any(|known| word.contains(known))
    };
    probe.exec.command.iter().any(|word| asks(word.look()))
}

/// A liveness probe that logs in kills every member at once when the password changes, and one that wants Synced kills
/// donors and joiners. Whether the port answers is enough to know that the server lives.
fn liveness(
    container: &mut Value,
    server: &Container,
    patient: &InjectTarget<'_>,
    remarks: &mut Vec<String>,
) {
    if !server.liveness_probe.as_ref().is_some_and(asks_the_database) {
        return;
    }
    let port = patient.ports(server).clients.unwrap_or(USUAL);
    remarks.push(format!("livenessProbe of container {} needs a login or Galera's state and is replaced by a look at port {port}", server.name));
    edit::set(
        container,
        &["livenessProbe"],
        json!({ "tcpSocket": { "port": port }, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6 }),
    );
}

fn is_ours(handler: &Value) -> bool {
    handler["exec"]["command"][0] == SCRIPT
}
