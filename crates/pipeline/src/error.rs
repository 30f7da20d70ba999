//! What ends a stage, and errors in words. Trouble with a single entry is a problem, not an error
//! (see `monitor`).

use std::path::PathBuf;

/// Ends a stage that knows neither a repository nor a target of a restore.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A local file or directory.
    #[error("{action} {path}: {source}")]
    Local {
        /// `open`, `create` ...
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
    /// Another stage failed first, or an answer cannot be given; the text says all.
    #[error("{0}")]
    Other(String),
}

/// Result of a stage.
pub type Result<T> = std::result::Result<T, Failure>;

/// An error and its causes in one line. Some errors say their cause themselves: what was said is
/// not said again.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// A text without the name that stands before it already.
pub fn without_name<'t>(name: &str, text: &'t str) -> &'t str {
    text.strip_prefix(name)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(text)
}

impl Failure {
    /// For `map_err` on a local file.
    pub fn local(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Failure {
        let path = path.into();
        move |source| Failure::Local {
            action,
            path,
            source,
        }
    }
}
