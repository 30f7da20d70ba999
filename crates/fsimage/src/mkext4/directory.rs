//! Directory blocks: one block in catalog order, or leaves in hash order below an index.

use super::checksum::crc32c;
use super::dirhash::{HASH_VERSION_HALF_MD4, NameHash};
use super::error::{MkError, Result};
use super::field::{put_u16, put_u32};
use super::names::{Name, NameRun};

/// Inode, length of the entry, length of the name, type.
const DIRENT_HEADER_BYTES: usize = 8;
/// The entry that ends a block and holds its checksum.
const TAIL_BYTES: usize = 12;
const TAIL_TYPE: u8 = 0xde;
const TYPE_DIRECTORY: u8 = 2;
/// `.` and `..`.
const DOTS_BYTES: usize = 24;
/// One part in eight of an indexed leaf stays free, so that the first new names do not split every
/// leaf.
const LEAF_FREE_SHARE: usize = 8;
/// Checksum behind the entries of an index block.
const INDEX_TAIL_BYTES: usize = 8;
const INDEX_ENTRY_BYTES: usize = 8;
/// In the root: `.`, `..` and the description of the index.
const ROOT_ENTRIES_OFFSET: usize = 32;
/// In a node: an empty directory entry.
const NODE_ENTRIES_OFFSET: usize = 8;
/// An index may have this many levels of nodes below its root with the `large_dir` feature, one
/// without.
const NODE_LEVELS_MAX: usize = 2;
/// `lost+found` gets this much space, so that the checker need not allocate.
const LOST_FOUND_BYTES: u64 = 16 << 10;

/// Bytes of the entry for a name.
pub(super) fn dirent_bytes(name_bytes: usize) -> usize {
    (DIRENT_HEADER_BYTES + name_bytes).next_multiple_of(4)
}

/// Blocks of an empty `lost+found`.
pub(super) fn lost_found_blocks(block_size: u32) -> u64 {
    LOST_FOUND_BYTES / u64::from(block_size)
}

/// At most this many blocks for names of so many bytes together, the longest of `longest_bytes`.
pub(super) fn blocks_max(block_size: u32, dirent_bytes: u64, longest_bytes: u64) -> u64 {
    if is_one_block(block_size, dirent_bytes) {
        return 1;
    }
    // A leaf is closed when the next name does not fit, so each but the last is this full.
    let leaf_bytes =
        leaf_limit(block_size) as u64 - longest_bytes.min(leaf_limit(block_size) as u64 / 2);
    let mut level = dirent_bytes / leaf_bytes + 1;
    let mut total = 1 + level;
    while level > index_limit(block_size, ROOT_ENTRIES_OFFSET) as u64 {
        level = level.div_ceil(index_limit(block_size, NODE_ENTRIES_OFFSET) as u64);
        total += level;
    }
    total
}

/// Whether a directory is written as a single block without an index.
pub(super) fn is_one_block(block_size: u32, dirent_bytes: u64) -> bool {
    dirent_bytes + DOTS_BYTES as u64 <= (block_size as usize - TAIL_BYTES) as u64
}

fn leaf_limit(block_size: u32) -> usize {
    let usable = block_size as usize - TAIL_BYTES;
    usable - usable / LEAF_FREE_SHARE
}

fn index_limit(block_size: u32, entries_offset: usize) -> usize {
    (block_size as usize - entries_offset - INDEX_TAIL_BYTES) / INDEX_ENTRY_BYTES
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DirectoryIdentity {
    pub inode: u32,
    pub parent_inode: u32,
    pub seed: u32,
    pub block_size: u32,
}

/// Where directory blocks go, in logical order but for the root of an index.
pub(super) trait DirectoryBlocks {
    fn append(&mut self, block: &[u8]) -> Result<()>;
    /// Appends the place of block 0.
    fn reserve_root(&mut self) -> Result<()>;
    /// Fills block 0.
    fn write_root(&mut self, block: &[u8]) -> Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenDirectory {
    pub blocks: u64,
    pub has_index: bool,
    pub needs_large_dir: bool,
}

/// Writes the directory that `names` holds.
pub(super) fn write(
    identity: DirectoryIdentity,
    names: &mut NameRun,
    out: &mut dyn DirectoryBlocks,
) -> Result<WrittenDirectory> {
    if is_one_block(identity.block_size, names.dirent_bytes()) {
        let mut block = LeafBlock::new(identity);
        block.push_dots();
        names.in_order().for_each(|name| block.push(name));
        out.append(block.seal())?;
        return Ok(WrittenDirectory {
            blocks: 1,
            has_index: false,
            needs_large_dir: false,
        });
    }
    out.reserve_root()?;
    let leaves = write_leaves(identity, names, out)?;
    write_index(identity, leaves, out)
}

/// Writes an empty directory of several blocks.
pub(super) fn write_empty(
    identity: DirectoryIdentity,
    blocks: u64,
    out: &mut dyn DirectoryBlocks,
) -> Result<()> {
    for logical in 0..blocks {
        let mut block = LeafBlock::new(identity);
        if logical == 0 {
            block.push_dots();
        }
        out.append(block.seal())?;
    }
    Ok(())
}

/// Where an index entry leads: the first hash behind it, and the block.
type IndexEntry = (u32, u32);

fn write_leaves(
    identity: DirectoryIdentity,
    names: &mut NameRun,
    out: &mut dyn DirectoryBlocks,
) -> Result<Vec<IndexEntry>> {
    let limit = leaf_limit(identity.block_size);
    let mut block = LeafBlock::new(identity);
    // 8 bytes for each leaf: a hundred million names take 10 MB.
    let mut leaves: Vec<IndexEntry> = vec![(0, 1)];
    let mut last_major = None;
    names.for_each_hashed(&mut |hash: NameHash, name| {
        if block.used + dirent_bytes(name.bytes.len()) > limit {
            out.append(block.seal())?;
            block = LeafBlock::new(identity);
            // Equal hashes on both sides of the cut: the lowest bit tells readers to look on.
            let continued = u32::from(last_major == Some(hash.major));
            leaves.push((hash.major | continued, leaves.len() as u32 + 1));
        }
        last_major = Some(hash.major);
        block.push(name);
        Ok(())
    })?;
    out.append(block.seal())?;
    Ok(leaves)
}

fn write_index(
    identity: DirectoryIdentity,
    leaves: Vec<IndexEntry>,
    out: &mut dyn DirectoryBlocks,
) -> Result<WrittenDirectory> {
    let root_limit = index_limit(identity.block_size, ROOT_ENTRIES_OFFSET);
    let node_limit = index_limit(identity.block_size, NODE_ENTRIES_OFFSET);
    let mut next_block = 1 + leaves.len() as u32;
    let mut level = leaves;
    let mut node_levels = 0;
    while level.len() > root_limit {
        if node_levels == NODE_LEVELS_MAX {
            return Err(MkError::PlanExceeded {
                what: "directory blocks",
                planned: u64::from(next_block),
            });
        }
        let mut above = Vec::with_capacity(level.len() / node_limit + 1);
        for children in level.chunks(node_limit) {
            let mut block = vec![0; identity.block_size as usize];
            put_u16(&mut block, 4, identity.block_size as u16);
            put_index(&mut block, NODE_ENTRIES_OFFSET, children, identity);
            out.append(&block)?;
            above.push((children[0].0, next_block));
            next_block += 1;
        }
        level = above;
        node_levels += 1;
    }
    let mut root = vec![0; identity.block_size as usize];
    put_dirent(&mut root, 0, 12, dot(identity));
    put_dirent(
        &mut root,
        12,
        identity.block_size as usize - 12,
        dot_dot(identity),
    );
    root[0x1c] = HASH_VERSION_HALF_MD4;
    root[0x1d] = 8; // Bytes of this description.
    root[0x1e] = node_levels as u8;
    put_index(&mut root, ROOT_ENTRIES_OFFSET, &level, identity);
    out.write_root(&root)?;
    Ok(WrittenDirectory {
        blocks: u64::from(next_block),
        has_index: true,
        needs_large_dir: node_levels > 1,
    })
}

/// Entries of an index block. The first has no hash: its place holds limit and count.
fn put_index(block: &mut [u8], offset: usize, entries: &[IndexEntry], identity: DirectoryIdentity) {
    let limit = index_limit(identity.block_size, offset);
    for (position, (hash, child)) in entries.iter().enumerate() {
        put_u32(block, offset + position * INDEX_ENTRY_BYTES, *hash);
        put_u32(block, offset + position * INDEX_ENTRY_BYTES + 4, *child);
    }
    put_u16(block, offset, limit as u16);
    put_u16(block, offset + 2, entries.len() as u16);
    let used = offset + entries.len() * INDEX_ENTRY_BYTES;
    let tail = offset + limit * INDEX_ENTRY_BYTES;
    // The tail's reserved word and its own checksum field, as zeros, belong to the sum.
    let checksum = crc32c(
        crc32c(identity.seed, &block[..used]),
        &[0; INDEX_TAIL_BYTES],
    );
    put_u32(block, tail + 4, checksum);
}

fn dot(identity: DirectoryIdentity) -> Name<'static> {
    Name {
        inode: identity.inode,
        dirent_type: TYPE_DIRECTORY,
        bytes: b".",
    }
}

fn dot_dot(identity: DirectoryIdentity) -> Name<'static> {
    Name {
        inode: identity.parent_inode,
        dirent_type: TYPE_DIRECTORY,
        bytes: b"..",
    }
}

fn put_dirent(block: &mut [u8], offset: usize, entry_bytes: usize, name: Name<'_>) {
    put_u32(block, offset, name.inode);
    put_u16(block, offset + 4, entry_bytes as u16);
    block[offset + 6] = name.bytes.len() as u8;
    block[offset + 7] = name.dirent_type;
    block[offset + DIRENT_HEADER_BYTES..][..name.bytes.len()].copy_from_slice(name.bytes);
}

/// A block of names while it is filled.
struct LeafBlock {
    identity: DirectoryIdentity,
    block: Vec<u8>,
    used: usize,
    last_entry: Option<usize>,
}

impl LeafBlock {
    fn new(identity: DirectoryIdentity) -> LeafBlock {
        LeafBlock {
            identity,
            block: vec![0; identity.block_size as usize],
            used: 0,
            last_entry: None,
        }
    }

    fn push_dots(&mut self) {
        self.push(dot(self.identity));
        self.push(dot_dot(self.identity));
    }

    fn push(&mut self, name: Name<'_>) {
        let entry_bytes = dirent_bytes(name.bytes.len());
        put_dirent(&mut self.block, self.used, entry_bytes, name);
        self.last_entry = Some(self.used);
        self.used += entry_bytes;
    }

    /// The last entry takes the free space; then comes the checksum.
    fn seal(&mut self) -> &[u8] {
        let tail = self.block.len() - TAIL_BYTES;
        let last = self.last_entry.unwrap_or(0);
        put_u16(&mut self.block, last + 4, (tail - last) as u16);
        put_u16(&mut self.block, tail + 4, TAIL_BYTES as u16);
        self.block[tail + 7] = TAIL_TYPE;
        let checksum = crc32c(self.identity.seed, &self.block[..tail]);
        put_u32(&mut self.block, tail + 8, checksum);
        &self.block
    }
}
