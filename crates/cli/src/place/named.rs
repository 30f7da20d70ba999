//! Which repository is meant: the one named on the command line, else in the environment, else the
//! user's own.
//!
//! Repositories are directories. A name that looks like a remote store of another tool is refused:
//! whoever writes it believes that his backups leave the machine.

use crate::args::Global;
use crate::exit::Usage;
use crate::variables;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The directories of the user's own repository.
pub struct Own {
    pub repository: PathBuf,
    /// Key file that opens it, unless it was made with another secret.
    pub key_file: PathBuf,
}

impl Own {
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
pub fn named(global: &Global) -> Result<Option<PathBuf>, Usage> {
    let path = match &global.repo {
        Some(path) => Some(path.clone()),
        None => variables::read("BALE_REPOSITORY")?.map(PathBuf::from),
    };
    if let Some(path) = &path {
        refuse_remote(path)?;
    }
    Ok(path)
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

/// `s3:bucket/x`, `sftp:user@host:/x`, `host:/x`: two letters or more, and a colon.
fn refuse_remote(path: &Path) -> Result<(), Usage> {
    let text = path.as_os_str().to_string_lossy();
    let Some((scheme, _)) = text.split_once(':') else {
        return Ok(());
    };
    let is_scheme = scheme.chars().count() >= 2
        && scheme
            .chars()
            .all(|letter| letter.is_alphanumeric() || "+-._@".contains(letter));
    match is_scheme {
        true => Err(Usage(format!(
            "{text:?} looks like a remote store: a repository is a directory of this machine, \
             nothing else is supported (for a directory of that name write ./{text})"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_remote_stores_are_no_directories() {
        for remote in [
            "s3:bucket/x",
            "sftp:user@host:/x",
            "rest:http://x",
            "b2:x",
            "ssh+x:y",
            "web1.example.org:/srv",
            "me@host:x",
            "file:///srv",
        ] {
            assert!(refuse_remote(Path::new(remote)).is_err(), "{remote}");
        }
        for local in ["/srv/a:b", "./s3:x", "x:y", "repo", "/", ":x", "a b:c"] {
            assert!(refuse_remote(Path::new(local)).is_ok(), "{local}");
        }
    }
}
