//! How many names there are below some directories, as a look at their top levels promises: to
//! choose how to scan.
//!
//! Level by level. Of the subdirectories found on one, a few are drawn at random and listed, and
//! stand for the others of their level. So the cost has a limit, whatever there is, and a promise
//! that turns out wrong costs time: what is backed up does not depend on it. Names are counted and
//! nothing else is looked at; excluded directories are not entered, and neither is what is mounted
//! below, nor what a link leads to.

use super::handle::list_while;
use bale_format::entry::join;
use bale_pipeline::filter::Filter;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories that are listed on one level.
const DIRECTORIES_PER_LEVEL_MAX: usize = 128;
/// Levels below the sources.
const LEVELS_MAX: usize = 16;
/// Names that are listed in all: in a tenth of the time that walking them would take.
const NAMES_MAX: u64 = 1_000_000;

/// A directory that was drawn.
struct Drawn<'a> {
    source: &'a Path,
    /// Below the source; empty: the source itself.
    inside: Vec<u8>,
}

/// A few of many, each as likely as any other, without knowing how many there will be.
struct Draw<T> {
    drawn: Vec<T>,
    /// Offered so far.
    offered: u64,
    /// Not secret: the same look at the same directories gives the same promise.
    state: u64,
}

impl<T> Draw<T> {
    fn new(level: usize) -> Draw<T> {
        Draw {
            drawn: Vec::new(),
            offered: 0,
            state: level as u64,
        }
    }

    fn offer(&mut self, make: impl FnOnce() -> T) {
        self.offered += 1;
        if self.drawn.len() < DIRECTORIES_PER_LEVEL_MAX {
            self.drawn.push(make());
            return;
        }
        let at = (self.random() % self.offered) as usize;
        if let Some(place) = self.drawn.get_mut(at) {
            *place = make();
        }
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// About how many names are in the sources and below them; no more is looked at once there are
/// `enough`. An error if a directory cannot be listed: then nothing is promised.
pub(super) fn promised_names(sources: &[PathBuf], filter: &Filter, enough: u64) -> io::Result<u64> {
    let mut level = Draw::new(0);
    for source in sources {
        level.offer(|| Drawn {
            source,
            inside: Vec::new(),
        });
    }
    let mut promised = sources.len() as f64;
    let mut names_left = NAMES_MAX;
    // Directories that each of those drawn stands for.
    let mut weight = 1.0;
    for depth in 1..=LEVELS_MAX {
        if level.drawn.is_empty() || names_left == 0 {
            break;
        }
        weight *= level.offered as f64 / level.drawn.len() as f64;
        let mut below = Draw::new(depth);
        for directory in &level.drawn {
            let before = names_left;
            count(directory, filter, &mut below, &mut names_left)?;
            promised += (before - names_left) as f64 * weight;
            if promised >= enough as f64 {
                return Ok(promised as u64);
            }
        }
        level = below;
    }
    Ok(promised as u64)
}

/// Lists one directory: its names are taken from those left, its subdirectories are offered.
fn count<'a>(
    directory: &Drawn<'a>,
    filter: &Filter,
    below: &mut Draw<Drawn<'a>>,
    names_left: &mut u64,
) -> io::Result<()> {
    let Some(fd) = open_drawn(directory)? else {
        return Ok(());
    };
    let source = directory.source.as_os_str().as_bytes();
    let source = source.strip_prefix(b"/").unwrap_or(source);
    let path = join(source, &directory.inside);
    list_while(&fd, &mut |name| {
        if *names_left == 0 {
            return ControlFlow::Break(());
        }
        *names_left -= 1;
        let is_left_out = || filter.has_patterns() && filter.excludes(&join(&path, name.name));
        if name.is_directory && !is_left_out() {
            below.offer(|| Drawn {
                source: directory.source,
                inside: join(&directory.inside, name.name),
            });
        }
        ControlFlow::Continue(())
    })
}

/// `None`: it is no directory any more, or is not to be entered.
fn open_drawn(directory: &Drawn<'_>) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(directory.source, flags, Mode::empty()).and_then(|source| {
        if directory.inside.is_empty() {
            return Ok(source);
        }
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::NOATIME;
        openat2(
            &source,
            &directory.inside[..],
            flags,
            Mode::empty(),
            resolve,
        )
    });
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_pipeline::filter::{FilterOptions, Pattern};
    use std::fs::{File, create_dir_all};

    const ALL: u64 = u64::MAX;

    /// `directories` below each of three, each with four files: five names for each, and three.
    fn tree(directories: usize) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for number in 0..directories {
            for top in ["a", "b", "c"] {
                let directory = tree.path().join(format!("{top}/{number}"));
                create_dir_all(&directory).unwrap();
                for file in 0..4 {
                    File::create(directory.join(file.to_string())).unwrap();
                }
            }
        }
        tree
    }

    fn promised(tree: &Path, filter: &Filter, enough: u64) -> u64 {
        promised_names(&[tree.to_path_buf()], filter, enough).unwrap()
    }

    #[test]
    fn what_can_be_listed_is_counted_and_what_is_alike_stands_for_the_rest() {
        let everything = Filter::default();
        for directories in [3, 16, 200] {
            let tree = tree(directories);
            let expected = 1 + 3 + 3 * directories as u64 * 5;
            let found = promised(tree.path(), &everything, ALL);
            // Rounded down.
            assert!((expected - 1..=expected).contains(&found), "{found}");
            let some = promised(tree.path(), &everything, expected / 2);
            assert!((expected / 2..=expected).contains(&some), "{some}");
        }
    }

    #[test]
    fn uneven_directories_are_promised_about_right() {
        let tree = tree(300);
        for number in 0..30 {
            for file in 0..100 {
                File::create(tree.path().join(format!("b/{}/more{file}", number * 10))).unwrap();
            }
        }
        let found = promised(tree.path(), &Filter::default(), ALL);
        let there = 4 + 900 * 5 + 3_000;
        assert!((there / 2..there * 2).contains(&found), "{found}");
    }

    #[test]
    fn links_are_not_followed_and_excluded_directories_not_entered() {
        let tree = tree(20);
        std::os::unix::fs::symlink(tree.path().join("a"), tree.path().join("link")).unwrap();
        let all = promised(tree.path(), &Filter::default(), ALL);
        assert_eq!(all, 1 + 4 + 60 * 5);
        let patterns = ["b", "c/1*"].map(|text| Pattern {
            text: text.to_owned(),
            ignore_case: false,
        });
        let patterns = patterns.to_vec();
        let options = FilterOptions {
            patterns,
            ..FilterOptions::default()
        };
        let some = promised(tree.path(), &Filter::new(&options).unwrap(), ALL);
        // Nothing of b, names alone of eleven in c.
        assert_eq!(some, 1 + 4 + 20 * 5 + 20 + 9 * 4);
    }

    #[test]
    fn what_cannot_be_listed_is_not_promised_and_what_is_gone_is_nothing() {
        let tree = tree(1);
        let gone = promised_names(&[tree.path().join("gone")], &Filter::default(), ALL);
        assert_eq!(gone.unwrap(), 1);
        let long = tree.path().join("x".repeat(300));
        assert!(promised_names(&[long], &Filter::default(), ALL).is_err());
    }
}
