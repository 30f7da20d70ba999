//! Where a file's content lies on the device, and how an entry is filled from an inode.

use super::{EXTENTS_HELD_MAX, Image, ImageInode, unpack_inode};
use crate::problem::ScanProblem;
use crate::scan::{Directory, FLAGS_STORED, encode_xattrs};
use bale_format::entry::{Entry, EntryFlags, Kind, Time};
use bale_format::segment::may_be_target;
use bale_fsimage::{FileKind, Inode, Layout, MappedExtent, Timestamp};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Blocks beyond its data that a file may have before a map that tells of no data at all is not
/// believed: the rule of reading through the kernel, so that both see the same holes.
const SECTORS_WITHOUT_DATA_MAX: u64 = 128;

/// Where an entry's details and content are found.
#[derive(Clone, Debug)]
pub enum EntryPlace {
    /// Through the kernel, as a child of a directory.
    Directory(Arc<Directory>),
    /// On the device.
    Image(ImageInode),
}

impl EntryPlace {
    /// Fills in what the scan left out of an entry.
    pub fn complete(&self, entry: &mut Entry) -> Result<(), ScanProblem> {
        match self {
            EntryPlace::Directory(directory) => directory.complete(entry),
            EntryPlace::Image(inode) => inode.complete(entry),
        }
    }

    /// The same; and, of a regular file on the device that is not empty, where its content is, from
    /// its first byte on.
    pub fn complete_with_content(
        &self,
        entry: &mut Entry,
    ) -> (Result<(), ScanProblem>, Option<io::Result<ContentMap>>) {
        match self {
            EntryPlace::Directory(directory) => (directory.complete(entry), None),
            EntryPlace::Image(inode) => inode.complete_with_content(entry),
        }
    }
}

/// Where a file's content lies.
pub enum ContentMap {
    /// These bytes; the rest of the file is zeros.
    Inline(Vec<u8>),
    /// On the device.
    Extents(Extents),
    /// On the device, there, and in another form: [`ImageInode::read_encoded`] gives it.
    Encoded(Extents),
}

/// Extents of a file, in file order; those of a part of it, if there are very many.
pub struct Extents {
    /// Bytes outside of these are zeros.
    pub written: Vec<MappedExtent>,
    /// The file has fewer blocks than bytes: what is not written is a hole, and not zeros that take
    /// room.
    pub sparse: bool,
    /// The list ends here; what is behind must be asked for. `u64::MAX`: it is complete.
    pub known_until: u64,
}

impl Extents {
    /// Of a file without a place of its own on the device.
    pub fn none() -> Extents {
        Extents {
            written: Vec::new(),
            sparse: false,
            known_until: u64::MAX,
        }
    }

    /// What is not written, up to `size`.
    pub fn gaps(&self, size: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for extent in &self.written {
            if extent.file_offset > at {
                gaps.push(at..extent.file_offset.min(size));
            }
            at = extent.file_offset + extent.len;
        }
        if at < size {
            gaps.push(at..size);
        }
        gaps
    }
}

impl ImageInode {
    fn with_raw<T>(&self, work: impl FnOnce(&Image, &[u8]) -> Result<T, String>) -> io::Result<T> {
        let mut raw = Vec::new();
        let raw = unpack_inode(&self.packed, &mut raw);
        let raw = raw.ok_or_else(|| io::Error::other("a temporary file is damaged"))?;
        work(&self.image, raw).map_err(io::Error::other)
    }

    /// Extents of a file that is not in its inode, from a file offset on.
    pub fn extents_of_large(&self, from: u64) -> io::Result<Extents> {
        match self.content(from)? {
            ContentMap::Extents(extents) => Ok(extents),
            _ => Err(io::Error::other(
                "a large file that is not on the device as it is",
            )),
        }
    }

    /// Where the content lies, from a file offset on.
    pub fn content(&self, from: u64) -> io::Result<ContentMap> {
        self.with_raw(|image, raw| {
            let inode = image.content().decode(self.number, raw)?;
            image.content_map(inode, raw, from)
        })
    }

    /// Fills `bytes` with what the file holds at `offset`, of [`ContentMap::Encoded`].
    pub fn read_encoded(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.with_raw(|image, raw| {
            let content = image.content();
            content.read_encoded(self.number, raw, offset, bytes)
        })
    }

    pub(crate) fn complete(&self, entry: &mut Entry) -> Result<(), ScanProblem> {
        let looked = self.with_raw(|image, raw| {
            let inode = image.content().decode(self.number, raw)?;
            Ok(self.fill(entry, &inode, raw))
        });
        looked.unwrap_or_else(|error| Err(not_decoded(entry, error)))
    }

    fn complete_with_content(
        &self,
        entry: &mut Entry,
    ) -> (Result<(), ScanProblem>, Option<io::Result<ContentMap>>) {
        let has_content = entry.kind == Kind::File && entry.size > 0;
        let looked = self.with_raw(|image, raw| {
            let inode = image.content().decode(self.number, raw)?;
            let filled = self.fill(entry, &inode, raw);
            let content = has_content.then(|| image.content_map(inode, raw, 0));
            Ok((filled, content.map(|map| map.map_err(io::Error::other))))
        });
        looked.unwrap_or_else(|error| {
            let content = has_content.then(|| Err(io::Error::other(error.to_string())));
            (Err(not_decoded(entry, error)), content)
        })
    }

    /// Fills in what `inode`, decoded of `raw`, tells of an entry.
    fn fill(&self, entry: &mut Entry, inode: &Inode, raw: &[u8]) -> Result<(), ScanProblem> {
        let content = self.image.content();
        let target = match entry.kind {
            Kind::Symlink => content.target(self.number, raw),
            _ => Ok(Vec::new()),
        };
        let xattrs = content.xattrs(self.number, raw);
        entry.inode = content.shown_number(self.number);
        entry.generation = match entry.kind {
            Kind::File | Kind::Directory => inode.generation,
            _ => 0,
        };
        entry.project = inode.project;
        entry.inode_flags = inode.flags & FLAGS_STORED;
        match target {
            // While the file system is mounted perhaps another inode's bytes. No row takes it.
            Ok(target) if !may_be_target(&target) => {
                entry.flags.set(EntryFlags::UNREADABLE);
                let why = "it holds a zero byte, or is longer than a path may be";
                return Err(problem(entry, "read the target of", io::Error::other(why)));
            }
            Ok(target) if entry.kind == Kind::Symlink => {
                entry.size = target.len() as u64;
                entry.target = target.into();
            }
            Ok(_) => {}
            Err(why) => {
                entry.flags.set(EntryFlags::UNREADABLE);
                return Err(problem(entry, "read the target of", io::Error::other(why)));
            }
        }
        let set = xattrs.map_err(io::Error::other).and_then(|found| {
            let set = encode_xattrs(found.set)?;
            entry.xattrs = set;
            match found.missing.is_empty() {
                true => Ok(()),
                false => Err(io::Error::other(found.missing.join("; "))),
            }
        });
        set.map_err(|error| {
            entry.flags.set(EntryFlags::XATTRS_UNREADABLE);
            problem(entry, "read the extended attributes of", error)
        })
    }
}

/// What is wrong with an entry.
fn problem(entry: &Entry, action: &'static str, error: io::Error) -> ScanProblem {
    ScanProblem {
        path: entry.path(),
        action,
        error,
    }
}

fn not_decoded(entry: &mut Entry, error: io::Error) -> ScanProblem {
    entry.flags.set(EntryFlags::UNREADABLE);
    problem(entry, "decode the inode of", error)
}

impl Image {
    /// Where the content of the file whose inode this is lies, from a file offset on.
    fn content_map(&self, inode: Inode, raw: &[u8], from: u64) -> Result<ContentMap, String> {
        match inode.layout {
            Layout::Kernel(why) => Err(format!("only the kernel can read it: {why}")),
            Layout::Windows(why) => Err(format!("only Windows can read it: {why}")),
            Layout::Encoded => self.extents(&inode, raw, from).map(ContentMap::Encoded),
            Layout::Inline(bytes) => Ok(ContentMap::Inline(bytes)),
            Layout::None | Layout::Mapped => {
                self.extents(&inode, raw, from).map(ContentMap::Extents)
            }
        }
    }

    /// May the row of this inode, or the names in it, be other than it was, though these bytes are
    /// not? `is_replaced` tells of ranges of the file system in which anything may be other.
    pub(crate) fn row_may_differ(
        &self,
        number: u64,
        raw: &[u8],
        is_replaced: &dyn Fn(&Range<u64>) -> bool,
    ) -> bool {
        let mut may_differ = false;
        let is_known = self.places_of(number, raw, &mut |range| {
            may_differ = is_replaced(range) || self.differs_from_device(range);
            !may_differ
        });
        may_differ || !is_known
    }

    /// Tells `see` of all ranges of the file system that a row of this inode, or the names in it,
    /// depend on beside these bytes, until it says that it has seen enough. False: it takes reading
    /// to know them.
    pub(crate) fn places_of(
        &self,
        number: u64,
        raw: &[u8],
        see: &mut dyn FnMut(&Range<u64>) -> bool,
    ) -> bool {
        let content = self.content();
        let inode = match content.decode(number, raw) {
            Ok(inode) if content.is_self_contained(number, raw) => inode,
            _ => return false,
        };
        let kind = FileKind::from_mode(inode.mode);
        let has_blocks = matches!(kind, Some(FileKind::Regular | FileKind::Directory));
        match inode.layout {
            Layout::None | Layout::Inline(_) => true,
            Layout::Mapped if has_blocks => {
                let walked = content.extents(number, raw, &mut |extent| {
                    let end = extent.device_offset.saturating_add(extent.len);
                    see(&(extent.device_offset..end))
                });
                walked.is_ok()
            }
            _ => false,
        }
    }

    /// Extents of the file whose inode this is, from a file offset on.
    pub fn extents(&self, inode: &Inode, raw: &[u8], from: u64) -> Result<Extents, String> {
        let content = self.content();
        let sectors = content.sectors(inode.number, raw);
        let mut found = Extents {
            written: Vec::new(),
            sparse: sectors.saturating_mul(512) < inode.size,
            known_until: u64::MAX,
        };
        let mut seen: u64 = 0;
        content.extents(inode.number, raw, &mut |extent| {
            let end = extent.file_offset.saturating_add(extent.len);
            if extent.unwritten || end <= from {
                return true;
            }
            seen = seen.saturating_add(extent.len);
            if found.written.len() >= EXTENTS_HELD_MAX {
                found.known_until = extent.file_offset;
                return false;
            }
            if found.written.is_empty() {
                // Most files have one, and there are many files.
                found.written.reserve_exact(1);
            }
            found.written.push(extent);
            true
        })?;
        if from == 0 && seen == 0 && sectors > SECTORS_WITHOUT_DATA_MAX {
            found.sparse = false;
        }
        Ok(found)
    }
}

/// Overwrites what `stat` tells.
pub fn set_stat(entry: &mut Entry, inode: &Inode) {
    entry.mode = inode.mode & 0o7777;
    entry.uid = inode.uid;
    entry.gid = inode.gid;
    entry.mtime = time_of(inode.mtime);
    entry.ctime = time_of(inode.ctime);
    entry.inode = inode.number;
    entry.nlink = inode.nlink;
    entry.size = match entry.kind {
        Kind::File | Kind::Symlink => inode.size,
        _ => 0,
    };
    entry.rdev = match entry.kind {
        Kind::BlockDevice | Kind::CharDevice => {
            u64::from(inode.rdev.0) << 32 | u64::from(inode.rdev.1)
        }
        _ => 0,
    };
}

/// In the words of the catalog.
pub fn time_of(stamp: Timestamp) -> Time {
    Time {
        seconds: stamp.seconds,
        nanos: stamp.nanos,
    }
}
