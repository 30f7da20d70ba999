//! The programs that a comparison itself needs, and the search for those that it compares.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::child::first_line_of;
use super::error::{CompareError, Result};

/// Where administrators' programs are, whatever a user's `PATH` says.
const FURTHER_PLACES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A `PATH`.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    directories: Vec<PathBuf>,
}

impl Programs {
    pub fn new(search_path: &OsStr) -> Programs {
        use std::os::unix::ffi::OsStrExt;
        let given = search_path.as_bytes().split(|byte| *byte == b':');
        let mut directories: Vec<PathBuf> = given
            .map(|bytes| PathBuf::from(OsStr::from_bytes(bytes)))
            .filter(|directory| directory.is_absolute())
            .collect();
        directories.extend(FURTHER_PLACES.map(PathBuf::from));
        Programs { directories }
    }

    /// `PATH` for children.
    pub fn search_path(&self) -> OsString {
        let mut path = OsString::new();
        for directory in &self.directories {
            if !path.is_empty() {
                path.push(":");
            }
            path.push(directory);
        }
        path
    }

    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let candidates = self
            .directories
            .iter()
            .map(|directory| directory.join(name));
        candidates.into_iter().find(|path| {
            std::fs::metadata(path)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
    }

    /// Runs a program to its end; what it prints.
    pub fn run<S: AsRef<OsStr>>(&self, name: &str, arguments: &[S]) -> Result<String> {
        let shown = || {
            let words = arguments.iter().map(|word| word.as_ref().to_string_lossy());
            std::iter::once(name.into())
                .chain(words)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let failed = |message: String| CompareError::Command {
            command: shown(),
            message,
        };
        let program = self
            .find(name)
            .ok_or_else(|| failed("not installed".to_owned()))?;
        let output = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", self.search_path())
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = first_line_of(&output.stderr).unwrap_or_else(|| output.status.to_string());
        Err(failed(message))
    }

    /// First line that a script prints, such as a version.
    pub fn first_line(
        &self,
        script: &str,
        environment: &[(&'static str, OsString)],
    ) -> Option<String> {
        let output = Command::new("/bin/sh")
            .args(["-c", script])
            .env_clear()
            .env("PATH", self.search_path())
            .env("LC_ALL", "C.UTF-8")
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .output()
            .ok()?;
        first_line_of(&output.stdout).or_else(|| first_line_of(&output.stderr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_their_errors_told() {
        let programs = Programs::new(OsStr::new("relative:/usr/bin:/bin"));
        assert!(programs.find("sh").is_some());
        assert_eq!(programs.find("no-such-program"), None);
        assert_eq!(programs.run("echo", &["a", "b"]).unwrap(), "a b\n");
        let error = programs
            .run("sh", &["-c", "echo no >&2; exit 1"])
            .unwrap_err();
        assert!(error.to_string().ends_with(": no"), "{error}");
    }
}
