//! Contents: each chunk is fetched once, and its files are made by one thread.
//!
//! The sorted plan comes in the order of chunks. Files of one chunk are one task, or several that
//! share the chunk where a chunk has very many; large files are handed to `large`.

use crate::kernel::outcome::{EntryFailure, EntryOutcome};
use crate::kernel::queue::{Feeder, work};
use crate::kernel::worker::{FetchedChunk, RestoreRun, Worker};
use crate::kernel::{make, specials, write_large};
use crate::plan::{CHUNK_KEY_BYTES, ContentPhase, LATE};
use crate::scratch::{ScratchSpace, SortedPairs};
use crate::{RestoreError, row};
use bale_format::{ChunkId, Content, Kind};
use std::iter::Peekable;
use std::sync::Arc;

/// Rows of one task.
const TASK_ROWS_MAX: usize = 2048;
/// What they take, with names.
pub const TASK_BYTES_MEAN: usize = TASK_ROWS_MAX * 320;

/// Lists of pieces that are fetched together from a store that is far away.
const LISTS_AHEAD_MAX: usize = 64;

/// Rows of one task that need no chunk: few, so that threads meet in few directories.
const TASK_BARE_ROWS_MAX: usize = 256;

/// What a thread does next.
pub enum ContentTask {
    /// Entries without content.
    Bare(Vec<Vec<u8>>),
    /// Files of one chunk.
    Bundled(Arc<FetchedChunk>, Vec<Vec<u8>>),
    /// A piece of large files.
    Piece(write_large::PieceTask),
}

/// Makes everything that is not a directory and not a further name.
pub fn restore(
    run: &RestoreRun,
    content: SortedPairs,
    scratch: &ScratchSpace,
) -> Result<(), RestoreError> {
    let apply = match run.options.dry_run {
        true => report,
        false => apply,
    };
    each_task(run, content, scratch, write_large::Purpose::Write, apply)
}

/// Does `apply` for each task of the sorted plan.
pub fn each_task<'r>(
    run: &'r RestoreRun<'r>,
    content: SortedPairs,
    scratch: &'r ScratchSpace,
    purpose: write_large::Purpose,
    apply: fn(&mut Worker<'r>, ContentTask),
) -> Result<(), RestoreError> {
    let mut rows = content.peekable();
    // Entries called like our temporary files come when there are none left.
    for late in [false, true] {
        if late && rows.peek().is_none() {
            break;
        }
        work(run, run.threads, apply, |feeder| {
            let mut large = write_large::Gatherer::new(run, scratch, purpose);
            feed(&mut rows, late, &mut large, feeder)?;
            large.finish(feeder, ContentTask::Piece)
        })?;
    }
    Ok(())
}

/// Does a task.
pub fn apply<'r>(worker: &mut Worker<'r>, task: ContentTask) {
    match task {
        ContentTask::Bare(rows) => each_row(worker, rows, |worker, entry| match entry.kind {
            Kind::File => make::file(worker, entry, &FetchedChunk::default()),
            _ => specials::make(worker, entry),
        }),
        ContentTask::Bundled(slot, rows) => {
            each_row(worker, rows, |worker, entry| {
                make::file(worker, entry, &slot)
            });
        }
        ContentTask::Piece(task) => write_large::write_piece(worker, task),
    }
}

/// What a dry run does with a task.
fn report<'r>(worker: &mut Worker<'r>, task: ContentTask) {
    match task {
        ContentTask::Bare(rows) | ContentTask::Bundled(_, rows) => {
            each_row(worker, rows, make::would)
        }
        ContentTask::Piece(_) => {}
    }
}

/// Decodes rows and counts what becomes of them.
pub fn each_row<'r>(
    worker: &mut Worker<'r>,
    rows: Vec<Vec<u8>>,
    mut act: impl FnMut(&mut Worker<'r>, &bale_format::Entry) -> Result<EntryOutcome, EntryFailure>,
) {
    for row in rows {
        if worker.run.ended.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        match row::decode(row) {
            Ok(entry) => {
                let result = act(worker, &entry);
                worker.done(&entry, result);
            }
            Err(error) => worker.run.end(RestoreError::Scratch(error)),
        }
    }
}

/// Reads the sorted plan to the end of the early or the late half and cuts it into tasks.
pub fn feed(
    rows: &mut Peekable<SortedPairs>,
    late: bool,
    large: &mut write_large::Gatherer,
    feeder: &Feeder<ContentTask>,
) -> Result<(), RestoreError> {
    let chunks = feeder.chunks();
    while let Some(pair) = rows.next_if(|pair| in_half(pair, late)) {
        let (key, row) = pair.map_err(RestoreError::Scratch)?;
        let phase = key[0] % LATE;
        let mut batch = vec![row];
        if phase == ContentPhase::Pieces as u8 {
            if chunks.is_far_away() {
                gather(rows, &key[..1], LISTS_AHEAD_MAX, &mut batch)?;
                chunks.fetch_ahead(&chunks_of(&batch));
            }
            for row in batch {
                if !large.push(row, feeder, ContentTask::Piece)? {
                    return Ok(());
                }
            }
            continue;
        }
        let task = if phase == ContentPhase::Bare as u8 {
            gather(rows, &key[..1], TASK_BARE_ROWS_MAX, &mut batch)?;
            ContentTask::Bare(batch)
        } else {
            let prefix = key.get(..CHUNK_KEY_BYTES).unwrap_or(&key);
            let slot = Arc::new(FetchedChunk::default());
            if chunks.is_far_away() {
                chunks.expect(&chunks_of(&batch));
            }
            while gather(rows, prefix, TASK_ROWS_MAX, &mut batch)? {
                let full = std::mem::take(&mut batch);
                if !feeder.send(ContentTask::Bundled(slot.clone(), full)) {
                    return Ok(());
                }
            }
            ContentTask::Bundled(slot, batch)
        };
        if !feeder.send(task) {
            return Ok(());
        }
    }
    Ok(())
}

/// The chunks that these rows point at; what does not decode is found again.
fn chunks_of(rows: &[Vec<u8>]) -> Vec<ChunkId> {
    let entries = rows.iter().filter_map(|row| row::decode(row.clone()).ok());
    let chunks = entries.filter_map(|entry| match entry.content {
        Content::Bundled { chunk, .. } => Some(chunk),
        Content::Pieces { list } => Some(list),
        Content::None | Content::Image => None,
    });
    chunks.collect()
}

/// An error belongs to both halves: it must be seen.
fn in_half(pair: &std::io::Result<crate::scratch::Pair>, late: bool) -> bool {
    match pair {
        Ok((key, _)) => key.first().is_some_and(|phase| (*phase >= LATE) == late),
        Err(_) => true,
    }
}

/// Takes rows with this prefix until there are `rows_max`; `true` if there may be more.
pub fn gather(
    rows: &mut Peekable<SortedPairs>,
    prefix: &[u8],
    rows_max: usize,
    batch: &mut Vec<Vec<u8>>,
) -> Result<bool, RestoreError> {
    while batch.len() < rows_max {
        let more = |pair: &std::io::Result<crate::scratch::Pair>| match pair {
            Ok((key, _)) => key.starts_with(prefix),
            Err(_) => true,
        };
        match rows.next_if(more) {
            None => return Ok(false),
            Some(pair) => batch.push(pair.map_err(RestoreError::Scratch)?.1),
        }
    }
    Ok(true)
}
