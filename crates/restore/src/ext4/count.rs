//! The first reading: what the image will hold, so that everything has its place before the first
//! byte is written.

use super::entries::{XattrSets, with_new_entry};
use super::linked_rows::{LinkSorter, Links};
use super::piece_data::SparseData;
use super::prefetch::PrefetchPlanner;
use super::rows::WantedRows;
use super::work::{TroubleReports, Work};
use crate::RestoreError;
use crate::rows_ahead::RowReads;
use crate::scratch::SortedPairs;
use crate::totals::PlanTotals;
use bale_format::{Content, Entry, EntryFlags, Kind};
use bale_fsimage::mkext4::{FileData, NewEntry, NoData, TotalsCounter, TreeTotals};
use bale_pipeline::ahead;

/// Rows handed over at a time.
const BATCH_ROWS_MAX: usize = 512;
/// Batches that wait: at 400 bytes a row with its name, 1 MiB.
const BATCHES_AHEAD_MAX: usize = 4;

pub struct Counted {
    /// For people and the progress.
    pub plan: PlanTotals,
    /// For the plan of the file system.
    pub totals: TreeTotals,
    /// For the readings that follow.
    pub links: Vec<Links>,
    /// Contents that the reading that follows should not fetch where they come.
    pub prefetched: PrefetchPlanner,
}

/// Counts the wanted rows, and prepares their links for `readings` more.
pub fn count(
    work: &Work,
    reading: TroubleReports,
    above: Option<SortedPairs>,
    readings: usize,
) -> Result<Counted, RestoreError> {
    let mut counter = Counter {
        work,
        totals: TotalsCounter::new(&work.ext4),
        inodes: TotalsCounter::new(&work.ext4),
        xattrs: XattrSets::new(TroubleReports::Quiet),
        plan: PlanTotals::default(),
    };
    let mut links = LinkSorter::new(work);
    let mut prefetched = PrefetchPlanner::new(work);
    let mut position = 0;
    // Whoever counts them takes as long as the catalog does to read.
    let rows = || {
        let rows = WantedRows::new(work, reading, above)?;
        Ok(rows.ahead(RowReads::Lists))
    };
    ahead::for_each(rows, BATCH_ROWS_MAX, BATCHES_AHEAD_MAX, |entry: Entry| {
        if entry.is_hard_link() {
            counter.totals.add_link(&entry.parent, &entry.name);
            links.push(position, &entry)?;
            counter.plan.links += 1;
        } else {
            counter.add(&entry);
            prefetched.see(position, &entry, work)?;
        }
        position += 1;
        Ok(())
    })?;
    let links = links.finish(work, readings, |first| counter.add_first(first))?;
    let mut totals = counter.totals.finish();
    totals += counter.inodes.finish();
    Ok(Counted {
        plan: counter.plan,
        totals,
        links,
        prefetched,
    })
}

struct Counter<'a> {
    work: &'a Work<'a>,
    totals: TotalsCounter,
    /// Linked inodes, without names.
    inodes: TotalsCounter,
    xattrs: XattrSets,
    plan: PlanTotals,
}

impl Counter<'_> {
    fn add(&mut self, entry: &Entry) {
        let set = self.xattrs.of(entry, self.work);
        let mut bytes = entry.size;
        with_new_entry(entry, set.held(), self.work, |new| {
            bytes = with_data(entry, self.work, |data| self.totals.add(new, data));
        });
        self.tally(entry, bytes);
    }

    /// The inode of a first name; the name itself has been counted with the links.
    fn add_first(&mut self, entry: &Entry) {
        let named = Entry {
            name: bytes::Bytes::from_static(b"x"),
            ..entry.clone()
        };
        let set = self.xattrs.of(&named, self.work);
        let mut bytes = entry.size;
        with_new_entry(&named, set.held(), self.work, |new: &NewEntry| {
            bytes = with_data(entry, self.work, |data| self.inodes.add_inode(new, data));
        });
        self.plan.links -= 1;
        self.tally(entry, bytes);
    }

    fn tally(&mut self, entry: &Entry, bytes: u64) {
        match entry.kind {
            Kind::File => {
                self.plan.files += 1;
                self.plan.bytes = self.plan.bytes.saturating_add(bytes);
            }
            Kind::Directory => self.plan.directories += 1,
            _ => self.plan.others += 1,
        }
        let names = self.plan.files + self.plan.directories + self.plan.others;
        if names.is_multiple_of(REPORT_EVERY) {
            self.work.progress.add(0, 0);
        }
    }
}

/// Entries between two signs of life.
const REPORT_EVERY: u64 = 1 << 16;

/// Calls `each` with where the data of a file lies; says how many bytes those are.
fn with_data(entry: &Entry, work: &Work, each: impl FnOnce(&mut dyn FileData)) -> u64 {
    match &entry.content {
        _ if entry.kind != Kind::File => {
            each(&mut NoData);
            0
        }
        Content::Pieces { list } if entry.flags.has(EntryFlags::SPARSE) => {
            let mut data = SparseData::new(list, entry.size, work.chunks);
            each(&mut data);
            data.bytes()
        }
        _ => {
            each(&mut Whole);
            entry.size
        }
    }
}

/// A file without holes whose bytes nobody asks for.
struct Whole;

impl FileData for Whole {
    fn read_at(&mut self, _offset_bytes: u64, buf: &mut [u8]) -> std::io::Result<()> {
        buf.fill(0);
        Ok(())
    }
}
