//! `bale key`

use crate::args::{Global, KeyAdd, KeyCommand};
use crate::exit;
use crate::{output, place, secrets};
use anyhow::Result;
use bale_format::ObjectId;
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
            let id = add(global, &repository, &secret, options)?;
            said(global, "added", id);
        }
        KeyCommand::Remove { id } => said(global, "removed", repository.remove_key(id)?),
        KeyCommand::List => list(global, &repository)?,
        KeyCommand::Passwd(options) => {
            let id = add(global, &repository, &secret, options)?;
            said(global, "added", id);
            // Only now: a crash in between leaves both.
            let old = repository.slot();
            said(global, "removed", repository.remove_key(&old.to_string())?);
            if !global.quiet && !global.json {
                report!(
                    "The root key is unchanged: whoever had it can still read this repository."
                );
            }
        }
    }
    Ok(exit::COMPLETE)
}

/// The password or key that opens the repository was given: it is the new one that is missing.
const NO_NEW_SECRET: &str = "no new password or key, and no terminal to ask at: give one with \
    --new-password-file or --new-key-file, or make a recovery key with --recovery";

fn add(
    global: &Global,
    repository: &Repository,
    secret: &Secret,
    options: &KeyAdd,
) -> Result<ObjectId> {
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
        return Ok(id);
    }
    let new = match &options.new_key_file {
        Some(file) => {
            let repository = place::directory(global)?;
            Secret::key_file(place::write_key_file(file, repository.as_deref())?)
        }
        None => {
            let file = options.new_password_file.as_deref();
            Secret::Password(secrets::new_password(file, NO_NEW_SECRET)?)
        }
    };
    Ok(repository.add_key(
        secret,
        &NewSlot {
            secret: new,
            label: options.label.clone(),
        },
    )?)
}

fn list(global: &Global, repository: &Repository) -> Result<()> {
    for slot in repository.list_keys()? {
        let created = slot
            .created
            .map(|seconds| crate::times::time_text((seconds, 0).into()));
        let (state, message) = match &slot.state {
            SlotState::Sound => ("sound", None),
            SlotState::Damaged(text) => ("damaged", Some(text)),
            SlotState::Newer(text) => ("newer", Some(text)),
        };
        if message.is_some() {
            exit::something_is_missing();
        }
        if global.json {
            output::object(&json!({
                "type": "key", "id": slot.id.to_string(), "kind": slot.kind, "label": slot.label,
                "created": created,
                "current": slot.current, "state": state, "message": message,
            }));
            continue;
        }
        let current = if slot.current { "*" } else { " " };
        let (kind, created) = (slot.kind.unwrap_or("?"), created.unwrap_or_default());
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
            "{current} {id}  {kind:<8}  {created:<20}  {label}{trouble}"
        ));
    }
    Ok(())
}

fn said(global: &Global, what: &str, id: ObjectId) {
    if global.json {
        output::object(&json!({"type": "key", "action": what, "id": id.to_string()}));
    } else if !global.quiet {
        report!("{what} key {}", id.short());
    }
}
