//! Dump: one file's bytes, or a directory as a pax tar or a zip archive, to any writer.
//!
//! A directory is read twice: once to sort its directories and the names of its hard links on disk,
//! once to write. So the archive goes depth first, each directory right before what is in it, and
//! memory stays small. What cannot be read is a problem: a small file is left out, a missing
//! stretch of a large one is zeros, for its length has been written already.

pub mod content;
mod file_bytes;
mod image_bytes;
mod members;
mod tar;
mod tar_members;
mod tree;
mod zip;
mod zip_members;

use crate::{CatalogSource, ChunkSource, ChunkTrouble, Loss, ScratchSpace, rows_ahead};
use bale_format::Kind;
use bale_format::limits::BUNDLE_BYTES_MAX;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::Monitor;
use bale_pipeline::spill::sorter_bytes;
use members::{Members, Sink};
use std::io::{self, Write};
use tar_members::TarMembers;
use zip_members::ZipMembers;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpReport {
    /// Entries of the archive; 1 for a file.
    pub entries: u64,
    /// Content bytes, holes included.
    pub bytes: u64,
    /// Problems told to the monitor.
    pub problems: u64,
    /// What the backup did not have, by kind.
    pub losses: Vec<Loss>,
}

/// The end of a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The path is not in the snapshot.
    #[error("no such path in the snapshot")]
    NotFound,
    /// It has no bytes of its own.
    #[error("neither a file nor a directory; dump the directory it is in")]
    NoContent,
    /// An archive of a file was asked for.
    #[error("it is a file and is written as its bytes; an archive is made of a directory")]
    NoDirectory,
    #[error("read the catalog: {0}")]
    Catalog(#[source] ChunkTrouble),
    /// Temporary files.
    #[error("sort the entries: {0}")]
    Scratch(#[source] io::Error),
    /// Whoever takes the bytes.
    #[error("write: {0}")]
    Output(#[source] io::Error),
    /// The monitor asked for it.
    #[error("stopped")]
    Stopped,
}

/// What a dump takes at most, beside reading its chunks and its catalog: chunks that are kept, rows
/// ahead, and three sorts of which one is being made when two are read.
pub const fn memory_bytes(memory: &MemoryPlan) -> usize {
    file_bytes::chunks_kept(memory) * BUNDLE_BYTES_MAX
        + 3 * sorter_bytes(memory.share(tree::SORTER_BYTES))
        + rows_ahead::MEMORY_BYTES
        + zip_members::MEMORY_BYTES
}

/// What a directory becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFormat {
    Tar,
    /// Deflated; hard links, holes, nodes and attributes have no place in it.
    Zip,
}

/// Writes the file, or the tree as a tar, at `path` of a snapshot. An empty path is the whole
/// snapshot.
pub fn dump(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    path: &[u8],
    out: &mut dyn Write,
    monitor: &dyn Monitor,
) -> Result<DumpReport, DumpError> {
    dump_as(None, (catalog, chunks), scratch, path, out, monitor)
}

/// The same; with a format, only of a directory.
pub fn dump_as(
    format: Option<ArchiveFormat>,
    (catalog, chunks): (&dyn CatalogSource, &dyn ChunkSource),
    scratch: &ScratchSpace,
    path: &[u8],
    out: &mut dyn Write,
    monitor: &dyn Monitor,
) -> Result<DumpReport, DumpError> {
    let entry = catalog.lookup(path).map_err(DumpError::Catalog)?;
    let mut contents = file_bytes::Contents::new(chunks, &scratch.memory(), monitor);
    let entries = match entry {
        Some(entry) if entry.kind == Kind::File && format.is_some() => {
            return Err(DumpError::NoDirectory);
        }
        Some(entry) if entry.kind == Kind::File => {
            contents.report_flags(&entry);
            match entry.is_image() {
                true => contents.write_image(catalog, &entry, path, out)?,
                false => contents.write(&entry, path, out)?,
            }
            1
        }
        Some(entry) if entry.kind != Kind::Directory => return Err(DumpError::NoContent),
        None if !path.is_empty() => return Err(DumpError::NotFound),
        _ => {
            let mut members: Box<dyn Members> = match format {
                None | Some(ArchiveFormat::Tar) => Box::new(TarMembers::default()),
                Some(ArchiveFormat::Zip) => {
                    Box::new(ZipMembers::new(scratch).map_err(DumpError::Scratch)?)
                }
            };
            let sink = Sink {
                catalog,
                contents: &mut contents,
                out: &mut *out,
                members: 0,
            };
            tree::write(scratch, path, sink, &mut *members)?
        }
    };
    out.flush().map_err(DumpError::Output)?;
    Ok(DumpReport {
        entries,
        bytes: contents.bytes,
        problems: contents.problems,
        losses: contents.losses.list(),
    })
}
