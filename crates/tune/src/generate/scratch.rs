//! Scratch files of the file system writer.

use std::path::Path;

use bale_fsimage::mkext4::ScratchMaker;

/// Nameless scratch files in `directory`.
pub fn scratch_in(directory: &Path) -> ScratchMaker {
    let directory = directory.to_owned();
    Box::new(move || Ok(Box::new(tempfile::tempfile_in(&directory)?)))
}
