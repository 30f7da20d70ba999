//! The writer: entries in catalog order in, a file system out.

use super::deferred::{DeferredTable, PAGES_IN_MEMORY_MAX};
use super::directory::{
    self, DirectoryBlocks, DirectoryIdentity, WrittenDirectory, lost_found_blocks,
};
use super::dirhash::NameHasher;
use super::entry::{Content, NAME_BYTES_MAX, NewEntry, dirent_type, mode_of_kind};
use super::error::{EntryError, MkError, Result, path_text};
use super::extents::{ExtentTree, FILE_BLOCKS_MAX};
use super::field::{get_u16, put_u16};
use super::inode::{
    self, DataRanges, FLAG_EXTENTS, FLAG_INDEX, InodeFields, LINKS, LOST_FOUND_INODE, Mapping,
    ROOT_INODE, SHORT_SYMLINK_BYTES_MAX,
};
use super::names::{Name, NameRun, RUN_BYTES_MAX};
use super::options::Ext4Options;
use super::pending::Pending;
use super::plan::Plan;
use super::sink::{BlockSink, FileData, ScratchMaker};
use super::stream::{BlockStream, Blocks, Output};
use super::tables::{self, InodeStream};
use super::xattr::{self, EncodedXattrs};
use crate::inode::{FileKind, Timestamp};

/// ext4 holds this many names of one inode; a directory with more subdirectories says 1.
const LINKS_MAX: u32 = 65_000;
const LOST_FOUND_NAME: &[u8] = b"lost+found";
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
    /// Inodes with a time that ext4 cannot say (before 1901-12-13, after 2446-05-10), stored as the nearest it can.
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
    planned_deferred: u64,
    planned_inodes: u64,
    names: NameRun,
    pending: Pending,
    run: OpenRun,
    tree: ExtentTree,
    summary: Ext4Summary,
    has_lost_found: bool,
    is_poisoned: bool,
}

/// The directory whose children are being pushed.
struct OpenRun {
    inode: u32,
    parent_inode: u32,
    path: Vec<u8>,
    subdirectories: u64,
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
                PAGES_IN_MEMORY_MAX,
            ),
            next_deferred: inode::FIRST_FREE_INODE,
            stream: InodeStream::new(stream_start, &geometry),
            planned_deferred: totals.deferred_inodes,
            planned_inodes: geometry.inodes(),
            names: NameRun::new(NameHasher::new(&options.hash_seed), RUN_BYTES_MAX),
            blocks: Blocks {
                geometry,
                out,
                meta,
                data,
            },
            options,
            maker,
            journal: None,
            has_large_dir: false,
            has_projects: false,
            pending: Pending::default(),
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

    /// Completes the file system. The superblock is the last write: without it nothing can be mounted.
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
        self.check_entry(entry)?;
        let xattrs = xattr::encode(
            entry.xattrs,
            self.options.inode_size,
            self.options.block_size,
        )?;
        if entry.name.is_empty() {
            if !self.run.path.is_empty()
                || self.names.dirent_bytes() > 0
                || kind != FileKind::Directory
            {
                return Err(EntryError::Root.into());
            }
            self.put_inode(ROOT_INODE, entry, data, &xattrs)?;
            return Ok(ROOT_INODE);
        }
        self.enter_run(entry.parent, entry.name)?;
        let is_lost_found = self.run.inode == ROOT_INODE && entry.name == LOST_FOUND_NAME;
        if is_lost_found && kind != FileKind::Directory {
            return Err(EntryError::LostFound.into());
        }
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

    fn check_entry(&self, entry: &NewEntry<'_>) -> std::result::Result<(), EntryError> {
        let block_size = u64::from(self.options.block_size);
        if !(entry.name.is_empty() && entry.parent.is_empty()) {
            check_name(entry.name)?;
        }
        match entry.content {
            Content::Directory if entry.more_links => return Err(EntryError::DirectoryLink),
            Content::Regular { size_bytes }
                if size_bytes.div_ceil(block_size) > FILE_BLOCKS_MAX =>
            {
                return Err(EntryError::FileTooLarge {
                    size_bytes,
                    max_bytes: FILE_BLOCKS_MAX * block_size,
                });
            }
            Content::Symlink { target } if target.is_empty() || target.contains(&0) => {
                return Err(EntryError::SymlinkTarget);
            }
            Content::Symlink { target } if target.len() >= self.options.block_size as usize => {
                return Err(EntryError::SymlinkTooLong {
                    len_bytes: target.len(),
                });
            }
            Content::BlockDevice { major, minor } | Content::CharDevice { major, minor }
                if major >= 1 << 12 || minor >= 1 << 20 =>
            {
                return Err(EntryError::Device { major, minor });
            }
            _ => {}
        }
        for time in [entry.atime, entry.mtime, entry.ctime]
            .into_iter()
            .chain(entry.crtime)
        {
            if time.nanos >= 1_000_000_000 {
                return Err(EntryError::Nanoseconds(time.nanos));
            }
        }
        Ok(())
    }

    /// Makes the parent's run the open one; directories passed over on the way are empty.
    fn enter_run(&mut self, parent: &[u8], name: &[u8]) -> std::result::Result<(), PushError> {
        while self.run.path != parent {
            if path_order(&self.run.path, parent).is_gt() {
                return Err(EntryError::Order.into());
            }
            self.close_run()?;
            let mut path = std::mem::take(&mut self.run.path);
            let next = self.pending.next(&mut path)?;
            self.run.path = path;
            let Some(next) = next else {
                // Nothing can follow: a path after every other, so that each further entry is out of order.
                self.run.path = vec![u8::MAX; 2 * NAME_BYTES_MAX];
                self.run.inode = 0;
                return Err(EntryError::Order.into());
            };
            let path = std::mem::take(&mut self.run.path);
            self.open_run(next.inode, next.parent_inode, &path);
        }
        if self.run.inode == 0 || !self.names.may_follow(name) {
            return Err(EntryError::Order.into());
        }
        Ok(())
    }

    fn open_run(&mut self, inode: u32, parent_inode: u32, path: &[u8]) {
        self.run = OpenRun {
            inode,
            parent_inode,
            path: path.to_vec(),
            subdirectories: 0,
        };
        self.names.clear();
    }

    /// Writes the directory's blocks and completes its inode.
    fn close_run(&mut self) -> Result<()> {
        let number = self.run.inode;
        if number == 0 {
            return Ok(());
        }
        if number == ROOT_INODE && !self.has_lost_found {
            self.run.subdirectories += 1;
            let name = Name {
                inode: LOST_FOUND_INODE,
                dirent_type: dirent_type(FileKind::Directory),
                bytes: LOST_FOUND_NAME,
            };
            self.names.push(name, &mut self.maker)?;
        }
        let record = self
            .deferred
            .record(u64::from(number) - 1, &mut self.maker)?;
        let identity = DirectoryIdentity {
            inode: number,
            parent_inode: self.run.parent_inode,
            seed: inode::seed_of(self.seed, number, record),
            block_size: self.options.block_size,
        };
        let mut xattr_blocks = u64::from(inode::has_xattr_block(record));
        self.tree.clear();
        let mut out = MappedBlocks {
            blocks: &mut self.blocks,
            tree: &mut self.tree,
            identity,
            next: 0,
            root_place: 0,
        };
        let written = if number == LOST_FOUND_INODE && self.names.dirent_bytes() == 0 {
            let blocks = lost_found_blocks(self.options.block_size);
            directory::write_empty(identity, blocks, &mut out)?;
            WrittenDirectory {
                blocks,
                has_index: false,
                needs_large_dir: false,
            }
        } else {
            directory::write(identity, &mut self.names, &mut out)?
        };
        let shape = (self.options.block_size, identity.seed);
        let block_map = self.tree.finish(shape, &mut self.blocks)?;
        xattr_blocks += self.tree.blocks();
        let size_bytes = written.blocks * u64::from(self.options.block_size);
        let mapping = Mapping {
            size_bytes,
            blocks: xattr_blocks,
            block_map,
        };
        let record = self
            .deferred
            .record(u64::from(number) - 1, &mut self.maker)?;
        inode::put_mapping(record, &mapping, self.options.block_size);
        inode::add_flags(record, if written.has_index { FLAG_INDEX } else { 0 });
        let links = 2 + self.run.subdirectories;
        put_u16(
            record,
            LINKS,
            if links > u64::from(LINKS_MAX) {
                1
            } else {
                links as u16
            },
        );
        self.has_large_dir |= written.needs_large_dir;
        self.names.clear();
        self.pending.descend(number, self.run.path.len());
        Ok(())
    }

    fn add_name(&mut self, bytes: &[u8], inode: u32, kind: FileKind) -> Result<()> {
        self.summary.names += 1;
        self.names.push(
            Name {
                inode,
                dirent_type: dirent_type(kind),
                bytes,
            },
            &mut self.maker,
        )
    }

    fn allocate_inode(&mut self, is_deferred: bool) -> Result<u32> {
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

    /// Writes content and attributes, then the inode, to its table or among the deferred.
    fn put_inode(
        &mut self,
        number: u32,
        entry: &NewEntry<'_>,
        data: &mut dyn FileData,
        xattrs: &EncodedXattrs,
    ) -> Result<()> {
        let seed = super::checksum::inode_seed(self.seed, number, entry.generation);
        let xattr_block = match &xattrs.block {
            Some(block) => self.put_xattr_block(block.clone())?,
            None => 0,
        };
        let mut mapping = self.put_content(entry, data, seed)?;
        mapping.blocks += xattrs.blocks();
        let has_extents = match entry.content {
            Content::Directory | Content::Regular { .. } => true,
            Content::Symlink { target } => target.len() > SHORT_SYMLINK_BYTES_MAX,
            _ => false,
        };
        let has_project = self.options.inode_size as usize > inode::BASE_INODE_BYTES;
        let fields = InodeFields {
            mode: mode_of_kind(entry.content.kind()) | (entry.permissions & 0o7777),
            uid: entry.uid,
            gid: entry.gid,
            atime: entry.atime,
            mtime: entry.mtime,
            ctime: entry.ctime,
            crtime: entry.crtime.unwrap_or(entry.ctime),
            links: 1,
            flags: InodeFields::kept_flags(entry.flags, entry.project, self.options.inode_size)
                | if has_extents { FLAG_EXTENTS } else { 0 },
            project: if has_project { entry.project } else { 0 },
            generation: entry.generation,
            mapping,
            xattr_block,
        };
        self.has_projects |= fields.project != 0;
        let block_size = self.options.block_size;
        let clamped = if u64::from(number) <= self.deferred.len() {
            let record = self
                .deferred
                .record(u64::from(number) - 1, &mut self.maker)?;
            fields.encode(record, block_size, &xattrs.in_inode)
        } else {
            let mut record = [0; 4096];
            let record = &mut record[..self.options.inode_size as usize];
            let clamped = fields.encode(record, block_size, &xattrs.in_inode);
            inode::seal(record, self.seed, number);
            self.stream
                .push(record, &self.blocks.geometry, &mut self.blocks.out)?;
            clamped
        };
        self.summary.times_clamped += u64::from(clamped);
        Ok(())
    }

    fn put_xattr_block(&mut self, mut block: Vec<u8>) -> Result<u64> {
        let place = self.blocks.reserve_meta()?;
        xattr::seal(&mut block, self.seed, place);
        self.blocks.rewrite_meta(place, &block)?;
        Ok(place)
    }

    fn put_content(
        &mut self,
        entry: &NewEntry<'_>,
        data: &mut dyn FileData,
        seed: u32,
    ) -> Result<Mapping> {
        match entry.content {
            Content::Regular { size_bytes } => self.put_file(entry, size_bytes, data, seed),
            Content::Symlink { target } if target.len() > SHORT_SYMLINK_BYTES_MAX => {
                let mut block = target.to_vec();
                block.resize(self.options.block_size as usize, 0);
                self.tree.clear();
                let place = self.blocks.write_meta(&block)?;
                let shape = (self.options.block_size, seed);
                self.tree.push((0, place, 1), shape, &mut self.blocks)?;
                let block_map = self.tree.finish(shape, &mut self.blocks)?;
                Ok(Mapping {
                    size_bytes: target.len() as u64,
                    blocks: 1,
                    block_map,
                })
            }
            Content::Symlink { target } => {
                let mut mapping = Mapping::none();
                mapping.size_bytes = target.len() as u64;
                mapping.block_map[..target.len()].copy_from_slice(target);
                Ok(mapping)
            }
            Content::BlockDevice { major, minor } | Content::CharDevice { major, minor } => {
                Ok(Mapping {
                    block_map: inode::device_map(major, minor),
                    ..Mapping::none()
                })
            }
            Content::Directory | Content::Fifo | Content::Socket => Ok(Mapping::none()),
        }
    }

    fn put_file(
        &mut self,
        entry: &NewEntry<'_>,
        size_bytes: u64,
        data: &mut dyn FileData,
        seed: u32,
    ) -> Result<Mapping> {
        let block_size = u64::from(self.options.block_size);
        let shape = (self.options.block_size, seed);
        self.tree.clear();
        let mut ranges = DataRanges::new(data, size_bytes, self.options.block_size);
        while let Some(range) = ranges.next() {
            let mut logical = range.start;
            while logical < range.end {
                let want = range.end - logical;
                let taken =
                    self.blocks
                        .data
                        .take(want, &self.blocks.geometry, &mut self.blocks.out)?;
                let Some((place, bytes)) = taken else {
                    return Err(self.blocks.full());
                };
                let offset_bytes = logical * block_size;
                let valid = (size_bytes - offset_bytes).min(bytes.len() as u64) as usize;
                ranges
                    .data()
                    .read_at(offset_bytes, &mut bytes[..valid])
                    .map_err(|source| MkError::Content {
                        path: path_text(entry.parent, entry.name),
                        offset_bytes,
                        source,
                    })?;
                bytes[valid..].fill(0);
                let count = bytes.len() as u64 / block_size;
                self.summary.content_bytes += valid as u64;
                self.tree
                    .push((logical, place, count), shape, &mut self.blocks)?;
                logical += count;
            }
        }
        let block_map = self.tree.finish(shape, &mut self.blocks)?;
        Ok(Mapping {
            size_bytes,
            blocks: self.tree.blocks(),
            block_map,
        })
    }

    /// A directory that no entry described yet.
    fn put_own_directory(&mut self, number: u32, permissions: u32) -> Result<()> {
        let entry = own_entry(Content::Directory, permissions, self.options.created);
        self.put_inode(
            number,
            &entry,
            &mut super::sink::NoData,
            &EncodedXattrs::none(),
        )
    }

    fn put_journal_inode(&mut self, journal: Option<Vec<(u64, u64)>>) -> Result<()> {
        let Some(runs) = journal else { return Ok(()) };
        let seed = super::checksum::inode_seed(self.seed, inode::JOURNAL_INODE, 0);
        let shape = (self.options.block_size, seed);
        self.tree.clear();
        let mut logical = 0;
        for (place, count) in runs {
            self.tree
                .push((logical, place, count), shape, &mut self.blocks)?;
            logical += count;
        }
        let block_map = self.tree.finish(shape, &mut self.blocks)?;
        let size_bytes = logical * u64::from(self.options.block_size);
        let mapping = Mapping {
            size_bytes,
            blocks: self.tree.blocks(),
            block_map,
        };
        let entry = own_entry(
            Content::Regular { size_bytes: 0 },
            0o600,
            self.options.created,
        );
        self.put_inode(
            inode::JOURNAL_INODE,
            &entry,
            &mut super::sink::NoData,
            &EncodedXattrs::none(),
        )?;
        let record = self
            .deferred
            .record(u64::from(inode::JOURNAL_INODE) - 1, &mut self.maker)?;
        inode::put_mapping(record, &mapping, self.options.block_size);
        self.journal = Some(mapping);
        Ok(())
    }
}

/// Either the entry is refused, or the writer is at its end.
enum PushError {
    Refused(EntryError),
    Fatal(MkError),
}

impl From<EntryError> for PushError {
    fn from(error: EntryError) -> PushError {
        PushError::Refused(error)
    }
}

impl From<MkError> for PushError {
    fn from(error: MkError) -> PushError {
        PushError::Fatal(error)
    }
}

fn refused(parent: &[u8], name: &[u8], source: EntryError) -> MkError {
    MkError::Entry {
        path: path_text(parent, name),
        source,
    }
}

/// Maps the blocks of one directory as they are written.
struct MappedBlocks<'a, S> {
    blocks: &'a mut Blocks<S>,
    tree: &'a mut ExtentTree,
    identity: DirectoryIdentity,
    next: u64,
    root_place: u64,
}

impl<S: BlockSink> MappedBlocks<'_, S> {
    fn map(&mut self, place: u64) -> Result<()> {
        let shape = (self.identity.block_size, self.identity.seed);
        self.tree.push((self.next, place, 1), shape, self.blocks)?;
        self.next += 1;
        Ok(())
    }
}

impl<S: BlockSink> DirectoryBlocks for MappedBlocks<'_, S> {
    fn append(&mut self, block: &[u8]) -> Result<()> {
        let place = self.blocks.write_meta(block)?;
        self.map(place)
    }

    fn reserve_root(&mut self) -> Result<()> {
        self.root_place = self.blocks.reserve_meta()?;
        self.map(self.root_place)
    }

    fn write_root(&mut self, block: &[u8]) -> Result<()> {
        self.blocks.rewrite_meta(self.root_place, block)
    }
}

fn own_entry(content: Content<'static>, permissions: u32, created: Timestamp) -> NewEntry<'static> {
    NewEntry {
        parent: b"",
        name: b"",
        content,
        permissions,
        uid: 0,
        gid: 0,
        atime: created,
        mtime: created,
        ctime: created,
        crtime: Some(created),
        flags: 0,
        project: 0,
        generation: 0,
        xattrs: &[],
        more_links: false,
    }
}

fn check_name(name: &[u8]) -> std::result::Result<(), EntryError> {
    let is_possible = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0));
    if is_possible {
        Ok(())
    } else {
        Err(EntryError::Name)
    }
}

/// The order of runs: components one by one, so the separator sorts before every byte of a name.
fn path_order(left: &[u8], right: &[u8]) -> std::cmp::Ordering {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    left.iter().map(key).cmp(right.iter().map(key))
}
