//! A row as the writer of the file system wants it, and what of a row ext4 cannot hold.

use super::work::{TroubleReports, Work};
use crate::losses::LossKind;
use crate::xattrs;
use bale_format::{Entry, Kind, Time, Xattr};
use bale_fsimage::Timestamp;
use bale_fsimage::mkext4::{self, EntryError, NewEntry, NewKind, TIME_SECONDS};
use bytes::Bytes;
use std::sync::Arc;

/// Inode flags that are kept: docs/FORMAT.md, section 8.
const INODE_FLAGS_KEPT: u32 = 0x20 | 0x10 | 0x40 | 0x80 | 0x10000 | 0x8;

/// Extended attributes of rows. The last set is kept: neighbours often have the same.
pub struct XattrSets {
    reading: TroubleReports,
    last: Option<(Bytes, Arc<XattrSet>)>,
}

/// The attributes that ext4 can hold, and why it cannot hold the others.
#[derive(Default)]
pub struct XattrSet {
    held: Vec<Xattr>,
    lost: Vec<(LossKind, String)>,
    unreadable: Option<String>,
}

impl XattrSets {
    pub fn new(reading: TroubleReports) -> XattrSets {
        XattrSets {
            reading,
            last: None,
        }
    }

    /// The set of one row. What is not in it is told if this reading tells.
    pub fn of(&mut self, entry: &Entry, work: &Work) -> Arc<XattrSet> {
        let set = match &self.last {
            Some((column, set)) if *column == entry.xattrs => set.clone(),
            _ => {
                let set = Arc::new(XattrSet::read(&entry.xattrs, work));
                self.last = Some((entry.xattrs.clone(), set.clone()));
                set
            }
        };
        if self.reading == TroubleReports::Report {
            for (kind, text) in &set.lost {
                work.lose(*kind, &entry.path(), text);
            }
            if let Some(text) = &set.unreadable {
                work.problem(&entry.path(), "read extended attributes of", text);
            }
        }
        set
    }
}

impl XattrSet {
    fn read(column: &Bytes, work: &Work) -> XattrSet {
        let mut set = XattrSet::default();
        if column.is_empty() {
            return set;
        }
        let all = match xattrs::of_column(column, work.chunks) {
            Ok(all) => all,
            Err(text) => {
                set.unreadable = Some(text);
                return set;
            }
        };
        if refusal(&all, work).is_none() {
            set.held = all;
            return set;
        }
        for xattr in all {
            set.held.push(xattr);
            if let Some(error) = refusal(&set.held, work) {
                let xattr = set.held.pop().expect("just pushed");
                let kind = match &xattr.name[..] {
                    b"security.capability" => LossKind::Capability,
                    name if name.starts_with(b"system.posix_acl_") => LossKind::Acl,
                    _ => LossKind::Xattr,
                };
                let name = xattr.name.escape_ascii();
                set.lost.push((kind, format!("{name}: {error}")));
            }
        }
        set
    }

    /// What the image has.
    pub fn held(&self) -> &[Xattr] {
        &self.held
    }
}

fn refusal(set: &[Xattr], work: &Work) -> Option<EntryError> {
    let bare = Entry::new(Bytes::new(), Bytes::from_static(b"x"), Kind::Fifo);
    let check = |new: &NewEntry| mkext4::check(new, &work.ext4).err();
    with_new_entry(&bare, set, work, check)
}

/// Tells of times that ext4 cannot say; it takes the nearest one.
pub fn report_times(entry: &Entry, work: &Work) {
    if [entry.mtime, entry.ctime]
        .into_iter()
        .chain(entry.atime.get())
        .any(|time| !TIME_SECONDS.contains(&time.seconds))
    {
        work.lose(LossKind::Time, &entry.path(), "ext4 cannot hold it");
    }
}

/// Calls `each` with the row as the writer wants it.
pub fn with_new_entry<T>(
    entry: &Entry,
    xattrs: &[Xattr],
    work: &Work,
    each: impl FnOnce(&NewEntry<'_>) -> T,
) -> T {
    let borrowed: Vec<mkext4::NewXattr<'_>> = xattrs
        .iter()
        .map(|xattr| mkext4::NewXattr {
            name: &xattr.name,
            value: &xattr.value,
        })
        .collect();
    let (flags, project) = match work.options.inode_flags {
        true => (entry.inode_flags & INODE_FLAGS_KEPT, entry.project),
        false => (0, 0),
    };
    each(&NewEntry {
        parent: &entry.parent,
        name: &entry.name,
        content: content_of(entry),
        permissions: entry.mode & 0o7777,
        uid: entry.uid,
        gid: entry.gid,
        // Most catalogs have none.
        atime: timestamp(entry.atime.get().unwrap_or(entry.mtime)),
        mtime: timestamp(entry.mtime),
        ctime: timestamp(entry.ctime),
        crtime: None,
        flags,
        project,
        generation: 0,
        xattrs: &borrowed,
        more_links: entry.is_hard_link(),
    })
}

fn content_of(entry: &Entry) -> NewKind<'_> {
    let (major, minor) = ((entry.rdev >> 32) as u32, entry.rdev as u32);
    match entry.kind {
        Kind::File => NewKind::Regular {
            size_bytes: entry.size,
        },
        Kind::Directory => NewKind::Directory,
        Kind::Symlink => NewKind::Symlink {
            target: &entry.target,
        },
        Kind::BlockDevice => NewKind::BlockDevice { major, minor },
        Kind::CharDevice => NewKind::CharDevice { major, minor },
        Kind::Fifo => NewKind::Fifo,
        // An extent is no path, and never comes here.
        Kind::Socket | Kind::Extent => NewKind::Socket,
    }
}

/// A time of a catalog as the file system says it.
pub fn timestamp(time: Time) -> Timestamp {
    Timestamp {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}
