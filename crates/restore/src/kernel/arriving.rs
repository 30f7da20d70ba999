//! Contents in the order in which packs become readable.
//!
//! Rows are split once: those of files inside a chunk stand on disk by pack, and are taken when
//! their pack comes; large files stand in a list with the packs that they need, which is gone
//! through now and then for those that have all of them. What never became readable comes last, and
//! is a problem of each file; as do entries called like our temporary ones. In memory: 24 bytes for
//! each pack.

use crate::RestoreError;
use crate::kernel::queue::{Feeder, work};
use crate::kernel::rows_file::{RowsFile, Stretch};
use crate::kernel::worker::RestoreRun;
use crate::kernel::write_content::{ContentTask, apply, feed};
use crate::kernel::write_large::{Gatherer, Purpose};
use crate::plan::{ContentPhase, LATE};
use crate::reads::ReadsSorter;
use crate::row;
use crate::scratch::{ScratchSpace, SortedPairs};
use crate::warm::{Arrival, Warmer};
use bale_format::PackNumber;
use std::collections::{BTreeSet, HashMap};
use std::iter::Peekable;

/// Large files are gone through when this part of the packs that are out has come since.
const LOOKED_THROUGH_AT: u64 = 16;

/// Makes everything that is not a directory and not a further name.
pub fn restore(
    run: &RestoreRun,
    content: SortedPairs,
    scratch: &ScratchSpace,
    warmer: &dyn Warmer,
) -> Result<(), RestoreError> {
    let mut split = Split::of(run, content, scratch, warmer)?;
    work(run, run.threads, apply, |feeder| {
        let mut maker = Maker {
            feeder,
            large: Gatherer::new(run, scratch, Purpose::Write),
            late: false,
        };
        maker.make(split.bare.read_all()?)?;
        split.as_they_come(run, scratch, warmer, &mut maker)?;
        split.what_never_came(&mut maker)?;
        maker.large.finish(feeder, ContentTask::Piece)
    })?;
    if split.late.is_empty() {
        return Ok(());
    }
    work(run, run.threads, apply, |feeder| {
        let mut maker = Maker {
            feeder,
            large: Gatherer::new(run, scratch, Purpose::Write),
            late: true,
        };
        maker.make(split.late.read_all()?)?;
        maker.large.finish(feeder, ContentTask::Piece)
    })
}

/// Makes rows of the plan.
struct Maker<'m, 'r> {
    feeder: &'m Feeder<'r, ContentTask>,
    large: Gatherer<'r>,
    late: bool,
}

impl Maker<'_, '_> {
    fn make(&mut self, rows: SortedPairs) -> Result<(), RestoreError> {
        let mut rows: Peekable<SortedPairs> = rows.peekable();
        feed(&mut rows, self.late, &mut self.large, self.feeder)
    }

    /// Large files do not wait for others that may take days.
    fn make_at_once(&mut self, rows: SortedPairs) -> Result<(), RestoreError> {
        self.make(rows)?;
        self.large.flush(self.feeder, ContentTask::Piece).map(drop)
    }
}

/// The rows of the plan, by what they wait for.
struct Split {
    /// For nothing.
    bare: RowsFile,
    /// For one pack.
    bundled: RowsFile,
    by_pack: HashMap<PackNumber, Stretch>,
    /// For several; the key begins with their numbers.
    large: RowsFile,
    /// For all others to be made.
    late: RowsFile,
    packs_out: u64,
}

impl Split {
    /// Splits the rows, and says what is wanted.
    fn of(
        run: &RestoreRun,
        content: SortedPairs,
        scratch: &ScratchSpace,
        warmer: &dyn Warmer,
    ) -> Result<Split, RestoreError> {
        let file = || rows_file(scratch);
        let mut split = Split {
            bare: file()?,
            bundled: file()?,
            by_pack: HashMap::new(),
            large: file()?,
            late: file()?,
            packs_out: 0,
        };
        let mut reads = ReadsSorter::new(run.chunks, scratch, run.monitor);
        for pair in content {
            if run.has_ended() {
                return Err(RestoreError::Stopped);
            }
            let (key, row) = pair.map_err(RestoreError::Scratch)?;
            let entry = row::decode(row.clone()).map_err(RestoreError::Scratch)?;
            let mut packs = BTreeSet::new();
            reads.push(&entry, &mut |pack| {
                packs.insert(pack);
            })?;
            split.push(&key, &row, packs)?;
        }
        let totals = reads.finish(&mut |pack| warmer.want(pack))?;
        split.packs_out = totals.packs;
        warmer.begin(&totals).map_err(RestoreError::Reads)?;
        Ok(split)
    }

    fn push(
        &mut self,
        key: &[u8],
        row: &[u8],
        packs: BTreeSet<PackNumber>,
    ) -> Result<(), RestoreError> {
        let phase = key.first().copied().unwrap_or_default();
        let pushed = match (phase >= LATE, packs.first()) {
            (true, _) => self.late.push(key, row),
            (false, Some(pack)) if phase == ContentPhase::Bundled as u8 => {
                let from = self.bundled.len();
                let pushed = self.bundled.push(key, row);
                let to = self.bundled.len();
                self.by_pack.entry(*pack).or_insert(from..from).end = to;
                pushed
            }
            (false, Some(_)) if phase == ContentPhase::Pieces as u8 => {
                self.large.push(&with_packs(&packs, key), row)
            }
            (false, _) => self.bare.push(key, row),
        };
        pushed.map_err(RestoreError::Scratch)
    }

    fn as_they_come(
        &mut self,
        run: &RestoreRun,
        scratch: &ScratchSpace,
        warmer: &dyn Warmer,
        maker: &mut Maker,
    ) -> Result<(), RestoreError> {
        let mut come = 0;
        loop {
            match warmer.next(run.monitor)? {
                Arrival::Problem(text) => run.problem(b"", "make readable", &text),
                Arrival::End => return self.make_whole(scratch, warmer, maker),
                Arrival::Readable(pack) => {
                    if let Some(stretch) = self.by_pack.remove(&pack) {
                        maker.make(self.bundled.read(stretch)?)?;
                    }
                    self.packs_out = self.packs_out.saturating_sub(1);
                    come += 1;
                    if come * LOOKED_THROUGH_AT >= self.packs_out {
                        come = 0;
                        self.make_whole(scratch, warmer, maker)?;
                    }
                }
            }
        }
    }

    /// Makes the large files of which all packs have come.
    fn make_whole(
        &mut self,
        scratch: &ScratchSpace,
        warmer: &dyn Warmer,
        maker: &mut Maker,
    ) -> Result<(), RestoreError> {
        if self.large.is_empty() {
            return Ok(());
        }
        let (mut ready, mut waits) = (rows_file(scratch)?, rows_file(scratch)?);
        for pair in self.large.read_all()? {
            let (key, row) = pair.map_err(RestoreError::Scratch)?;
            let (packs, phase_key) = split_packs(&key).map_err(RestoreError::Scratch)?;
            let is_ready = packs.iter().all(|pack| warmer.is_readable(*pack));
            let pushed = match is_ready {
                true => ready.push(phase_key, &row),
                false => waits.push(&key, &row),
            };
            pushed.map_err(RestoreError::Scratch)?;
        }
        self.large = waits;
        maker.make_at_once(ready.read_all()?)
    }

    fn what_never_came(&mut self, maker: &mut Maker) -> Result<(), RestoreError> {
        let mut left: Vec<Stretch> = self.by_pack.drain().map(|(_, rows)| rows).collect();
        left.sort_by_key(|rows| rows.start);
        for stretch in left {
            maker.make(self.bundled.read(stretch)?)?;
        }
        let rows = self.large.read_all()?.map(|pair| {
            let (key, row) = pair?;
            let (_, phase_key) = split_packs(&key)?;
            Ok((phase_key.to_vec(), row))
        });
        maker.make(Box::new(rows))
    }
}

fn rows_file(scratch: &ScratchSpace) -> Result<RowsFile, RestoreError> {
    let file = scratch.unnamed_file();
    file.map(RowsFile::new).map_err(RestoreError::Scratch)
}

/// The number of packs, the packs, and the key.
fn with_packs(packs: &BTreeSet<PackNumber>, key: &[u8]) -> Vec<u8> {
    let count = packs.len() as u32;
    let mut all = count.to_be_bytes().to_vec();
    packs
        .iter()
        .for_each(|pack| all.extend_from_slice(&pack.0.to_be_bytes()));
    all.extend_from_slice(key);
    all
}

fn split_packs(key: &[u8]) -> std::io::Result<(Vec<PackNumber>, &[u8])> {
    let read = || {
        let (count, rest) = key.split_first_chunk::<4>()?;
        let bytes = (u32::from_be_bytes(*count) as usize).checked_mul(4)?;
        let (packs, key) = rest.split_at_checked(bytes)?;
        let packs = packs.chunks_exact(4).map(|pack| {
            let pack = pack.try_into().expect("4 bytes");
            PackNumber(u32::from_be_bytes(pack))
        });
        Some((packs.collect(), key))
    };
    read().ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}
