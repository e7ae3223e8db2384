//! How much a thousand hostile connections slow down real requests: the same load is run without and with them.

use crate::child::Server;
use crate::hostile;
use crate::plan::Plan;
use crate::series::{Arm, Outcome, Series};

/// The number of hostile connections.
const HOSTILE: usize = 1000;

/// Runs the load on the guard, first alone, then among the hostile connections.
pub fn measure(series: [Series; 2], server: &Server, plan: &Plan) -> [Vec<Outcome>; 2] {
    let arms = [Arm { name: "guard", server, floor: false, guards: true }];
    let [alone, inside] = series;
    let alone = alone.run(&arms, plan);
    let (crowd, tally) = hostile::gather(HOSTILE, server.hello.address, &server.hello.bundle);
    while !tally.every_kind_did_harm() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let inside = inside.run(&arms, plan);
    crowd.shutdown_background();
    [alone, inside]
}
