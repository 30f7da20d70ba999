//! Projects: what is below one directory of a source. Where packs lie in segments, one that is
//! nearly full ends with the project, so that the next project begins in a segment of its own.
//!
//! Rows come in the order of the catalog, in which a project is one run of them: what lies in the
//! source itself, then all that is below its first directory, and so on. So nothing is remembered
//! but the project of the last row. A segment of which less than three quarters would be full is
//! not closed, so many small projects make a third more segments at most.

use super::checkpoint::{Checkpoints, Resumable};
use super::queue::PackingItem;
use super::rows::RowWriter;
use bale_format::entry::is_below;
use bale_repository::error::Result;
use bale_repository::pack::{ChunkWriter, IfClosed};
use bytes::Bytes;

/// When the packing thread may be held up for more than its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// An item was taken.
    AfterItem,
    /// What comes next is of another project. Only where packs lie in segments.
    BetweenProjects,
}

/// The project of the last row.
pub(super) struct Projects {
    /// Paths of the sources, without leading slash.
    sources: Vec<Vec<u8>>,
    /// Directory of the last row.
    parent: Bytes,
    /// Of `parent`, the part that names its project.
    project_len: usize,
}

impl Projects {
    /// Before the first row. Where no segment is written, projects do not matter.
    pub(super) fn of(store: &ChunkWriter, sources: &[Vec<u8>]) -> Option<Projects> {
        let is_stretched = store.repository().stretched().is_some();
        let writes_segments = is_stretched && !store.is_dry_run();
        writes_segments.then(|| Projects::below(sources.to_vec()))
    }

    fn below(sources: Vec<Vec<u8>>) -> Projects {
        Projects {
            sources,
            parent: Bytes::new(),
            project_len: 0,
        }
    }

    /// Is an item of another project than the one before it? It has its entry.
    pub(super) fn begins_with(&mut self, item: &PackingItem) -> bool {
        let entry = item.entry();
        entry.is_some_and(|entry| self.begins_in(&entry.parent))
    }

    fn begins_in(&mut self, parent: &Bytes) -> bool {
        // As most are.
        if *parent == self.parent {
            return false;
        }
        let project_len = project_len(&self.sources, parent);
        let is_another = parent[..project_len] != self.parent[..self.project_len];
        self.parent = parent.clone();
        self.project_len = project_len;
        is_another
    }
}

/// Length of the path of the project that a directory is in: one part more than the source, or the
/// source itself. Above all sources it is nothing.
fn project_len(sources: &[Vec<u8>], directory: &[u8]) -> usize {
    let around = sources.iter().filter(|source| is_below(directory, source));
    let Some(source) = around.map(Vec::len).max() else {
        return 0;
    };
    let first = match source {
        0 => 0,
        // Behind the slash.
        len => (len + 1).min(directory.len()),
    };
    let part = directory[first..].iter().position(|byte| *byte == b'/');
    part.map_or(directory.len(), |len| first + len)
}

/// Ends the open segment if most of it would be full. That takes all steps of a record of the
/// unfinished run, so one is written, where the run has any.
pub(super) fn end_segment(
    store: &ChunkWriter,
    rows: &mut RowWriter<'_>,
    checkpoints: Option<&mut Checkpoints<'_>>,
) -> Result<()> {
    if store.if_closed(rows.bytes_in_bundles()) != IfClosed::Long {
        return Ok(());
    }
    rows.close_bundles()?;
    if let Some(checkpoints) = checkpoints {
        checkpoints.write_now(rows)?;
    }
    // Also of a run that has no records.
    store.flush().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories at which a project begins.
    fn begun(sources: &[&str], directories: &[&'static str]) -> Vec<&'static str> {
        let sources = sources.iter().map(|source| source.as_bytes().to_vec());
        let mut projects = Projects::below(sources.collect());
        let directories = directories.iter().copied();
        directories
            .filter(|path| projects.begins_in(&Bytes::from_static(path.as_bytes())))
            .collect()
    }

    #[test]
    fn a_project_is_what_is_below_one_directory_of_a_source() {
        let directories = [
            "",
            "a",
            "a/b",
            "a/b",
            "a/b/p",
            "a/b/p/x",
            "a/b/p/y/z",
            "a/b/p-2",
            "a/b/q",
            "a/b/q/x",
        ];
        let begins = ["a/b", "a/b/p", "a/b/p-2", "a/b/q"];
        assert_eq!(begun(&["a/b"], &directories), begins);
    }

    #[test]
    fn every_source_has_projects_of_its_own() {
        let directories = [
            "", "a", "a/p", "a/p/x", "b", "b/c", "b/c/p", "b/c/p/x", "b/c/q",
        ];
        let begins = ["a", "a/p", "", "b/c", "b/c/p", "b/c/q"];
        let found = begun(&["a", "b/c"], &directories);
        // "b" is above a source, as "" is.
        assert_eq!(
            found,
            begins.map(|path| if path.is_empty() { "b" } else { path })
        );
    }

    #[test]
    fn of_a_whole_file_system_the_first_part_of_a_path_counts() {
        let directories = ["", "home", "home/me", "home/you/x", "usr", "usr/lib"];
        assert_eq!(begun(&[""], &directories), ["home", "usr"]);
    }
}
