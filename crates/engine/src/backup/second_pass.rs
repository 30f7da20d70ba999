//! The second pass over a mounted file system that was read from its device: what changed since the
//! first barrier is read again through the kernel and compared with what the first pass stored.

use super::commit::StoredPass;
use super::pass::Pass;
use bale_pipeline::amount::counted;
use bale_repository::error::Result;
use bale_source::scan::{MountedScan, SecondLook, Sources};
use std::sync::Arc;

/// Result of the second pass.
pub(super) struct SecondPass {
    pub(super) written: StoredPass,
    /// Inodes that were changed meanwhile, sorted; `None`: nothing is known.
    pub(super) changed: Option<Arc<Vec<u64>>>,
}

/// What the first pass wrote, or what a second one made of it.
pub(super) fn look_again(
    pass: &Pass<'_>,
    first: StoredPass,
    mounted: MountedScan,
    sources: &Sources,
) -> Result<SecondPass> {
    let Pass {
        run, store, tally, ..
    } = pass;
    let (items, changed) = match mounted.look_again(sources)? {
        SecondLook::Still => {
            tally.report_held();
            return Ok(SecondPass {
                written: first,
                changed: Some(Arc::default()),
            });
        }
        SecondLook::Changed { items, changed } => {
            tally.note(&format!(
                "changed while it was read: {}, read again, through the kernel",
                counted(changed.len() as u64, "inode")
            ));
            (items, Some(changed))
        }
        SecondLook::Unsure { items, why } => {
            tally.note(&format!("everything is read again, walking: {why}"));
            (items, None)
        }
    };
    store.flush()?;
    run.repository.reload_index_as_far_as_possible()?;
    let filesystems = tally.filesystems();
    let between =
        pass.parent
            .after(&run.repository, filesystems, first.layers, changed.as_ref())?;
    tally.begin_again();
    let second = Pass {
        parent: &between,
        original: Some(&pass.parent.catalog),
        checkpoint_every: None,
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
    Ok(SecondPass {
        written: StoredPass {
            changes: first.changes + second.changes,
            ..second
        },
        changed,
    })
}
