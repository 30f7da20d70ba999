//! What could not be read, so that nobody knows whether it is whole: no right to it, or a store
//! that did not answer. Not damage, and never marked as such.

use super::CheckFinding;
use bale_pipeline::error::without_name;
use bale_repository::error::Error;

/// Objects listed by a check or a scrub.
const UNREAD_LISTED_MAX: usize = 10_000;

/// Objects that could not be read.
#[derive(Debug, Default)]
pub struct UnreadObjects {
    /// At most [`UNREAD_LISTED_MAX`].
    pub listed: Vec<CheckFinding>,
    /// All of them.
    pub count: u64,
}

impl UnreadObjects {
    pub(super) fn name(&mut self, what: impl Into<String>, error: &Error) {
        self.name_with(what, &error.to_string());
    }

    pub(super) fn name_with(&mut self, what: impl Into<String>, text: &str) {
        self.count += 1;
        if self.listed.len() < UNREAD_LISTED_MAX {
            let what = what.into();
            let text = without_name(&what, text).to_owned();
            self.listed.push(CheckFinding {
                what,
                text,
                mended_by: None,
            });
        }
    }
}
