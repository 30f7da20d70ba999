//! Directories: every block is a list of names, also in hashed directories, whose index blocks look
//! like one deleted name.
//!
//! Blocks can be parsed in any order and by any thread: all that a block needs to know of its
//! directory is a small [`DirContext`]. Names come out only from blocks whose checksum is right;
//! `.` and `..` are told apart.

use super::bytes::{u16_at, u32_at};
use super::checksum::{crc32c, inode_seed};
use super::error::{Damage, Structure};
use super::features::INCOMPAT_FILETYPE;
use super::inodes::{FLAG_INDEX, RawInode};
use super::superblock::Superblock;
use crate::{Dirent, FileKind};

/// What a directory block must know of its directory: 8 bytes to keep per directory while blocks
/// are sorted by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirContext {
    seed: u32,
    indexed: bool,
    encrypted: bool,
}

/// One name, borrowed from its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirentRef<'a> {
    /// Inode that the name leads to.
    pub inode: u64,
    /// Name bytes: not empty, no `/`, no NUL, never `.` or `..`.
    pub name: &'a [u8],
    /// Type as the directory tells it, where it does.
    pub kind: Option<FileKind>,
}

/// What a directory block held besides names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirBlock {
    /// Names reported.
    pub names_count: u32,
    /// Inode of the parent directory, in the block that has `..`.
    pub parent: Option<u64>,
}

/// Part of a directory that could not be read. Names in it are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirProblem {
    /// Byte of the directory where the unreadable part begins: a block, or a hole.
    pub file_offset: u64,
    /// What is wrong.
    pub damage: Damage,
}

/// Entry head: inode, length of the entry, length of the name, type.
const HEAD_BYTES: usize = 8;
/// Checksum entry at the end of a block: inode 0, length 12, name length 0, this type.
const TAIL_BYTES: usize = 12;
const TAIL_KIND: u8 = 0xDE;
/// Parent inode number at the start of an inline directory.
pub(super) const INLINE_PARENT_BYTES: usize = 4;
/// First part of an inline directory, in the block map of the inode.
pub(super) const INLINE_FIRST_BYTES: usize = 60;

impl DirContext {
    pub(super) fn new(sb: &Superblock, raw: &RawInode<'_>) -> DirContext {
        DirContext {
            seed: inode_seed(sb.checksum_seed, raw.number_u32(), raw.generation()),
            indexed: raw.flags() & FLAG_INDEX != 0,
            encrypted: raw.is_encrypted(),
        }
    }

    /// For keeping it in a file.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.seed.to_le_bytes());
        bytes[4] = u8::from(self.indexed) | u8::from(self.encrypted) << 1;
        bytes
    }

    /// What [`DirContext::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; 8]) -> DirContext {
        DirContext {
            seed: u32_at(&bytes, 0),
            indexed: bytes[4] & 1 != 0,
            encrypted: bytes[4] & 2 != 0,
        }
    }
}

impl DirentRef<'_> {
    /// A copy that outlives the block.
    pub fn to_dirent(&self) -> Dirent {
        Dirent {
            inode: self.inode,
            name: self.name.to_vec(),
            kind: self.kind,
        }
    }
}

/// Parses one block of a directory; `block_index` counts from 0 within the directory.
pub(super) fn parse_block(
    sb: &Superblock,
    dir: &DirContext,
    block_index: u64,
    bytes: &[u8],
    f: &mut dyn FnMut(DirentRef<'_>),
) -> Result<DirBlock, Damage> {
    if dir.encrypted {
        return Err(Damage::Encrypted);
    }
    if bytes.len() != sb.block_bytes as usize {
        return Err(Damage::Size(bytes.len() as u64));
    }
    if sb.has_checksums() {
        check_block(sb, dir, block_index, bytes)?;
    }
    parse_entries(sb, bytes, f)
}

/// Parses the content of an inline directory, as [`Layout::Inline`](crate::Layout::Inline) holds
/// it.
pub(super) fn parse_inline(
    sb: &Superblock,
    content: &[u8],
    f: &mut dyn FnMut(DirentRef<'_>),
) -> Result<DirBlock, Damage> {
    let (first, second) = content
        .split_at_checked(INLINE_FIRST_BYTES)
        .ok_or(Damage::InlineData)?;
    let parent = u32_at(first, 0);
    if !(1..=sb.inodes_count).contains(&parent) {
        return Err(Damage::InodeOutside(parent.into()));
    }
    let mut names_count = parse_entries(sb, &first[INLINE_PARENT_BYTES..], f)?.names_count;
    names_count += parse_entries(sb, second, f)?.names_count;
    Ok(DirBlock {
        names_count,
        parent: Some(parent.into()),
    })
}

fn parse_entries(
    sb: &Superblock,
    bytes: &[u8],
    f: &mut dyn FnMut(DirentRef<'_>),
) -> Result<DirBlock, Damage> {
    let mut block = DirBlock::default();
    let typed = sb.incompat(INCOMPAT_FILETYPE);
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = (bytes.len() - rest.len()) as u32;
        let entry = parse_entry(sb, rest, typed).ok_or(Damage::DirEntry(at))?;
        rest = &rest[entry.len_bytes..];
        if entry.inode == 0 {
            continue;
        }
        if entry.inode > sb.inodes_count {
            return Err(Damage::InodeOutside(entry.inode.into()));
        }
        match entry.name {
            b"." => {}
            b".." => block.parent = Some(entry.inode.into()),
            name if name.is_empty() || has_impossible_byte(name) => {
                return Err(Damage::DirName(at));
            }
            name => {
                block.names_count += 1;
                f(DirentRef {
                    inode: entry.inode.into(),
                    name,
                    kind: kind_of(entry.kind),
                });
            }
        }
    }
    Ok(block)
}

fn has_impossible_byte(name: &[u8]) -> bool {
    name.iter()
        .fold(false, |found, byte| found | (*byte == 0) | (*byte == b'/'))
}

struct Entry<'a> {
    inode: u32,
    len_bytes: usize,
    kind: u8,
    name: &'a [u8],
}

/// The entry at the start of `rest`, if it and its name fit.
#[inline]
fn parse_entry<'a>(sb: &Superblock, rest: &'a [u8], typed: bool) -> Option<Entry<'a>> {
    let head = rest.first_chunk::<HEAD_BYTES>()?;
    let inode = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let len_bytes = entry_len(u16::from_le_bytes([head[4], head[5]]), sb.block_bytes);
    // Without types the name length has 16 bits, of which the upper half is always 0.
    let (name_len, kind) = (usize::from(head[6]), if typed { head[7] } else { 0 });
    let possible = len_bytes.is_multiple_of(4)
        && len_bytes <= rest.len()
        && len_bytes >= HEAD_BYTES + name_len;
    if !possible || (!typed && inode != 0 && head[7] != 0) {
        return None;
    }
    Some(Entry {
        inode,
        len_bytes,
        kind,
        name: rest.get(HEAD_BYTES..HEAD_BYTES + name_len)?,
    })
}

/// Entries of 64 KiB do not fit 16 bits: the largest value and 0 mean a whole block, the two low
/// bits are bits 16 and 17.
fn entry_len(stored: u16, block_bytes: u32) -> usize {
    if block_bytes < 65536 {
        return stored.into();
    }
    match stored {
        0 | u16::MAX => block_bytes as usize,
        len => usize::from(len & !3) | usize::from(len & 3) << 16,
    }
}

fn kind_of(stored: u8) -> Option<FileKind> {
    Some(match stored {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

fn check_block(
    sb: &Superblock,
    dir: &DirContext,
    block_index: u64,
    bytes: &[u8],
) -> Result<(), Damage> {
    if let Some(count_at) = index_count_offset(sb, dir, block_index, bytes) {
        return check_index_block(dir, count_at, bytes);
    }
    let (names, tail) = bytes.split_at(bytes.len() - TAIL_BYTES);
    let is_tail = u32_at(tail, 0) == 0
        && u16_at(tail, 4) == TAIL_BYTES as u16
        && tail[6] == 0
        && tail[7] == TAIL_KIND;
    if is_tail && crc32c(dir.seed, names) == u32_at(tail, 8) {
        return Ok(());
    }
    Err(Damage::Checksum(Structure::DirBlock))
}

/// Where an index block keeps its limit and count; `None` for a block with names.
fn index_count_offset(
    sb: &Superblock,
    dir: &DirContext,
    block_index: u64,
    bytes: &[u8],
) -> Option<usize> {
    if !dir.indexed {
        return None;
    }
    let len_at = |at: usize| entry_len(u16_at(bytes, at + 4), sb.block_bytes);
    if len_at(0) == bytes.len() {
        return Some(8);
    }
    let is_root = block_index == 0 && len_at(0) == 12 && len_at(12) == bytes.len() - 12;
    (is_root && u32_at(bytes, 24) == 0 && bytes.get(29) == Some(&8)).then_some(32)
}

/// Index entries are 8 bytes; the first one is the limit and count. The checksum lies behind the
/// last possible entry.
fn check_index_block(dir: &DirContext, count_at: usize, bytes: &[u8]) -> Result<(), Damage> {
    let limit = usize::from(u16_at(bytes, count_at));
    let count = usize::from(u16_at(bytes, count_at + 2));
    let tail_at = count_at + 8 * limit;
    if count > limit || tail_at + 8 > bytes.len() {
        return Err(Damage::Header(Structure::DirIndex));
    }
    let crc = crc32c(dir.seed, &bytes[..count_at + 8 * count]);
    let crc = crc32c(crc32c(crc, &bytes[tail_at..tail_at + 4]), &[0; 4]);
    if crc == u32_at(bytes, tail_at + 4) {
        Ok(())
    } else {
        Err(Damage::Checksum(Structure::DirIndex))
    }
}

#[cfg(test)]
mod tests {
    use super::super::superblock::tests::valid_bytes;
    use super::*;

    const CONTEXT: DirContext = DirContext {
        seed: 0,
        indexed: false,
        encrypted: false,
    };

    fn entry(inode: u32, len: u16, kind: u8, name: &[u8]) -> Vec<u8> {
        let mut bytes = [
            &inode.to_le_bytes()[..],
            &len.to_le_bytes(),
            &[name.len() as u8, kind],
            name,
        ]
        .concat();
        bytes.resize(len.into(), 0);
        bytes
    }

    type Names = Vec<(u64, Vec<u8>)>;

    fn names(block: &[u8]) -> (Names, Result<DirBlock, Damage>) {
        let sb = Superblock::parse(&valid_bytes()).unwrap();
        let mut names = Vec::new();
        let parsed = parse_block(&sb, &CONTEXT, 0, block, &mut |entry| {
            names.push((entry.inode, entry.name.to_vec()))
        });
        (names, parsed)
    }

    #[test]
    fn names_come_out_and_dots_do_not() {
        let rest = entry(14, 1024 - 12 - 12 - 16 - 12, 2, b"last");
        let entries = [
            entry(12, 12, 2, b"."),
            entry(2, 12, 2, b".."),
            entry(0, 16, 1, b"deleted"),
            entry(13, 12, 1, b"a"),
        ];
        let (found, parsed) = names(&[entries.concat(), rest].concat());
        assert_eq!(found, [(13, b"a".to_vec()), (14, b"last".to_vec())]);
        assert_eq!(
            parsed,
            Ok(DirBlock {
                names_count: 2,
                parent: Some(2)
            })
        );
    }

    #[test]
    fn malformed_entries_end_the_block_with_their_place() {
        let good = entry(13, 12, 1, b"a");
        for bad in [
            entry(14, 1016, 1, b"b"),
            entry(14, 13, 1, b"b"),
            vec![1; 1012],
            vec![0; 1012],
        ] {
            let mut block = [good.clone(), bad].concat();
            block.resize(1024, 0);
            let (found, parsed) = names(&block);
            assert_eq!((found.len(), parsed), (1, Err(Damage::DirEntry(12))));
        }
    }

    #[test]
    fn impossible_names_and_inodes_are_damage() {
        for name in [&b""[..], b"a/b", b"a\0b", b"/"] {
            assert_eq!(
                names(&entry(13, 1024, 1, name)).1,
                Err(Damage::DirName(0)),
                "{name:?}"
            );
        }
        assert_eq!(
            names(&entry(65, 1024, 1, b"a")).1,
            Err(Damage::InodeOutside(65))
        );
    }

    #[test]
    fn encrypted_blocks_and_blocks_of_wrong_length_are_refused() {
        let sb = Superblock::parse(&valid_bytes()).unwrap();
        let encrypted = DirContext {
            encrypted: true,
            ..CONTEXT
        };
        assert_eq!(
            parse_block(&sb, &encrypted, 0, &[0; 1024], &mut |_| {}),
            Err(Damage::Encrypted)
        );
        assert_eq!(
            parse_block(&sb, &CONTEXT, 0, &[0; 512], &mut |_| {}),
            Err(Damage::Size(512))
        );
    }

    #[test]
    fn entries_of_64_kib_blocks_have_lengths_of_18_bits() {
        assert_eq!(
            [0, 65535, 65532, 8].map(|stored| entry_len(stored, 65536)),
            [65536, 65536, 65532, 8]
        );
        assert_eq!(entry_len(65532, 4096), 65532);
    }
}
