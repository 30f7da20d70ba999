//! What is wrong with a profile, and on which line of which file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A line of a profile file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineOfFile {
    /// The file, as it was named.
    pub file: Arc<Path>,
    /// From 1 on; 0 is the file as a whole.
    pub line: usize,
}

impl fmt::Display for LineOfFile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(to, "{}", self.file.display()),
            line => write!(to, "{}:{line}", self.file.display()),
        }
    }
}

/// Why a profile, or a file of them, is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// What is written there.
    #[error("{at}: {text}")]
    Written {
        /// Where.
        at: LineOfFile,
        /// What is wrong, and what to write instead.
        text: String,
    },
    /// No file has such a profile.
    #[error("{0}")]
    Unknown(String),
}

impl ProfileError {
    /// Of a line.
    pub fn at(at: &LineOfFile, text: impl Into<String>) -> ProfileError {
        ProfileError::Written {
            at: at.clone(),
            text: text.into(),
        }
    }
}
