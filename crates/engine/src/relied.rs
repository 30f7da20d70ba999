//! What a writer relies on and a prune takes away meanwhile is stored again before anything is
//! committed.
//!
//! A prune condemns, and deletes later; packs are marked as damaged. So whoever commits looks once
//! more, stores again what can still be read, and commits nothing if some of it cannot.

use bale_format::ObjectId;
use bale_repository::error::{Error, Result};
use bale_repository::pack::{ChunkWriter, LookBegun};
use bale_repository::repository::Repository;
use bale_repository::store::ObjectName;
use std::sync::Arc;
use std::time::Duration;

/// A look stands for the one before a snapshot for so long: far less than prunes wait before they
/// delete, so that what is gone by the look after it is what somebody deleted without waiting.
pub(crate) const LOOK_BELIEVED: Duration = Duration::from_secs(120);

/// Looks again after storing afresh what a prune took away, at most so often.
const ROUNDS_MAX: usize = 3;

/// Stores again what the writer relied on and what is condemned, marked as damaged or gone by now.
/// `begun` is a look that was begun
/// with the last flush; `what` names the operation in errors.
pub(crate) fn store_lost_again(
    repository: &Arc<Repository>,
    store: &ChunkWriter,
    begun: LookBegun,
    what: &str,
) -> Result<()> {
    let mut begun = begun;
    for _ in 0..ROUNDS_MAX {
        let lost = store.lost_since_start(std::mem::take(&mut begun))?;
        if lost.is_empty() {
            return Ok(());
        }
        repository.reload_index_as_far_as_possible()?;
        for place in &lost {
            let chunk = &place.chunk;
            let bytes = repository
                .read_chunk_uncached(&chunk.id, chunk.kind)
                .map_err(|error| {
                    Error::Other(format!(
                        "what this {what} relies on was removed by a prune, or is damaged \
                         ({error}): run it again"
                    ))
                })?;
            store.store_again(chunk.kind, chunk.id, bytes.into())?;
        }
        store.flush()?;
        store.forget_reliance(&lost);
    }
    Err(Error::Other(format!(
        "what this {what} relies on keeps being condemned or marked as damaged: run it again"
    )))
}

/// Snapshots that rely on what is gone are taken back. The error is why, and which stay because the
/// store gives up nothing.
pub(crate) fn take_back(repository: &Repository, snapshots: &[ObjectId], why: Error) -> Error {
    let mut stay = Vec::new();
    let mut refused = None;
    for id in snapshots {
        if let Err(error) = repository.store().delete(&ObjectName::snapshot(*id)) {
            stay.push(id.short());
            refused = Some(error);
        }
    }
    match refused {
        None => why,
        Some(refused) => Error::Other(format!(
            "{why}; snapshot {} was written already, does not restore whole, and cannot be taken \
             back ({refused}): bale check names what it misses, and bale forget removes it where \
             that is allowed",
            stay.join(", ")
        )),
    }
}
