//! What this run said in its summary, for whoever reports it again: metrics, the log.

use serde_json::{Map, Value};
use std::sync::Mutex;

static SUMMARY: Mutex<Option<Map<String, Value>>> = Mutex::new(None);

/// Takes the numbers of a plan or summary; of two with one name the later one counts.
pub fn keep(object: &Value) {
    if let (Ok(mut summary), Some(object)) = (SUMMARY.lock(), object.as_object()) {
        let fields = object
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        summary.get_or_insert_default().extend(fields);
    }
}

/// All that was kept.
pub fn summary() -> Map<String, Value> {
    let summary = SUMMARY.lock().map(|summary| summary.clone());
    summary.ok().flatten().unwrap_or_default()
}

/// Did a backup make a snapshot?
pub fn is_committed() -> bool {
    summary().get("snapshot").is_some_and(Value::is_string)
}
