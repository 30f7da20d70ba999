//! The writer: entries in catalog order in, a file system out.

use super::deferred::{DeferredTable, PAGE_BYTES};
use super::dirhash::NameHasher;
use super::entry::NewEntry;
use super::error::{EntryError, MkError, Result, path_text};
use super::extents::ExtentTree;
use super::field::{get_u16, put_u16};
use super::inode::{self, LINKS, LOST_FOUND_INODE, Mapping, ROOT_INODE};
use super::names::NameRun;
use super::options::Ext4Options;
use super::pending::Pending;
use super::plan::Plan;
use super::refusal::{LINKS_MAX, PushError, check_entry, check_name};
use super::runs::OpenRun;
use super::sink::{BlockSink, FileData, ScratchMaker};
use super::stream::{BlockStream, Blocks, Output};
use super::tables::{self, InodeStream};
use super::xattr;
use crate::inode::FileKind;

pub(super) const LOST_FOUND_NAME: &[u8] = b"lost+found";
const LOST_FOUND_MODE: u32 = 0o700;
const ROOT_MODE: u32 = 0o755;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ext4Summary {
    /// Inodes in use, reserved ones not counted.
    pub inodes: u64,
    /// Names, links included; `lost+found` only where the tree has it.
    pub names: u64,
    /// Bytes of file content.
    pub content_bytes: u64,
    /// Bytes handed to the sink.
    pub bytes_written: u64,
    /// Inodes with a time that ext4 cannot say (before 1901-12-13, after 2446-05-10), stored as the
    /// nearest it can.
    pub times_clamped: u64,
}

/// Writes one file system. After any error but [`MkError::Entry`] it refuses all further work.
pub struct Ext4Builder<S: BlockSink> {
    pub(super) options: Ext4Options,
    pub(super) seed: u32,
    pub(super) blocks: Blocks<S>,
    pub(super) deferred: DeferredTable,
    pub(super) next_deferred: u64,
    pub(super) stream: InodeStream,
    pub(super) maker: ScratchMaker,
    pub(super) journal: Option<Mapping>,
    pub(super) has_large_dir: bool,
    pub(super) has_projects: bool,
    pub(super) has_large_values: bool,
    planned_deferred: u64,
    planned_inodes: u64,
    pub(super) names: NameRun,
    pub(super) pending: Pending,
    pub(super) run: OpenRun,
    pub(super) tree: ExtentTree,
    pub(super) summary: Ext4Summary,
    pub(super) has_lost_found: bool,
    is_poisoned: bool,
}

impl<S: BlockSink> Ext4Builder<S> {
    /// Begins: whatever file system the target held is no longer recognised from here on.
    pub fn create(plan: Plan, sink: S, maker: ScratchMaker) -> Result<Ext4Builder<S>> {
        let Plan {
            options,
            totals,
            geometry,
            journal_blocks,
            meta_zone_blocks,
            stream_start,
            ..
        } = plan;
        let mut out = Output::new(sink);
        let mut start = BlockStream::new(
            geometry.first_data_block(),
            geometry.blocks,
            options.block_size,
        );
        let journal =
            tables::write_journal(&options, &geometry, journal_blocks, &mut start, &mut out)?;
        let (meta, data) = tables::zones(start, &geometry, meta_zone_blocks, &options);
        let mut builder = Ext4Builder {
            seed: super::checksum::file_system_seed(&options.uuid),
            deferred: DeferredTable::new(
                options.inode_size as usize,
                stream_start - 1,
                options.memory.inode_bytes / PAGE_BYTES,
            ),
            next_deferred: inode::FIRST_FREE_INODE,
            stream: InodeStream::new(stream_start, &geometry),
            planned_deferred: totals.deferred_inodes,
            planned_inodes: geometry.inodes(),
            names: NameRun::new(
                NameHasher::new(&options.hash_seed),
                options.memory.name_bytes,
            ),
            blocks: Blocks {
                geometry,
                out,
                meta,
                data,
            },
            pending: Pending::new(options.memory.directory_bytes),
            options,
            maker,
            journal: None,
            has_large_dir: false,
            has_projects: false,
            has_large_values: false,
            run: OpenRun {
                inode: ROOT_INODE,
                parent_inode: ROOT_INODE,
                path: Vec::new(),
                subdirectories: 0,
            },
            tree: ExtentTree::default(),
            summary: Ext4Summary::default(),
            has_lost_found: false,
            is_poisoned: false,
        };
        builder.put_journal_inode(journal)?;
        builder.put_own_directory(ROOT_INODE, ROOT_MODE)?;
        builder.put_own_directory(LOST_FOUND_INODE, LOST_FOUND_MODE)?;
        Ok(builder)
    }

    /// Writes an entry and its content; gives its inode number, for [`Ext4Builder::push_link`].
    pub fn push(&mut self, entry: &NewEntry<'_>, data: &mut dyn FileData) -> Result<u32> {
        self.guarded(
            |builder| builder.push_entry(entry, data),
            |source| refused(entry.parent, entry.name, source),
        )
    }

    /// Gives an inode pushed with `more_links` a further name.
    pub fn push_link(&mut self, parent: &[u8], name: &[u8], inode: u32) -> Result<()> {
        self.guarded(
            |builder| builder.push_name_of(parent, name, inode),
            |source| refused(parent, name, source),
        )
    }

    /// Completes the file system. The superblock is the last write: without it nothing can be
    /// mounted.
    pub fn finish(mut self) -> Result<(S, Ext4Summary)> {
        if self.is_poisoned {
            return Err(MkError::Poisoned);
        }
        self.close_run()?;
        let mut path = std::mem::take(&mut self.run.path);
        while let Some(next) = self.pending.next(&mut path)? {
            self.open_run(next.inode, next.parent_inode, &path);
            self.close_run()?;
        }
        if !self.has_lost_found {
            self.open_run(LOST_FOUND_INODE, ROOT_INODE, LOST_FOUND_NAME);
            self.close_run()?;
        }
        tables::finish(&mut self)?;
        self.summary.bytes_written = self.blocks.out.bytes_written();
        Ok((self.blocks.out.into_sink(), self.summary))
    }

    /// Runs one push: a refusal concerns the entry, any other error ends the writer.
    fn guarded<T>(
        &mut self,
        push: impl FnOnce(&mut Self) -> std::result::Result<T, PushError>,
        refuse: impl FnOnce(EntryError) -> MkError,
    ) -> Result<T> {
        if self.is_poisoned {
            return Err(MkError::Poisoned);
        }
        push(self).map_err(|error| match error {
            PushError::Refused(source) => refuse(source),
            PushError::Fatal(error) => {
                self.is_poisoned = true;
                error
            }
        })
    }

    fn push_entry(
        &mut self,
        entry: &NewEntry<'_>,
        data: &mut dyn FileData,
    ) -> std::result::Result<u32, PushError> {
        let kind = entry.content.kind();
        check_entry(entry, self.options.block_size)?;
        let sizes = (self.options.inode_size, self.options.block_size);
        let mut xattrs = xattr::encode(entry.xattrs, sizes, self.seed)?;
        if entry.name.is_empty() {
            if !self.run.path.is_empty()
                || self.names.dirent_bytes() > 0
                || kind != FileKind::Directory
            {
                return Err(EntryError::Root.into());
            }
            self.put_large_values(entry, &mut xattrs)?;
            self.put_inode(ROOT_INODE, entry, data, &xattrs)?;
            return Ok(ROOT_INODE);
        }
        self.enter_run(entry.parent, entry.name)?;
        let is_lost_found = self.run.inode == ROOT_INODE && entry.name == LOST_FOUND_NAME;
        if is_lost_found && kind != FileKind::Directory {
            return Err(EntryError::LostFound.into());
        }
        self.put_large_values(entry, &mut xattrs)?;
        let number = if is_lost_found {
            self.has_lost_found = true;
            LOST_FOUND_INODE
        } else {
            self.summary.inodes += 1;
            self.allocate_inode(kind == FileKind::Directory || entry.more_links)?
        };
        self.put_inode(number, entry, data, &xattrs)?;
        self.add_name(entry.name, number, kind)?;
        if kind == FileKind::Directory {
            self.run.subdirectories += 1;
            self.pending.push(entry.name, number, &mut self.maker)?;
        }
        Ok(number)
    }

    fn push_name_of(
        &mut self,
        parent: &[u8],
        name: &[u8],
        number: u32,
    ) -> std::result::Result<(), PushError> {
        check_name(name)?;
        self.enter_run(parent, name)?;
        if self.run.inode == ROOT_INODE && name == LOST_FOUND_NAME {
            return Err(EntryError::LostFound.into());
        }
        if u64::from(number) < inode::FIRST_FREE_INODE || u64::from(number) >= self.next_deferred {
            return Err(EntryError::LinkTarget(number).into());
        }
        let record = self
            .deferred
            .record(u64::from(number) - 1, &mut self.maker)?;
        let kind = FileKind::from_mode(u32::from(get_u16(record, 0)))
            .ok_or(EntryError::LinkTarget(number))?;
        if kind == FileKind::Directory {
            return Err(EntryError::DirectoryLink.into());
        }
        let links = get_u16(record, LINKS);
        if u32::from(links) >= LINKS_MAX {
            return Err(EntryError::LinkLimit(number).into());
        }
        put_u16(record, LINKS, links + 1);
        self.add_name(name, number, kind)?;
        Ok(())
    }

    pub(super) fn allocate_inode(&mut self, is_deferred: bool) -> Result<u32> {
        let number = if is_deferred {
            if self.next_deferred - inode::FIRST_FREE_INODE >= self.planned_deferred {
                let what = "directories and linked files";
                return Err(MkError::PlanExceeded {
                    what,
                    planned: self.planned_deferred,
                });
            }
            self.next_deferred += 1;
            self.next_deferred - 1
        } else {
            if self.stream.next_inode() > self.planned_inodes {
                return Err(MkError::PlanExceeded {
                    what: "inodes",
                    planned: self.planned_inodes,
                });
            }
            self.stream.next_inode()
        };
        Ok(number as u32)
    }
}

fn refused(parent: &[u8], name: &[u8], source: EntryError) -> MkError {
    MkError::Entry {
        path: path_text(parent, name),
        source,
    }
}
