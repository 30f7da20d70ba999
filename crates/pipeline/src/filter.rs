//! What a backup leaves out.
//!
//! Patterns mean what users of restic expect: a pattern that begins with `/` is compared with the
//! whole path; any other may begin at every component, so `cache` leaves out everything called so,
//! and `a/*.o` such a name in any directory `a`. `*` and `?` stay inside a component, `**` stands
//! for any number of components, `[...]` for one of some characters. A pattern that begins with `!`
//! takes back what an earlier one left out. What is below a directory that is left out is never
//! looked at. Sources that were named are never left out.

mod characters;
mod marks;
mod patterns;
mod reach;
mod repository_marks;

pub use marks::Mark;
pub use patterns::{Pattern, PatternError, parse_exclude_file};
pub use reach::{Reach, distinct};
pub use repository_marks::{CONFIG_NAMES, RepositoryMarks, TAG_NAME, TAG_SIGNATURE};

use patterns::PatternSet;

/// Decides what to leave out. Built once; used by all workers.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    fingerprint: [u8; 32],
    patterns: PatternSet,
    marks: Vec<Mark>,
    larger_than_bytes: Option<u64>,
}

/// The options a [`Filter`] is built from.
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    /// `--exclude`, `--iexclude` and the lines of `--exclude-file`; a later one decides over an
    /// earlier one.
    pub patterns: Vec<Pattern>,
    /// `--exclude-if-present`, and [`Mark::cachedir`] for `--exclude-caches`.
    pub marks: Vec<Mark>,
    /// `--exclude-larger-than`: regular files above this size.
    pub larger_than_bytes: Option<u64>,
}

impl Filter {
    /// Compiles the patterns.
    pub fn new(options: &FilterOptions) -> Result<Filter, PatternError> {
        let options_as_text = format!("{options:?}");
        Ok(Filter {
            fingerprint: *blake3::hash(options_as_text.as_bytes()).as_bytes(),
            patterns: PatternSet::new(&options.patterns)?,
            marks: options.marks.clone(),
            larger_than_bytes: options.larger_than_bytes,
        })
    }

    /// Tells filters of different options apart.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// Is this path, without leading slash, left out by a pattern?
    pub fn excludes(&self, path: &[u8]) -> bool {
        self.patterns.excludes(path)
    }

    /// The patterns that match this path themselves, by their places among those given, whatever
    /// others say.
    pub fn matching(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        self.patterns.matching(path)
    }

    /// False: [`Filter::excludes`] says no to every path.
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Where paths lie that [`Filter::excludes`] says yes to; `None` if they may be anywhere.
    pub fn reaches(&self) -> Option<&[Reach]> {
        self.patterns.reaches()
    }

    /// Are regular files left out for their size?
    pub fn limits_size(&self) -> bool {
        self.larger_than_bytes.is_some()
    }

    /// Is a regular file of this size left out?
    pub fn excludes_size(&self, size: u64) -> bool {
        self.larger_than_bytes.is_some_and(|limit| size > limit)
    }

    /// Files that leave out the rest of the directory they are in.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }
}
