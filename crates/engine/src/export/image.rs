//! One image of a snapshot, as the server of NBD wants it.

use bale_format::EntryFlags;
use bale_format::snapshot::ImageState;
use bale_nbd::{AllocationRun, NbdExport};
use bale_pipeline::error::with_causes;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_repository::error::{Error, Result};
use bale_repository::repository::Named;
use bale_repository::snapshots::clean_path;
use bale_restore::CatalogSource;
use bale_restore::image_reader::{CachedChunks, ImageReader, UnreadableRange};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ranges that could not be read and are named one by one; further ones are one problem.
const UNREADABLE_NAMED_MAX: usize = 1000;

/// An image that can be read at any place by many at once.
pub struct ImageExport {
    /// Without leading slash.
    path: Vec<u8>,
    name: String,
    reader: ImageReader,
    is_incomplete: bool,
    is_fuzzy: bool,
    bytes_read: AtomicU64,
    unreadable: Mutex<Unreadable>,
}

#[derive(Default)]
struct Unreadable {
    /// Where each began.
    known: BTreeSet<u64>,
    new: Vec<UnreadableRange>,
}

impl ImageExport {
    pub(super) fn open(
        catalog: &Arc<dyn CatalogSource + Send>,
        chunks: (&Arc<CachedChunks>, usize),
        path: Vec<u8>,
        snapshot: &Named,
    ) -> Result<ImageExport> {
        let shown = String::from_utf8_lossy(&path).into_owned();
        let row = catalog.lookup(&path).map_err(|trouble| {
            Error::Other(format!(
                "read the row of {shown}: {}",
                with_causes(&*trouble)
            ))
        })?;
        let row = row
            .filter(|row| row.is_image())
            .ok_or_else(|| Error::NoPath {
                path: format!("/{shown}"),
                snapshot: snapshot.0.short(),
            })?;
        let reader = ImageReader::new(catalog.clone(), chunks, (&path, row.size));
        let mut records = snapshot.1.images.iter();
        let record = records.find(|record| clean_path(&record.path.0) == path);
        Ok(ImageExport {
            name: String::from_utf8_lossy(&row.name).into_owned(),
            is_incomplete: row.flags.has(EntryFlags::INCOMPLETE),
            is_fuzzy: record.is_some_and(|record| record.how == ImageState::Fuzzy),
            path,
            reader,
            bytes_read: AtomicU64::new(0),
            unreadable: Mutex::default(),
        })
    }

    /// The last part of its path, by which clients ask for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// In the snapshot, without leading slash.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    pub fn size(&self) -> u64 {
        self.reader.size()
    }

    /// The backup could not read all of it: what it could not is zeros.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// It may be of several moments.
    pub fn is_fuzzy(&self) -> bool {
        self.is_fuzzy
    }

    /// That clients were sent.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Reports what could not be read since the last call; how many problems that is.
    pub fn report_problems(&self, monitor: &dyn Monitor) -> u64 {
        let unreadable = self.unreadable.lock();
        let new = std::mem::take(&mut unreadable.unwrap_or_else(PoisonError::into_inner).new);
        for range in &new {
            monitor.problem(&Problem {
                path: self.path.clone(),
                action: "read",
                text: range.to_string(),
            });
        }
        new.len() as u64
    }

    /// Each is named once, however often clients ask for it.
    fn note(&self, range: &UnreadableRange) {
        let mut unreadable = self
            .unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let named = unreadable.known.len();
        if named > UNREADABLE_NAMED_MAX || !unreadable.known.insert(range.range.start) {
            return;
        }
        let mut range = range.clone();
        if named == UNREADABLE_NAMED_MAX {
            range
                .text
                .push_str("; what else cannot be read is not named");
        }
        unreadable.new.push(range);
    }
}

impl ImageExport {
    /// The same with zeros for what cannot be read, which is noted.
    pub(super) fn read_or_zeros(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        let mut at = offset;
        let mut readable_to = end;
        while at < end {
            let part = &mut buffer[(at - offset) as usize..(readable_to - offset) as usize];
            let Err(unreadable) = self.reader.read_at(at, part) else {
                at = readable_to;
                readable_to = end;
                continue;
            };
            self.note(&unreadable);
            let from = unreadable.range.start.clamp(at, readable_to);
            let to = unreadable.range.end.clamp(at + 1, readable_to);
            buffer[(from - offset) as usize..(to - offset) as usize].fill(0);
            // What is in front of it is read alone.
            match from > at {
                true => readable_to = from,
                false => (at, readable_to) = (to, end),
            }
        }
        (self.bytes_read).fetch_add(buffer.len() as u64, Ordering::Relaxed);
    }
}

impl NbdExport for ImageExport {
    fn len(&self) -> u64 {
        self.reader.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reader.read_at(offset, buffer).map_err(|range| {
            self.note(&range);
            io::Error::other(range)
        })?;
        self.bytes_read
            .fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn run_at(&self, offset: u64) -> io::Result<AllocationRun> {
        let (bytes, is_hole) = self.reader.run_at(offset);
        Ok(AllocationRun { bytes, is_hole })
    }
}
