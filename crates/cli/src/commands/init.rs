//! `bale init`

use crate::args::{Global, Init};
use crate::exit::{self, Usage};
use crate::{place, secrets};
use anyhow::Result;
use bale_repository::repository::{NewSlot, Secret};

const NO_SECRET: &str = "no password or key for the new repository, and no terminal to ask at: \
    give a password with --password-file, --password-command or BALE_PASSWORD, or have a key file \
    made with --new-key-file";

/// Makes a repository; without `--repo`, the user's own.
pub fn run(global: &Global, options: &Init) -> Result<i32> {
    let Some(location) = place::named(global)? else {
        if options.new_key_file.is_some() {
            return Err(Usage(
                "--new-key-file needs --repo: your own repository makes its key itself".to_owned(),
            )
            .into());
        }
        place::make_own_explicitly(global)?;
        return Ok(exit::COMPLETE);
    };
    let room = place::Room::find(&location, options.force)?;
    // Before a key is written that opens nothing.
    place::require_named_cache(global)?;
    let mut slots = Vec::new();
    if let Some(file) = &options.new_key_file {
        let directory = location.clone().into_directory();
        let secret = Secret::key_file(place::write_key_file(file, directory.as_deref())?);
        slots.push(NewSlot {
            secret,
            label: file.display().to_string(),
        });
    }
    match secrets::given(global)? {
        Some(secret) => slots.push(NewSlot {
            secret,
            label: String::new(),
        }),
        None if slots.is_empty() => {
            let secret = Secret::Password(secrets::new_password(None, NO_SECRET)?);
            slots.push(NewSlot {
                secret,
                label: String::new(),
            });
        }
        None => {}
    }
    place::make(global, &location, room.store()?, slots)?;
    Ok(exit::COMPLETE)
}
