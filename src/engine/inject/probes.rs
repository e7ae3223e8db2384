//! Probes and the preStop hook: they read the server's status file, or only connect to its port, so they need no password.

use serde_json::{Value, json};

use super::files::SCRIPT;
use super::{InjectTarget, edit};
use facts::galera::options;
use facts::galera::ports::DEFAULT_PORT;
use facts::marks;
use objects::{Container, Handler, Literal, Meta};

/// The seconds that a member may take to copy the whole database, unless `gatera.dev/startup-limit` says more.
const STARTUP_LIMIT: i64 = 3600;
/// The seconds between two startup probes, by which Ready can lag behind the end of joining.
const STARTUP_PERIOD: i64 = 2;
/// Thirty days, in seconds: the API server refuses numbers that do not fit 32 bits.
const LONGEST_START: i64 = 30 * 24 * 3600;

/// Adds the hook that makes a member wait while a joiner depends on it. A user's own hook stays.
pub(super) fn add_pre_stop(container: &mut Value, seconds: i64) {
    if !container["lifecycle"]["preStop"].is_object() || is_ours(&container["lifecycle"]["preStop"]) {
        edit::set(
            container,
            &["lifecycle", "preStop"],
            json!({ "exec": { "command": [SCRIPT, "leave", seconds.to_string()] } }),
        );
    }
}

/// Adds the three probes, if it is known how the server is started. Returns whether Ready will mean Synced.
pub(super) fn add(container: &mut Value, target: &InjectTarget<'_>) -> bool {
    if target.profile.keeps_probes().is_some() {
        return false;
    }
    add_startup(container, target);
    replace_liveness(container, target);
    add_readiness(container, target)
}

/// Adds the readiness probe unless the user's own asks for Galera's state or is to be kept. Returns whether Ready will mean
/// Synced.
fn add_readiness(container: &mut Value, target: &InjectTarget<'_>) -> bool {
    if target.server.readiness_probe.as_ref().is_some_and(sees_galera) {
        return true;
    }
    if target.mark(marks::READINESS) == Some("keep") {
        return false;
    }
    let mut command = vec![SCRIPT, "ready"];
    if transfer_blocks_donor(target) {
        command.push("blocking");
    }
    edit::set(
        container,
        &["readinessProbe"],
        json!({ "exec": { "command": command }, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 2 }),
    );
    true
}

/// Returns the fault of the user's readiness probe, if injection replaces it.
pub(super) fn replaces_readiness(server: &Container, meta: &Meta) -> Option<&'static str> {
    let kept = meta.mark(marks::READINESS) == Some("keep");
    let own = server.readiness_probe.as_ref().filter(|probe| !kept && !sees_galera(probe))?;
    Some(if own.http_get.is_some() {
        "asks over HTTP, and gatera cannot know whether the answer depends on Galera's state: it"
    } else {
        "cannot see Galera's state and"
    })
}

/// Returns whether a probe asks for Galera's state, by gatera's script at any path or in another way. An older script of
/// that name, which takes no argument and only waits, does not count.
pub(super) fn sees_galera(probe: &Handler) -> bool {
    let words: Vec<_> = probe.exec.command.iter().map(Literal::look).collect();
    let command = words.join(" ");
    ["wsrep", "galera_online", SCRIPT, "/wait-for-sync.sh ready"].iter().any(|known| command.contains(known))
}

/// Returns whether the transfer method blocks the donor: rsync and mysqldump do.
fn transfer_blocks_donor(target: &InjectTarget<'_>) -> bool {
    let texts = target.view.option_files(target.namespace, &target.typed.spec);
    let method = texts.filter_map(|text| options::effective(text, "wsrep_sst_method")).last();
    method.is_some_and(|method| matches!(method.look(), "rsync" | "rsync_wan" | "mysqldump"))
}

/// Returns the seconds that a member may take to start.
fn startup_limit(meta: &Meta) -> i64 {
    let requested = meta.mark(marks::STARTUP_LIMIT).and_then(|text| text.parse().ok());
    requested.unwrap_or(0).clamp(STARTUP_LIMIT, LONGEST_START)
}

/// Returns the seconds that the user's startup probe waits, and those of its replacement; `None` if it waits long enough.
pub(super) fn replaces_startup(server: &Container, meta: &Meta) -> Option<(i64, i64)> {
    let runs_our_script = |probe: &Handler| probe.exec.command.first().is_some_and(|it| it.look() == SCRIPT);
    let own = server.startup_probe.as_ref().filter(|probe| !runs_our_script(probe))?;
    let (seconds, limit) = (own.seconds_to_failure(), startup_limit(meta));
    (seconds < limit).then_some((seconds, limit))
}

/// Adds the startup probe, which holds back the other two until the member has joined.
fn add_startup(container: &mut Value, target: &InjectTarget<'_>) {
    let limit = startup_limit(&target.typed.metadata);
    let kept = target.planned.replaces_startup.is_none();
    if kept && container["startupProbe"].is_object() && !is_ours(&container["startupProbe"]) {
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

/// Returns whether a probe may ask the database: by its command, or by HTTP, which the server does not speak. In case of doubt
/// the answer is yes, because replacing a probe does no harm.
pub(super) fn asks_the_database(probe: &Handler) -> bool {
    let asks = |word: &str| {
        ["mysql", "mariadb", "wsrep", "healthcheck.sh", "wait-for-sync.sh"]
            .iter()
            .any(|known| word.contains(known))
    };
    probe.http_get.is_some() || probe.exec.command.iter().any(|word| asks(word.look()))
}

/// Replaces a liveness probe that asks the database by a check of the port. One that logs in kills every member at once when the
/// password changes, and one that requires Synced kills donors and joiners.
fn replace_liveness(container: &mut Value, target: &InjectTarget<'_>) {
    if !target.planned.replaces_liveness {
        return;
    }
    let port = target.ports().clients.unwrap_or(DEFAULT_PORT);
    edit::set(
        container,
        &["livenessProbe"],
        json!({ "tcpSocket": { "port": port }, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6 }),
    );
}

fn is_ours(handler: &Value) -> bool {
    handler["exec"]["command"][0] == SCRIPT
}
