//! The scripts as they are injected: without comments, and otherwise the same.

use std::fs;
use std::process::Command;

use engine::inject::{BITNAMI_SCRIPT_TEXT, SCRIPT_TEXT, START_SCRIPT_TEXT};

use super::{bitnami, pod};

/// Bash prints a function without its comments, so it prints the same for both texts.
#[test]
fn only_comments_are_missing() {
    for (file, injected) in [
        (pod::SCRIPT, &*SCRIPT_TEXT),
        (pod::STEP, &*START_SCRIPT_TEXT),
        (bitnami::SCRIPT, &*BITNAMI_SCRIPT_TEXT),
    ] {
        let whole = fs::read_to_string(file).unwrap();
        let printed = |text: &str| {
            let function = format!("it() {{\n{text}\n}}\ndeclare -f it");
            let shell = Command::new("bash").args(["-c", &function]).output().unwrap();
            assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
            String::from_utf8(shell.stdout).unwrap()
        };
        assert_eq!(printed(&whole), printed(injected), "{file}: more than comments is missing");
        let (all, left) = (whole.len(), injected.len());
        assert!(
            printed(&whole).len() > 1000 && left < all * 4 / 5,
            "{file}: {left} of {all} bytes are injected"
        );
    }
}
