//! What is known of a profile's past runs on this machine: a small JSON file.
//!
//! It is believed no further than its loss would cost: one that is damaged, missing, of another
//! repository or from the future means that everything is due, and that is reported.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Bytes of a record at most.
pub const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Of a summary, bytes of a text that is recorded.
const TEXT_BYTES_MAX: usize = 256;
/// Of a summary, facts that are recorded.
const FACTS_MAX: usize = 128;
/// What is written today.
const VERSION: u32 = 1;

/// The record of one profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    version: u32,
    /// Whose.
    pub profile: String,
    /// Of which repository, as its name is shown.
    pub repository: String,
    /// By the step's name.
    #[serde(default)]
    pub steps: BTreeMap<String, StepRecord>,
    /// When the first run began that is in it: moments before it were nobody's.
    #[serde(default)]
    pub first_run: Option<Timestamp>,
    /// The last run that had anything to do.
    #[serde(default)]
    pub last_run: Option<LastRun>,
}

/// How the last run of a profile ended, hooks, pings and mails among it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastRun {
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Timestamp,
    /// How.
    pub exit_code: i32,
    /// The first thing that went wrong.
    #[serde(default)]
    pub trouble: Option<String>,
}

impl LastRun {
    /// What went wrong, as much of it as is recorded.
    pub fn with_trouble(mut self, text: Option<&str>) -> LastRun {
        let short = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned();
        self.trouble = text.map(short);
        self
    }
}

/// What is known of one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The last time that it was tried.
    #[serde(default)]
    pub last: Option<Attempt>,
    /// The last time that it succeeded.
    #[serde(default)]
    pub last_success: Option<Attempt>,
    /// Of a check of parts in turn, the last part that was read, and of how many.
    #[serde(default)]
    pub part: Option<(u32, u32)>,
}

/// One execution of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Timestamp,
    /// How.
    pub exit_code: i32,
    /// How long it took.
    pub seconds: f64,
    /// What the command said last: numbers, and short texts.
    #[serde(default)]
    pub summary: Map<String, Value>,
}

impl RunRecord {
    /// Of a profile that never ran.
    pub fn new(profile: &str, repository: &str) -> RunRecord {
        RunRecord {
            version: VERSION,
            profile: profile.to_owned(),
            repository: repository.to_owned(),
            steps: BTreeMap::new(),
            first_run: None,
            last_run: None,
        }
    }

    /// Reads one; why it does not count otherwise.
    pub fn parse(bytes: &[u8], profile: &str, repository: &str) -> Result<RunRecord, String> {
        let record: RunRecord =
            serde_json::from_slice(bytes).map_err(|error| format!("is damaged ({error})"))?;
        match () {
            () if record.version != VERSION => Err(format!(
                "is of version {}, which this program does not know",
                record.version
            )),
            () if record.profile != profile => {
                Err(format!("is of another profile ({})", record.profile))
            }
            () if record.repository != repository => {
                Err(format!("is of another repository ({})", record.repository))
            }
            () => Ok(record),
        }
    }

    /// As it is stored.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Notes an execution, which succeeded or not.
    pub fn note(&mut self, step: &str, attempt: Attempt, is_success: bool) {
        let step = self.steps.entry(step.to_owned()).or_default();
        if is_success {
            step.last_success = Some(attempt.clone());
        }
        step.last = Some(attempt);
    }
}

/// What of a command's last object is recorded: no lists, and nothing long.
pub fn facts(summary: &Map<String, Value>) -> Map<String, Value> {
    let is_fact = |value: &Value| match value {
        Value::String(text) => text.len() <= TEXT_BYTES_MAX,
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    };
    let facts = summary
        .iter()
        .filter(|(name, value)| *name != "type" && is_fact(value));
    facts
        .take(FACTS_MAX)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attempt(exit_code: i32) -> Attempt {
        Attempt {
            started: "2026-11-27T03:00:00Z".parse().unwrap(),
            finished: "2026-11-27T03:05:00Z".parse().unwrap(),
            exit_code,
            seconds: 300.0,
            summary: Map::new(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_failure_hides_no_success() {
        let mut record = RunRecord::new("home", "/srv/backup");
        record.note("backup", attempt(0), true);
        record.note("backup", attempt(1), false);
        let read = RunRecord::parse(&record.bytes(), "home", "/srv/backup").unwrap();
        assert_eq!(read, record);
        let step = &read.steps["backup"];
        let code = |attempt: &Option<Attempt>| attempt.as_ref().map(|attempt| attempt.exit_code);
        assert_eq!(
            (code(&step.last), code(&step.last_success)),
            (Some(1), Some(0))
        );
    }

    /// As a program wrote it that knew nothing of whole runs.
    #[test]
    fn an_older_record_is_read_and_what_went_wrong_is_bounded() {
        let older = r#"{"version": 1, "profile": "home", "repository": "/r", "steps": {}}"#;
        let record = RunRecord::parse(older.as_bytes(), "home", "/r").unwrap();
        assert_eq!(record.last_run, None);
        let run = LastRun {
            started: Timestamp::UNIX_EPOCH,
            finished: Timestamp::UNIX_EPOCH,
            exit_code: 1,
            trouble: None,
        };
        let long = "ü".repeat(1000);
        let trouble = run.with_trouble(Some(&long)).trouble.unwrap();
        assert_eq!(trouble.len(), TEXT_BYTES_MAX);
    }

    #[test]
    fn what_is_damaged_or_of_another_does_not_count() {
        let bytes = RunRecord::new("home", "/srv/backup").bytes();
        for (profile, repository, why) in [
            ("home", "/srv/other", "of another repository (/srv/backup)"),
            ("other", "/srv/backup", "of another profile (home)"),
        ] {
            let refused = RunRecord::parse(&bytes, profile, repository).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        for length in 0..bytes.len() - 2 {
            let refused = RunRecord::parse(&bytes[..length], "home", "/srv/backup");
            assert!(refused.unwrap_err().contains("damaged"), "{length}");
        }
        let newer = String::from_utf8(bytes)
            .unwrap()
            .replace("\"version\": 1", "\"version\": 2");
        let refused = RunRecord::parse(newer.as_bytes(), "home", "/srv/backup");
        assert!(refused.unwrap_err().contains("version 2"));
    }

    #[test]
    fn what_grows_is_left_out_of_a_record() {
        let summary = json!({
            "type": "summary", "files": 3, "snapshot": null, "dry_run": false, "images": [1],
            "long": "x".repeat(300), "short": "x", "deep": {"a": 1},
        });
        let facts = facts(summary.as_object().unwrap());
        let names: Vec<_> = facts.keys().map(String::as_str).collect();
        assert_eq!(names, ["dry_run", "files", "short", "snapshot"]);
    }
}
