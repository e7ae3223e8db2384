//! Ports other than the defaults: servers listen on them, Services and probes name them, and the guard finds them.

use facts::galera::options;
use facts::galera::ports::Ports;
use facts::settings::Settings;
use facts::view::{Freshness, View, World};
use objects::{Kind, Object};
use serde_json::{Value, json};

use super::{pod_of, rendered};
use crate::scene::{self, NAMESPACE};

pub const OTHERS: &str = "--set=ports.mysql=3307,ports.sst=5444,ports.replication=4600,ports.ist=5568";

/// The options of servers, the ports of Services and probes, and the ports that the guard finds are the same.
#[test]
fn ports_are_those_of_the_values() {
    let objects = rendered(&[OTHERS]);
    let text = objects["ConfigMap/galera-instance-nodeconfig"]["data"]["galera.cnf"].as_str().unwrap();
    let option = |key| options::effective(text, key).unwrap().look().to_owned();
    assert_eq!(
        (option("port"), option("wsrep_provider_options")),
        ("3307".into(), "gcache.size=128M;base_port=4600".into())
    );
    let numbers = |list: &Value, field: &str| {
        list.as_array().unwrap().iter().map(|it| it[field].as_i64().unwrap()).collect::<Vec<_>>()
    };
    let settings = Settings::default();
    let mut config = objects["ConfigMap/galera-instance-nodeconfig"].clone();
    config["metadata"]["namespace"] = json!(NAMESPACE);
    let mut first = objects["ConfigMap/galera-instance-bootstrap"].clone();
    first["metadata"]["namespace"] = json!(NAMESPACE);
    let world = World::build(scene::facts_of([&config, &first], &settings), Freshness::Current);
    let view = View::new(&world, scene::now(), &settings);
    for what in ["StatefulSet/galera-instance-galera", "Deployment/galera-instance-bootstrap"] {
        let template = &objects[what]["spec"]["template"];
        let server = &template["spec"]["containers"][0];
        assert_eq!(numbers(&server["ports"], "containerPort"), [3307, 5444, 4600, 5568], "{what}");
        assert_eq!(server["livenessProbe"]["tcpSocket"]["port"], 3307);
        let Ok(Object::Pod(read)) = Object::read(Kind::Pod, &pod_of("StatefulSet/g", template).to_string())
        else {
            panic!("unreadable: {template}")
        };
        let said = view.ports(NAMESPACE, &read.spec, &read.spec.containers[0]);
        assert_eq!(
            said,
            Ports { clients: Some(3307), transfer: Some(5444), group: Some(4600), incremental: Some(5568) },
            "{what}"
        );
        let variable = |name: &str| {
            server["env"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap()["value"].clone()
        };
        assert_eq!(
            ["GATERA_PORT", "GATERA_SST_PORT", "GATERA_GROUP_PORT", "GATERA_IST_PORT"].map(variable),
            ["3307", "5444", "4600", "5568"]
        );
    }
    for service in ["hs", "bootstrap-svc"] {
        let spec = &objects[&format!("Service/galera-instance-{service}")]["spec"];
        assert_eq!(numbers(&spec["ports"], "port"), [3307, 5444, 4600, 5568], "{service}");
    }
    assert_eq!(numbers(&objects["Service/galera-instance-cs"]["spec"]["ports"], "port"), [3307]);
    // Without an option, members listen for state transfers on the port after that of the group, so the chart sets none.
    let next = rendered(&["--set=ports.replication=4600,ports.ist=4601"]);
    let server = &next["StatefulSet/galera-instance-galera"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(server["args"], json!(["mariadbd"]));
}
