//! Which repository is meant: the one named on the command line, else in the environment, else the
//! user's own.
//!
//! A name with a scheme that is none of ours is refused, and never taken for a directory: whoever
//! writes it believes that his backups leave the machine.

use crate::args::Global;
use crate::exit::Usage;
use crate::variables;
use anyhow::Result;
use bale_remote::Location;
use std::path::PathBuf;

/// The directories of the user's own repository.
pub struct Own {
    pub repository: PathBuf,
    /// Key file that opens it, unless it was made with another secret.
    pub key_file: PathBuf,
}

impl Own {
    /// Of its repository.
    pub fn location(&self) -> Location {
        Location::Directory(self.repository.clone())
    }

    /// Is there one?
    pub fn is_made(&self) -> bool {
        super::is_made(&self.repository)
    }
}

/// Its key is there, and nothing of the repository: a key is never made before the directories of
/// its repository.
pub fn has_only_key(own: &Own) -> bool {
    let is_empty = match std::fs::read_dir(&own.repository) {
        Ok(mut names) => {
            names.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "lost+found"))
        }
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    is_empty && own.key_file.exists()
}

/// The repository that is named, if one is.
pub fn named(global: &Global) -> Result<Option<Location>, Usage> {
    let text = match &global.repo {
        Some(text) => Some(text.clone()),
        None => variables::read("BALE_REPOSITORY")?,
    };
    let location = text.map(|text| Location::parse(&text)).transpose();
    location.map_err(|error| Usage(error.to_string()))
}

/// Its directory, if it is one of this machine.
pub fn named_directory(global: &Global) -> Option<PathBuf> {
    named(global)
        .ok()
        .flatten()
        .and_then(Location::into_directory)
}

/// Where the user's own repository is, or would be.
pub fn own() -> Result<Own> {
    let data = user_dir("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
        Usage("no home directory: set HOME, or name a repository with --repo".to_owned())
    })?;
    let data = data.join("bale");
    Ok(Own {
        repository: data.join("repository"),
        key_file: data.join("repository.key"),
    })
}

/// What this variable names, or a directory below the home directory. Relative paths do not count.
pub fn user_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |variable| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
    };
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

/// Do two names mean one place, as far as can be seen from here?
pub fn is_same_place(one: &Location, other: &Location) -> bool {
    match (one, other) {
        (Location::Directory(one), Location::Directory(other)) => {
            let real = |path: &PathBuf| std::fs::canonicalize(path).ok();
            one == other || real(one).is_some_and(|one| real(other) == Some(one))
        }
        (one, other) => one == other,
    }
}
