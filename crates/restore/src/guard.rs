//! What `--delete` leaves alone: whatever may never have been backed up, and what this very command
//! lives on.
//!
//! Only a directory at or below a source may lose names, for of those above the snapshot knows no
//! more than the way. What the backup left out on purpose stays: names that its patterns match,
//! files above its size, directories with its marks (also with those that they got since: their
//! content is in no backup), and paths that its record names, such as files that were above its
//! size then. If there were more of these than the record names, every file that the snapshot does
//! not have stays. So do other repositories, which are kept out of backups by their tag, and the
//! repository, the cache and the keys in use, wherever they are, known by device and inode, and
//! what a restore before kept of damaged files.

use crate::names;
use bale_format::entry::is_below;
use bale_pipeline::filter::RepositoryMarks;
use bale_pipeline::filter::{Filter, Mark};
use rustix::fs::{FileType, Stat};
use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Device and inode of something in use.
pub type DeviceAndInode = (u64, u64);

/// What deleting leaves alone. As it is made first, everything came from one source, `/`, and
/// nothing was left out.
#[derive(Clone, Debug)]
pub struct Protected {
    /// Sources of the snapshot, without leading slash.
    pub sources: Vec<Vec<u8>>,
    /// What the backup left out.
    pub left_out: Arc<Filter>,
    /// Does `left_out` say all that the record of the snapshot says?
    pub knows_left_out: bool,
    /// May a directory between two sources have been entered only for the inner one?
    pub is_partly_left_out: bool,
    /// What the snapshot says it left out of what was there, and has no row of. Without leading
    /// slash, sorted.
    pub withheld: Vec<Vec<u8>>,
    /// Was there more of that? None of it was a directory.
    pub has_more_withheld: bool,
    /// A directory that bears these is a repository.
    pub repositories: RepositoryMarks,
    /// The repository, the cache and the keys in use.
    pub in_use: Vec<DeviceAndInode>,
}

impl Default for Protected {
    fn default() -> Protected {
        Protected {
            sources: vec![Vec::new()],
            left_out: Arc::default(),
            knows_left_out: false,
            is_partly_left_out: false,
            withheld: Vec::new(),
            has_more_withheld: false,
            repositories: RepositoryMarks::default(),
            in_use: Vec::new(),
        }
    }
}

/// Why something stays that the snapshot does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// The backup would have left it out.
    LeftOut,
    /// The backup left it out, as its record says.
    Withheld,
    /// A source that the snapshot does not have, or leads to one.
    Source,
    /// Part of a damaged file, kept by a restore: there may be no other.
    Salvage,
    /// Repository, cache or key.
    InUse,
}

impl Protected {
    /// Does the snapshot know all children of this directory? A path of the snapshot, without
    /// leading slash. Marks of its row are not asked here.
    pub fn knows_children(&self, path: &[u8]) -> bool {
        let above = self.sources.iter().filter(|source| is_below(path, source));
        let Some(source) = above.max_by_key(|source| source.len()) else {
            return false;
        };
        let leads_further = || {
            let mut others = self.sources.iter();
            others.any(|other| other != path && is_below(other, path))
        };
        if self.is_partly_left_out && source != path && leads_further() {
            return false;
        }
        !self.left_out.has_patterns() || !self.is_left_out_below(source, path)
    }

    /// Is a directory between a source, which never is, and the end of the path left out by a
    /// pattern?
    fn is_left_out_below(&self, source: &[u8], path: &[u8]) -> bool {
        let mut here = path;
        while here.len() > source.len() {
            if self.left_out.excludes(here) {
                return true;
            }
            here = bale_format::entry::split(here).0;
        }
        false
    }

    /// Is this the repository, the cache or a key in use?
    pub fn is_in_use(&self, stat: &Stat) -> bool {
        self.in_use.contains(&(stat.st_dev, stat.st_ino))
    }

    /// Why a name must stay that the snapshot does not have. `path` is the snapshot's; `directory`
    /// is what holds it.
    pub fn stays(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
    ) -> Option<Stays> {
        if self.is_in_use(stat) {
            return Some(Stays::InUse);
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        let may_be_withheld = self.has_more_withheld && kind != FileType::Directory;
        if may_be_withheld || self.is_withheld(path) {
            return Some(Stays::Withheld);
        }
        if self.sources.iter().any(|source| is_below(source, path)) {
            return Some(Stays::Source);
        }
        if kind == FileType::RegularFile && names::is_salvage_name(name) {
            return Some(Stays::Salvage);
        }
        let left_out = match kind {
            FileType::RegularFile => self.left_out.excludes_size(stat.st_size as u64),
            FileType::Directory => self.has_mark(directory, name),
            _ => false,
        };
        (left_out || self.left_out.excludes(path)).then_some(Stays::LeftOut)
    }

    fn is_withheld(&self, path: &[u8]) -> bool {
        let found = self
            .withheld
            .binary_search_by(|withheld| withheld[..].cmp(path));
        found.is_ok()
    }

    /// Does the directory of this name in `directory`, which may be `.`, bear all marks of a
    /// repository?
    pub fn is_repository(&self, directory: BorrowedFd<'_>, name: &[u8]) -> bool {
        // No name has a zero byte; if one had, it would rather stay.
        CString::new(name).map_or(true, |name| {
            (self.repositories).are_borne(|mark| mark.is_in(directory, &name))
        })
    }

    /// Does a directory that is in the snapshot bear a mark by which a backup of today would leave
    /// out what is in it? A source never is left out.
    pub fn is_marked_now(&self, directory: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> bool {
        !self.sources.iter().any(|source| source == path) && self.has_mark(directory, name)
    }

    /// Does the directory bear a mark that leaves it out, or all that a repository has?
    fn has_mark(&self, directory: BorrowedFd<'_>, name: &[u8]) -> bool {
        // No name has a zero byte; if one had, it would rather stay.
        CString::new(name).map_or(true, |name| {
            let is_in = |mark: &Mark| mark.is_in(directory, &name);
            self.left_out.marks().iter().any(is_in)
        }) || self.is_repository(directory, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_pipeline::filter::{FilterOptions, Pattern};

    fn guard(sources: &[&str], patterns: &[&str]) -> Protected {
        let pattern = |text: &&str| Pattern {
            text: (*text).to_owned(),
            ignore_case: false,
        };
        let options = FilterOptions {
            patterns: patterns.iter().map(pattern).collect(),
            ..FilterOptions::default()
        };
        Protected {
            sources: sources
                .iter()
                .map(|path| path.as_bytes().to_vec())
                .collect(),
            left_out: Arc::new(Filter::new(&options).unwrap()),
            knows_left_out: true,
            is_partly_left_out: !patterns.is_empty(),
            ..Protected::default()
        }
    }

    #[test]
    fn only_directories_at_or_below_a_source_may_lose_children() {
        let guard = guard(&["home/me/docs", "home/me/mail"], &[]);
        for path in ["", "home", "home/me", "home/me/docs2", "etc"] {
            assert!(!guard.knows_children(path.as_bytes()), "{path}");
        }
        for path in ["home/me/docs", "home/me/mail/a/b"] {
            assert!(guard.knows_children(path.as_bytes()), "{path}");
        }
        assert!(
            Protected::default().knows_children(b"") && Protected::default().knows_children(b"a")
        );
    }

    #[test]
    fn a_directory_that_was_entered_only_for_a_source_in_it_keeps_its_children() {
        let guard = guard(&["a", "a/cache/x/wanted"], &["cache"]);
        for path in ["a/cache", "a/cache/x", "a/b/cache/deep"] {
            assert!(!guard.knows_children(path.as_bytes()), "{path}");
        }
        for path in ["a", "a/b", "a/cache/x/wanted", "a/cache/x/wanted/y"] {
            assert!(guard.knows_children(path.as_bytes()), "{path}");
        }
    }
}
