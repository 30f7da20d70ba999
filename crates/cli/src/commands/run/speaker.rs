//! What a run says: for people a line for each step and what went wrong, for scripts every object
//! of its commands with the profile and the step.

use crate::args::Global;
use crate::output;
use serde_json::{Map, Value, json};

/// Says it.
pub struct Speaker {
    json: bool,
    quiet: bool,
    verbose: bool,
}

impl Speaker {
    /// As the global options ask for.
    pub fn new(global: &Global) -> Speaker {
        Speaker {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose > 0,
        }
    }

    /// A line of talk about a profile, or a step of it.
    pub fn say(&self, profile: &str, step: &str, text: &str) {
        if !self.json && !self.quiet {
            report!("{}", output::escape(line(profile, step, text).as_bytes()));
        }
    }

    /// Worth a line also where quiet is wanted, and for scripts a note.
    pub fn note(&self, profile: &str, text: &str) {
        match self.json {
            true => output::object(&json!({"type": "note", "profile": profile, "message": text})),
            false => report!(
                "bale: {}",
                output::escape(line(profile, "", text).as_bytes())
            ),
        }
    }

    /// Of a hook or the record: it went wrong, and the run went on.
    pub fn problem(&self, profile: &str, step: &str, text: &str) {
        match self.json {
            true => output::object(&json!({
                "type": "problem", "profile": profile, "step": step, "action": "run",
                "path": "", "message": text,
            })),
            false => report!(
                "bale: {}",
                output::escape(line(profile, step, text).as_bytes())
            ),
        }
    }

    /// What ended a profile's run before it began.
    pub fn failed(&self, profile: &str, text: &str, code: i32) {
        let text = output::escape(text.as_bytes());
        if self.json {
            output::object(&json!({
                "type": "run", "profile": profile, "exit_code": code, "error": text, "steps": [],
            }));
        }
        report!("bale: {text}");
    }

    /// A line of a hook's output.
    pub fn output(&self, profile: &str, step: &str, hook: &str, bytes: &[u8]) {
        match self.json {
            true => output::object(&json!({
                "type": "output", "profile": profile, "step": step, "hook": hook,
                "line": output::escape(bytes),
            })),
            false if self.quiet => {}
            false => report!("{}: {hook}: {}", profile, output::escape(bytes)),
        }
    }

    /// An object of a step's command.
    pub fn pass_on(&self, profile: &str, step: &str, object: &Map<String, Value>) {
        if self.json {
            let mut object = object.clone();
            object.insert("profile".to_owned(), profile.into());
            object.insert("step".to_owned(), step.into());
            return output::object(&Value::Object(object));
        }
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let kind = text("type");
        let is_shown = match kind {
            "problem" | "damage" | "unread" | "lost" => true,
            "note" => !self.quiet,
            "path" | "decision" => self.verbose,
            _ => false,
        };
        if is_shown {
            let kind = if ["problem", "note"].contains(&kind) {
                ""
            } else {
                kind
            };
            let words = [
                kind,
                text("act"),
                text("action"),
                text("what"),
                text("path"),
            ];
            let words = words
                .into_iter()
                .chain([text("host"), text("time"), text("message")]);
            let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
            let text = words.join(" ");
            report!(
                "bale: {}",
                output::escape(line(profile, step, &text).as_bytes())
            );
        }
    }

    /// The object that sums up a step or a profile.
    pub fn object(&self, value: &Value) {
        if self.json {
            output::object(value);
        }
    }
}

fn line(profile: &str, step: &str, text: &str) -> String {
    match step {
        "" => format!("{profile}: {text}"),
        step => format!("{profile}: {step}: {text}"),
    }
}
