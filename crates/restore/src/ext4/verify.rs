//! Reading an image back: its names, inodes and bytes beside the rows and chunks of the repository.

use super::chunks_ahead::{ImageRow, Items, RowBytes};
use super::entries::{XattrSets, timestamp};
use super::linked_rows::InodeTable;
use super::piece_data::PieceData;
use super::walk::{ImageWalk, WalkedName};
use super::work::{TroubleReports, Work};
use crate::row::bundled;
use crate::{RestoreError, RestoreReport};
use bale_format::entry::join;
use bale_format::{ChunkId, Entry, Kind, Time};
use bale_fsimage::ext4::{Ext4, Ext4Error, ROOT_INODE_NUMBER, RawInode};
use bale_fsimage::mkext4::TIME_SECONDS;
use bale_fsimage::{Inode, MappedExtent, Timestamp};
use rustix::fs::Advice;
use std::cell::Cell;
use std::cmp::Ordering;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// Bytes compared at a time.
const WINDOW_BYTES: u64 = 1 << 20;
/// The directory of the file system checker, which is there whether or not the snapshot has it.
const LOST_FOUND: &[u8] = b"lost+found";

/// Compares all rows with the image.
pub fn verify(work: &Work, image: File, items: &mut Items) -> Result<RestoreReport, RestoreError> {
    // What the page cache holds is what was written, not what the device kept.
    let _advice_only = rustix::fs::fadvise(&image, 0, None, Advice::DontNeed);
    let fs = Ext4::open(Arc::new(image)).map_err(RestoreError::ImageRead)?;
    let mut verifier = Verifier {
        work,
        fs: &fs,
        walk: ImageWalk::new(&fs),
        held: None,
        inodes: InodeTable::new(work.scratch.file_maker()),
        xattrs: XattrSets::new(TroubleReports::Quiet),
        is_incomplete: Cell::new(false),
        report: RestoreReport::default(),
    };
    while let Some(row) = items.next_row()? {
        verifier.compare(&row, items)?;
        work.progress.add(1, row.entry.size);
        if work.monitor.interrupted() {
            return Err(RestoreError::Stopped);
        }
    }
    while let Some(found) = verifier.next_found() {
        verifier.report_foreign(&found);
    }
    verifier.report.problems = work.problems();
    Ok(verifier.report)
}

struct Verifier<'a> {
    work: &'a Work<'a>,
    fs: &'a Ext4,
    walk: ImageWalk<'a>,
    held: Option<WalkedName>,
    /// Inodes of linked rows.
    inodes: InodeTable,
    xattrs: XattrSets,
    /// Part of the content of this entry could not be had.
    is_incomplete: Cell<bool>,
    report: RestoreReport,
}

impl Verifier<'_> {
    fn compare(&mut self, row: &ImageRow, items: &mut Items) -> Result<(), RestoreError> {
        let entry = &row.entry;
        let Some(inode) = self.find(entry) else {
            self.differs(entry, "it is not there");
            return Ok(());
        };
        if let Some(name) = row.name {
            let first = self.inodes.get(name.group).map_err(RestoreError::Scratch)?;
            match first {
                Some(first) if u64::from(first) == inode => {
                    self.report.links += 1;
                    return Ok(());
                }
                Some(_) => {
                    self.differs(entry, "it is not the same inode as its first name");
                    return Ok(());
                }
                None => self
                    .inodes
                    .set(name.group, inode as u32)
                    .map_err(RestoreError::Scratch)?,
            }
        }
        self.is_incomplete.set(false);
        match self.differences(inode, row, items) {
            Ok(None) if self.is_incomplete.get() => self.report.differences += 1,
            Ok(None) => self.count(entry),
            Ok(Some(text)) => self.differs(entry, &text),
            Err(Trouble::Image(error)) => self.differs(entry, &error.to_string()),
            Err(Trouble::End(error)) => return Err(error),
        }
        Ok(())
    }

    fn count(&mut self, entry: &Entry) {
        match entry.kind {
            Kind::File => {
                self.report.files_written += 1;
                self.report.bytes += entry.size;
            }
            Kind::Directory => self.report.directories += 1,
            _ => self.report.others += 1,
        }
    }

    fn differs(&mut self, entry: &Entry, text: &str) {
        self.report.differences += 1;
        self.work.problem(&entry.path(), "verify", text);
    }

    /// The inode that a row's path leads to in the image; names before it are foreign.
    fn find(&mut self, entry: &Entry) -> Option<u64> {
        if entry.name.is_empty() {
            return Some(ROOT_INODE_NUMBER);
        }
        let key = entry.key();
        while let Some(found) = self.next_found() {
            match found.key.cmp(&key) {
                Ordering::Less => self.report_foreign(&found),
                Ordering::Equal => return Some(found.inode),
                Ordering::Greater => {
                    self.held = Some(found);
                    return None;
                }
            }
        }
        None
    }

    fn next_found(&mut self) -> Option<WalkedName> {
        let (work, report) = (self.work, &mut self.report);
        let mut tell = |path: &[u8], text: &str| {
            report.differences += 1;
            work.problem(path, "verify", text);
        };
        self.held.take().or_else(|| self.walk.next_name(&mut tell))
    }

    fn report_foreign(&mut self, found: &WalkedName) {
        if found.key.parent.is_empty() && &found.key.name[..] == LOST_FOUND {
            return;
        }
        self.report.differences += 1;
        let path = join(&found.key.parent, &found.key.name);
        self.work
            .problem(&path, "verify", "it is not in the snapshot");
    }

    /// What differs, in words.
    fn differences(
        &mut self,
        number: u64,
        row: &ImageRow,
        items: &mut Items,
    ) -> Result<Option<String>, Trouble> {
        let entry = &row.entry;
        let bytes = self.fs.read_inode_bytes(number)?;
        let Some(raw) = RawInode::new(number, &bytes) else {
            return Ok(Some("its inode is damaged".to_owned()));
        };
        let inode = self.fs.decode_inode(&raw)?;
        let mut words = metadata(entry, &inode);
        if entry.kind == Kind::Symlink && self.fs.read_symlink(&raw)? != entry.target[..] {
            words.push("target differs");
        }
        let mut held: Vec<_> = self.xattrs.of(entry, self.work).held().to_vec();
        held.sort_by(|one, other| one.name.cmp(&other.name));
        let found = self.fs.xattrs(&raw)?;
        let is_same = found.len() == held.len()
            && (found.iter().zip(&held))
                .all(|(found, held)| found.name == held.name && found.value == held.value);
        if !is_same {
            words.push("extended attributes differ");
        }
        if inode.size != entry.size && entry.kind == Kind::File {
            words.push("size differs");
        } else if !self.same_content(row, &raw, items)? {
            words.push("content differs");
        }
        Ok((!words.is_empty()).then(|| words.join(", ")))
    }

    fn same_content(
        &self,
        row: &ImageRow,
        raw: &RawInode<'_>,
        items: &mut Items,
    ) -> Result<bool, Trouble> {
        match &row.bytes {
            RowBytes::None | RowBytes::Earlier => Ok(true),
            RowBytes::Bundled(slot, offset) => {
                let wanted = slot.wait().map_err(str::to_owned);
                let wanted = wanted.and_then(|chunk| bundled(chunk, *offset, row.entry.size));
                match wanted {
                    Ok(wanted) => Ok(self.fs.read_content(raw, row.entry.size)? == wanted),
                    Err(text) => {
                        self.work.damage(&row.entry.path(), "read", &text);
                        Ok(false)
                    }
                }
            }
            RowBytes::Pieces(list) => self.same_pieces(&row.entry, list, raw, items),
        }
    }

    fn same_pieces(
        &self,
        entry: &Entry,
        list: &ChunkId,
        raw: &RawInode<'_>,
        items: &mut Items,
    ) -> Result<bool, Trouble> {
        let image = Mapped {
            fs: self.fs,
            extents: self.fs.extents(raw)?,
        };
        let mut data = PieceData::new(self.work, items, entry, list);
        let mut is_same = true;
        let mut at = 0;
        while let Some(stretch) = data.stretch_from(at).filter(|_| is_same) {
            let start = stretch.start.max(at);
            is_same &= image.is_zero(at..start)?;
            at = start;
            while at < stretch.end && is_same {
                let len = WINDOW_BYTES.min(stretch.end - at) as usize;
                let (mut wanted, mut found) = (vec![0; len], vec![0; len]);
                data.fill(at, &mut wanted);
                image.read(at, &mut found)?;
                is_same = wanted == found;
                at += len as u64;
            }
        }
        // Zeros stand for what could not be had, and that was told.
        if data.finish()?.missing > 0 {
            self.is_incomplete.set(true);
        }
        Ok(is_same && image.is_zero(at..entry.size)?)
    }
}

/// Why two things could not be compared.
enum Trouble {
    Image(Ext4Error),
    End(RestoreError),
}

impl From<Ext4Error> for Trouble {
    fn from(error: Ext4Error) -> Trouble {
        Trouble::Image(error)
    }
}

impl From<RestoreError> for Trouble {
    fn from(error: RestoreError) -> Trouble {
        Trouble::End(error)
    }
}

fn metadata(entry: &Entry, inode: &Inode) -> Vec<&'static str> {
    let mut words = Vec::new();
    if Kind::from_mode(inode.mode) != Some(entry.kind) {
        words.push("it is something else");
    }
    if inode.mode & 0o7777 != entry.mode & 0o7777 {
        words.push("mode differs");
    }
    if (inode.uid, inode.gid) != (entry.uid, entry.gid) {
        words.push("owner differs");
    }
    if !same_time(entry.mtime, inode.mtime) {
        words.push("mtime differs");
    }
    let atime = entry.atime.get().unwrap_or(entry.mtime);
    if !same_time(atime, inode.atime) {
        words.push("atime differs");
    }
    if !same_time(entry.ctime, inode.ctime) {
        words.push("ctime differs");
    }
    let is_device = matches!(entry.kind, Kind::BlockDevice | Kind::CharDevice);
    let (major, minor) = inode.rdev;
    if is_device && u64::from(major) << 32 | u64::from(minor) != entry.rdev {
        words.push("device number differs");
    }
    words
}

/// Times that ext4 cannot say were told as lost.
fn same_time(wanted: Time, found: Timestamp) -> bool {
    !TIME_SECONDS.contains(&wanted.seconds) || timestamp(wanted) == found
}

/// A file of the image by its extents: 32 bytes each.
struct Mapped<'f> {
    fs: &'f Ext4,
    extents: Vec<MappedExtent>,
}

impl Mapped<'_> {
    /// Written parts of a range: offset in the file, offset on the device, length.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let first =
            (self.extents).partition_point(|extent| extent.file_offset + extent.len <= range.start);
        let reached = self.extents[first..].iter();
        let within = reached.take_while({
            let end = range.end;
            move |extent| extent.file_offset < end
        });
        within
            .filter(|extent| !extent.unwritten)
            .map(move |extent| {
                let start = extent.file_offset.max(range.start);
                let end = (extent.file_offset + extent.len).min(range.end);
                (
                    start,
                    extent.device_offset + (start - extent.file_offset),
                    end - start,
                )
            })
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Ext4Error> {
        out.fill(0);
        for (start, device_offset, len) in self.parts(offset..offset + out.len() as u64) {
            let from = (start - offset) as usize;
            let part = &mut out[from..from + len as usize];
            self.read_device(device_offset, part)?;
        }
        Ok(())
    }

    fn is_zero(&self, range: Range<u64>) -> Result<bool, Ext4Error> {
        for (_, device_offset, len) in self.parts(range) {
            let mut done = 0;
            while done < len {
                let mut window = vec![0; WINDOW_BYTES.min(len - done) as usize];
                self.read_device(device_offset + done, &mut window)?;
                if window.iter().any(|byte| *byte != 0) {
                    return Ok(false);
                }
                done += window.len() as u64;
            }
        }
        Ok(true)
    }

    fn read_device(&self, offset: u64, out: &mut [u8]) -> Result<(), Ext4Error> {
        let read = self.fs.source().read_exact_at(offset, out);
        read.map_err(|source| Ext4Error::Read {
            what: "file content",
            offset,
            source,
        })
    }
}
