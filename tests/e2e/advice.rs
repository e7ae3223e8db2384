//! The commands in the guard's messages: tests extract them from the text and run them as printed, except that the placeholder
//! of an override's reason is filled in.

use crate::lab::{ControlPlane, Output, User};

/// Asserts that `rule` refused the request of kubectl with this text.
#[track_caller]
pub fn refused(output: &Output, rule: &str, text: &str) {
    assert_eq!(output.status, 1, "{rule} refuses the request: {output}");
    let expected = output.stderr.contains(&format!("[{rule}]")) && output.stderr.contains(text);
    assert!(expected, "this is not a refusal by {rule} that says \"{text}\": {output}");
}

/// Returns the kubectl commands in a text, split into words as a shell does: single quotes keep words together.
pub fn commands(text: &str) -> Vec<Vec<String>> {
    // The advice is one line or several numbered ones.
    let after = text
        .split_once("do instead:")
        .map_or(text, |(_, after)| after.split_once("\n  more:").map_or(after, |(advice, _)| advice));
    let commands = after.split("kubectl ").skip(1).map(|rest| {
        let mut words: Vec<String> = Vec::new();
        for (index, part) in rest.split('\'').enumerate() {
            match index % 2 {
                1 => words.push(part.to_owned()),
                _ => {
                    let end = [", ", "; ", " (", ")", "\n"].iter().filter_map(|end| part.find(end)).min();
                    words.extend(part[..end.unwrap_or(part.len())].split_whitespace().map(str::to_owned));
                    if end.is_some() || part.starts_with(',') {
                        break;
                    }
                }
            }
        }
        words
    });
    commands.collect()
}

/// Runs one command that the guard printed. Panics if it fails.
#[track_caller]
pub fn follow(lab: &ControlPlane, command: &[String]) {
    // The guard refuses an override whose reason is still the placeholder.
    let command: Vec<_> = command.iter().map(|word| word.replace("reason=…", "reason=as advised")).collect();
    let words: Vec<_> = command.iter().map(|word| &**word).collect();
    let output = lab.kubectl(User::Admin, &words);
    assert_eq!(output.status, 0, "the advice does not work: {command:?}\n{output}");
}
