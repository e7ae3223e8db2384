//! Containers and scripts that, whenever they run, empty the data directory or write which member may bootstrap.

use super::RULE;
use crate::verdict::{Findings, Verdict};
use facts::galera::data::DataFolder;
use facts::galera::programs;
use facts::way_out::say;
use objects::{Literal, Mount, Workload};

pub(super) fn rewrites(new: &Workload, place: Option<&DataFolder>) -> Findings {
    let found = new.spec.template.spec.all_containers().filter_map(|(list, container)| {
        let words: Vec<_> = container.command.iter().chain(&container.args).cloned().collect();
        // Another folder of the same volume is not the data directory.
        let holds_the_data = |place: &DataFolder, mount: &Mount| {
            let whole = mount.sub_path.is_empty() && mount.sub_path_expr.is_empty();
            Some(&mount.name) == place.volume.as_ref() && (whole || mount.sub_path == place.folder)
        };
        let mount =
            place.and_then(|place| container.volume_mounts.iter().find(|mount| holds_the_data(place, mount)));
        let mounted = mount.map(|mount| mount.mount_path.trim_end_matches('/'));
        let says = if founds_by_hand(&words) {
            "writes safe_to_bootstrap whenever it runs"
        } else if mounted.is_some_and(|mounted| empties(&words, mounted)) {
            "empties the data directory whenever it runs"
        } else {
            return None;
        };
        // The script may first check whether there is data.
        let checks = words
            .iter()
            .any(|it| ["if ", "[ ", "case ", "&&", "||"].iter().any(|word| it.look().contains(word)));
        let verdict = if checks { Verdict::Warn } else { Verdict::Deny };
        let field = format!("spec.template.spec.{list}[{}].command", container.name);
        let says = format!("container {} {says}", container.name);
        let instead = say("remove it").then("do one-time tasks by hand, in one member");
        Some(RULE.finding(verdict, field, says, WHY, instead))
    });
    found.collect()
}

const WHY: &str =
    "it runs each time the pod is created: the member loses its data, or creates a second cluster";

/// Returns whether a command deletes the folder itself, or everything in it.
fn empties(words: &[Literal], mounted: &str) -> bool {
    let all = |word: &String| {
        let rest = word.strip_prefix(mounted).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        rest.is_some_and(|rest| ["", "*", "data", "data/", "data/*"].contains(&rest.trim_start_matches('/')))
    };
    programs::runs(words, |path, arguments| {
        let any = |words: &[&str]| arguments.iter().any(|it| words.contains(&&**it));
        let deletes = match programs::name(path) {
            "rm" => true,
            // A `find` with a filter keeps the other files.
            "find" => any(&["-delete"]) && !any(&["-name", "-iname", "-path", "-regex", "-mtime", "-size"]),
            _ => false,
        };
        deletes && arguments.iter().any(all)
    })
}

/// Returns whether a command sets `safe_to_bootstrap`. Only a server, or a person who has compared all members, may do that.
fn founds_by_hand(words: &[Literal]) -> bool {
    let names = |word: &str| word.contains("safe_to_bootstrap");
    words.iter().any(|word| names(word.look()))
        && programs::runs(words, |path, arguments| {
            let writes = |it: &String| match programs::name(path) {
                "sed" | "perl" => it.starts_with("-i") || it.starts_with("-pi"),
                "echo" | "printf" => it.starts_with('>'),
                _ => false,
            };
            arguments.iter().any(writes) && arguments.iter().any(|it| names(it) && it.contains('1'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_empty_or_mark_the_data_are_found() {
        let words = |script: &str| ["sh", "-c", script].map(Literal::from);
        for (script, bad) in [
            ("rm -rf /var/lib/mysql/*", true),
            ("chown -R 999 /var/lib/mysql && rm -rf /var/lib/mysql", true),
            ("find /var/lib/mysql/ -mindepth 1 -delete", true),
            ("find /var/lib/mysql -name '*.pid' -delete", false),
            ("rm -rf /var/lib/mysqldata", false),
            ("rm -rf /var/lib/mysql/lost+found", false),
            ("rm -f /var/lib/mysql/*.pid", false),
            ("rm -rf /tmp/*", false),
        ] {
            assert_eq!(empties(&words(script), "/var/lib/mysql"), bad, "{script}");
        }
        for (script, bad) in [
            ("sed -i 's/safe_to_bootstrap: 0/safe_to_bootstrap: 1/' /var/lib/mysql/grastate.dat", true),
            ("echo 'safe_to_bootstrap: 1' > /var/lib/mysql/grastate.dat", true),
            ("sed -n 's/safe_to_bootstrap: 1/x/p' /var/lib/mysql/grastate.dat", false),
            ("echo safe_to_bootstrap is 1", false),
            ("grep safe_to_bootstrap /var/lib/mysql/grastate.dat", false),
        ] {
            assert_eq!(founds_by_hand(&words(script)), bad, "{script}");
        }
    }
}
