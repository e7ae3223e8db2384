//! TLS is turned on and off as charts/galera/README.md says, block by block, while a client writes: no row is lost, replication
//! is encrypted, and running servers load a renewed certificate. Part of `make drills`.

use std::fs;

use crate::galera::{Galera, patiently};
use crate::guard::{chart, guarded};
use crate::install::{formed, password};
use crate::lab::User;
use crate::page::{galera_readme_blocks, run_block};
use crate::power;
use crate::writer::Writer;

/// Returns whether the replication port of a server works without TLS: only then does it send data before its client.
fn replicates_without_tls(galera: &Galera<'_>, ordinal: usize) -> bool {
    let host = format!("{}.{}-hs", galera.member(ordinal), galera.name);
    let read = format!("exec 3<>/dev/tcp/{host}/4567 && timeout 2 head -c 1 <&3 | wc -c");
    let inside = ["exec", &galera.member(2 - ordinal), "--container=mariadb", "--", "bash", "-c", &read];
    galera.kubectl(&inside).succeeded().trim() == "1"
}

/// Counts the replication connections with TLS and without that a member's log shows since its start.
fn connections(galera: &Galera<'_>, ordinal: usize) -> [usize; 2] {
    let log = galera.kubectl(&["logs", &galera.member(ordinal), "--container=mariadb"]).succeeded();
    let connections = || log.lines().filter(|line| line.contains("connection established to"));
    ["ssl://", "tcp://"].map(|scheme| {
        connections().filter(|line| line.rsplit(' ').next().is_some_and(|it| it.starts_with(scheme))).count()
    })
}

/// Returns the value of an option of the Galera provider.
fn provider_option(galera: &Galera<'_>, ordinal: usize, option: &str) -> String {
    let all = galera.ask(&galera.member(ordinal), "SELECT @@wsrep_provider_options");
    let value = all.split("; ").find_map(|it| it.strip_prefix(&format!("{option} = ")));
    value.unwrap_or("unset").to_owned()
}

/// Returns the time at which the certificate that a server presents to clients expires.
fn certificate_end(galera: &Galera<'_>, ordinal: usize) -> String {
    const ASK: &str = "MYSQL_PWD=$MARIADB_ROOT_PASSWORD exec mariadb --no-defaults --user=root --host=127.0.0.1 --ssl \
        --batch --skip-column-names --execute=\"SHOW STATUS LIKE 'Ssl_server_not_after'\"";
    galera.in_pod(&galera.member(ordinal), ASK)
}

#[test]
fn tls_is_turned_on_renewed_and_turned_off_without_losing_a_row() {
    let galera = formed(guarded(), "tls");
    let cluster = galera.until_synced(3, 3);
    galera.fill();
    let writer = Writer::start(&galera, &password(&galera));
    let blocks = galera_readme_blocks("TLS");
    let [example, certificate, first, second, renew, reload, back] = &blocks[..] else {
        panic!("the page has other steps than this test: {blocks:#?}")
    };
    assert_eq!(example, "ns=db I=shop");
    let folder = galera.lab.folder().join("tls");
    fs::create_dir_all(&folder).unwrap();
    let head = format!("cd {}\nns={} I={}", folder.display(), galera.namespace, galera.name);
    let run = |block: &str| {
        let block = block.replace(" charts/galera ", &format!(" {} ", chart("galera")));
        let output = run_block(&galera, &format!("set -e\n{head}"), &block);
        assert!(output.status == 0 && !output.stderr.contains("[G"), "{output}");
        galera.until_ready(3);
        assert_eq!(galera.until_synced(3, 3), cluster, "the cluster keeps its identity");
        writer.until_writes();
    };
    run(certificate);
    assert!(replicates_without_tls(&galera, 0), "replication has TLS already");
    tls_in_one_step_is_refused(&galera);

    run(first);
    for ordinal in 0..3 {
        assert_eq!(provider_option(&galera, ordinal, "socket.dynamic"), "yes", "member {ordinal}");
    }
    println!("longest pause of the writer so far: {:.1} s", writer.longest_pause());
    run(second);
    println!("longest pause of the writer so far: {:.1} s", writer.longest_pause());
    for ordinal in 0..3 {
        assert_eq!(provider_option(&galera, ordinal, "socket.ssl"), "YES", "member {ordinal}");
        assert_ne!(provider_option(&galera, ordinal, "socket.dynamic"), "yes", "member {ordinal}");
        assert!(!replicates_without_tls(&galera, ordinal), "member {ordinal} replicates without TLS");
    }
    let [tls, plain] = connections(&galera, 0);
    assert!(
        tls >= 2 && plain == 0,
        "connections of the member that restarted last: {tls} with TLS, {plain} without"
    );

    let before = certificate_end(&galera, 0);
    run(renew);
    let wanted = fs::read_to_string(folder.join("tls.crt")).unwrap();
    patiently("the pods have the new certificate", || {
        let seen = (0..3).map(|it| galera.in_pod(&galera.member(it), "cat /etc/mysql/tls/tls.crt"));
        let new = seen.filter(|text| text.trim() == wanted.trim()).count();
        if new == 3 { Ok(()) } else { Err(format!("{new} of 3 have it")) }
    });
    assert_eq!(
        certificate_end(&galera, 0),
        before,
        "a running server loads a new certificate only on request"
    );
    run(reload);
    for ordinal in 0..3 {
        assert_ne!(certificate_end(&galera, ordinal), before, "member {ordinal} has the new certificate");
    }
    galera.kubectl(&["delete", "pod", &galera.member(1)]).succeeded();
    galera.until_ready(3);

    run(back);
    assert!(
        replicates_without_tls(&galera, 0) && provider_option(&galera, 0, "socket.ssl") != "YES",
        "replication still has TLS"
    );
    power::members_agree(&galera, "shop.t");
    let pause = writer.longest_pause();
    writer.finish(3);
    println!("longest pause of the writer: {pause:.1} s");
}

/// Checks that the chart refuses TLS in one step, and that the guard refuses it from kubectl.
fn tls_in_one_step_is_refused(galera: &Galera<'_>) {
    let chart = chart("galera");
    let upgrade = ["upgrade", &galera.name, &chart, "--namespace", &galera.namespace, "--reuse-values"];
    let own = format!("--set=tls.existingSecret={}-tls", galera.name);
    let refused = galera.lab.helm(User::Admin, &[&upgrade[..], &[&own]].concat());
    assert!(refused.status != 0 && refused.stderr.contains("would be alone"), "{refused}");
    let rendered = [
        "template",
        &galera.name,
        &chart,
        "--is-upgrade",
        "--namespace",
        &galera.namespace,
        "--show-only=templates/config.yaml",
        &own,
    ];
    let map = galera.lab.helm(User::Admin, &rendered).succeeded();
    let applied = [
        "apply",
        "--namespace",
        &galera.namespace,
        "--dry-run=server",
        "--server-side",
        "--force-conflicts",
        "--filename=-",
    ];
    let refused = galera.lab.kubectl_stdin(User::Admin, &applied, &map);
    println!("{refused}");
    assert!(refused.status == 1 && refused.stderr.contains("[G09]"), "{refused}");
}
