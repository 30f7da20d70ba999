//! The seam between the order of an archive and its format.

use super::file_bytes::Contents;
use super::{CatalogSource, DumpError};
use bale_format::{ChunkId, Entry};
use bytes::Bytes;
use std::io::Write;

/// Where content comes from, and where members go.
pub struct Sink<'s, 'c> {
    pub catalog: &'s dyn CatalogSource,
    pub contents: &'s mut Contents<'c>,
    pub out: &'s mut dyn Write,
    /// Members written.
    pub members: u64,
}

impl Sink<'_, '_> {
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DumpError> {
        self.out.write_all(bytes).map_err(DumpError::Output)
    }

    /// A member begins.
    pub fn count_member(&mut self) {
        self.members += 1;
        self.contents.progress.add(1, 0);
    }
}

/// How members are written. Names are relative to what is dumped; that of a directory ends with a
/// slash.
pub trait Members {
    /// A further name of an inode. False: the format has no such links, and content comes again.
    fn link(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        first: &[u8],
    ) -> Result<bool, DumpError>;

    /// A directory, a symbolic link, a node, an empty file.
    fn without_content(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
    ) -> Result<(), DumpError>;

    /// A file whose bytes are there.
    fn small(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        bytes: &Bytes,
    ) -> Result<(), DumpError>;

    /// A file of pieces.
    fn large(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        list: &ChunkId,
    ) -> Result<(), DumpError>;

    /// An image.
    fn image(&mut self, sink: &mut Sink, entry: &Entry, name: &[u8]) -> Result<(), DumpError>;

    /// What closes the archive.
    fn end(&mut self, sink: &mut Sink) -> Result<(), DumpError>;
}
