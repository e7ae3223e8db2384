//! The kubectl commands in the refusals and warnings of the packs' rules, run as printed. After an override is set, the request
//! that was refused is allowed; then the override is removed again. Labels stay, and everything else is a dry run, like the
//! requests.

use engine::verdict::{Effect, Judged};
use facts::review::{self, Origin};
use facts::settings::Settings;
use facts::view::View;
use gatera::rulebook;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::way_out::commands;
use super::{Answer, CountedGuard, Play, Stage};
use crate::advice::words;
use crate::lab::{Output, User};

/// The kubectl commands that are not run, and what the control plane lacks for them.
const NOT_RUN: [(&str, &str); 2] =
    [("kudo", "the plugin, which the drill `kudo` runs"), ("port-forward", "a pod that runs")];

impl Play {
    /// Returns whether a rule of a pack judges this case.
    fn is_of_a_pack(&self) -> bool {
        let mut rules = rulebook().packs().iter().flat_map(|pack| pack.rules);
        rules.any(|rule| self.name.split('/').next() == Some(rule.id))
    }

    /// Returns the kubectl commands in the refusal or the warning, as they are printed.
    fn printed(&self) -> Vec<String> {
        let settings = Settings::default();
        let world = self.world(&settings);
        let view = View::new(&world, Timestamp::now(), &settings);
        let bytes = self.body.to_string().into_bytes();
        let review = review::read(&bytes, Origin::Validating, rulebook().kinds()).unwrap().review;
        let decision = rulebook().evaluate(&review, &view);
        let is_printed = |it: &&Judged| {
            it.effect == Effect::Refused || it.effect == Effect::Warned && it.softened.is_none()
        };
        let ways = decision.judged.iter().filter(is_printed).flat_map(|it| it.finding.instead.ways());
        let commands = ways.flat_map(|way| commands(way)).map(|(command, _)| command.to_string());
        commands.filter_map(|it| it.strip_prefix("kubectl ").map(str::to_owned)).collect()
    }

    /// Returns the same request about the object as it is stored now, with its annotations. API servers ignore the `dryRun` of a
    /// query if a deletion has options.
    fn about(&self, stored: &Value) -> Self {
        let mut asked = self.asked.clone();
        if asked.operation == "DELETE" {
            asked.options["dryRun"] = json!(["All"]);
        }
        if let (Some(new), Some(marks)) =
            (asked.new.get_mut("metadata"), stored["metadata"].get("annotations"))
        {
            new["annotations"] = marks.clone();
        }
        Self {
            name: self.name.clone(),
            user: self.user.clone(),
            objects: Vec::new(),
            asked,
            body: self.body.clone(),
            is_refused: false,
        }
    }
}

impl Stage {
    /// Runs the commands that are printed in a case of a pack. Returns their number, and adds what does not work to `failed`.
    pub fn follow(&self, play: &Play, guard: &CountedGuard, failed: &mut Vec<String>) -> usize {
        let commands = if play.is_of_a_pack() { play.printed() } else { Vec::new() };
        for command in &commands {
            if let Err(problem) = self.follow_one(play, guard, &words(command)) {
                failed.push(format!("{}: kubectl {command}: {problem}", play.name));
            }
        }
        guard.was_asked();
        commands.len()
    }

    fn follow_one(&self, play: &Play, guard: &CountedGuard, command: &[String]) -> Result<(), String> {
        let is = |word: &str| command.iter().any(|it| it == word);
        let run = |change: &dyn Fn(&str) -> String, more: &[&str]| {
            let words: Vec<_> = command.iter().map(|it| change(it)).collect();
            let words = words.iter().map(String::as_str).chain(more.iter().copied());
            self.plane.kubectl(User::Admin, &words.collect::<Vec<_>>())
        };
        let as_printed = |word: &str| word.to_owned();
        if NOT_RUN.iter().any(|(word, _)| is(word)) {
            return Ok(());
        }
        if is("get") || is("describe") || is("label") {
            return succeeded(&run(&as_printed, &[]));
        }
        if is("wait") {
            let output = run(&|word| word.replace("--timeout=10m", "--timeout=1s"), &[]);
            let waits = output.stderr.contains("timed out waiting for the condition");
            return if waits { Ok(()) } else { succeeded(&output) };
        }
        if is("annotate") {
            succeeded(&run(&|word| word.replace("reason=…", "reason=as-advised"), &[]))?;
            let said = self.repeated(play, guard);
            succeeded(&run(
                &|word| word.split('=').next().unwrap_or_default().replace("override", "override-"),
                &[],
            ))?;
            return if matches!(said, Answer::Allowed(_)) {
                Ok(())
            } else {
                Err(format!("the request is not allowed afterwards: {said:?}"))
            };
        }
        let dry = ["--dry-run=server"];
        let filled = |word: &str| {
            let word = word.replace("https://NAME/…", "https://rds.example.com/");
            word.replace("NAMESPACE", "default").replace("ACCOUNT", "default")
        };
        if command.iter().any(|word| filled(word) != **word) && run(&as_printed, &dry).status == 0 {
            return Err("the placeholder is accepted".to_owned());
        }
        succeeded(&run(&filled, &dry))
    }

    /// Sends the request again, about the object as it is stored now.
    fn repeated(&self, play: &Play, guard: &CountedGuard) -> Answer {
        let asked = &play.asked;
        if asked.operation == "DELETE" {
            return self.answer(&play.about(&Value::Null), "", guard);
        }
        let what = format!("{}/{}", asked.of.plural(), asked.name());
        let stored = self.plane.get(play.namespace(), &what);
        let version = stored["metadata"]["resourceVersion"].as_str().unwrap();
        self.answer(&play.about(&stored), version, guard)
    }
}

fn succeeded(output: &Output) -> Result<(), String> {
    if output.status == 0 { Ok(()) } else { Err(output.to_string()) }
}
