//! The probes of the chart's servers.

use super::{INSTANCE, rendered, template};
use crate::cluster::STATEFUL_SET;

/// A donor that serves no client while it copies is not Ready, as with an injected probe.
#[test]
fn a_donor_that_is_blocked_is_not_ready() {
    for (line, blocked) in [
        ("wsrep_sst_method = mariabackup", false),
        ("#wsrep_sst_method = rsync", false),
        ("wsrep-sst-method=rsync", true),
        ("wsrep_sst_method = rsync # as before", true),
        ("wsrep_sst_method = rsync\nwsrep_sst_method = mariabackup", false),
        ("wsrep_sst_method = 'rsync_wan'", true),
    ] {
        let config = format!("--set-string=config=innodb_buffer_pool_size = 64M\n{line}");
        let objects = rendered(&[&config]);
        let server =
            &objects[&format!("StatefulSet/{STATEFUL_SET}")]["spec"]["template"]["spec"]["containers"][0];
        let asks = server["readinessProbe"]["exec"]["command"].as_array().unwrap();
        assert_eq!(asks.last().unwrap() == "blocking", blocked, "{line}: {asks:?}");
    }
    let output = template(INSTANCE, &["--set-string=config=wsrep_sst_method = \"mysqldump\" # slow"]);
    let words = "a server without tables cannot take a dump, so it would never join; leave mariabackup, which is the default, or use rsync";
    assert!(output.status != 0 && output.stderr.contains(words), "{output}");
}
