//! Names that were listed and then gave ENOENT: vanished (a note) or unreachable (a problem).
//!
//! The rule, wherever that is met: what is really gone is a note; all else is a problem. A name is
//! gone if a fresh listing of its directory, through a fresh descriptor, does not have it; what was
//! a directory must be gone itself, whatever its name, because one that was moved has taken along
//! what is in it. A damaged directory, a file system that lists what it cannot look up, a directory
//! that was renamed while it was scanned: problems.
//!
//! A scan collects such names ([`Unfound`]) and lists each directory that has some once more when
//! it is at its end, or when there are many. Who reads files asks one by one ([`ListedAgain`]).

use super::directory::Directory;
use super::list::each_entry;
use super::names::NAME_BYTES_MAX;
use super::{BATCH_ENTRIES_MAX, Note, NoteKind, ScanItem, ScanProblem};
use crate::image::EntryPlace;
use bale_format::entry::{Entry, EntryFlags, Key, join};
use bytes::Bytes;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Names that wait to be looked for once more; then those of one more batch may join them.
const WAITING_MAX: usize = 4 << 10;
/// Memory for them.
pub(super) const UNFOUND_BYTES: usize =
    (WAITING_MAX + BATCH_ENTRIES_MAX) * (size_of::<Lost>() + NAME_BYTES_MAX);
/// Names that are remembered of a directory listed again: 8 bytes each.
const REMEMBERED_MAX: usize = 64 << 10;
/// Names listed again of one directory, while its files are read.
const LISTED_AGAIN_MAX: u64 = 4 << 20;

/// What was known of a name before it could not be found.
pub(super) enum LastKnown {
    /// Listed, and not as a directory.
    NoDirectory,
    /// Listed, and perhaps as a directory.
    PerhapsDirectory,
    Directory(Arc<Directory>),
}

/// A name that was not found.
pub(super) struct Lost {
    pub(super) directory: Arc<Directory>,
    pub(super) name: Bytes,
    pub(super) seen: LastKnown,
}

impl Lost {
    /// A directory that was there and could not be entered. `None`: for another reason than that it
    /// was not found.
    pub(super) fn of_directory(directory: &Arc<Directory>, error: &io::Error) -> Option<Lost> {
        let parent = directory.parent()?;
        (error.kind() == io::ErrorKind::NotFound).then(|| Lost {
            directory: parent.clone(),
            name: directory.name().clone(),
            seen: LastKnown::Directory(directory.clone()),
        })
    }
}

/// Names of a scan that were not found.
#[derive(Default)]
pub(super) struct Unfound(Vec<Lost>);

impl Unfound {
    pub(super) fn push(&mut self, lost: Lost) {
        self.0.push(lost);
    }

    /// All of them, if it is time to look for them.
    pub(super) fn take_full(&mut self) -> Option<Unfound> {
        (self.0.len() >= WAITING_MAX).then(|| std::mem::take(self))
    }

    /// Lists each of their directories once more, and says what became of them.
    pub(super) fn look_again(&mut self) -> Vec<ScanItem> {
        let mut lost = std::mem::take(&mut self.0);
        let place = |lost: &Lost| Arc::as_ptr(&lost.directory) as usize;
        lost.sort_by(|a, b| (place(a), &a.name).cmp(&(place(b), &b.name)));
        let of_directories = lost.chunk_by(|a, b| Arc::ptr_eq(&a.directory, &b.directory));
        of_directories.flat_map(look_in_one_directory).collect()
    }
}

/// Sorted names of one directory.
fn look_in_one_directory(lost: &[Lost]) -> Vec<ScanItem> {
    let mut listed = vec![false; lost.len()];
    let whole = list_again(&lost[0].directory, &mut |name| {
        let from = lost.partition_point(|lost| &lost.name[..] < name);
        let same = lost[from..].iter().take_while(|lost| lost.name == name);
        let same = same.count();
        listed[from..from + same].fill(true);
    });
    let path = lost[0].directory.path();
    let mut items = Vec::new();
    for (lost, is_listed) in lost.iter().zip(listed) {
        let path_of_it = join(&path, &lost.name);
        match why_not_gone(lost, is_listed, &whole) {
            None => items.push(ScanItem::Note(Note {
                path: path_of_it,
                kind: NoteKind::Vanished,
                has_row: false,
            })),
            Some(error) => {
                let (row, action) = match lost.seen {
                    LastKnown::Directory(_) => (&path_of_it, "enter"),
                    // It has no row.
                    _ => (&path, "stat"),
                };
                items.push(ScanItem::Amend {
                    key: Key::of_path(row),
                    flags: EntryFlags::UNREADABLE,
                });
                items.push(ScanItem::Problem(ScanProblem {
                    path: path_of_it,
                    action,
                    error,
                }));
            }
        }
    }
    items
}

/// `None`: it is gone.
fn why_not_gone(lost: &Lost, is_listed: bool, listing: &io::Result<Again>) -> Option<io::Error> {
    match listing {
        Err(error) => return Some(not_listed_again(error)),
        Ok(Again::Removed) => return None,
        Ok(Again::Listed) => {}
    }
    if is_listed {
        return Some(still_listed());
    }
    match &lost.seen {
        LastKnown::NoDirectory => None,
        LastKnown::PerhapsDirectory => Some(io::Error::other(
            "a directory that was removed or moved before it was looked at: what is in it is not \
             in this snapshot if it was moved",
        )),
        LastKnown::Directory(directory) => match directory.is_removed() {
            Some(true) => None,
            Some(false) => Some(moved()),
            None => Some(io::Error::other(
                "it was removed or moved before it was entered, and which of them cannot be told \
                 here: what is in it is not in this snapshot if it was moved",
            )),
        },
    }
}

fn moved() -> io::Error {
    io::Error::other(
        "it was moved while it was scanned: what is in it is not in this snapshot unless it is \
         found where it is now",
    )
}

fn still_listed() -> io::Error {
    io::Error::other(
        "its directory lists it, and there is no such file: a damaged directory, or a name that \
         comes and goes",
    )
}

fn not_listed_again(error: &io::Error) -> io::Error {
    let text = format!("there is no such file, and its directory cannot be listed again: {error}");
    io::Error::new(error.kind(), text)
}

/// What became of a directory.
enum Again {
    Listed,
    /// It is gone itself, and all that was in it.
    Removed,
}

fn list_again(directory: &Arc<Directory>, name: &mut dyn FnMut(&[u8])) -> io::Result<Again> {
    let opened = match directory.open_anew() {
        Ok(opened) => opened,
        Err(_) if directory.is_removed() == Some(true) => return Ok(Again::Removed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(moved()),
        Err(error) => return Err(error),
    };
    if !opened.listable() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    each_entry(&opened, &mut |entry| {
        name(entry.file_name().to_bytes());
        ControlFlow::Continue(())
    })?;
    Ok(Again::Listed)
}

/// Tells who reads files whether those that are not there any more are gone. The names of the
/// directory asked for last are remembered, so that a directory which is being emptied is listed a
/// few times, not once for each file.
#[derive(Default)]
pub struct ListedAgain {
    directory: Option<Arc<Directory>>,
    /// Keyed by nothing: two names of one hash are taken for a name that is there. Sorted.
    names: Vec<u64>,
    remembers_all: bool,
    listed: u64,
}

impl ListedAgain {
    /// Of an entry that the scan saw. `Err`: it may be there, and this is why that is not known
    /// better.
    pub fn check_gone(&mut self, place: &EntryPlace, entry: &Entry) -> Result<(), ScanProblem> {
        let checked = match place {
            EntryPlace::Directory(directory) => self.look_for(directory, &entry.name),
            EntryPlace::Image(_) => Err(io::Error::other("nothing vanishes from an image")),
        };
        checked.map_err(|error| ScanProblem {
            path: entry.path(),
            action: "read",
            error,
        })
    }

    fn look_for(&mut self, directory: &Arc<Directory>, name: &[u8]) -> io::Result<()> {
        let is_known = self.directory.as_ref();
        if !is_known.is_some_and(|known| Arc::ptr_eq(known, directory)) {
            *self = ListedAgain {
                directory: Some(directory.clone()),
                ..ListedAgain::default()
            };
        } else if self.remembers_all && !self.has(name) {
            return Ok(());
        }
        if self.listed > LISTED_AGAIN_MAX {
            return Err(io::Error::other(
                "there is no such file, and its directory was listed again too often to look for \
                 it",
            ));
        }
        self.names.clear();
        self.remembers_all = true;
        let mut is_listed = false;
        let again = list_again(directory, &mut |listed| {
            self.listed += 1;
            is_listed |= listed == name;
            match self.names.len() < REMEMBERED_MAX {
                true => self.names.push(hash(listed)),
                false => self.remembers_all = false,
            }
        });
        self.names.sort_unstable();
        match again {
            Err(error) => {
                self.remembers_all = false;
                Err(not_listed_again(&error))
            }
            Ok(_) if is_listed => Err(still_listed()),
            Ok(_) => Ok(()),
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        self.names.binary_search(&hash(name)).is_ok()
    }
}

fn hash(name: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}
