//! Where the fixed structures lie: groups, superblock copies, bitmaps, inode tables.
//!
//! Everything here is a pure function of a few numbers, so nothing per group is kept: 100 TB have
//! 800,000 groups.

use std::ops::Range;

/// Bytes of one group descriptor with the `64bit` feature.
pub(super) const DESCRIPTOR_BYTES: u64 = 64;

/// The numbers that place every fixed structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub block_size: u32,
    pub blocks: u64,
    pub inode_size: u32,
    pub inodes_per_group: u32,
    pub groups_per_flex: u32,
}

/// The fixed structures of one flex group, and the blocks they take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlexLayout {
    pub first_group: u32,
    pub block_bitmaps: Vec<u64>,
    pub inode_bitmaps: Vec<u64>,
    pub inode_tables: Vec<u64>,
    /// Ascending and disjoint.
    pub taken: Vec<Range<u64>>,
}

impl Geometry {
    /// Block 0 holds only the boot sector when blocks are 1 KiB.
    pub fn first_data_block(&self) -> u64 {
        u64::from(self.block_size == 1024)
    }

    /// One bitmap block describes a group.
    pub fn blocks_per_group(&self) -> u64 {
        u64::from(self.block_size) * 8
    }

    /// Number of groups, the last one perhaps short.
    pub fn groups(&self) -> u32 {
        (self.blocks - self.first_data_block()).div_ceil(self.blocks_per_group()) as u32
    }

    pub fn inodes(&self) -> u64 {
        u64::from(self.groups()) * u64::from(self.inodes_per_group)
    }

    /// Blocks of one group's inode table.
    pub fn inode_table_blocks(&self) -> u64 {
        u64::from(self.inodes_per_group) * u64::from(self.inode_size) / u64::from(self.block_size)
    }

    /// Blocks of one copy of the group descriptors.
    pub fn descriptor_blocks(&self) -> u64 {
        (u64::from(self.groups()) * DESCRIPTOR_BYTES).div_ceil(u64::from(self.block_size))
    }

    /// The blocks of a group.
    pub fn group_range(&self, group: u32) -> Range<u64> {
        let start = self.first_data_block() + u64::from(group) * self.blocks_per_group();
        start..(start + self.blocks_per_group()).min(self.blocks)
    }

    /// Blocks that no file can have.
    pub fn fixed_blocks(&self) -> u64 {
        let groups = self.groups();
        let copies = (0..groups).filter(|group| has_superblock(*group)).count() as u64;
        self.first_data_block()
            + u64::from(groups) * (2 + self.inode_table_blocks())
            + copies * (1 + self.descriptor_blocks())
    }

    /// The flex group that a block lies in.
    pub fn flex_of_block(&self, block: u64) -> u32 {
        let group = block.saturating_sub(self.first_data_block()) / self.blocks_per_group();
        (group / u64::from(self.groups_per_flex)) as u32
    }

    /// Number of flex groups.
    pub fn flexes(&self) -> u32 {
        self.groups().div_ceil(self.groups_per_flex)
    }

    /// Places a flex group's structures: superblock copies where every reader expects them, then
    /// all block bitmaps, all inode bitmaps, all inode tables, each as early as possible. `None` if
    /// the (last) flex group is too short.
    pub fn flex_layout(&self, flex: u32) -> Option<FlexLayout> {
        let first_group = flex * self.groups_per_flex;
        let end_group = (first_group + self.groups_per_flex).min(self.groups());
        let end = self.group_range(end_group - 1).end;
        let copies: Vec<Range<u64>> = (first_group..end_group)
            .filter(|group| has_superblock(*group))
            .map(|group| {
                let start = self.group_range(group).start;
                start..start + 1 + self.descriptor_blocks()
            })
            .collect();
        if copies.iter().any(|copy| copy.end > end)
            || copies.windows(2).any(|pair| pair[0].end > pair[1].start)
        {
            return None;
        }
        let mut cursor = self.group_range(first_group).start;
        let mut taken = copies.clone();
        let mut place = |blocks: u64| {
            for copy in &copies {
                if cursor < copy.end && copy.start < cursor + blocks {
                    cursor = copy.end;
                }
            }
            let start = cursor;
            cursor += blocks;
            taken.push(start..cursor);
            start
        };
        let groups = first_group..end_group;
        let block_bitmaps = groups.clone().map(|_| place(1)).collect();
        let inode_bitmaps = groups.clone().map(|_| place(1)).collect();
        let inode_tables = groups.map(|_| place(self.inode_table_blocks())).collect();
        let taken = merged(taken);
        let fits = taken.last().is_none_or(|last| last.end <= end);
        fits.then_some(FlexLayout {
            first_group,
            block_bitmaps,
            inode_bitmaps,
            inode_tables,
            taken,
        })
    }

    /// The first run of blocks at or after `block` that files may have; it ends before the next
    /// fixed structure. The layout is handed back and forth, because the next question is almost
    /// always about the same flex group.
    pub fn free_run(&self, block: u64, layout: &mut Option<FlexLayout>) -> Option<Range<u64>> {
        let mut block = block.max(self.first_data_block());
        while block < self.blocks {
            let flex = self.flex_of_block(block);
            if layout
                .as_ref()
                .is_none_or(|have| have.first_group != flex * self.groups_per_flex)
            {
                *layout = self.flex_layout(flex);
            }
            let have = layout.as_ref()?;
            let end_group = (have.first_group + self.groups_per_flex).min(self.groups());
            let mut end = self.group_range(end_group - 1).end;
            for range in &have.taken {
                if range.contains(&block) {
                    block = range.end;
                } else if range.start > block {
                    end = end.min(range.start);
                    break;
                }
            }
            if block < end {
                return Some(block..end);
            }
            block = block.max(end);
        }
        None
    }
}

/// Copies of the superblock lie in groups 0, 1 and the powers of 3, 5 and 7 (`sparse_super`).
pub(super) fn has_superblock(group: u32) -> bool {
    let power_of = |base: u32| {
        let mut rest = group;
        while rest > 1 && rest.is_multiple_of(base) {
            rest /= base;
        }
        rest == 1
    };
    group <= 1 || power_of(3) || power_of(5) || power_of(7)
}

fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match out.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(block_size: u32, blocks: u64, inodes_per_group: u32) -> Geometry {
        Geometry {
            block_size,
            blocks,
            inode_size: 256,
            inodes_per_group,
            groups_per_flex: 16,
        }
    }

    #[test]
    fn superblock_copies_lie_where_sparse_super_puts_them() {
        let groups: Vec<u32> = (0..130).filter(|group| has_superblock(*group)).collect();
        assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }

    #[test]
    fn fixed_blocks_are_exactly_what_the_layouts_take() {
        for (block_size, blocks, inodes) in [
            (4096, 40 * 32768, 8192),
            (1024, 1 + 33 * 8192, 4096),
            (2048, 16384 * 17, 1024),
        ] {
            let geometry = geometry(block_size, blocks, inodes);
            let taken: u64 = (0..geometry.flexes())
                .flat_map(|flex| geometry.flex_layout(flex).unwrap().taken)
                .map(|range| range.end - range.start)
                .sum();
            assert_eq!(taken + geometry.first_data_block(), geometry.fixed_blocks());
        }
    }

    #[test]
    fn free_runs_and_fixed_structures_cover_every_block_once() {
        let geometry = geometry(1024, 1 + 35 * 8192, 4096);
        let mut layout = None;
        let (mut block, mut free) = (0, 0);
        while let Some(run) = geometry.free_run(block, &mut layout) {
            assert!(run.start >= block && run.start < run.end);
            free += run.end - run.start;
            block = run.end;
        }
        assert_eq!(free + geometry.fixed_blocks(), geometry.blocks);
    }

    #[test]
    fn a_last_flex_group_too_short_for_its_tables_is_refused() {
        let geometry = geometry(4096, 16 * 32768 + 100, 8192);
        assert!(geometry.flex_layout(0).is_some());
        assert!(geometry.flex_layout(1).is_none());
    }
}
