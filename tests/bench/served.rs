//! The instructions of a whole server per request, counted by callgrind: TLS, HTTP and the decision, without the kernel.
//!
//! Owns: the servers under valgrind. The instructions of the guard are compared with those of a server that decodes each review,
//! and of one that reads only the uid. Other work on the machine does not change these counts and their ratio.

use std::path::Path;
use std::process::Command;

use crate::child::Server;
use crate::fleet::CLUSTERS;
use crate::instructions::{self, KB};
use crate::load::LoadConnection;
use crate::reviews::Shape;

/// The number of requests that are counted; the same number is sent before, over the same connection, to warm up.
const REQUESTS: usize = 50;
const SHAPES: [(&str, Shape); 6] = [
    ("update of 17 KB", Shape::Update(17 * KB)),
    ("update of 17 KB, of its template", Shape::Roll(17 * KB)),
    ("the same, of what no rule reads", Shape::Touch(17 * KB)),
    ("update of 17 KB with old faults", Shape::Faulty(17 * KB)),
    ("scale", Shape::Scale),
    ("pod that is injected", Shape::Pod),
];
const SERVERS: [(&str, &[&str]); 3] =
    [("guard", &["serve-guard", "1000"]), ("nothing", &["serve-nothing"]), ("uid", &["serve-uid"])];

/// Prints the counts of each server, and the ratio of the guard's to those of the server that reads only the uid.
pub fn print(folder: &Path) {
    assert_eq!(SERVERS[0].1[1], CLUSTERS.to_string(), "the guard serves as many clusters as in the loads");
    let [guard, nothing, uid] = SERVERS.map(|(name, role)| counts(name, role, folder));
    println!("\nInstructions of a whole server per request, in thousands ({CLUSTERS} clusters in the view)");
    println!("{:<34}{:>9}{:>9}{:>9}{:>12}", "", "guard", "nothing", "uid", "guard / uid");
    for (number, (name, _)) in SHAPES.iter().enumerate() {
        let [guard, nothing, uid] =
            [&guard, &nothing, &uid].map(|counts| instructions::thousands(counts[number]));
        println!("{name:<34}{guard:>9.1}{nothing:>9.1}{uid:>9.1}{:>12.2}", guard / uid);
    }
}

/// Returns the instructions that this server takes for a request of each shape.
fn counts(name: &str, role: &[&str], folder: &Path) -> Vec<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet"]);
    valgrind.arg(format!("--callgrind-out-file={}/{name}", folder.display()));
    let server = Server::start_under(valgrind, role);
    let mut dumps = 0;
    let mut dump = || {
        let ended = Command::new("callgrind_control")
            .arg(format!("--dump={name}"))
            .arg(server.pid().to_string())
            .output();
        let ended = ended.expect("starting callgrind_control");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        dumps += 1;
        instructions::total(&folder.join(format!("{name}.{dumps}")))
    };
    let count = SHAPES.iter().map(|(_, shape)| {
        let requests = (0..REQUESTS).map(|number| shape.request(number)).collect();
        let expects = if name == "guard" { shape.expects() } else { &[] };
        let mut connection = LoadConnection::new(server.connect(), requests, expects);
        let mut send = || (0..REQUESTS).for_each(|_| connection.ask());
        send();
        dump();
        send();
        dump() / REQUESTS as u64
    });
    count.collect()
}
