//! An object that was not judged does not count as fine, and no text causes a panic.

use inspect::check::{Level, Outcome};
use proptest::prelude::*;
use report::check::{Format, lay_out};

use crate::cli::gatera;

use super::{CLUSTER, input, judged, lines};

#[test]
fn objects_that_are_not_judged_are_reported() {
    let set = |labels: &str, more: &str| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: shop{more}}}\nspec:\n  template:\n    metadata: {{labels: {{{labels}}}}}\n    spec:\n      containers: [{{name: db, image: 'mariadb:10.11', PORTS}}]\n"
        )
    };
    let galera = set("app: shop", "").replace("PORTS", "ports: [{containerPort: 4567}]");
    for (text, words) in [
        (
            "apiVersion: apps/v1\nkind: statefulset\nmetadata: {name: a}\n".to_owned(),
            "note - line 2: there is no kind statefulset, so it was not judged; kubectl knows StatefulSet",
        ),
        (
            "apiVersion: apps/v1\nkind: StatefullSet\nmetadata: {name: a}\n".to_owned(),
            "note - line 2: there is no kind StatefullSet, so it was not judged; kubectl knows StatefulSet",
        ),
        (
            "apiVersion: app/v1\nkind: StatefulSet\nmetadata: {name: a}\n".to_owned(),
            "note - line 1: there is no API group app, so it was not judged; did you mean apps?",
        ),
        (
            "apiVersion: v1\nkind: Secrets\nmetadata: {name: a}\n".to_owned(),
            "note - line 2: there is no kind Secrets, so it was not judged; kubectl knows Secret",
        ),
        (
            "apiVersion: v1\nkind: StatefulSet\nmetadata: {name: a}\n".to_owned(),
            "note - line 1: there is no StatefulSet in v1, so it was not judged; it is in apps/v1",
        ),
        (
            "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: a}\n".to_owned(),
            "note - line 1: there is no Deployment in extensions/v1beta1, so it was not judged; it is in apps/v1",
        ),
        (
            "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n".to_owned(),
            "warning - line 1: no API server since 1.30 offers apiVersion policy/v1beta1 of a PodDisruptionBudget; it was judged as policy/v1",
        ),
        (
            "apiVersion: v1\nmetadata: {name: a}\n".to_owned(),
            "note - line 1: it has no kind, so it was not judged, and kubectl rejects it",
        ),
        (
            "# a\nkind: StatefulSet\nmetadata: {name: a}\n".to_owned(),
            "unread - line 2: it has no apiVersion, so it cannot be judged, and kubectl rejects it",
        ),
        (
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\n".to_owned(),
            "note - line 1: it has no spec.template.spec.containers, so it was not judged, and API servers reject it",
        ),
        (
            galera.replace("StatefulSet", "ReplicaSet"),
            "note - line 2: container db runs a database server, and no rule covers a ReplicaSet, so it was not judged: only a StatefulSet is a cluster",
        ),
        (
            "apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: a}\nobjects:\n- {apiVersion: v1, kind: Secret}\n"
                .to_owned(),
            "note - line 5: the objects in this Template were not judged; judge its output: oc process --local -f FILE -o yaml | gatera check -",
        ),
        (
            galera.clone(),
            "note - line 6: container db runs a Galera server, and no selector adopts the labels of its pod template, so it was not judged as a cluster: add the label gatera.dev/cluster: shop to spec.template.metadata.labels, or a selector to `adopt` in the settings",
        ),
        (
            set("app: shop", "").replace("PORTS", ""),
            "note - line 6: container db runs a database server; if that is Galera, and no selector adopts the labels of its pod template, so it was not judged as a cluster: add the label gatera.dev/cluster: shop to spec.template.metadata.labels, or a selector to `adopt` in the settings",
        ),
        (
            set("app: shop", ", ownerReferences: [{kind: MariaDB, name: shop, controller: true}]")
                .replace("PORTS", ""),
            "note - line 6: container db runs a database server, and MariaDB shop owns this StatefulSet, so it was not judged: the guard leaves it to its operator",
        ),
    ] {
        let checked = judged(&[input("a.yaml", &text)], None);
        assert_eq!(lines(&checked), [words], "{text}");
        assert!(!checked.objects.iter().any(Outcome::is_fine), "it counts as fine: {text}");
    }
    // A foreign manifest from years ago: its old version does not hide the other message.
    let both = lines(&judged(&[input("a.yaml", &galera.replace("apps/v1", "apps/v1beta1"))], None));
    assert!(
        both.len() == 2 && both[0].contains("since 1.30") && both[1].contains("no selector adopts"),
        "{both:?}"
    );
    for (text, why) in [
        (
            "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: a}\n".to_owned(),
            "a kind that Kubernetes does not have",
        ),
        ("replicaCount: 3\n".to_owned(), "values of a chart"),
        (galera.replace("app: shop", "gatera.dev/cluster: shop"), "it is adopted"),
    ] {
        let checked = judged(&[input("a.yaml", &text)], None);
        assert_eq!(checked.unjudged_findings(), 0, "{why}: {:?}", lines(&checked));
    }
}

#[test]
fn a_kind_without_a_rule_does_not_count_as_fine() {
    let text = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n";
    let said = lay_out(&judged(&[input("a.yaml", text)], None), Format::Text, false);
    let counts = "2 objects: 0 would be refused, 0 allowed with a warning, 1 not judged (no rule covers this kind), 1 fine;";
    assert!(said.starts_with(counts), "{said}");
}

/// A folder with a base and its patches is not a set of manifests that is applied as it is.
#[test]
fn an_object_that_occurs_twice_is_reported() {
    let patch = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: galera-instance-galera}\nspec: {replicas: 5}\n";
    let checked = judged(&[input("base.yaml", CLUSTER), input("patch.yaml", patch)], None);
    let said = lines(&checked);
    let words = "note - line 1: StatefulSet db/galera-instance-galera is also in base.yaml line 86; to judge a kustomization, judge its output: kubectl kustomize DIR | gatera check -";
    assert!(said.contains(&words.to_owned()), "{said:#?}");
}

/// Lists are taken as kubectl takes them: any object with items, and items without a kind of their own.
#[test]
fn objects_in_lists_are_judged() {
    let open = "data: {c.cnf: \"[galera]\\nwsrep_sst_auth=root:x\"}";
    for text in [
        format!(
            "apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, {open}}}\n"
        ),
        format!("apiVersion: v1\nkind: ConfigMapList\nitems:\n- {{metadata: {{name: a}}, {open}}}\n"),
        format!(
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMapList\n  items:\n  - {{metadata: {{name: a}}, {open}}}\n"
        ),
    ] {
        let said = lines(&judged(&[input("a.yaml", &text)], None));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("refused G11 line ") && said[0].contains("ConfigMap db/a: "), "{said:?}");
    }
}

/// A comment waives only where it stands; a waived finding is printed but no longer counts.
#[test]
fn comments_waive_with_a_reason() {
    let open = CLUSTER.replace(
        "binlog_format = ROW\n    innodb_autoinc",
        "# gatera: waive G11 reason=the lab's own\n    wsrep_sst_auth = root:x\n    binlog_format = ROW\n    innodb_autoinc",
    );
    let checked = judged(&[input("a.yaml", &open)], None);
    assert_eq!(checked.count(Level::Refused), 0, "{:?}", lines(&checked));
    assert_eq!(
        (checked.count(Level::Waived), checked.objects_of(Level::Waived)),
        (1, 1),
        "{:?}",
        lines(&checked)
    );
    // The same comment elsewhere waives nothing, and a message says so.
    let elsewhere = open.replace("    # gatera: waive G11 reason=the lab's own\n", "")
        + "\n# gatera: waive G11 reason=x\n";
    let said = lines(&judged(&[input("a.yaml", &elsewhere)], None));
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("refused G11 "), "{said:?}");
    assert!(
        said[1].ends_with("G11 finds nothing here, so there is nothing to waive; remove this comment"),
        "{said:?}"
    );
}

/// Findings name the template from the comment that Helm writes above each document.
#[test]
fn findings_name_the_template() {
    let text = "---\n# Source: shop/templates/cnf.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {c.cnf: \"[galera]\\nwsrep_sst_auth=root:x\"}\n";
    let checked = judged(&[input("-", text)], None);
    assert_eq!(checked.findings[0].location.template.as_deref(), Some("shop/templates/cnf.yaml"));
}

/// Paths are printed as the caller wrote them.
#[test]
fn paths_are_as_the_caller_wrote_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, "a: [\n").unwrap();
    let path = path.to_str().unwrap();
    let ran = gatera(&["check", path], b"");
    assert!(ran.out.starts_with(&format!("{path}:")), "{}", ran.out);
}

proptest! {
    #![proptest_config(crate::anything::cases(100))]

    /// Pieces of a manifest, put together at random: no panic, every place is in the text, and the counts add up.
    #[test]
    fn any_text_is_judged_or_reported_as_unreadable(
        cuts in prop::collection::vec((0..CLUSTER.len(), 0..CLUSTER.len(), prop::sample::select(vec!["", "\n---\n", "\t", "{{", "\"", "items:\n- ", "# gatera: waive G01 reason=x", "&a", "*a", "\r\n", ": "])), 1..6),
    ) {
        let piece = |from: usize, to: usize| {
            let (from, to) = (from.min(to), from.max(to));
            CLUSTER.get(from..to).unwrap_or_default()
        };
        let text: String = cuts.iter().map(|(from, to, glue)| format!("{}{glue}", piece(*from, *to))).collect();
        let lines = |text: &str| u64::try_from(text.split('\n').count()).unwrap();
        let of = |name, text: &str| (input(name, text), lines(text));
        let (odd, whole) = (|| of("odd.yaml", &text), || of("whole.yaml", CLUSTER));
        for (new, base) in [(odd(), None), (odd(), Some(whole())), (whole(), Some(odd()))] {
            let base_lines = base.as_ref().map_or(0, |(_, lines)| *lines);
            let base = base.map(|(input, _)| [input]);
            for finding in judged(&[new.0], base.as_ref().map(|it| &it[..])).findings {
                let most = if finding.location.in_base { base_lines } else { new.1 };
                prop_assert!(finding.location.place.is_none_or(|it| (1..=most).contains(&it.line)), "{finding:?}");
            }
        }
    }
}
