//! What came of a step, as hooks, scripts and the record get it.

use super::child::ChildOutcome;
use crate::exit;
use bale_profile::record::{Attempt, facts};
use bale_profile::words::ProfileTable;
use jiff::Zoned;
use serde_json::{Map, Value, json};

/// What came of a step that was due.
pub struct StepResult {
    /// Which.
    pub step: ProfileTable,
    /// Why it was due.
    pub why: String,
    /// Began and ended.
    pub moments: Option<(Zoned, Zoned)>,
    /// By a clock that nobody sets.
    pub seconds: f64,
    /// What its command came to.
    pub outcome: ChildOutcome,
    /// Why it did not run.
    pub skipped: Option<String>,
}

impl StepResult {
    /// One that did not run.
    pub fn skipped(step: ProfileTable, why: &str, skipped: String, exit_code: i32) -> StepResult {
        StepResult {
            step,
            why: why.to_owned(),
            moments: None,
            seconds: 0.0,
            outcome: ChildOutcome {
                exit_code,
                ..ChildOutcome::default()
            },
            skipped: Some(skipped),
        }
    }

    /// It did what it is for. With exit code 3 only if it came to an end: a backup that lost its
    /// repository ends so, too, and committed nothing.
    pub fn is_success(&self) -> bool {
        match self.outcome.exit_code {
            exit::COMPLETE => self.skipped.is_none(),
            exit::INCOMPLETE => self.outcome.summary.is_some(),
            _ => false,
        }
    }

    /// For the record.
    pub fn attempt(&self) -> Option<Attempt> {
        let (started, finished) = self.moments.as_ref()?;
        Some(Attempt {
            started: started.timestamp(),
            finished: finished.timestamp(),
            exit_code: self.outcome.exit_code,
            seconds: self.seconds,
            summary: self.outcome.summary.as_ref().map(facts).unwrap_or_default(),
        })
    }

    /// For scripts and hooks.
    pub fn object(&self, profile: &str) -> Value {
        let moment = |moment: fn(&(Zoned, Zoned)) -> &Zoned| {
            self.moments
                .as_ref()
                .map(|both| moment(both).timestamp().to_string())
        };
        json!({
            "type": "step", "profile": profile, "step": self.step.name(), "why": self.why,
            "started": moment(|both| &both.0), "finished": moment(|both| &both.1),
            "seconds": self.seconds, "exit_code": self.outcome.exit_code,
            "skipped": self.skipped, "error": self.outcome.error,
            "summary": self.outcome.summary, "problems": self.outcome.problems,
        })
    }

    /// For people, what it came to.
    pub fn sentence(&self) -> String {
        let end = match self.outcome.exit_code {
            exit::COMPLETE => String::new(),
            exit::INCOMPLETE if self.is_success() => ", with problems (exit 3)".to_owned(),
            code => return self.failure(code),
        };
        let empty = Map::new();
        let summary = self.outcome.summary.as_ref().unwrap_or(&empty);
        let text = match self.step {
            ProfileTable::Backup => backup(summary),
            ProfileTable::Forget => forget(summary),
            ProfileTable::Prune => prune(summary),
            ProfileTable::Check => check(summary),
            ProfileTable::Profile => String::new(),
        };
        format!("{text}, in {}{end}", crate::sizes::duration(self.seconds))
    }

    fn failure(&self, code: i32) -> String {
        match (&self.skipped, &self.outcome.error) {
            (Some(skipped), _) => format!("not run: {skipped}"),
            (None, Some(error)) => format!("FAILED (exit {code}): {error}"),
            (None, None) => format!("FAILED (exit {code})"),
        }
    }
}

fn number(summary: &Map<String, Value>, name: &str) -> u64 {
    summary.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn bytes(summary: &Map<String, Value>, name: &str) -> String {
    crate::sizes::bytes(number(summary, name))
}

fn backup(summary: &Map<String, Value>) -> String {
    let snapshot = match summary.get("snapshot").and_then(Value::as_str) {
        Some(id) => format!("snapshot {} saved", id.get(..8).unwrap_or(id)),
        None => "nothing changed: no snapshot was made".to_owned(),
    };
    format!(
        "{snapshot}, {}, read {}, stored {}",
        crate::sizes::counted(number(summary, "files"), "file"),
        bytes(summary, "bytes_read"),
        bytes(summary, "bytes_stored"),
    )
}

fn forget(summary: &Map<String, Value>) -> String {
    format!(
        "{} removed",
        crate::sizes::counted(number(summary, "removed"), "snapshot")
    )
}

fn prune(summary: &Map<String, Value>) -> String {
    format!(
        "{} given back, {} condemned",
        bytes(summary, "bytes_deleted"),
        bytes(summary, "bytes_condemned")
    )
}

fn check(summary: &Map<String, Value>) -> String {
    format!(
        "{} looked at, {} read: no damage",
        crate::sizes::counted(number(summary, "snapshots"), "snapshot"),
        bytes(summary, "bytes_read")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(exit_code: i32, summary: Option<Value>) -> StepResult {
        StepResult {
            step: ProfileTable::Backup,
            why: String::new(),
            moments: None,
            seconds: 1.0,
            outcome: ChildOutcome {
                exit_code,
                summary: summary.and_then(|summary| summary.as_object().cloned()),
                ..ChildOutcome::default()
            },
            skipped: None,
        }
    }

    /// A backup that lost its repository ends with 3 and without a summary: nothing is committed.
    #[test]
    fn exit_code_3_is_a_success_only_of_what_came_to_an_end() {
        let ended = result(exit::INCOMPLETE, Some(json!({"type": "summary"})));
        assert!(ended.is_success() && ended.sentence().contains("with problems"));
        let lost = result(exit::UNFINISHED, None);
        assert!(!lost.is_success() && lost.sentence().contains("FAILED (exit 3)"));
        assert!(!result(exit::DAMAGE, Some(json!({}))).is_success());
        let step = ProfileTable::Forget;
        let skipped = StepResult::skipped(step, "", "why".to_owned(), exit::COMPLETE);
        assert!(!skipped.is_success(), "what did not run has not succeeded");
    }
}
