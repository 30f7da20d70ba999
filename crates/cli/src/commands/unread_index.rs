//! Index objects that cannot be read: what only they name is missing from catalogs and counts.

use crate::{exit, output};
use bale_pipeline::monitor::Problem;
use bale_repository::error::Error;
use bale_repository::repository::Repository;

/// Reports them, if there are some; the command then goes on to end with 3.
pub fn report(repository: &Repository, json: bool) -> Result<(), Error> {
    let index = repository.index()?;
    for trouble in index.unread_objects() {
        exit::something_is_missing();
        let problem = Problem {
            path: Vec::new(),
            action: "read the index",
            text: format!(
                "{trouble}. What it alone names is missing here: `bale repair index` lists it \
                 again, and `bale check` says whether something is lost"
            ),
        };
        output::problem(&problem, json);
    }
    Ok(())
}

/// Reports them beside an error that they may be the reason of.
pub fn report_with<T>(
    repository: &Repository,
    json: bool,
    result: anyhow::Result<T>,
) -> anyhow::Result<T> {
    if let Err(error) = &result
        && is_missing_chunk(error)
    {
        report(repository, json)?;
    }
    result
}

fn is_missing_chunk(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| matches!(cause.downcast_ref(), Some(Error::MissingChunk(_))))
}
