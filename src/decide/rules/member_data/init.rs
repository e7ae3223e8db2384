//! Init containers and scripts that change what is under the data directory, at every start of a member.

use super::finding;
use crate::galera::data::Place;
use crate::galera::programs;
use crate::object::{Literal, Workload};
use crate::verdict::{Finding, Findings, Verdict};

pub(super) fn rewrites(new: &Workload, place: Option<&Place>) -> Findings {
    let found = new.spec.template.spec.all_containers().filter_map(|(list, container)| {
        let words: Vec<_> = container.command.iter().chain(&container.args).cloned().collect();
        let mount = place.and_then(|place| {
            container.volume_mounts.iter().find(|mount| Some(&mount.name) == place.volume.as_ref())
        });
        let mounted = mount.map(|mount| mount.mount_path.trim_end_matches('/'));
        let says = if founds_by_hand(&words) {
            "writes safe_to_bootstrap at every start of a member"
        } else if mounted.is_some_and(|mounted| empties(&words, mounted)) {
            "empties the data directory at every start of a member"
        } else {
            return None;
        };
        let field = format!("spec.template.spec.{list}[{}].command", container.name);
        let says = format!("container {} {says}", container.name);
        let instead = "take that out; what is to be done once, do by hand in one member";
        Some(Finding { why: WHY.to_owned(), ..finding(Verdict::Deny, field, says, instead.to_owned()) })
    });
    found.collect()
}

const WHY: &str = "it happens again whenever the pod is made anew: the member then forgets what it had, or founds a cluster over the others";

/// `rm -rf` of the folder itself, or of all that is in it.
fn empties(words: &[Literal], mounted: &str) -> bool {
    let all = |word: &String| {
        let rest = word.strip_prefix(mounted).map(|rest| rest.trim_start_matches('/'));
        rest.is_some_and(|rest| ["", "*", "data", "data/", "data/*"].contains(&rest))
    };
    programs::runs(words, |path, arguments| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let deletes = name == "rm" || name == "find" && arguments.iter().any(|it| it == "-delete");
        deletes && arguments.iter().any(all)
    })
}

/// The file that says who may found the cluster is only ever written by a server, or by a person who compared all members.
fn founds_by_hand(words: &[Literal]) -> bool {
    let names = |word: &str| word.contains("safe_to_bootstrap");
    let writes = |path: &str, arguments: &[String]| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let program = ["sed", "perl", "echo", "printf", "awk"].contains(&name);
        program && arguments.iter().any(|it| names(it) && it.contains('1'))
    };
    words.iter().any(|word| names(word.look())) && programs::runs(words, writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_do_to_the_data() {
        let words = |script: &str| ["sh", "-c", script].map(Literal::from);
        for (script, bad) in [
            ("rm -rf /var/lib/mysql/*", true),
            ("chown -R 999 /var/lib/mysql && rm -rf /var/lib/mysql", true),
            ("find /var/lib/mysql/ -mindepth 1 -delete", true),
            ("rm -rf /var/lib/mysql/lost+found", false),
            ("rm -f /var/lib/mysql/*.pid", false),
            ("rm -rf /tmp/*", false),
        ] {
            assert_eq!(empties(&words(script), "/var/lib/mysql"), bad, "{script}");
        }
        for (script, bad) in [
            ("sed -i 's/safe_to_bootstrap: 0/safe_to_bootstrap: 1/' /var/lib/mysql/grastate.dat", true),
            ("grep safe_to_bootstrap /var/lib/mysql/grastate.dat", false),
        ] {
            assert_eq!(founds_by_hand(&words(script)), bad, "{script}");
        }
    }
}
