//! Commands of pages (docs/down.md, section "Without the program", and others): a shell runs their blocks unchanged. Only names
//! and the position of the newest member are filled in, as a person would.
//!
//! Must not know: how a recovery works. It does only what the page says.

use std::process::Command;

use crate::galera::{Galera, patiently};
use crate::lab::{Output, User};

const PAGE: &str = include_str!("../../docs/down.md");

/// Returns the blocks of commands in the section "Without the program", each without its indentation.
fn recovery_blocks() -> Vec<String> {
    let block = |rest: &str| {
        let lines = rest.lines().skip(1).take_while(|line| line.trim() != "```");
        lines.map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line))).collect()
    };
    let (_, by_hand) = PAGE.split_once("\n## Without the program\n").expect("the page has the section");
    by_hand.split("```sh").skip(1).map(block).collect()
}

/// Returns the blocks of commands in a section of charts/galera/README.md.
pub fn galera_readme_blocks(section: &str) -> Vec<String> {
    let page = include_str!("../../charts/galera/README.md");
    let (_, section) = page.split_once(&format!("\n## {section}\n")).expect("the page has the section");
    let (section, _) = section.split_once("\n## ").expect("a section follows");
    let block = |rest: &str| rest.split_once("```").expect("the block ends").0.trim().to_owned();
    section.split("```sh").skip(1).map(block).collect()
}

/// Runs a block of commands in one shell, after the lines of `head`.
pub fn run_block(galera: &Galera<'_>, head: &str, block: &str) -> Output {
    println!("{block}");
    let path = format!("{}:{}", galera.lab.tools_folder().display(), std::env::var("PATH").unwrap());
    let mut sh = Command::new("timeout");
    sh.args(["600", "sh", "-c", &format!("{head}\n{block}")]).env("PATH", path);
    let output = sh.env("KUBECONFIG", galera.lab.kubeconfig(User::Admin)).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let output = Output { status: output.status.code().unwrap(), stdout, stderr, log: String::new() };
    println!("{output}");
    output
}

/// Recovers a cluster of three members that is down, as docs/down.md says.
pub fn recover_by_the_page(galera: &Galera<'_>) {
    let blocks = recovery_blocks();
    let [head, pods, ends, ask, first, others, over] = &blocks[..] else {
        panic!("the page has other steps than this test: {blocks:#?}")
    };
    let (example, functions) = head.split_once('\n').unwrap();
    assert_eq!(example, "ns=db set=galera");
    let head = format!("ns={} set={}-galera\n{functions}", galera.namespace, galera.name);
    // The block fails for pods that exist already, so its exit code is ignored.
    run_block(galera, &head, pods);
    let (newest, end) = patiently("each pod reports its position", || {
        let reported = run_block(galera, &head, ends).stdout;
        // "NAME: gatera: start of TIME: position ID:SEQNO, ..."
        let position = |n: usize| {
            let line = reported.lines().find(|line| line.starts_with(&format!("{}: ", galera.member(n))))?;
            Some((n, line.split_once("position ")?.1.split([' ', ',']).next()?.to_owned()))
        };
        let reported: Vec<_> = (0..3).filter_map(position).collect();
        let number = |end: &str| end.rsplit_once(':').and_then(|it| it.1.parse::<u64>().ok());
        let newest = reported.iter().max_by_key(|(_, end)| number(end)).cloned();
        newest.filter(|_| reported.len() == 3).ok_or_else(|| format!("{reported:?}"))
    });
    let (example, commands) = ask.split_once('\n').unwrap();
    assert!(example.starts_with("N=1 end="), "the block has other names to fill in: {example}");
    let head = format!("{head}N={newest} end={end}\n");
    patiently("the guard knows each position", || {
        let asked = run_block(galera, &head, commands);
        if asked.status == 0 {
            return Ok(());
        }
        assert!(asked.stderr.contains("has not reported its position yet"), "{asked}");
        Err(asked.stderr)
    });
    for block in [first, others, over] {
        run_block(galera, &head, block).succeeded();
    }
}
