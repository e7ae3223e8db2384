//! The step script, which runs at every start of the server's container: a crashed server does not know its position, and
//! members without one form their cluster again without comparing their data.
//!
//! Owns: where the step script can be injected. Its text is `start-member.sh`.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::profile::Profile;
use super::{InjectTarget, edit};
use facts::galera::added::START_SCRIPT;
use facts::galera::bitnami;
use facts::galera::image::Image;
use facts::galera::start::EntryPoint;
use facts::marks;
use facts::view::Freshness;
use objects::{Container, Meta};

/// How the server starts after injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMethod {
    /// The command already recovers the position.
    Recovers,
    /// Injection puts the step script in front of the server.
    Prepended,
    /// The server starts without its position after a crash.
    Blind { why: &'static str, instead: &'static str },
}

impl StartMethod {
    /// Returns how this container's server starts, in a pod with these annotations.
    pub(super) fn of(server: &Container, meta: &Meta) -> Self {
        match EntryPoint::of(server) {
            entry_point if entry_point.recovers() => Self::Recovers,
            _ if meta.mark(marks::START) == Some("keep") => Self::Blind {
                why: "gatera.dev/start: keep leaves its command unchanged",
                instead: "remove gatera.dev/start: keep from the template",
            },
            _ if is_bitnami_image(server, meta) => match Profile::of(server, meta) {
                Profile::Overridden(why) => Self::Blind { why, instead: "remove that setting" },
                _ => Self::Prepended,
            },
            EntryPoint::Unknown => Self::Blind {
                why: "gatera does not know what its command, or its arguments, start",
                instead: "leave command out, or begin it with docker-entrypoint.sh or mariadbd",
            },
            // A command replaces the image's entry point, which must be known.
            _ if server.command.is_empty() && !entry_point_is_known(server, meta) => Self::Blind {
                why: "it is not known how its image starts the server",
                instead: "set gatera.dev/profile: official if it starts as the official image does",
            },
            _ => Self::Prepended,
        }
    }
}

fn is_bitnami_image(server: &Container, meta: &Meta) -> bool {
    Profile::named_or_detected(server, meta.mark(marks::PROFILE)) == Profile::Bitnami
}

/// Returns whether the entry point is known: a user set the profile, or it is the official image, from any mirror. Other images
/// of the same name may have another entry point.
fn entry_point_is_known(server: &Container, meta: &Meta) -> bool {
    let named = meta.mark(marks::PROFILE);
    let official = Profile::named_or_detected(server, named) == Profile::Official;
    official && (named.is_some() || Image::read(&server.image).is_official())
}

/// Puts the step script in front of the command. Bitnami's image gets it through the file that `BASH_ENV` names.
pub(super) fn add(container: &mut Value, target: &InjectTarget<'_>) {
    match target.planned.start {
        StartMethod::Recovers | StartMethod::Blind { .. } => {}
        StartMethod::Prepended if target.profile == Profile::Bitnami => {
            edit::put_named(
                container,
                &["env"],
                json!({ "name": bitnami::BASH_ENV, "value": bitnami::SCRIPT }),
            );
        }
        StartMethod::Prepended => {
            let mut command = vec![json!("sh"), json!(START_SCRIPT)];
            match container["command"].as_array() {
                Some(own) if !own.is_empty() => command.extend(own.iter().cloned()),
                // A container with a command of its own no longer gets the image's arguments.
                _ => {
                    command.push(json!("docker-entrypoint.sh"));
                    if container["args"].as_array().is_none_or(Vec::is_empty) {
                        edit::set(container, &["args"], json!(["mariadbd"]));
                    }
                }
            }
            edit::set(container, &["command"], command.into());
            if target.is_driven() {
                let founding = json!({ "name": "GATERA_FOUNDING_FILE", "value": founding_file(target) });
                edit::put_named(container, &["env"], founding);
            }
        }
    }
}

/// The time in which a new pod may start an operator's cluster again, by the operator's option file. Afterwards the operator
/// gives up by itself.
const RESUME_TIME: SignedDuration = SignedDuration::from_mins(10);

/// Returns whether the option file with which an operator starts its cluster again may do so in this pod, and until when. It may
/// not while a member serves, because such a file may be left over from the last time.
fn founding_file(target: &InjectTarget<'_>) -> String {
    let may_serve = target.cluster.is_none_or(|cluster| cluster.ready() > 0);
    if may_serve || target.view.freshness != Freshness::Current {
        return "join".to_owned();
    }
    let until = target.view.now.saturating_add(RESUME_TIME).unwrap_or(target.view.now);
    format!("resume {}", until.strftime("%Y%m%d%H%M%S"))
}
