//! File systems as bytes: reads ext4, XFS and NTFS structures from a byte source, and writes
//! complete ext4 file systems. Says where on a disk they are (partition tables, linear volumes of
//! LVM2), and what of the disk is in use.
//!
//! Everything that is read here is untrusted: checked arithmetic, bounds before allocation, visited
//! sets and operation budgets, no panic, no unsafe. This crate opens no file and starts no thread;
//! whoever calls it hands it a [`ByteSource`] and decides what runs in parallel.

#![forbid(unsafe_code)]

pub mod allocated;
mod crc32;
pub mod ext4;
pub mod in_use;
pub mod inode;
pub mod lvm2;
pub mod mkext4;
pub mod ntfs;
pub mod partitions;
pub mod recognize;
pub mod section;
pub mod source;
pub mod unchanged;
pub mod xfs;

pub use inode::{Dirent, FileKind, Inode, Layout, MappedExtent, Timestamp};
pub use source::ByteSource;
