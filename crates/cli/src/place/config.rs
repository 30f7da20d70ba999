//! What is said of `config` and its copy when a repository is opened or made, and the copy that a
//! command which writes adds.

use super::Use;
use crate::args::Global;
use crate::output;
use bale_engine::repair::renew_config_copy;
use bale_repository::repository::{ConfigFault, Made, Repository};
use bale_repository::store::ObjectName;
use std::sync::atomic::{AtomicBool, Ordering};

/// Key slots of an earlier init that are named.
const SLOTS_NAMED_MAX: usize = 8;

/// Reported once, though a command may open its repository twice.
static IS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Reports that `config.copy` is in use, and writes a missing copy if the command writes anyway.
pub fn add_missing_config_copy(global: &Global, repository: &Repository, purpose: Use) {
    let trouble = (repository.config_trouble()).filter(|_| purpose != Use::Configs);
    let Some(trouble) = trouble else {
        return;
    };
    let is_config = trouble.name == ObjectName::config();
    if is_config && !IS_REPORTED.swap(true, Ordering::Relaxed) {
        note(global, &trouble.note());
    }
    if !purpose.writes() {
        return;
    }
    match renew_config_copy(repository) {
        // It was mended meanwhile, or an answer was garbled.
        Ok(None) if !is_config && matches!(trouble.fault, ConfigFault::Damaged(_)) => note(
            global,
            &format!(
                "{} was read damaged at first, and otherwise when it was read again: nothing is \
                 written (bale check says how it is)",
                trouble.name
            ),
        ),
        Ok(None) => {}
        Ok(Some(trouble)) => {
            let was = match trouble.fault {
                ConfigFault::Missing => "was missing",
                ConfigFault::Damaged(_) | ConfigFault::Unreadable(_) => "was damaged",
            };
            note(
                global,
                &format!("{} {was}: written from config", trouble.name),
            );
        }
        Err(error) => {
            let error = output::chain(&error.into());
            let name = ObjectName::config_copy();
            note(
                global,
                &format!("{name} is damaged and cannot be rewritten: {error}"),
            );
        }
    }
}

/// What the maker of a repository should know besides its recovery key.
pub fn report_new_repository(global: &Global, made: &Made) {
    let before = &made.slots_before;
    if !before.is_empty() {
        let named = before.iter().take(SLOTS_NAMED_MAX).map(|id| id.short());
        let mut named: Vec<String> = named.collect();
        if before.len() > named.len() {
            named.push(format!("and {} more", before.len() - named.len()));
        }
        note(
            global,
            &format!(
                "key slots were there before, of an init that did not end: they open nothing here \
                 (bale key remove ID removes one): {}",
                named.join(", ")
            ),
        );
    }
    if let Some(error) = &made.copy_missing {
        note(
            global,
            &format!("config.copy is not written ({error}): the next command that writes adds it"),
        );
    }
}

fn note(global: &Global, text: &str) {
    if global.json {
        output::object(&serde_json::json!({"type": "note", "message": text}));
    }
    report!("bale: {}", output::escape(text.as_bytes()));
}
