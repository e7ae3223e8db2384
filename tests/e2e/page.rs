//! The page for the night, without the program: its blocks of commands are run as they stand, by a shell, after a person has
//! written down which cluster is meant and who is the newest.
//!
//! Must not know: how a recovery works. What the page says is all that is done here.

use std::process::Command;

use crate::galera::{Galera, patiently};
use crate::lab::{Output, User};

const PAGE: &str = include_str!("../../docs/down.md");

/// In their order, each without its indentation.
fn blocks() -> Vec<String> {
    let block = |rest: &str| {
        let lines = rest.lines().skip(1).take_while(|line| line.trim() != "```");
        lines.map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line))).collect()
    };
    PAGE.split("```sh").skip(1).map(block).collect()
}

/// One shell in which `head` has been run before.
fn shell(galera: &Galera<'_>, head: &str, block: &str) -> Output {
    println!("{block}");
    let path = format!("{}:{}", galera.lab.tools_folder().display(), std::env::var("PATH").unwrap());
    let mut sh = Command::new("sh");
    sh.args(["-c", &format!("{head}\n{block}")]).env("PATH", path);
    let output = sh.env("KUBECONFIG", galera.lab.kubeconfig(User::Admin)).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let output = Output { status: output.status.code().unwrap(), stdout, stderr, log: String::new() };
    println!("{output}");
    output
}

/// Leads back a cluster of three that is down.
pub fn followed(galera: &Galera<'_>) {
    let blocks = blocks();
    let [head, pods, ends, ask, first, others, over] = &blocks[..] else {
        panic!("other steps than were written down here: {blocks:#?}")
    };
    let (example, functions) = head.split_once('\n').unwrap();
    assert_eq!(example, "ns=db set=galera");
    let head = format!("ns={} set={}-galera\n{functions}", galera.namespace, galera.name);
    // Members that there are already are said to exist.
    shell(galera, &head, pods);
    let (newest, end) = patiently("each to tell where its data ends", || {
        let told = shell(galera, &head, ends).stdout;
        // "gatera: start of TIME: position ID:SEQNO (...)"
        let position = |line: &str| {
            line.split_once("position ")
                .map(|it| it.1.split([' ', ',']).next().unwrap_or_default().to_owned())
        };
        let told: Vec<String> = told.lines().filter_map(position).collect();
        let number = |end: &String| end.rsplit_once(':').and_then(|it| it.1.parse::<u64>().ok());
        let newest = told.iter().enumerate().max_by_key(|(_, end)| number(end));
        newest.filter(|_| told.len() == 3).map(|(n, end)| (n, end.clone())).ok_or_else(|| told.join(", "))
    });
    let (example, commands) = ask.split_once('\n').unwrap();
    assert!(example.starts_with("N=1 end="), "{example}");
    let head = format!("{head}N={newest} end={end}\n");
    patiently("the guard to have heard it", || {
        let asked = shell(galera, &head, commands);
        if asked.status == 0 {
            return Ok(());
        }
        assert!(asked.stderr.contains("has not told yet"), "{asked}");
        Err(asked.stderr)
    });
    for block in [first, others, over] {
        shell(galera, &head, block).succeeded();
    }
}
