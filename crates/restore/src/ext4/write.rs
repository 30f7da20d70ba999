//! The second reading: every row goes to the writer of the file system, with its bytes.

use super::chunks_ahead::{ImageRow, Items, RowBytes};
use super::entries::{XattrSets, report_times, with_new_entry};
use super::linked_rows::InodeTable;
use super::piece_data::{Got, PieceData};
use super::work::{TroubleReports, Work};
use crate::losses::missing_of;
use crate::row::bundled;
use crate::{RestoreError, RestoreReport};
use bale_format::{Entry, EntryFlags, Kind};
use bale_fsimage::mkext4::{BlockSink, Ext4Builder, Ext4Summary, FileData, MkError, NoData, Plan};

/// Entries counted before they are told.
const REPORT_EVERY: u64 = 256;

/// Writes all rows into a file system, and completes it.
pub fn write<S: BlockSink>(
    work: &Work,
    plan: Plan,
    sink: S,
    items: &mut Items,
) -> Result<(S, Ext4Summary, RestoreReport), RestoreError> {
    let builder = Ext4Builder::create(plan, sink, work.scratch.file_maker());
    let mut writer = Writer {
        work,
        builder: builder.map_err(RestoreError::Image)?,
        inodes: InodeTable::new(work.scratch.file_maker()),
        xattrs: XattrSets::new(TroubleReports::Report),
        report: RestoreReport::default(),
        untold: (0, 0),
    };
    while let Some(row) = items.next_row()? {
        writer.put(&row, items)?;
        writer.report(row.entry.size)?;
    }
    let (sink, summary) = writer.builder.finish().map_err(RestoreError::Image)?;
    work.progress.add(writer.untold.0, writer.untold.1);
    Ok((sink, summary, writer.report))
}

struct Writer<'a, S: BlockSink> {
    work: &'a Work<'a>,
    builder: Ext4Builder<S>,
    inodes: InodeTable,
    xattrs: XattrSets,
    report: RestoreReport,
    /// Entries and bytes since the monitor was told.
    untold: (u64, u64),
}

impl<S: BlockSink> Writer<'_, S> {
    fn put(&mut self, row: &ImageRow, items: &mut Items) -> Result<(), RestoreError> {
        let entry = &row.entry;
        let Some(name) = row.name else {
            self.put_inode(row, items)?;
            return Ok(());
        };
        if name.is_first {
            if let Some(inode) = self.put_inode(row, items)? {
                self.inodes
                    .set(name.group, inode)
                    .map_err(RestoreError::Scratch)?;
            }
            return Ok(());
        }
        let inode = self.inodes.get(name.group).map_err(RestoreError::Scratch)?;
        let Some(inode) = inode else {
            let text = "its first name could not be restored";
            self.work.problem(&entry.path(), "restore", text);
            return Ok(());
        };
        let linked = self.builder.push_link(&entry.parent, &entry.name, inode);
        if self.accept(entry, linked)?.is_some() {
            self.report.links += 1;
        }
        Ok(())
    }

    /// Writes an inode and its first name. `None` if that could not be, which has been told.
    fn put_inode(
        &mut self,
        row: &ImageRow,
        items: &mut Items,
    ) -> Result<Option<u32>, RestoreError> {
        let entry = &row.entry;
        let mut got = Got {
            bytes: entry.size,
            ..Got::default()
        };
        let pushed = match &row.bytes {
            RowBytes::None | RowBytes::Earlier => self.push(entry, &mut NoData)?,
            RowBytes::Bundled(slot, offset) => {
                let bytes = slot.wait().map_err(str::to_owned);
                match bytes.and_then(|chunk| bundled(chunk, *offset, entry.size)) {
                    Ok(mut bytes) => self.push(entry, &mut bytes)?,
                    Err(text) => {
                        self.work.damage(&entry.path(), "read", &text);
                        None
                    }
                }
            }
            RowBytes::Pieces(list) => {
                let mut data = PieceData::new(self.work, items, entry, list);
                let pushed = self.push(entry, &mut data)?;
                got = data.finish()?;
                pushed
            }
        };
        if pushed.is_some() {
            self.count(entry, got);
        }
        Ok(pushed)
    }

    fn count(&mut self, entry: &Entry, got: Got) {
        let report = &mut self.report;
        match entry.kind {
            Kind::File => {
                report.bytes += got.bytes;
                report.bytes_missing += got.missing;
                match got.missing > 0 || entry.flags.has(EntryFlags::INCOMPLETE) {
                    true => report.incomplete += 1,
                    false => report.files_written += 1,
                }
                if got.has_damage {
                    let text = missing_of(entry, got.missing);
                    self.work.problem(&entry.path(), "restore", &text);
                }
            }
            Kind::Directory => report.directories += 1,
            _ => report.others += 1,
        }
    }

    fn push(
        &mut self,
        entry: &Entry,
        data: &mut dyn FileData,
    ) -> Result<Option<u32>, RestoreError> {
        let set = self.xattrs.of(entry, self.work);
        report_times(entry, self.work);
        let builder = &mut self.builder;
        let pushed = with_new_entry(entry, set.held(), self.work, |new| builder.push(new, data));
        self.accept(entry, pushed)
    }

    /// What concerns one entry is its problem, anything else the end.
    fn accept<T>(
        &self,
        entry: &Entry,
        result: Result<T, MkError>,
    ) -> Result<Option<T>, RestoreError> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(MkError::Entry { source, .. }) => {
                let text = source.to_string();
                self.work.problem(&entry.path(), "restore", &text);
                Ok(None)
            }
            Err(error) => Err(RestoreError::Image(error)),
        }
    }

    fn report(&mut self, bytes: u64) -> Result<(), RestoreError> {
        self.untold.0 += 1;
        self.untold.1 += bytes;
        if self.untold.0 < REPORT_EVERY && bytes < REPORT_EVERY_BYTES {
            return Ok(());
        }
        let (entries, bytes) = std::mem::take(&mut self.untold);
        self.work.progress.add(entries, bytes);
        match self.work.monitor.interrupted() {
            true => Err(RestoreError::Stopped),
            false => Ok(()),
        }
    }
}

/// A file of this size is told at once.
const REPORT_EVERY_BYTES: u64 = 1 << 20;
