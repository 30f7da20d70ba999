//! Index objects that cannot be read, as a backup says it: what only they name counts as absent, so
//! files that did not change are read and stored once more, which looks like a change and is none.
//! The snapshot is whole; older ones may not be, and each backup says so until it is mended.

use super::tally::Tally;
use bale_pipeline::amount::counted;
use bale_repository::error::Result;
use bale_repository::repository::Repository;

/// So many are named, each with what is wrong with it.
const NAMED_MAX: usize = 20;

/// Reports them, each of them a problem of the run.
pub(super) fn report(repository: &Repository, tally: &Tally<'_>) -> Result<()> {
    let index = repository.index()?;
    let unread = index.unread_objects();
    for trouble in unread.iter().take(NAMED_MAX) {
        tally.repository_problem(
            "read the index",
            format!(
                "{trouble}. What it alone names counts as absent and is stored again here, and \
                 older snapshots lack it: `bale repair index` lists it again, and `bale check` \
                 says whether something is lost"
            ),
        );
    }
    let more = unread.len().saturating_sub(NAMED_MAX) as u64;
    if more > 0 {
        let text = format!("{} more cannot be read", counted(more, "index object"));
        tally.repository_problem("read the index", text);
    }
    Ok(())
}
