//! `bale key`

use crate::args::{Global, KeyAdd, KeyCommand};
use crate::exit;
use crate::times::{local_time, time_text};
use crate::{output, place, secrets};
use anyhow::Result;
use bale_format::{ObjectId, Time};
use bale_repository::repository::{NewSlot, Repository, Secret, SlotState};
use serde_json::json;

/// Adds, removes, lists and replaces key slots.
pub fn run(global: &Global, command: &KeyCommand) -> Result<i32> {
    let purpose = match command {
        KeyCommand::List => place::Use::Read,
        _ => place::Use::Write,
    };
    let (repository, secret) = place::open_with_secret(global, purpose)?;
    match command {
        KeyCommand::Add(options) => {
            let (word, id) = add(global, &repository, &secret, options, false)?;
            said(global, word, id);
        }
        KeyCommand::Remove { id } => said(global, "removed", repository.remove_key(id)?),
        KeyCommand::List => list(global, &repository)?,
        KeyCommand::Passwd(options) => {
            return replace(global, &repository, &secret, options);
        }
    }
    Ok(exit::COMPLETE)
}

/// Adds the new key, and removes the one that opened the repository; exit 3 if that stays.
fn replace(
    global: &Global,
    repository: &Repository,
    secret: &Secret,
    options: &KeyAdd,
) -> Result<i32> {
    repository.require_removable()?;
    let old = repository.slot();
    let options = &with_label_of(repository, old, options)?;
    let (word, new) = add(global, repository, secret, options, true)?;
    said(global, word, new);
    // Only now: a crash in between leaves both.
    if let Err(error) = repository.remove_key(&old.to_string()) {
        let text = format!("{:#}", anyhow::Error::from(error));
        if global.json {
            let id = old.to_string();
            output::object(
                &json!({"type": "key", "action": "not-removed", "id": id, "message": text}),
            );
        }
        report!(
            "bale: {}: key {} STAYS, and the old password or key opens the repository as before, \
             beside the new one. Run the same again, or bale key remove {}, where it may be \
             deleted",
            output::escape(text.as_bytes()),
            old.short(),
            old.short()
        );
        return Ok(exit::INCOMPLETE);
    }
    said(global, "removed", old);
    if let Some(other) = repository.slot_of(secret)? {
        // Whoever changes a password wants the old one to open nothing.
        report!(
            "bale: key {0} opens with the old password or key, too, and stays: bale key remove {0}",
            other.short()
        );
        return Ok(exit::INCOMPLETE);
    }
    if !global.quiet && !global.json {
        report!("The root key is unchanged: whoever had it can still read this repository.");
    }
    Ok(exit::COMPLETE)
}

/// What is to replace a key is told by its label as that was, unless another is given.
fn with_label_of(repository: &Repository, old: ObjectId, options: &KeyAdd) -> Result<KeyAdd> {
    let mut options = options.clone();
    if options.label.is_empty() {
        let slots = repository.list_keys()?;
        let slot = slots.into_iter().find(|slot| slot.id == old);
        options.label = slot.map(|slot| slot.label).unwrap_or_default();
    }
    Ok(options)
}

/// The password or key that opens the repository was given: it is the new one that is missing.
const NO_NEW_SECRET: &str = "no new password or key, and no terminal to ask at: give one with \
    --new-password-file or --new-key-file, or make a recovery key with --recovery";

/// What was done, and the slot. With `is_replacing`, a password that opens the repository already
/// is not added again: an earlier `passwd` was ended, or could not remove the old one.
fn add(
    global: &Global,
    repository: &Repository,
    secret: &Secret,
    options: &KeyAdd,
    is_replacing: bool,
) -> Result<(&'static str, ObjectId)> {
    if options.recovery {
        let (id, text) = repository.add_recovery_key(secret, &options.label)?;
        if global.json {
            output::object(
                &json!({"type": "recovery_key", "id": id.to_string(), "recovery_key": text}),
            );
        } else {
            report!("Recovery key, shown only now:");
            output::line(&text);
        }
        return Ok(("added", id));
    }
    let label = options.label.clone();
    let Some(file) = &options.new_key_file else {
        let file = options.new_password_file.as_deref();
        let new = Secret::Password(secrets::new_password(file, NO_NEW_SECRET)?);
        if is_replacing && let Some(id) = repository.slot_of(&new)? {
            anyhow::ensure!(
                id != repository.slot(),
                "the new password is the one that opened the repository now: nothing was changed"
            );
            return Ok(("there", id));
        }
        let added = repository.add_key(secret, &NewSlot { secret: new, label })?;
        return Ok(("added", added));
    };
    let directory = place::directory(global)?;
    let new = Secret::key_file(place::write_key_file(file, directory.as_deref())?);
    let added = repository.add_key(secret, &NewSlot { secret: new, label });
    let added = added.map_err(|error| {
        // It opens nothing, and would be in the way of the next attempt.
        let left = std::fs::remove_file(file).err();
        let error = anyhow::Error::from(error);
        match left {
            None => error,
            Some(left) => error.context(format!(
                "{} was made, opens nothing, and cannot be removed ({left})",
                output::path(file)
            )),
        }
    });
    Ok(("added", added?))
}

fn list(global: &Global, repository: &Repository) -> Result<()> {
    if !global.json && !global.quiet {
        output::line(&format!(
            "  {:<8}  {:<8}  {:<19}  Label",
            "ID", "Kind", "Created"
        ));
    }
    for slot in repository.list_keys()? {
        let created = slot.created.map(|seconds| Time::from((seconds, 0)));
        let (state, message) = match &slot.state {
            SlotState::Sound => ("sound", None),
            SlotState::Damaged(text) => ("damaged", Some(text)),
            SlotState::Unread(text) => ("unread", Some(text)),
            SlotState::Newer(text) => ("newer", Some(text)),
        };
        if message.is_some() {
            exit::something_is_missing();
        }
        if global.json {
            output::object(&json!({
                "type": "key", "id": slot.id.to_string(), "kind": slot.kind, "label": slot.label,
                "created": created.map(time_text),
                "current": slot.current, "state": state, "message": message,
            }));
            continue;
        }
        let current = if slot.current { "*" } else { " " };
        let kind = slot.kind.unwrap_or("?");
        let created = created.map(local_time).unwrap_or_default();
        let label = output::escape(slot.label.as_bytes());
        let id = slot.id.short();
        let trouble = message.map_or_else(String::new, |text| {
            format!(
                "  {}: {}",
                state.to_uppercase(),
                output::escape(text.as_bytes())
            )
        });
        output::line(&format!(
            "{current} {id}  {kind:<8}  {created:<19}  {label}{trouble}"
        ));
    }
    Ok(())
}

fn said(global: &Global, what: &str, id: ObjectId) {
    if global.json {
        output::object(&json!({"type": "key", "action": what, "id": id.to_string()}));
    } else if !global.quiet {
        match what {
            "there" => report!("key {} opens with the new password already", id.short()),
            what => report!("{what} key {}", id.short()),
        }
    }
}
