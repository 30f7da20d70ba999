//! `bale init`

use super::policy;
use crate::args::{Global, Init};
use crate::exit::{self, Usage};
use crate::{place, secrets, sizes};
use anyhow::Result;
use bale_repository::repository::{InitOptions, NewSlot, Repository, Secret};
use bale_repository::stretched::{STRETCH_BYTES_MAX, STRETCH_BYTES_MIN, STRETCH_BYTES_USUAL};

const NO_SECRET: &str = "no password or key for the new repository, and no terminal to ask at: \
    give a password with --password-file, --password-command or BALE_PASSWORD, or have a key file \
    made with --new-key-file";

/// Makes a repository; without `--repo`, the user's own.
pub fn run(global: &Global, options: &Init) -> Result<i32> {
    place::cold_location(global)?;
    if options.print_policy.is_some() {
        return policy::print(global);
    }
    let init = InitOptions {
        stretch_bytes: stretch_bytes(options)?,
    };
    let Some(location) = place::named(global)? else {
        if options.new_key_file.is_some() {
            return Err(Usage(
                "--new-key-file needs --repo: your own repository makes its key itself".to_owned(),
            )
            .into());
        }
        if init.stretch_bytes.is_some() {
            let text = "--segments needs --repo: name where the segments are to be";
            return Err(Usage(text.to_owned()).into());
        }
        place::make_own_explicitly(global)?;
        return Ok(exit::COMPLETE);
    };
    let others = match options.force {
        true => place::OtherThings::Forced,
        false => place::OtherThings::NeedForce,
    };
    let room = place::Room::find(global, &location, others)?;
    let cold = place::find_cold_room(global, others)?;
    // Before a key is written that opens nothing.
    place::require_named_cache(global)?;
    let directory = location.clone().into_directory();
    if let Some(file) = &options.new_key_file {
        place::require_new_key_file(file, directory.as_deref())?;
    }
    let named = match secrets::given(global)? {
        None if options.new_key_file.is_none() => {
            Some(Secret::Password(secrets::new_password(None, NO_SECRET)?))
        }
        given => given,
    };
    // Nothing is made before this line.
    let store = place::new_store(global, room, cold)?;
    Repository::require_room(&*store, init)?;
    let mut slots = Vec::new();
    if let Some(file) = &options.new_key_file {
        let secret = Secret::key_file(place::write_key_file(file, directory.as_deref())?);
        slots.push(NewSlot {
            secret,
            label: file.display().to_string(),
        });
    }
    slots.extend(named.map(|secret| NewSlot {
        secret,
        label: String::new(),
    }));
    place::make(global, &location, store, slots, init)?;
    Ok(exit::COMPLETE)
}

/// The size of segments that are wanted.
fn stretch_bytes(options: &Init) -> Result<Option<u64>, Usage> {
    let Some(text) = &options.segments else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(STRETCH_BYTES_USUAL));
    }
    let bytes = sizes::parse_bytes(text)?;
    match (STRETCH_BYTES_MIN..=STRETCH_BYTES_MAX).contains(&bytes) {
        true => Ok(Some(bytes)),
        false => Err(Usage(format!(
            "--segments {text}: segments can have {} to {}",
            sizes::bytes(STRETCH_BYTES_MIN),
            sizes::bytes(STRETCH_BYTES_MAX)
        ))),
    }
}
