//! Changes between two sets of manifests, as they occur in pull requests.

use inspect::check::Level;

use super::{CLUSTER, input, judged, lines};

/// Returns the cluster with one text in place of another.
fn with(old: &str, new: &str) -> String {
    assert!(CLUSTER.contains(old), "{old}");
    CLUSTER.replace(old, new)
}

/// Returns the cluster without the document that contains this text.
fn without(words: &str) -> String {
    let kept: Vec<_> = CLUSTER.split("\n---\n").filter(|it| !it.contains(words)).collect();
    assert!(kept.len() < CLUSTER.split("\n---\n").count(), "{words}");
    kept.join("\n---\n")
}

fn findings_of(before: &str, after: &str) -> String {
    lines(&judged(&[input("new.yaml", after)], Some(&[input("old.yaml", before)]))).join("\n")
}

const METHOD: &str = "wsrep_sst_method = mariabackup";
const BOTH: &str = "wsrep_provider_options = socket.dynamic=yes";
const TLS: &str = "wsrep_provider_options = socket.ssl=yes";
const TLS_AND_BOTH: &str = "wsrep_provider_options = \"socket.dynamic=yes;socket.ssl=yes\"";
const SET: &str = "name: galera-instance-galera,";

#[test]
fn only_the_change_is_judged() {
    let mut page = String::new();
    for (what, before, after) in [
        ("nothing", CLUSTER.to_owned(), CLUSTER.to_owned()),
        ("three members to one", CLUSTER.to_owned(), with("replicas: 3", "replicas: 1")),
        ("three members to two", CLUSTER.to_owned(), with("replicas: 3", "replicas: 2")),
        ("three members to five", CLUSTER.to_owned(), with("replicas: 3", "replicas: 5")),
        ("three members to none", CLUSTER.to_owned(), with("replicas: 3", "replicas: 0")),
        ("the StatefulSet is taken out", CLUSTER.to_owned(), without(SET)),
        (
            "a ConfigMap that is read is taken out",
            CLUSTER.to_owned(),
            without("{name: galera-instance-nodeconfig}\ndata"),
        ),
        ("all is taken out", CLUSTER.to_owned(), String::new()),
        ("all is new", String::new(), CLUSTER.to_owned()),
        ("an older server", CLUSTER.to_owned(), with("mariadb:10.11", "mariadb:10.6")),
        ("a newer server", CLUSTER.to_owned(), with("mariadb:10.11", "mariadb:11.4")),
        (
            "another governing Service",
            CLUSTER.to_owned(),
            with("serviceName: galera-instance-hs", "serviceName: galera-instance-cs"),
        ),
        (
            "a governing Service under another name, which is not in the address",
            CLUSTER.to_owned(),
            with("serviceName: galera-instance-hs", "serviceName: prod-headless"),
        ),
        (
            "a configuration under a new name, as kustomize makes it, that changes lower_case_table_names",
            CLUSTER.to_owned(),
            CLUSTER
                .replace("galera-instance-nodeconfig", "galera-instance-nodeconfig-7k2b")
                .replace(METHOD, &format!("{METHOD}\n    lower_case_table_names = 1")),
        ),
        (
            "a configuration under a new name with the same content",
            CLUSTER.to_owned(),
            CLUSTER.replace("galera-instance-nodeconfig", "galera-instance-nodeconfig-7k2b"),
        ),
        ("TLS between members at once", CLUSTER.to_owned(), with(METHOD, &format!("{METHOD}\n    {TLS}"))),
        (
            "TLS between members that accept both",
            with(METHOD, &format!("{METHOD}\n    {BOTH}")),
            with(METHOD, &format!("{METHOD}\n    {TLS_AND_BOTH}")),
        ),
        ("larger claims", CLUSTER.to_owned(), with("storage: 1Gi", "storage: 2Gi")),
        ("another password", CLUSTER.to_owned(), with("change-me", "hunter2")),
        (
            "another password in a Secret under a new name, as kustomize makes it",
            CLUSTER.to_owned(),
            secret_renamed(&with("change-me", "hunter2")),
        ),
        (
            "the labels by which it is adopted are changed",
            CLUSTER.to_owned(),
            with("app: galera, galera: galera, instance", "app: web, galera: galera, instance"),
        ),
        (
            "an option that breaks it",
            CLUSTER.to_owned(),
            with("innodb_autoinc_lock_mode = 2", "innodb_autoinc_lock_mode = 1"),
        ),
        (
            "an option that restarts members",
            CLUSTER.to_owned(),
            with("innodb_buffer_pool_size = 122M", "innodb_buffer_pool_size = 1G"),
        ),
        ("two members more, and their addresses", CLUSTER.to_owned(), {
            let five = with("replicas: 3", "replicas: 5");
            let hosts = "galera-instance-galera-2.galera-instance-hs";
            five.replace(hosts, &format!("{hosts},galera-instance-galera-3.galera-instance-hs,galera-instance-galera-4.galera-instance-hs"))
        }),
        ("the bootstrap node is taken out", CLUSTER.to_owned(), without("strategy: {type: Recreate}")),
        ("what was wrong before is edited", with("mariadb:10.11", "mariadb:latest"), {
            with("mariadb:10.11", "mariadb:latest").replace(
                "wsrep_sst_method = mariabackup",
                "wsrep_sst_method = mariabackup\n    wsrep_slave_threads = 4",
            )
        }),
        ("what was wrong before, and something else", with("mariadb:10.11", "mariadb:latest"), {
            with("mariadb:10.11", "mariadb:latest").replace(
                "serviceName: galera-instance-hs\n  replicas: 3",
                "serviceName: galera-instance-hs\n  replicas: 4",
            )
        }),
    ] {
        page.push_str(&format!("{what}\n{}\n\n", findings_of(&before, &after)));
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => ".." }, {
        insta::assert_snapshot!("check-changes", page);
    });
}

/// Renames the Secret and all references to it.
fn secret_renamed(files: &str) -> String {
    let renamed = |files: String, end| {
        files.replace(&format!("{{name: galera-instance{end}"), &format!("{{name: galera-instance-7k2b{end}"))
    };
    renamed(renamed(files.to_owned(), ","), "}")
}

/// Renaming a Secret or a key is judged as a change of the values that are read in the same places.
#[test]
fn a_secret_under_another_name_is_judged_as_the_same_change_in_place() {
    let key = |files: &str| files.replace("root-password", "root");
    let whole = |files: &str| {
        let items = ", items: [{key: sst.cnf, path: sst.cnf}]";
        assert!(files.contains(items));
        files.replace(items, "")
    };
    let elsewhere = |files: &str| {
        let text = secret_renamed(files);
        format!(
            "{text}\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: galera-instance}}\nstringData: {{root-password: change-me}}\n"
        )
    };
    let judged = |before: &str, after: &str| -> Vec<(Level, String)> {
        let checked = judged(&[input("new.yaml", after)], Some(&[input("old.yaml", before)]));
        let said = checked.findings.iter().map(|finding| (finding.level(), format!("{:?}", finding.rule())));
        let mut said: Vec<_> = said.filter(|(_, rule)| rule.contains("G12")).collect();
        said.dedup();
        let shown = lines(&checked).join("\n");
        assert!(!shown.contains("change-me") && !shown.contains("hunter2"), "{shown}");
        said
    };
    for (what, before, after, refused) in [
        ("nothing", CLUSTER.to_owned(), CLUSTER.to_owned(), false),
        ("another password", CLUSTER.to_owned(), with("change-me", "hunter2"), true),
        ("a variable", CLUSTER.to_owned(), with("root-password: change-me", "root-password: hunter2"), true),
        ("a file", CLUSTER.to_owned(), with("root:change-me", "root:hunter2"), true),
        (
            "a file in a volume with all keys",
            whole(CLUSTER),
            whole(&with("root:change-me", "root:hunter2")),
            true,
        ),
        (
            "an option that may change",
            CLUSTER.to_owned(),
            with("[galera]\n    wsrep_sst_auth", "[galera]\n    wsrep_slave_threads = 4\n    wsrep_sst_auth"),
            false,
        ),
        (
            "a file that is gone",
            CLUSTER.to_owned(),
            with("  sst.cnf: |\n    [galera]\n    wsrep_sst_auth = \"root:change-me\"\n", ""),
            true,
        ),
    ] {
        let in_place = judged(&before, &after);
        assert_eq!(!in_place.is_empty(), refused, "{what}: {in_place:?}");
        for (rename, changed) in [
            ("another name", secret_renamed(&after)),
            ("another name and key", key(&secret_renamed(&after))),
            ("another name, and the first one stays", elsewhere(&after)),
        ] {
            assert_eq!(judged(&before, &changed), in_place, "{what}, {rename}");
        }
    }
    // A Secret that is not among the files may hold another value; and of two Secrets with one name, it is unclear which applies.
    let alone = secret_renamed(CLUSTER).replace("kind: Secret\n", "kind: Unknown\n");
    let other = "apiVersion: v1\nkind: Secret\nmetadata: {name: galera-instance-7k2b}\nstringData: {root-password: hunter2}\n";
    for unknown in [alone, format!("{}\n---\n{other}", secret_renamed(CLUSTER))] {
        assert_eq!(judged(CLUSTER, &unknown), [(Level::Warning, r#"Some("G12")"#.to_owned())]);
    }
}

/// The order of objects, and the file in which each is, make no difference.
#[test]
fn an_object_may_move_between_files() {
    let documents: Vec<_> = CLUSTER.split("\n---\n").collect();
    let moved: Vec<_> =
        documents.iter().rev().enumerate().map(|(at, text)| input(&format!("{at}.yaml"), text)).collect();
    let checked = judged(&moved, Some(&[input("old.yaml", CLUSTER)]));
    assert_eq!(lines(&checked), [""; 0]);
    assert!(checked.objects.iter().all(|it| it.unchanged), "{:?}", checked.objects);
    assert_eq!((checked.objects.len(), checked.clusters), (8, 1));
}

/// No cluster is read, so the state of the members is assumed, and the message says so.
#[test]
fn the_state_of_members_is_assumed_and_the_message_says_so() {
    let said = findings_of(CLUSTER, &without(SET));
    assert!(said.contains("(3 of 3 members Synced, assumed here)"), "{said}");
}

/// If the base cannot be read, a finding says so: nothing is silently treated as new or unchanged.
#[test]
fn an_unreadable_base_is_reported() {
    let broken = format!("{CLUSTER}\n---\na: [\n");
    let checked = judged(&[input("new.yaml", CLUSTER)], Some(&[input("old.yaml", &broken)]));
    let words = "note - line 119 of the base: the earlier document was not compared: this is not YAML: a bracket or a brace is not closed";
    assert_eq!(lines(&checked), [words]);
    assert_eq!(checked.unjudged_findings(), 1, "with --strict that is an error");
    // An object that cannot be read is not a new object.
    let odd = with("replicas: 3", "replicas: three");
    for after in [with("replicas: 3", "replicas: 1"), without(SET)] {
        let said = findings_of(&odd, &after);
        let words =
            "the earlier StatefulSet db/galera-instance-galera cannot be read, so the change was not judged";
        assert!(said.contains(words), "{said}");
    }
}

/// An object in another namespace is a different object, and so is one that only gets its name when it is created.
#[test]
fn an_object_in_another_namespace_is_another_object() {
    let one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    let other = one.replace("namespace: b", "namespace: c");
    let checked = judged(&[input("new.yaml", &other)], Some(&[input("old.yaml", one)]));
    assert_eq!(checked.objects.len(), 2, "one object is new and one is gone");
    let made = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n";
    let checked = judged(&[input("new.yaml", made)], Some(&[input("old.yaml", made)]));
    assert_eq!(checked.objects.iter().filter(|it| it.unchanged).count(), 0);
}

/// In folders for several clusters without a namespace, each cluster is compared with its own earlier files only.
#[test]
fn the_same_names_in_several_files_are_several_objects() {
    let one = with("replicas: 3", "replicas: 1");
    let base = [input("prod.yaml", CLUSTER), input("staging.yaml", &one)];
    let checked = judged(&[input("prod.yaml", &one), input("staging.yaml", &one)], Some(&base));
    let refused: Vec<_> = lines(&checked).into_iter().filter(|it| it.starts_with("refused")).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("3 -> 1 replicas"), "{refused:?}");
    let checked = judged(&[input("staging.yaml", &one)], Some(&base));
    let refused: Vec<_> = lines(&checked).into_iter().filter(|it| it.starts_with("refused G03")).collect();
    assert_eq!(refused.len(), 1, "the removal of prod.yaml is not refused: {:?}", lines(&checked));
}

/// A change that makes the mode of its namespace milder is itself judged by the earlier mode.
#[test]
fn a_milder_mode_of_a_namespace_does_not_hide_findings_of_the_same_change() {
    let namespace = |mode: &str| {
        format!(
            "{CLUSTER}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: db, labels: {{gatera.dev/mode: '{mode}'}}}}\n"
        )
    };
    for (before, mode) in
        [(namespace("enforce"), "audit"), (namespace("enforce"), "off"), (CLUSTER.to_owned(), "off")]
    {
        let after = namespace(mode).replace("replicas: 3", "replicas: 1");
        let said = findings_of(&before, &after);
        assert!(
            said.contains("refused G01 ")
                && said.contains(&format!(
                    "Namespace db: gatera.dev/mode enforce -> {mode}: rules will refuse less in this namespace"
                )),
            "{said}"
        );
    }
    let stricter =
        findings_of(&namespace("audit"), &namespace("enforce").replace("replicas: 3", "replicas: 1"));
    assert!(stricter.starts_with("note G01 "), "not judged by the earlier mode: {stricter}");
}

/// The removal of a server that the guard does not know counts as not judged, not as fine.
#[test]
fn removing_a_server_that_no_selector_adopts_is_reported_as_not_judged() {
    let stranger = with("app: galera, galera: galera, instance", "app: shop, galera: galera, instance");
    let checked = judged(&[input("new.yaml", "")], Some(&[input("old.yaml", &stranger)]));
    assert!(checked.unjudged_findings() > 0, "{:?}", lines(&checked));
}

/// A removal is waived by a comment in the base, where the object was.
#[test]
fn a_removal_is_waived_by_the_comment_above_the_object_in_the_base() {
    let marked = with(
        "apiVersion: apps/v1\nkind: StatefulSet",
        "# gatera: waive G03 reason=the shop moved\napiVersion: apps/v1\nkind: StatefulSet",
    );
    let said = findings_of(&marked, &without(SET));
    assert!(said.starts_with("waived G03 line 87 of the base: "), "{said}");
    assert!(findings_of(CLUSTER, &without(SET)).starts_with("refused G03 "));
}
