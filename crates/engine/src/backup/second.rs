//! The second look at a mounted file system that was read from its device: what changed meanwhile is read again, through the
//! kernel, in a pass that compares with what the first one stored.

use super::commit::Written;
use super::pass::Pass;
use crate::amount::counted;
use crate::error::Result;
use crate::scan::{Mounted, SecondLook, Sources};
use std::sync::Arc;

/// What a second look came to.
pub(super) struct Looked {
    pub(super) written: Written,
    /// Inodes that were changed meanwhile, sorted; `None`: nothing is known.
    pub(super) changed: Option<Arc<Vec<u64>>>,
}

/// What the first pass wrote, or what a second one made of it.
pub(super) fn look_again(
    pass: &Pass<'_>,
    first: Written,
    mounted: Mounted,
    sources: &Sources,
) -> Result<Looked> {
    let Pass {
        run, store, tally, ..
    } = pass;
    let (items, changed) = match mounted.look_again(sources)? {
        SecondLook::Still => {
            tally.tell_held();
            return Ok(Looked {
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
    second.scanned.asked.add_all(first.scanned.asked);
    // What was missing in a directory then may be missing still.
    second
        .scanned
        .amendments
        .add_all(first.scanned.amendments)?;
    Ok(Looked {
        written: Written {
            changes: first.changes + second.changes,
            ..second
        },
        changed,
    })
}
