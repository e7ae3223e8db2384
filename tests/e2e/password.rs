//! A password in use is changed, line by line, as the page of G12 says. A change of only the Secret is refused.

use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::advice::{commands, follow, refused};
use crate::galera::{Galera, patiently};
use crate::lab::User;

/// Returns the commands of each step on the page of G12.
fn steps() -> Vec<Vec<String>> {
    let page = Command::new(env!("CARGO_BIN_EXE_gatera")).args(["explain", "G12"]).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    let (_, steps) = page.split_once("# What to do instead").unwrap();
    let code = steps.split("```text").skip(1).map(|rest| rest.split("```").next().unwrap());
    code.map(|code| code.lines().map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect())
        .collect()
}

/// Returns the line with its placeholders replaced.
fn filled(line: &str, names: &[(&str, &str)]) -> String {
    names.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value))
}

/// Returns whether a client in another pod can log in with this password, through the client Service.
fn logs_in(galera: &Galera<'_>, client: &str, password: &str) -> bool {
    const CLIENT: &str =
        "MYSQL_PWD=$1 exec mariadb --user=root --host=$2 --connect-timeout=5 --execute='SELECT 1'";
    let host = format!("{}-cs", galera.name);
    let inside = ["exec", client, "--container=mariadb", "--", "sh", "-c", CLIENT, "sh", password, &host];
    let output = galera.kubectl(&inside);
    assert!(output.status == 0 || output.stderr.contains("Access denied"), "{output}");
    output.status == 0
}

/// Changes the passwords of root and of the state transfer as the page says. `client` is a pod that tries to log in.
pub fn change_as_the_page_says(galera: &Galera<'_>, client: &str) {
    let secret = format!("{}-secret", galera.name);
    let hasty = json!({ "stringData": { "root-password": "hasty" } }).to_string();
    let hasty = galera.kubectl(&["patch", "secret", &secret, "--patch", &hasty]);
    refused(&hasty, "G12", "the members of plain-galera read key root-password");
    // The command in the last line of the refusal prints the page.
    let (_, more) = hasty.stderr.split_once("\n  more: ").unwrap();
    let page = galera.lab.kubectl(User::Admin, &commands(more)[0].iter().map(|it| &**it).collect::<Vec<_>>());
    assert!(page.succeeded().starts_with("G12: "), "{hasty}");

    let value = |key: &str| {
        let template = format!("--template={{{{index .data \"{key}\" | base64decode}}}}");
        galera.kubectl(&["get", "secret", &secret, &template]).succeeded()
    };
    let (old, options) = (value("root-password"), value("sst.cnf"));
    let old_sst = options.split_once("sst:").and_then(|(_, rest)| rest.split('"').next()).unwrap();
    let (until, set) = (Timestamp::now() + Duration::from_secs(1800), format!("{}-galera", galera.name));
    let until = format!("{until:.0}");
    let new_options = options.replace(old_sst, "a-new-one").replace('\n', "\\n").replace('"', "\\\"");
    let common = [
        ("NAMESPACE", &*galera.namespace),
        ("SECRET", &secret),
        ("STATEFULSET", &set),
        ("TIME", &until),
        ("TEXT", "rotation"),
    ];
    let users = [
        ("root", &["%", "localhost"][..], "root-password", &*old, "a-new-one"),
        ("sst", &["localhost"][..], "sst.cnf", old_sst, &*new_options),
    ];

    let steps = steps();
    let [both, patch, transfer, restart, drop_old] = &steps[..] else {
        panic!("the page has other steps than this test: {steps:#?}")
    };
    let sql = |statement: &str, user: &str, host: &str, old: &str| {
        filled(statement, &[("ACCOUNT", user), ("HOST", host), ("OLD", old), ("NEW", "a-new-one")])
    };
    let kubectl = |line: &str, names: &[(&str, &str)]| {
        let line = filled(&filled(line, names), &common);
        follow(galera.lab, &commands(&line)[0]);
    };
    for (user, hosts, key, old, new) in users {
        for host in hosts {
            galera.ask(&galera.member(0), &sql(&both[0], user, host, old));
        }
        kubectl(&patch[0], &[("KEY", key), ("NEW", new)]);
    }
    assert!(
        logs_in(galera, client, &old) && logs_in(galera, client, "a-new-one"),
        "a password does not work during the change"
    );
    for ordinal in 0..3 {
        galera.ask(&galera.member(ordinal), &sql(&transfer[0], "sst", "localhost", old_sst));
    }
    kubectl(&restart[0], &[]);
    let rollout = commands(&filled(&restart[1], &common)).remove(0);
    let rollout: Vec<_> = rollout.iter().map(|word| &**word).chain(["--timeout=60s"]).collect();
    patiently("the rollout is complete", || {
        let output = galera.lab.kubectl(User::Admin, &rollout);
        if output.status == 0 { Ok(()) } else { Err(output.to_string()) }
    });
    galera.until_ready(3);
    galera.until_synced(3, 3);
    for (user, hosts, _, old, _) in users {
        for host in hosts {
            galera.ask(&galera.member(0), &sql(&drop_old[0], user, host, old));
        }
    }
    assert!(
        logs_in(galera, client, "a-new-one") && !logs_in(galera, client, &old),
        "the new password does not work after the change, or the old one does"
    );
}
