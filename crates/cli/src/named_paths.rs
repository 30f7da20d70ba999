//! Paths that were named on the command line or in the environment: trouble with one says what it
//! is for, which option named it, what was attempted, why that failed, and what to write instead.

use crate::output;
use anyhow::{Result, anyhow};
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;

/// What a named path is for.
#[derive(Clone, Copy)]
pub struct NamedPath<'a> {
    /// The option, variable or argument that named it.
    pub by: &'a str,
    /// What is attempted with it: `read the password from` ...
    pub attempt: &'a str,
    pub path: &'a Path,
    pub advice: &'a str,
}

impl NamedPath<'_> {
    /// The error that says all of it.
    pub fn trouble(&self, why: impl Display) -> anyhow::Error {
        let path = output::path(self.path);
        anyhow!(
            "{} {path} ({}): {why}. {}",
            self.attempt,
            self.by,
            self.advice
        )
    }

    /// It is a directory, or can become one: asked before any work is done for it.
    pub fn require_directory(&self) -> Result<()> {
        self.require_directory_at(self.path)
    }

    /// The same of the directory that it will be in.
    pub fn require_parent(&self) -> Result<()> {
        self.require_directory_at(self.path.parent().unwrap_or(self.path))
    }

    fn require_directory_at(&self, directory: &Path) -> Result<()> {
        for at in directory.ancestors() {
            let at = if at.as_os_str().is_empty() {
                Path::new(".")
            } else {
                at
            };
            let shown = || {
                if at == self.path {
                    "it".to_owned()
                } else {
                    output::path(at)
                }
            };
            match std::fs::metadata(at) {
                Ok(meta) if meta.is_dir() => return Ok(()),
                Ok(_) => return Err(self.trouble(format!("{} is no directory", shown()))),
                Err(_) if at.is_symlink() => {
                    return Err(self.trouble(format!("{} is a link that leads nowhere", shown())));
                }
                Err(error) if is_absent(error.kind()) => {}
                Err(error) => return Err(self.trouble(error)),
            }
        }
        Ok(())
    }

    /// A file can be made there, or is: the directory is there, asked before any work is done for
    /// it.
    pub fn require_place_for_file(&self) -> Result<()> {
        if self.path.is_dir() {
            return Err(self.trouble("it is a directory"));
        }
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        match std::fs::metadata(directory) {
            Ok(meta) if meta.is_dir() => Ok(()),
            Ok(_) => Err(self.trouble(format!("{} is no directory", output::path(directory)))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(self.trouble(format!("there is no directory {}", output::path(directory))))
            }
            Err(error) => Err(self.trouble(error)),
        }
    }
}

fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &Path) -> NamedPath<'_> {
        NamedPath {
            by: "--target",
            attempt: "restore to",
            path,
            advice: "Name a directory",
        }
    }

    fn text(result: Result<()>) -> String {
        result.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_directory_that_is_there_or_can_be_made_is_taken() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("nowhere", place.path().join("link")).unwrap();
        for fine in ["", "new", "new/below"] {
            let path = place.path().join(fine);
            assert_eq!(text(named(&path).require_directory()), "", "{fine}");
        }
        for (path, why) in [
            ("file", "it is no directory"),
            ("file/below", "file is no directory"),
            ("link", "leads nowhere"),
        ] {
            let path = place.path().join(path);
            let reported = text(named(&path).require_directory());
            assert!(
                reported.contains(why) && reported.contains("(--target)"),
                "{reported}"
            );
        }
        assert_eq!(text(named(Path::new("new")).require_directory()), "");
    }

    #[test]
    fn a_file_needs_its_directory() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), "x").unwrap();
        for (path, why) in [
            ("file", ""),
            ("new", ""),
            ("new/below", "there is no directory"),
            ("file/below", "file is no directory"),
            ("", "it is a directory"),
        ] {
            let path = place.path().join(path);
            let reported = text(named(&path).require_place_for_file());
            assert!(
                reported.contains(why) && reported.is_empty() == why.is_empty(),
                "{reported}"
            );
        }
    }
}
