//! Writing a complete ext4 file system in one sequential pass.
//!
//! Entries come in catalog order (depth first, each directory's children one run sorted by name)
//! with their content, are laid out in that order, and are never touched again. A first pass over
//! the entries alone counts them, so that the place of everything is known before the first byte:
//!
//! ```text
//! fixed structures | journal | metadata zone: directories, attributes, extents | file data | free
//! (superblock, descriptors, bitmaps and inode tables lie at the front of every 16 groups)
//! ```
//!
//! Inode numbers ascend in the same order: first directories and linked files, which are final only
//! later and wait in a bounded table, then all others, which stream into the inode tables. So the
//! next scan reads tables and zone from front to back, and a full backup reads the data from front
//! to back.
//!
//! The superblock is the last write, after a flush: a target that was given up cannot be mounted.
//! This module opens no file, starts no thread, asks for no time and no random number: the same
//! options, totals and entries give the same bytes.
//!
//! ```
//! use bale_fsimage::mkext4::*;
//! # struct Memory(Vec<u8>);
//! # impl BlockSink for Memory {
//! #     fn write_at(&mut self, offset: u64, buffer: Vec<u8>) -> std::io::Result<Vec<u8>> {
//! #         self.0[offset as usize..][..buffer.len()].copy_from_slice(&buffer);
//! #         Ok(buffer)
//! #     }
//! #     fn flush(&mut self) -> std::io::Result<()> { Ok(()) }
//! # }
//! # let time = bale_fsimage::Timestamp::default();
//! let content = b"hello".as_slice();
//! let entry = NewEntry {
//!     parent: b"", name: b"greeting", content: NewKind::Regular { size_bytes: 5 },
//!     permissions: 0o644, uid: 0, gid: 0, atime: time, mtime: time, ctime: time, crtime: None,
//!     flags: 0, project: 0, generation: 0, xattrs: &[], more_links: false,
//! };
//! let options = Ext4Options::default();
//! let mut counter = TotalsCounter::new(&options);
//! counter.add(&entry, &mut &content[..]);
//! let plan = Plan::new(options, counter.finish())?;
//! let sink = Memory(vec![0; plan.bytes() as usize]);
//! let mut builder =
//!     Ext4Builder::create(plan, sink, Box::new(|| Ok(Box::new(tempfile::tempfile()?))))?;
//! builder.push(&entry, &mut &content[..])?;
//! let (_sink, summary) = builder.finish()?;
//! assert_eq!(summary.names, 1);
//! # Ok::<(), MkError>(())
//! ```

mod builder;
mod checksum;
mod deferred;
mod directory;
mod dirhash;
mod entry;
mod error;
mod extents;
mod field;
mod geometry;
mod inode;
mod inodes;
mod names;
mod options;
mod pending;
mod plan;
mod refusal;
mod runs;
mod sink;
mod stream;
mod superblock;
mod tables;
mod totals;
mod xattr;

pub use builder::{Ext4Builder, Ext4Summary};
pub use entry::{NAME_BYTES_MAX, NewEntry, NewKind, NewXattr};
pub use error::{EntryError, MkError};
pub use inode::TIME_SECONDS;
pub use options::{
    Ext4Options, FREE_PERCENT_DEFAULT, GROUPS_PER_FLEX_DEFAULT, JOURNAL_BLOCKS_MAX,
    JOURNAL_BLOCKS_MIN, Journal, LABEL_BYTES_MAX, WriterMemory,
};
pub use plan::Plan;
pub use refusal::{LINKS_MAX, check};
pub use sink::{BlockSink, FileData, NoData, Scratch, ScratchMaker};
pub use stream::STREAM_BUFFER_BYTES;
pub use totals::{TotalsCounter, TreeTotals};
