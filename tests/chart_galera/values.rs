//! Values that the chart passes on reach the objects for which they are meant.

use serde_json::{Value, json};

use super::{INSTANCE, rendered, template};

#[test]
fn chosen_values_reach_the_objects() {
    let flags = [
        "--set=networkPolicy.enabled=true,service.type=LoadBalancer,service.annotations.a=b,podLabels.c=d",
        "--set=extraVolumes[0].name=more,extraVolumeMounts[0].name=more,extraVolumeMounts[0].mountPath=/more",
        "--set=affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
        "--set=affinity.nodeAffinity.x=1,priorityClassName=high,ports.replication=5567,ports.ist=5568",
    ];
    let objects = rendered(&flags);
    let clients = &objects["Service/galera-instance-cs"];
    assert_eq!(
        (&clients["spec"]["type"], &clients["metadata"]["annotations"]["a"]),
        (&json!("LoadBalancer"), &json!("b"))
    );
    let template = &objects["StatefulSet/galera-instance-galera"]["spec"]["template"];
    assert_eq!(
        (&template["metadata"]["labels"]["c"], &template["spec"]["priorityClassName"]),
        (&json!("d"), &json!("high"))
    );
    let affinity = &template["spec"]["affinity"];
    let [required, preferred] = ["required", "preferred"].map(|it| {
        affinity["podAntiAffinity"][format!("{it}DuringSchedulingIgnoredDuringExecution")]
            .as_array()
            .unwrap()
            .len()
    });
    assert_eq!((required, preferred, &affinity["nodeAffinity"]["x"]), (1, 1, &json!(1)));
    let bootstrap = &objects["Deployment/galera-instance-bootstrap"]["spec"]["template"];
    for pod in [&template["spec"], &bootstrap["spec"]] {
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        assert!(mounts.contains(&json!({ "name": "more", "mountPath": "/more" })), "{mounts:?}");
        assert!(pod["volumes"].as_array().unwrap().contains(&json!({ "name": "more" })));
    }
    // Only servers of this cluster reach the ports of servers; every server is selected.
    let policy = &objects["NetworkPolicy/galera-instance-galera"]["spec"];
    let ports = |rule: &Value| {
        rule["ports"].as_array().unwrap().iter().map(|it| it["port"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((ports(&policy["ingress"][0]), &policy["ingress"][0]["from"]), (vec![3306], &Value::Null));
    assert_eq!(ports(&policy["ingress"][1]), [4444, 5567, 5567, 5568]);
    assert_eq!(policy["ingress"][1]["from"][0]["podSelector"], policy["podSelector"]);
    let selector: objects::Selector = serde_json::from_value(policy["podSelector"].clone()).unwrap();
    for template in [template, bootstrap] {
        let labels = serde_json::from_value(template["metadata"]["labels"].clone()).unwrap();
        assert!(selector.selects(&labels), "{labels:?}");
    }
    assert!(!rendered(&[]).contains_key("NetworkPolicy/galera-instance-galera"));
}

/// One exporter asks each member, and no selector of the members selects it.
#[test]
fn an_exporter_asks_each_member() {
    let flags = [
        "--set=metrics.enabled=true,metrics.existingSecret=ours,metrics.image.registry=r.example,nodeCount=5",
        "--set=metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.team=db,ports.mysql=3307",
        "--set=metrics.dashboard.enabled=true",
    ];
    let (objects, without) = (rendered(&flags), rendered(&["--set=nodeCount=5,ports.mysql=3307"]));
    let added: Vec<_> = objects.keys().filter(|it| !without.contains_key(*it)).collect();
    assert_eq!(
        added,
        [
            "ConfigMap/galera-instance-dashboard",
            "Deployment/galera-instance-exporter",
            "Service/galera-instance-exporter",
            "ServiceMonitor/galera-instance-exporter"
        ]
    );
    let set = "StatefulSet/galera-instance-galera";
    assert_eq!(
        objects[set]["spec"], without[set]["spec"],
        "the exporter changes the StatefulSet, so members would restart"
    );

    let deployment = &objects["Deployment/galera-instance-exporter"]["spec"]["template"];
    let pod = &deployment["spec"];
    assert_eq!(pod["containers"][0]["image"], "r.example/prom/mysqld-exporter:v0.19.0");
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "ours");
    let labels = &deployment["metadata"]["labels"];
    for service in ["hs", "cs"] {
        let selector = &objects[&format!("Service/galera-instance-{service}")]["spec"]["selector"];
        assert_ne!(selector["app"], labels["app"], "clients of {service} would reach the exporter");
    }

    let monitor = &objects["ServiceMonitor/galera-instance-exporter"];
    assert_eq!(monitor["metadata"]["labels"]["team"], "db");
    let endpoints = monitor["spec"]["endpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), 5);
    assert_eq!(endpoints[4]["params"]["target"][0], "galera-instance-galera-4.galera-instance-hs:3307");
    assert_eq!(endpoints[4]["relabelings"][0]["replacement"], "galera-instance-galera-4");
    let board = objects["ConfigMap/galera-instance-dashboard"]["data"]["galera.json"].as_str().unwrap();
    let file = std::fs::read_to_string(format!("{}/files/dashboard.json", super::CHART)).unwrap();
    assert_eq!(board.trim_end(), file.trim_end());

    let refused = template(INSTANCE, &["--set=metrics.enabled=true"]);
    let words = "metrics.enabled without metrics.existingSecret: the exporter logs in to the members, so it needs an account; README.md of the chart shows how to make it";
    assert!(refused.status != 0 && refused.stderr.contains(words), "{refused}");
}

#[test]
fn only_the_bootstrap_node_gets_the_first_user_and_scripts() {
    let objects = rendered(&[
        "--set=auth.database=shop,auth.username=app,auth.password=hunter2",
        "--set=bootstrap.scriptsSecret=grants",
        "--set-string=bootstrap.scripts.tables\\.sql=CREATE TABLE t (id INT) /* \"<&> */;",
    ]);
    let map = &objects["ConfigMap/galera-instance-bootstrap"]["data"];
    assert_eq!(map["50-tables.sql"], "CREATE TABLE t (id INT) /* \"<&> */;");
    let pod = &objects["Deployment/galera-instance-bootstrap"]["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let secret = json!({ "secretKeyRef": { "name": "galera-instance-secret", "key": "password" } });
    for wanted in [
        json!({ "name": "MARIADB_DATABASE", "value": "shop" }),
        json!({ "name": "MARIADB_USER", "value": "app" }),
        json!({ "name": "MARIADB_PASSWORD", "valueFrom": secret }),
    ] {
        assert!(env.contains(&wanted), "{env:?}");
    }
    let volumes = pod["volumes"].as_array().unwrap();
    let scripts = &volumes.iter().find(|it| it["name"] == "first-start").unwrap()["projected"]["sources"];
    assert_eq!(scripts[0], json!({ "secret": { "name": "grants" } }));
    let paths: Vec<_> = scripts[1]["configMap"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["10-first.sh", "20-sst-user.sh", "50-tables.sql"]);
    let members = objects["StatefulSet/galera-instance-galera"].to_string();
    assert!(!members.contains("MARIADB_USER") && !members.contains("MARIADB_DATABASE"), "{members}");
    assert_eq!(super::secret(&objects, "password"), "hunter2");
}

#[test]
fn no_pod_is_root_with_pod_security_restricted() {
    let objects = rendered(&["--set=podSecurity=restricted"]);
    let pods = objects.values().filter_map(|it| match it["kind"].as_str()? {
        "Pod" => Some(&it["spec"]),
        "StatefulSet" | "Deployment" => Some(&it["spec"]["template"]["spec"]),
        _ => None,
    });
    let mut number = 0;
    for pod in pods {
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        let all =
            ["containers", "initContainers"].map(|list| pod[list].as_array().cloned().unwrap_or_default());
        for container in all.concat() {
            let context = &container["securityContext"];
            assert_eq!(context["capabilities"], json!({ "drop": ["ALL"] }), "{container}");
            assert_eq!(context["allowPrivilegeEscalation"], false, "{container}");
        }
        number += 1;
    }
    assert_eq!(number, 3, "the number of pods in the chart");
}

#[test]
fn the_guards_volume_does_not_keep_an_autoscaler_from_removing_a_node() {
    const KEY: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
    let own = format!("--set-string=podAnnotations.{}=cache", KEY.replace('.', "\\."));
    let both = format!("{own}\\, gatera-run");
    for (flags, listed) in
        [(&[][..], "gatera-run"), (&[&*own], "cache,gatera-run"), (&[&*both], "cache,gatera-run")]
    {
        let objects = rendered(flags);
        for name in ["StatefulSet/galera-instance-galera", "Deployment/galera-instance-bootstrap"] {
            let template = &objects[name]["spec"]["template"]["metadata"];
            assert_eq!(template["annotations"][KEY], listed, "{name}");
        }
    }
}
