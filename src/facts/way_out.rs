//! The way out: the steps that a user can take instead of a refused change, or to end what a diagnosis reports.
//!
//! Owns: [`WayOut`], its steps, and the commands in them. Must not know: rules, layouts. The renderer decides where a
//! line ends.

use std::fmt::{Display, Formatter, Result, Write as _};

use serde::{Serialize, Serializer};

use crate::pages::Pages;

/// A way out: ways to choose from, each a list of steps. Empty: there is nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WayOut {
    ways: Vec<Vec<Step>>,
}

/// A step: words, with the commands that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step(Vec<Word>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    Text(String),
    Command(CommandLine),
    /// The page with this id.
    Page(&'static str),
    /// A change of the object in a cluster, and the edit of its manifest that has the same effect.
    Edit {
        live: Step,
        file: String,
    },
    /// An exception from this rule for an object in a cluster; in a file a comment waives the rule.
    Exception {
        live: Step,
        rule: String,
    },
}

/// A command with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(Vec<String>);

/// Returns a way out that begins with these words.
pub fn say(text: impl Into<String>) -> WayOut {
    WayOut::default().say(text)
}

/// Returns a way out that begins with this command.
pub fn run(command: CommandLine) -> WayOut {
    WayOut::default().run(command)
}

/// Returns a way out that begins with this page.
pub fn page(id: &'static str) -> WayOut {
    WayOut::default().page(id)
}

/// Returns a way out that changes the object in a cluster, or its manifest as these words say.
pub fn edit(live: impl Into<WayOut>, file: impl Into<String>) -> WayOut {
    WayOut::default().word(Word::Edit { live: live.into().first_step(), file: file.into() })
}

/// Returns a way out that sets an exception from this rule.
pub fn except(rule: &str, live: impl Into<WayOut>) -> WayOut {
    WayOut::default().word(Word::Exception { live: live.into().first_step(), rule: rule.to_owned() })
}

impl WayOut {
    /// Returns the first step of the first way.
    fn first_step(self) -> Step {
        self.ways.into_iter().flatten().next().unwrap_or_default()
    }

    /// Replaces each change of a live object by the edit of its manifest, and each exception by a comment in that file.
    /// `removed`: the object is no longer in the files, so the comment belongs in an earlier commit.
    #[must_use]
    pub fn in_files(mut self, removed: bool) -> Self {
        for word in self.ways.iter_mut().flatten().flat_map(|step| &mut step.0) {
            match word {
                Word::Edit { file, .. } => *word = Word::Text(std::mem::take(file)),
                Word::Exception { rule, .. } => *word = Word::Text(waiver(rule, removed)),
                Word::Text(_) | Word::Command(_) | Word::Page(_) => {}
            }
        }
        self
    }

    /// Adds words to the last step.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { self } else { self.word(Word::Text(text)) }
    }

    /// Adds a command to the last step.
    #[must_use]
    pub fn run(self, command: CommandLine) -> Self {
        self.word(Word::Command(command))
    }

    /// Adds a page to the last step.
    #[must_use]
    pub fn page(self, id: &'static str) -> Self {
        self.word(Word::Page(id))
    }

    /// Adds the first step of another way out to the last step, and the other steps and ways after it.
    #[must_use]
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        let mut other = other.into();
        if let Some(last) = self.ways.last_mut().and_then(|steps| steps.last_mut()) {
            let first = other.ways.first_mut().filter(|steps| !steps.is_empty());
            last.0.extend(first.map(|steps| steps.remove(0).0).unwrap_or_default());
        }
        self.then(other)
    }

    /// Adds the first way of another way out as the next steps, and its other ways as alternatives.
    #[must_use]
    pub fn then(mut self, next: impl Into<Self>) -> Self {
        let mut next_ways = next.into().ways.into_iter();
        match self.ways.last_mut() {
            Some(last) => last.extend(next_ways.next().into_iter().flatten()),
            None => self.ways.extend(next_ways.next()),
        }
        self.ways.extend(next_ways);
        self
    }

    /// Adds the ways of another way out as alternatives.
    #[must_use]
    pub fn or(mut self, other: impl Into<Self>) -> Self {
        self.ways.extend(other.into().ways);
        self
    }

    fn word(mut self, word: Word) -> Self {
        match self.ways.last_mut().and_then(|steps| steps.last_mut()) {
            Some(last) => last.0.push(word),
            None => self.ways.push(vec![Step(vec![word])]),
        }
        self
    }

    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// Returns the ways to choose from.
    pub fn ways(&self) -> &[Vec<Step>] {
        &self.ways
    }

    /// Returns the ids of the pages that it names.
    pub fn pages(&self) -> impl Iterator<Item = &'static str> {
        self.ways.iter().flatten().flat_map(|step| &step.0).filter_map(|word| match word {
            Word::Page(id) => Some(*id),
            _ => None,
        })
    }

    /// Returns the whole way out in one line.
    pub fn line(&self, pages: &Pages) -> String {
        let way =
            |steps: &Vec<Step>| steps.iter().map(|step| step.line(pages)).collect::<Vec<_>>().join("; ");
        let mut ways = self.ways.iter().map(way);
        let first = ways.next().unwrap_or_default();
        ways.fold(first, |line, next| {
            // A way that begins with its purpose or its condition reads better after a comma.
            let has_purpose = ["to ", "for ", "if "].iter().any(|word| next.starts_with(word));
            format!("{line}; or{} {next}", if has_purpose { "," } else { "" })
        })
    }
}

/// Returns the advice to waive the rule by a comment. It counts only where files are judged: API servers receive no comments.
fn waiver(rule: &str, removed: bool) -> String {
    let before = if removed { ", in a commit before this one" } else { "" };
    format!(
        "write the comment # gatera: waive {rule} reason=… above the object{before} \
         (to apply the change, you also need an override: gatera explain {rule})"
    )
}

impl Step {
    pub fn words(&self) -> &[Word] {
        &self.0
    }

    /// Returns the step in one line. Where `pages` are in a ConfigMap, a page is named without the command that prints it.
    pub fn line(&self, pages: &Pages) -> String {
        let mut line = String::new();
        for word in &self.0 {
            let _ = match (word, pages) {
                (Word::Text(text), _) => write!(line, "{text}"),
                (Word::Command(command), _) => write!(line, "{command}"),
                (Word::Page(id), Pages::Program) => write!(line, "gatera explain {id}"),
                (Word::Page(id), Pages::ConfigMap { .. }) => write!(line, "page {id}"),
                (Word::Edit { live, .. } | Word::Exception { live, .. }, _) => {
                    write!(line, "{}", live.line(pages))
                }
            };
        }
        line
    }
}

impl Display for WayOut {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(&self.line(&Pages::Program))
    }
}

/// Writes the way out in one line.
impl Serialize for WayOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<T: Into<String>> From<T> for WayOut {
    fn from(text: T) -> Self {
        say(text)
    }
}

impl From<CommandLine> for WayOut {
    fn from(command: CommandLine) -> Self {
        run(command)
    }
}

impl CommandLine {
    /// Returns a command of words without spaces.
    pub fn new(words: impl AsRef<str>) -> Self {
        Self(words.as_ref().split(' ').map(str::to_owned).collect())
    }

    /// Returns the command with one more argument, which may hold any text.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.0.push(argument.into());
        self
    }

    /// Returns the program and its arguments.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

/// Writes the command with quotes where a shell needs them.
impl Display for CommandLine {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
        for (index, word) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_char(' ')?;
            }
            if !word.is_empty() && word.chars().all(is_plain) {
                f.write_str(word)?;
            } else {
                write!(f, "'{}'", word.replace('\'', r"'\''"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way_out() -> WayOut {
        say("wait until all are Ready (")
            .run(CommandLine::new("kubectl -n db wait").arg("--for=jsonpath={.a}=3"))
            .say(")")
            .then("repeat the command")
            .or(say("to remove it: see ").page("G03"))
    }

    #[test]
    fn steps_and_ways_are_one_line_or_many() {
        let text = "wait until all are Ready (kubectl -n db wait '--for=jsonpath={.a}=3'); repeat the command; \
                    or, to remove it: see gatera explain G03";
        assert_eq!(way_out().to_string(), text);
        let pages = Pages::read("gatera/gatera-rules").unwrap_or_default();
        assert!(way_out().line(&pages).ends_with("see page G03"));
        assert_eq!(way_out().ways().iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(way_out().pages().collect::<Vec<_>>(), ["G03"]);
        let Some(Word::Command(command)) = way_out().ways()[0][0].words().get(1).cloned() else {
            panic!("a step has its command: {:?}", way_out())
        };
        assert_eq!(command.words(), ["kubectl", "-n", "db", "wait", "--for=jsonpath={.a}=3"]);
    }

    #[test]
    fn and_joins_the_last_step_with_the_first_step_of_the_other_way_out() {
        let both = say("first: ").and(way_out()).say(", or ask");
        assert!(both.to_string().starts_with("first: wait until all are Ready (kubectl"));
        assert_eq!(both.ways().iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(say("a").and(WayOut::default()), say("a"));
        assert_eq!(WayOut::default().and(say("a").or("b")), say("a").or("b"));
        assert_eq!(WayOut::default().then("a").or("b").to_string(), "a; or b");
    }

    #[test]
    fn in_files_a_command_is_an_edit_and_an_exception_a_comment() {
        let both = say("first ")
            .and(edit(run(CommandLine::new("kubectl scale x")).say(" (or so)"), "write replicas: 2"))
            .say(", then wait")
            .or(say("if not: ").and(except("G03", CommandLine::new("kubectl annotate x"))));
        assert_eq!(
            both.to_string(),
            "first kubectl scale x (or so), then wait; or, if not: kubectl annotate x"
        );
        let waiver = |before| {
            format!(
                "first write replicas: 2, then wait; or, if not: write the comment # gatera: waive G03 reason=… above the \
                 object{before} (to apply the change, you also need an override: gatera explain G03)"
            )
        };
        assert_eq!(both.clone().in_files(false).to_string(), waiver(""));
        assert_eq!(both.in_files(true).to_string(), waiver(", in a commit before this one"));
    }

    #[test]
    fn an_argument_is_quoted_if_a_shell_would_interpret_it() {
        let command = CommandLine::new("kubectl annotate pod a").arg("key=it's $(x); y").arg("");
        assert_eq!(command.to_string(), r"kubectl annotate pod a 'key=it'\''s $(x); y' ''");
    }
}
