//! A client that commits rows through the cluster's client Service, and records which were acknowledged. At the end every
//! acknowledged row must be on every member: that is what "no row is lost" means.
//!
//! Must not know: what a test does to the cluster.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::json;

use crate::galera::{Galera, patiently, series};

const POD: &str = "writer";

/// Each number is inserted in its own transaction, and printed once it is acknowledged. After a failure the next number is
/// inserted, so a commit whose answer was lost is not counted as acknowledged.
const SCRIPT: &str = r#"
number=0
export MYSQL_PWD=$PASSWORD
while :; do
    number=$((number + 1))
    if mariadb --user=root --host="$HOST" --connect-timeout=2 --execute="INSERT INTO acknowledged.rows VALUES ($number)" 2>/tmp/error
    then echo "$number"
    else echo "failed: $(head -c 200 /tmp/error)"; sleep 0.2
    fi
done
"#;

pub struct Writer<'a> {
    galera: &'a Galera<'a>,
}

impl<'a> Writer<'a> {
    /// Starts the writer and waits for its first rows. `password` refers to the key of a Secret, or is the password itself.
    pub fn start(galera: &'a Galera<'a>, password: &serde_json::Value) -> Self {
        Self::on_node(galera, password, &serde_json::Value::Null)
    }

    /// Does the same as `start`, on the node of this member, for tests that stop the other nodes.
    pub fn beside(galera: &'a Galera<'a>, password: &serde_json::Value, member: &str) -> Self {
        let node = galera.pod(member).expect("the pod exists")["spec"]["nodeName"].clone();
        Self::on_node(galera, password, &node)
    }

    fn on_node(galera: &'a Galera<'a>, password: &serde_json::Value, node: &serde_json::Value) -> Self {
        galera.ask(
            &galera.member(0),
            "CREATE DATABASE acknowledged; CREATE TABLE acknowledged.rows (number INT PRIMARY KEY)",
        );
        let mut variable = json!({ "name": "PASSWORD" });
        variable.as_object_mut().unwrap().extend(password.as_object().unwrap().clone());
        galera.lab.create(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": POD, "namespace": galera.namespace },
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "nodeName": node,
                // As Pod Security "restricted" requires.
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": 65534,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": "writer",
                    "image": format!("mariadb:{}", series()),
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["bash", "-c", SCRIPT],
                    "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                    "env": [variable, { "name": "HOST", "value": format!("{}-cs", galera.name) }],
                }],
            },
        }));
        let writer = Self { galera };
        writer.until_writes();
        writer
    }

    fn printed(&self) -> String {
        self.galera.kubectl(&["logs", POD]).stdout
    }

    fn acknowledged(&self) -> BTreeSet<u64> {
        self.printed().lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Returns the longest time between two consecutive acknowledged rows, in seconds.
    pub fn longest_pause(&self) -> f64 {
        let log = self.galera.kubectl(&["logs", POD, "--timestamps"]).succeeded();
        let rows = log.lines().filter_map(|line| line.split_once(' '));
        let rows = rows.filter(|(_, line)| line.parse::<u64>().is_ok());
        let times: Vec<Timestamp> = rows.filter_map(|(time, _)| time.parse().ok()).collect();
        let pauses = times.windows(2).map(|two| two[1].duration_since(two[0]).as_secs_f64());
        pauses.fold(0.0, f64::max)
    }

    /// Waits until new rows are acknowledged.
    pub fn until_writes(&self) {
        let before = self.acknowledged().len();
        patiently("the writer's rows are acknowledged", || {
            let log = self.printed();
            let now = log.lines().filter(|line| line.parse::<u64>().is_ok()).count();
            if now > before + 3 { Ok(()) } else { Err(log.lines().last().unwrap_or_default().to_owned()) }
        });
    }

    /// Asserts that each of these members has every row acknowledged so far. Returns the number of rows and of failed attempts.
    pub fn counted(&self, members: usize) -> (usize, usize) {
        let acknowledged = self.acknowledged();
        let failed = self.printed().lines().filter(|line| line.starts_with("failed")).count();
        for ordinal in 0..members {
            let pod = self.galera.member(ordinal);
            let rows =
                self.galera.ask(&pod, "SET SESSION wsrep_sync_wait=1; SELECT number FROM acknowledged.rows");
            let rows: BTreeSet<u64> = rows.lines().filter_map(|line| line.parse().ok()).collect();
            let lost: Vec<_> = acknowledged.difference(&rows).collect();
            assert!(lost.is_empty(), "{pod} lost {} of {} rows: {lost:?}", lost.len(), acknowledged.len());
        }
        (acknowledged.len(), failed)
    }

    /// Does the same as `counted`, prints the numbers, and ends the writer.
    pub fn finish(self, members: usize) -> (usize, usize) {
        let (rows, failed) = self.counted(members);
        let Galera { namespace, name, .. } = self.galera;
        println!("{namespace}/{name}: {rows} rows acknowledged, none lost; {failed} attempts failed");
        self.galera.kubectl(&["delete", "pod", POD, "--now"]).succeeded();
        (rows, failed)
    }
}
