//! The second pass over a mounted file system that was read from its device: what changed since the
//! first barrier is read again through the kernel and compared with what the first pass stored.

use super::commit::StoredPass;
use super::digest_cache::NewDigests;
use super::pass::Pass;
use bale_pipeline::amount::counted;
use bale_repository::error::Result;
use bale_source::scan::inode::{Digests, TablesState};
use bale_source::scan::{MountedScan, SecondLook, Sources};
use std::sync::Arc;

/// What was stored of an inode scan, after it was looked at again.
pub(super) struct LookedAt {
    stored: StoredPass,
    /// Inodes that were changed meanwhile, sorted; `None`: nothing is known.
    changed: Option<Arc<Vec<u64>>>,
}

impl LookedAt {
    /// Nothing was changed.
    pub(super) fn still(stored: StoredPass) -> LookedAt {
        LookedAt {
            stored,
            changed: Some(Arc::default()),
        }
    }

    /// With what may be remembered of the tables as they were read first.
    pub(super) fn with_digests(
        mut self,
        state: TablesState,
        digests: Arc<Digests>,
    ) -> (StoredPass, NewDigests) {
        let live_statted = std::mem::take(&mut self.stored.scanned.live_statted);
        let changed = self.changed;
        let was_still = changed.as_ref().is_some_and(|changed| changed.is_empty());
        let digests = NewDigests::Read {
            state: was_still.then_some(state),
            digests,
            // A live stat may be of another moment than the digest.
            outdated: changed.and_then(|changed| live_statted.and(&changed)),
        };
        (self.stored, digests)
    }
}

/// What the first pass stored, or what a second one made of it.
pub(super) fn look_again(
    pass: &Pass<'_>,
    mut first: StoredPass,
    mounted: MountedScan,
    sources: &Sources,
) -> Result<LookedAt> {
    let Pass {
        run, store, tally, ..
    } = pass;
    let (items, changed, handles) = match mounted.look_again(sources)? {
        SecondLook::Still => {
            tally.report_held();
            return Ok(LookedAt::still(first));
        }
        SecondLook::Changed {
            items,
            changed,
            handles,
        } => {
            tally.note(&format!(
                "changed while it was read: {}, read again, through the kernel",
                counted(changed.len() as u64, "inode")
            ));
            (items, Some(changed), handles)
        }
        SecondLook::Unsure { items, why } => {
            tally.note(&format!("everything is read again, by walking: {why}"));
            (items, None, None)
        }
    };
    store.flush()?;
    run.repository.reload_index_as_far_as_possible()?;
    let filesystems = tally.filesystems();
    let between =
        pass.parent
            .after(&run.repository, filesystems, first.layers, changed.as_ref())?;
    tally.begin_again();
    let read_instead = std::mem::take(&mut first.scanned.read_instead);
    let second = Pass {
        parent: &between,
        original: Some(&pass.parent.catalog),
        checkpoint_every: None,
        handles: handles.as_deref().map(|handles| (handles, &read_instead)),
        ..*pass
    };
    let mut second = second.run(items, None)?;
    second
        .scanned
        .live_statted
        .add_all(first.scanned.live_statted);
    // What was missing in a directory then may be missing still.
    second
        .scanned
        .amendments
        .add_all(first.scanned.amendments)?;
    Ok(LookedAt {
        stored: StoredPass {
            changes: first.changes + second.changes,
            ..second
        },
        changed,
    })
}
