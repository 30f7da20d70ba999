//! Inode tables, bitmaps, group descriptors, journal and superblocks: what is written around the
//! tree.

use super::builder::Ext4Builder;
use super::checksum::crc32c;
use super::error::{MkError, Result};
use super::field::get_u16;
use super::geometry::{FlexLayout, Geometry, has_superblock};
use super::inode;
use super::options::Ext4Options;
use super::sink::BlockSink;
use super::stream::{BlockStream, JoinedWrites, Output, STREAM_BUFFER_BYTES};
use super::superblock::{
    self, FinalCounts, GROUP_BLOCK_UNINIT, GROUP_INODE_UNINIT, GROUP_TABLE_ZEROED, GroupFields,
    SUPERBLOCK_OFFSET,
};
use crate::inode::FileKind;

/// The front of the target that is wiped first: boot sector, superblock, and the signatures of most
/// file systems.
const WIPED_BYTES: usize = 4096;

/// Inodes that are final, in ascending order, as they follow each other in the tables.
pub(super) struct InodeStream {
    next: u64,
    group: Option<(u64, u64)>,
    joined: JoinedWrites,
    inodes_per_group: u64,
}

impl InodeStream {
    pub fn new(first: u64, geometry: &Geometry) -> InodeStream {
        InodeStream {
            next: first,
            group: None,
            joined: JoinedWrites::default(),
            inodes_per_group: u64::from(geometry.inodes_per_group),
        }
    }

    /// The number that the next record will have.
    pub fn next_inode(&self) -> u64 {
        self.next
    }

    pub fn push<S: BlockSink>(
        &mut self,
        record: &[u8],
        geometry: &Geometry,
        out: &mut Output<S>,
    ) -> Result<()> {
        self.next_record(record.len(), geometry, out)?
            .copy_from_slice(record);
        Ok(())
    }

    /// The place of the next record, as zeros: what is put there will be written.
    pub fn next_record<S: BlockSink>(
        &mut self,
        record_bytes: usize,
        geometry: &Geometry,
        out: &mut Output<S>,
    ) -> Result<&mut [u8]> {
        let (group, slot) = (
            (self.next - 1) / self.inodes_per_group,
            (self.next - 1) % self.inodes_per_group,
        );
        let table = match self.group {
            Some((have, table)) if have == group => table,
            _ => {
                let flex = (group / u64::from(geometry.groups_per_flex)) as u32;
                let layout = geometry
                    .flex_layout(flex)
                    .expect("the plan tried every kind of layout");
                let table = layout.inode_tables[(group - u64::from(layout.first_group)) as usize];
                self.group = Some((group, table));
                table
            }
        };
        self.next += 1;
        let offset_bytes = table * u64::from(geometry.block_size) + slot * record_bytes as u64;
        self.joined.put_zeros(offset_bytes, record_bytes, out)
    }

    pub fn write_out<S: BlockSink>(&mut self, block_size: u32, out: &mut Output<S>) -> Result<()> {
        self.joined.flush(block_size as usize, out)
    }
}

/// Wipes what would be recognised, and places the journal first of all. Gives its runs: place and
/// blocks.
pub(super) fn write_journal<S: BlockSink>(
    options: &Ext4Options,
    geometry: &Geometry,
    blocks: u32,
    start: &mut BlockStream,
    out: &mut Output<S>,
) -> Result<Option<Vec<(u64, u64)>>> {
    out.write(0, vec![0; WIPED_BYTES])?;
    if !options.target_is_zeroed {
        // From here on the old file system is gone, whatever happens next.
        out.flush()?;
    }
    if blocks == 0 {
        return Ok(None);
    }
    let block_size = u64::from(options.block_size);
    let mut runs = Vec::new();
    let mut left = u64::from(blocks);
    while left > 0 {
        let Some((place, count)) = start.skip(left, geometry) else {
            return Err(MkError::PlanExceeded {
                what: "blocks",
                planned: geometry.blocks,
            });
        };
        if !options.target_is_zeroed {
            write_zeros(place * block_size, count * block_size, out)?;
        }
        runs.push((place, count));
        left -= count;
    }
    out.write(
        runs[0].0 * block_size,
        superblock::journal_superblock(options, blocks),
    )?;
    Ok(Some(runs))
}

/// The zone of metadata blocks, and behind it that of file data.
pub(super) fn zones(
    start: BlockStream,
    geometry: &Geometry,
    meta_blocks: u64,
    options: &Ext4Options,
) -> (BlockStream, BlockStream) {
    let mut end = start;
    let first = end.position();
    let mut left = meta_blocks;
    while left > 0 {
        let Some((_, count)) = end.skip(left, geometry) else {
            break;
        };
        left -= count;
    }
    let limit = end.position();
    (
        BlockStream::new(first, limit, options.block_size),
        BlockStream::new(limit, geometry.blocks, options.block_size),
    )
}

/// Everything after the last entry, superblock last.
pub(super) fn finish<S: BlockSink>(builder: &mut Ext4Builder<S>) -> Result<()> {
    let block_size = builder.options.block_size;
    builder.blocks.meta.write_out(&mut builder.blocks.out)?;
    builder.blocks.data.write_out(&mut builder.blocks.out)?;
    builder
        .stream
        .write_out(block_size, &mut builder.blocks.out)?;
    let directories = write_deferred(builder)?;
    let (descriptors, counts) = write_groups(builder, &directories)?;
    write_descriptors(builder, &descriptors)?;
    builder.blocks.out.flush()?;
    write_superblocks(builder, counts)?;
    builder.blocks.out.flush()
}

/// Writes the inodes that waited; gives the number of directories in each of the groups they lie
/// in.
fn write_deferred<S: BlockSink>(builder: &mut Ext4Builder<S>) -> Result<Vec<u32>> {
    let geometry = &builder.blocks.geometry;
    let per_group = u64::from(geometry.inodes_per_group);
    let mut directories = vec![0; builder.deferred.len().div_ceil(per_group) as usize];
    let mut stream = InodeStream::new(1, geometry);
    for index in 0..builder.deferred.len() {
        let record = builder.deferred.record(index, &mut builder.maker)?;
        let mode = u32::from(get_u16(record, 0));
        if mode != 0 {
            inode::seal(record, builder.seed, index as u32 + 1);
        }
        if FileKind::from_mode(mode) == Some(FileKind::Directory) {
            directories[(index / per_group) as usize] += 1;
        }
        stream.push(record, &builder.blocks.geometry, &mut builder.blocks.out)?;
    }
    stream.write_out(builder.options.block_size, &mut builder.blocks.out)?;
    Ok(directories)
}

/// Writes bitmaps; gives all descriptors and the sums that the superblock tells.
fn write_groups<S: BlockSink>(
    builder: &mut Ext4Builder<S>,
    directories: &[u32],
) -> Result<(Vec<u8>, FinalCounts)> {
    let geometry = builder.blocks.geometry.clone();
    let block_size = geometry.block_size as usize;
    // 64 bytes for each group: 50 MB for 100 TB, 8 MB for 16 TB.
    let mut descriptors = Vec::new();
    let mut counts = FinalCounts {
        has_large_dir: builder.has_large_dir,
        has_projects: builder.has_projects,
        has_large_values: builder.has_large_values,
        journal: builder
            .journal
            .as_ref()
            .map(|journal| (journal.block_map, journal.size_bytes)),
        ..FinalCounts::default()
    };
    let mut joined = JoinedWrites::default();
    for flex in 0..geometry.flexes() {
        let layout = geometry
            .flex_layout(flex)
            .expect("the plan tried every kind of layout");
        let groups: Vec<u32> = (layout.first_group..)
            .take(layout.inode_tables.len())
            .collect();
        let mut inode_bitmaps = Vec::with_capacity(groups.len());
        for (position, group) in groups.iter().enumerate() {
            let mut fields = GroupFields {
                block_bitmap: layout.block_bitmaps[position],
                inode_bitmap: layout.inode_bitmaps[position],
                inode_table: layout.inode_tables[position],
                directories: directories.get(*group as usize).copied().unwrap_or(0),
                ..GroupFields::default()
            };
            let bitmap = block_bitmap(builder, &layout, *group, &mut fields);
            // What is marked as not initialised is never read.
            if fields.flags & GROUP_BLOCK_UNINIT == 0 {
                let offset = fields.block_bitmap * block_size as u64;
                joined.put(offset, &bitmap, &mut builder.blocks.out)?;
            }
            let bitmap = inode_bitmap(builder, *group, &mut fields);
            if fields.flags & GROUP_INODE_UNINIT == 0 {
                inode_bitmaps.push((fields.inode_bitmap, bitmap));
            }
            counts.free_blocks += u64::from(fields.free_blocks);
            counts.free_inodes += u64::from(fields.free_inodes);
            descriptors.extend_from_slice(&fields.encode(*group, builder.seed));
        }
        for (place, bitmap) in inode_bitmaps {
            joined.put(place * block_size as u64, &bitmap, &mut builder.blocks.out)?;
        }
    }
    joined.flush(block_size, &mut builder.blocks.out)?;
    Ok((descriptors, counts))
}

fn block_bitmap<S: BlockSink>(
    builder: &Ext4Builder<S>,
    layout: &FlexLayout,
    group: u32,
    fields: &mut GroupFields,
) -> Vec<u8> {
    let geometry = &builder.blocks.geometry;
    let range = geometry.group_range(group);
    let mut bitmap = Bitmap::new(geometry.block_size, range.start);
    let journal_and_meta = range.start..builder.blocks.meta.position();
    let data = builder.blocks.data_start()..builder.blocks.data.position();
    for used in layout.taken.iter().cloned().chain([journal_and_meta, data]) {
        bitmap.set(used.start.max(range.start), used.end.min(range.end));
    }
    let used = bitmap.count();
    fields.free_blocks = (range.end - range.start - used) as u32;
    let own_copies = if has_superblock(group) {
        1 + geometry.descriptor_blocks()
    } else {
        0
    };
    if used == own_copies && group + 1 < geometry.groups() {
        fields.flags |= GROUP_BLOCK_UNINIT;
    } else {
        bitmap.set(range.end, range.start + geometry.blocks_per_group());
        fields.block_bitmap_checksum = crc32c(builder.seed, &bitmap.bytes);
    }
    bitmap.bytes
}

fn inode_bitmap<S: BlockSink>(
    builder: &Ext4Builder<S>,
    group: u32,
    fields: &mut GroupFields,
) -> Vec<u8> {
    let geometry = &builder.blocks.geometry;
    let per_group = u64::from(geometry.inodes_per_group);
    let (start, end) = (
        u64::from(group) * per_group,
        (u64::from(group) + 1) * per_group,
    );
    let mut bitmap = Bitmap::new(geometry.block_size, start);
    // Bits count from inode 1.
    let deferred = 0..builder.next_deferred - 1;
    let streamed = builder.deferred.len()..builder.stream.next_inode() - 1;
    let mut used_end = start;
    for used in [deferred, streamed] {
        let (from, to) = (used.start.max(start), used.end.min(end));
        if from < to {
            bitmap.set(from, to);
            used_end = to;
        }
    }
    let used = bitmap.count();
    fields.free_inodes = (per_group - used) as u32;
    fields.table_unused = (end - used_end) as u32;
    if builder.options.target_is_zeroed || fields.table_unused == 0 {
        fields.flags |= GROUP_TABLE_ZEROED;
    }
    if used == 0 {
        fields.flags |= GROUP_INODE_UNINIT;
    } else {
        bitmap.set(end, start + u64::from(geometry.block_size) * 8);
        fields.inode_bitmap_checksum =
            crc32c(builder.seed, &bitmap.bytes[..per_group as usize / 8]);
    }
    bitmap.bytes
}

fn write_descriptors<S: BlockSink>(builder: &mut Ext4Builder<S>, descriptors: &[u8]) -> Result<()> {
    let geometry = &builder.blocks.geometry;
    let block_size = geometry.block_size as usize;
    for group in (0..geometry.groups()).filter(|group| has_superblock(*group)) {
        let mut offset = (geometry.group_range(group).start + 1) * block_size as u64;
        for part in descriptors.chunks(STREAM_BUFFER_BYTES) {
            let mut bytes = part.to_vec();
            bytes.resize(part.len().next_multiple_of(block_size), 0);
            builder.blocks.out.write(offset, bytes)?;
            offset += part.len() as u64;
        }
    }
    Ok(())
}

fn write_superblocks<S: BlockSink>(
    builder: &mut Ext4Builder<S>,
    mut counts: FinalCounts,
) -> Result<()> {
    let geometry = &builder.blocks.geometry;
    let block_size = geometry.block_size as usize;
    counts.kbytes_written = builder.blocks.out.bytes_written() / 1024;
    for group in (1..geometry.groups()).filter(|group| has_superblock(*group)) {
        let mut block = superblock::superblock(&builder.options, geometry, &counts, group);
        block.resize(block_size, 0);
        builder
            .blocks
            .out
            .write(geometry.group_range(group).start * block_size as u64, block)?;
    }
    let primary = superblock::superblock(&builder.options, geometry, &counts, 0);
    let before = SUPERBLOCK_OFFSET as usize % block_size;
    let mut block = vec![0; before];
    block.extend_from_slice(&primary);
    block.resize(block_size, 0);
    builder
        .blocks
        .out
        .write(SUPERBLOCK_OFFSET - before as u64, block)?;
    Ok(())
}

fn write_zeros<S: BlockSink>(offset_bytes: u64, len_bytes: u64, out: &mut Output<S>) -> Result<()> {
    let mut done = 0;
    while done < len_bytes {
        let len = (len_bytes - done).min(STREAM_BUFFER_BYTES as u64);
        out.write(offset_bytes + done, vec![0; len as usize])?;
        done += len;
    }
    Ok(())
}

/// A bitmap block whose first bit stands for `base`.
struct Bitmap {
    base: u64,
    bytes: Vec<u8>,
}

impl Bitmap {
    fn new(block_size: u32, base: u64) -> Bitmap {
        Bitmap {
            base,
            bytes: vec![0; block_size as usize],
        }
    }

    /// Sets `start..end`; nothing if that is empty.
    fn set(&mut self, start: u64, end: u64) {
        let mut bit = start.saturating_sub(self.base) as usize;
        let end = end.saturating_sub(self.base) as usize;
        while bit < end {
            if bit.is_multiple_of(8) && end - bit >= 8 {
                let bytes = (end - bit) / 8;
                self.bytes[bit / 8..][..bytes].fill(0xff);
                bit += bytes * 8;
            } else {
                self.bytes[bit / 8] |= 1 << (bit % 8);
                bit += 1;
            }
        }
    }

    fn count(&self) -> u64 {
        self.bytes
            .iter()
            .map(|byte| u64::from(byte.count_ones()))
            .sum()
    }
}
