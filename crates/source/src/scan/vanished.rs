//! Names that were listed and then gave ENOENT: vanished (a note) or unreachable (a problem).
//!
//! The rule, wherever that is met: what is really gone is a note; all else is a problem. A name is
//! gone if a fresh listing of its directory, through a fresh descriptor, has neither it nor its
//! inode under another name: that file was renamed, and is under neither name in the snapshot. What
//! was a directory must be gone itself, whatever its name, because one that was moved has taken
//! along what is in it. A damaged directory, a file system that lists what it cannot look up, a
//! directory that was renamed while it was scanned: problems.
//!
//! A scan collects such names ([`Unfound`]) and lists each directory that has some once more when
//! it is at its end, or when there are many. Who reads files asks one by one ([`ListedAgain`]).

use super::alive::{self, Life};
use super::directory::Directory;
use super::handle::has_all_names;
use super::list::each_entry;
use super::names::NAME_BYTES_MAX;
use super::statx::time_of;
use super::{BATCH_ENTRIES_MAX, Note, NoteKind, ScanItem, ScanProblem};
use crate::image::EntryPlace;
use crate::magic::is_of_kind;
use bale_format::entry::{Entry, EntryFlags, Key, Time, join};
use bytes::Bytes;
use rustix::fs::{AtFlags, RawDirEntry, StatxFlags};
use std::ffi::{CStr, CString};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Names that wait to be looked for once more; then those of one more batch may join them.
const WAITING_MAX: usize = 4 << 10;
/// Memory for them.
pub(super) const UNFOUND_BYTES: usize =
    (WAITING_MAX + BATCH_ENTRIES_MAX) * (size_of::<Lost>() + NAME_BYTES_MAX);
/// Names that are remembered of a directory listed again: 16 bytes each, with their inodes.
const REMEMBERED_MAX: usize = 32 << 10;
/// Names listed again of one directory, while its files are read.
const LISTED_AGAIN_MAX: u64 = 4 << 20;

/// Names of a FUSE file system that are stat'ed, as its listings need not have the numbers of its
/// inodes.
const UNNUMBERED_MAX: usize = 4 << 10;

/// By magic number (linux/magic.h).
const FUSE: u32 = 0x6573_5546;
/// File systems on which an inode keeps its time of birth (magic.h: ext4, XFS, btrfs, tmpfs).
const BORN_ONCE: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

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
    /// As its directory listed it; 0: not known.
    pub(super) inode: u64,
    pub(super) seen: LastKnown,
}

impl Lost {
    /// Its inode may stand under another name. A directory is asked for by itself.
    pub(super) fn may_be_renamed(&self) -> bool {
        self.inode != 0 && !matches!(self.seen, LastKnown::Directory(_))
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.seen, LastKnown::NoDirectory)
    }

    /// Names that its inode has now; see `alive`.
    fn names(&self, began: Time) -> Option<u32> {
        let life = Life {
            since: began,
            mtime: None,
        };
        let opened = self.directory.open().ok()?;
        alive::names(opened.as_fd(), self.inode, life).filter(|_| self.inode != 0)
    }

    /// A directory that was there and could not be entered. `None`: for another reason than that it
    /// was not found.
    pub(super) fn of_directory(directory: &Arc<Directory>, error: &io::Error) -> Option<Lost> {
        let parent = directory.parent()?;
        (error.kind() == io::ErrorKind::NotFound).then(|| Lost {
            directory: parent.clone(),
            name: directory.name().clone(),
            inode: 0,
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

    /// Lists each of their directories once more, and says what became of them, in a scan that
    /// began then.
    pub(super) fn look_again(&mut self, began: Time) -> Vec<ScanItem> {
        let mut lost = std::mem::take(&mut self.0);
        let place = |lost: &Lost| Arc::as_ptr(&lost.directory) as usize;
        lost.sort_by(|a, b| (place(a), &a.name).cmp(&(place(b), &b.name)));
        let of_directories = lost.chunk_by(|a, b| Arc::ptr_eq(&a.directory, &b.directory));
        of_directories
            .flat_map(|lost| look_in_one_directory(lost, began))
            .collect()
    }
}

/// Sorted names of one directory.
fn look_in_one_directory(lost: &[Lost], began: Time) -> Vec<ScanItem> {
    let mut now = vec![Found::default(); lost.len()];
    let mut by_inode: Vec<usize> = (0..lost.len()).collect();
    by_inode.retain(|at| lost[*at].may_be_renamed());
    by_inode.sort_unstable_by_key(|at| lost[*at].inode);
    let whole = list_again(&lost[0].directory, &mut |entry| {
        let name = entry.file_name().to_bytes();
        let from = lost.partition_point(|lost| &lost.name[..] < name);
        let same = lost[from..].iter().take_while(|lost| lost.name == name);
        let same = same.count();
        for found in &mut now[from..from + same] {
            found.is_listed = true;
        }
        let from = by_inode.partition_point(|at| lost[*at].inode < entry.ino());
        let same = by_inode[from..].iter();
        for at in same.take_while(|at| lost[**at].inode == entry.ino()) {
            now[*at].is_renamed |= lost[*at].name != name;
        }
    });
    let path = lost[0].directory.path();
    let mut items = Vec::new();
    for (lost, found) in lost.iter().zip(now) {
        let path_of_it = join(&path, &lost.name);
        match why_not_gone(lost, found, &whole, began) {
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

/// What a fresh listing has of a lost name.
#[derive(Clone, Copy, Default)]
struct Found {
    is_listed: bool,
    /// Its inode has another name there.
    is_renamed: bool,
}

/// `None`: it is gone.
fn why_not_gone(
    lost: &Lost,
    found: Found,
    listing: &io::Result<Again>,
    began: Time,
) -> Option<io::Error> {
    match listing {
        Err(error) => return Some(not_listed_again(error)),
        Ok(Again::Removed) => return None,
        Ok(Again::Listed) => {}
    }
    if found.is_listed {
        return Some(still_listed());
    }
    if found.is_renamed {
        return Some(renamed());
    }
    match &lost.seen {
        LastKnown::NoDirectory => None,
        LastKnown::PerhapsDirectory if lost.names(began) == Some(0) => None,
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

fn renamed() -> io::Error {
    io::Error::other(Renamed)
}

/// A name whose inode has another one now.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "it was renamed or moved before it was read: it is not in this snapshot unless its new name is"
)]
pub struct Renamed;

impl Renamed {
    /// Whether that is the trouble.
    pub fn is_why(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Renamed>())
    }
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

fn is_one_of(directory: &Arc<Directory>, names: &[CString], inode: u64) -> bool {
    let Ok(opened) = directory.open() else {
        return false;
    };
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    names.iter().any(|name| {
        let stat = rustix::fs::statx(&opened, name, flags, StatxFlags::INO);
        stat.is_ok_and(|stat| stat.stx_ino == inode)
    })
}

fn trouble(entry: &Entry, error: io::Error) -> ScanProblem {
    ScanProblem {
        path: entry.path(),
        action: "read",
        error,
    }
}

/// What became of a directory.
pub(super) enum Again {
    Listed,
    /// It is gone itself, and all that was in it.
    Removed,
}

/// Lists through a fresh descriptor.
pub(super) fn list_again(
    directory: &Arc<Directory>,
    take: &mut dyn FnMut(&RawDirEntry<'_>),
) -> io::Result<Again> {
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
        take(entry);
        ControlFlow::Continue(())
    })?;
    Ok(Again::Listed)
}

/// Tells who reads files whether those that are not there any more are gone. The names of the
/// directory asked for last are remembered, so that a directory which is being emptied is listed a
/// few times, not once for each file.
pub struct ListedAgain {
    directory: Option<Arc<Directory>>,
    /// Keyed by nothing: two names of one hash are taken for a name that is there. Sorted.
    names: Vec<u64>,
    /// Inode numbers, sorted.
    inodes: Vec<u64>,
    remembers_all: bool,
    listed: u64,
    /// When the run began: a file that was born later is no loss.
    since: Time,
}

impl ListedAgain {
    /// For a run that began then.
    pub fn since(began: Time) -> ListedAgain {
        ListedAgain {
            directory: None,
            names: Vec::new(),
            inodes: Vec::new(),
            remembers_all: false,
            listed: 0,
            since: began,
        }
    }

    /// Of an entry that the scan saw. `Err`: it may be there, and this is why that is not known
    /// better.
    pub fn check_gone(&mut self, place: &EntryPlace, entry: &Entry) -> Result<(), ScanProblem> {
        let checked = match place {
            EntryPlace::Directory(directory) => self.look_for(directory, entry).and_then(|()| {
                let names = self.names(directory, entry.inode, Some(entry.mtime));
                match names.is_some_and(|names| has_all_names(entry, names)) {
                    true => Err(renamed()),
                    false => Ok(()),
                }
            }),
            EntryPlace::Image(_) => Err(io::Error::other("nothing vanishes from an image")),
        };
        checked.map_err(|error| trouble(entry, error))
    }

    /// Of a file that had one name, under which another one was read: the inode that was listed is
    /// gone. `Err`: it may have another name now.
    pub fn check_replaced(
        &mut self,
        place: &EntryPlace,
        inode: u64,
        entry: &Entry,
    ) -> Result<(), ScanProblem> {
        let EntryPlace::Directory(directory) = place else {
            return Ok(());
        };
        let names = self.names(directory, inode, None);
        let has_a_name = names.map(|names| names > 0);
        let has_a_name = has_a_name.map_or_else(|| self.lists(directory, inode), Ok);
        match has_a_name {
            Ok(false) => Ok(()),
            Ok(true) => Err(trouble(entry, renamed())),
            Err(error) => Err(trouble(entry, error)),
        }
    }

    /// Names that an inode has now; see `alive`.
    fn names(&self, directory: &Arc<Directory>, inode: u64, mtime: Option<Time>) -> Option<u32> {
        let (since, opened) = (self.since, directory.open().ok()?);
        alive::names(opened.as_fd(), inode, Life { since, mtime })
    }

    /// Whether a directory has a name of this inode.
    fn lists(&mut self, directory: &Arc<Directory>, inode: u64) -> io::Result<bool> {
        let mut is_listed = false;
        let again = list_again(directory, &mut |listed| {
            self.listed += 1;
            is_listed |= listed.ino() == inode;
        });
        again.map_err(|error| not_listed_again(&error))?;
        Ok(is_listed)
    }

    fn look_for(&mut self, directory: &Arc<Directory>, entry: &Entry) -> io::Result<()> {
        let name = &entry.name[..];
        let is_known = self.directory.as_ref();
        if !is_known.is_some_and(|known| Arc::ptr_eq(known, directory)) {
            *self = ListedAgain {
                directory: Some(directory.clone()),
                ..ListedAgain::since(self.since)
            };
        } else if self.remembers_all && !self.has(name) {
            let is_there = self.inodes.binary_search(&entry.inode).is_ok();
            if !is_there || entry.nlink > 1 {
                return Ok(());
            }
            if self.listed > LISTED_AGAIN_MAX {
                return Err(renamed());
            }
        }
        if self.listed > LISTED_AGAIN_MAX {
            return Err(io::Error::other(
                "there is no such file, and its directory was listed again too often to look for \
                 it",
            ));
        }
        self.names.clear();
        self.inodes.clear();
        self.remembers_all = true;
        let mut found = Found::default();
        let mut new_name = CString::default();
        let is_fuse = directory.open().is_ok_and(|fd| is_of_kind(&fd, &[FUSE]));
        let mut unnumbered = Vec::new();
        let again = list_again(directory, &mut |listed| {
            self.listed += 1;
            let its_name = listed.file_name().to_bytes();
            found.is_listed |= its_name == name;
            if is_fuse && unnumbered.len() <= UNNUMBERED_MAX {
                unnumbered.push(listed.file_name().to_owned());
            }
            // Of several names, another one may be what stood there all the time.
            if listed.ino() == entry.inode && entry.nlink < 2 {
                found.is_renamed = true;
                new_name = listed.file_name().to_owned();
            }
            if self.names.len() < REMEMBERED_MAX {
                self.names.push(hash(its_name));
                self.inodes.push(listed.ino());
            } else {
                self.remembers_all = false;
            }
        });
        self.names.sort_unstable();
        self.inodes.sort_unstable();
        match again {
            Err(error) => {
                self.remembers_all = false;
                Err(not_listed_again(&error))
            }
            Ok(_) if found.is_listed => Err(still_listed()),
            Ok(_) if found.is_renamed && !is_born_since(directory, &new_name, self.since) => {
                Err(renamed())
            }
            Ok(_) if unnumbered.len() > UNNUMBERED_MAX => Err(io::Error::other(
                "there is no such file, and whether it was renamed cannot be told of a directory \
                 of this size on this file system",
            )),
            Ok(_) if is_one_of(directory, &unnumbered, entry.inode) => Err(renamed()),
            Ok(_) => Ok(()),
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        self.names.binary_search(&hash(name)).is_ok()
    }
}

/// Whether a name leads to what was not there at a moment. What cannot be said is no, as where a
/// birth is not that of the inode: an overlay copies up what is renamed.
pub(super) fn is_born_since(directory: &Arc<Directory>, name: &CStr, since: Time) -> bool {
    let Ok(opened) = directory.open() else {
        return false;
    };
    if !is_of_kind(&opened, &BORN_ONCE) {
        return false;
    }
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(&opened, name, flags, StatxFlags::BTIME);
    stat.is_ok_and(|stat| {
        let is_told = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        is_told && time_of(stat.stx_btime) >= since
    })
}

fn hash(name: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}
