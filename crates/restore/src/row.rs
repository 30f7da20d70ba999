//! A row of the plan: an entry whose parent is relative to the target, as bytes in a sorter.
//!
//! Only ever read by the process that wrote it, yet decoded with checks: a damaged temporary file
//! must not become a path. A row takes room for a time of last access only if it has one.

use bale_format::{ChunkId, Content, Entry, EntryFlags, Kind, Time};
use bytes::{Buf, BufMut, Bytes};
use std::io;

/// Bytes of a row without its strings and content.
const FIXED_BYTES: usize = 1 + 4 * 4 + 8 + 12 + 8 + 4 * 4 + 4 + 2 + 4 + 4 + 1;

/// Of the byte that says what content there is: behind the content comes a time of last access.
const HAS_ATIME: u8 = 0x80;

/// Appends `entry` to `out`.
pub fn encode(entry: &Entry, out: &mut Vec<u8>) {
    out.put_u8(entry.kind as u8);
    out.put_u32_le(entry.mode);
    out.put_u32_le(entry.uid);
    out.put_u32_le(entry.gid);
    out.put_u32_le(entry.filesystem);
    out.put_u64_le(entry.size);
    out.put_i64_le(entry.mtime.seconds);
    out.put_u32_le(entry.mtime.nanos);
    out.put_u64_le(entry.rdev);
    out.put_u32_le(entry.inode_flags);
    out.put_u32_le(entry.project);
    out.put_u32_le(entry.flags.0);
    out.put_u32_le(entry.nlink);
    out.put_u32_le(entry.parent.len() as u32);
    out.put_u16_le(entry.name.len() as u16);
    out.put_u32_le(entry.target.len() as u32);
    out.put_u32_le(entry.xattrs.len() as u32);
    let mark = match entry.atime.is_none() {
        true => 0,
        false => HAS_ATIME,
    };
    match &entry.content {
        Content::None => out.put_u8(mark),
        Content::Bundled { chunk, offset } => {
            out.put_u8(mark | 1);
            out.put_slice(&chunk.0);
            out.put_u32_le(*offset);
        }
        Content::Pieces { list } => {
            out.put_u8(mark | 2);
            out.put_slice(&list.0);
        }
        Content::Image => out.put_u8(mark | 3),
    }
    if let Some(atime) = entry.atime.get() {
        out.put_i64_le(atime.seconds);
        out.put_u32_le(atime.nanos);
    }
    out.put_slice(&entry.parent);
    out.put_slice(&entry.name);
    out.put_slice(&entry.target);
    out.put_slice(&entry.xattrs);
}

/// Reads what `encode` wrote; strings share the row's memory.
pub fn decode(row: Vec<u8>) -> io::Result<Entry> {
    take(&mut Bytes::from(row)).ok_or_else(damaged)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a row of the plan is damaged")
}

fn take(row: &mut Bytes) -> Option<Entry> {
    if row.len() < FIXED_BYTES {
        return None;
    }
    let kind = Kind::from_number(i32::from(row.get_u8()))?;
    let mut entry = Entry::new(Bytes::new(), Bytes::new(), kind);
    entry.mode = row.get_u32_le();
    entry.uid = row.get_u32_le();
    entry.gid = row.get_u32_le();
    entry.filesystem = row.get_u32_le();
    entry.size = row.get_u64_le();
    entry.mtime = Time {
        seconds: row.get_i64_le(),
        nanos: row.get_u32_le(),
    };
    entry.rdev = row.get_u64_le();
    entry.inode_flags = row.get_u32_le();
    entry.project = row.get_u32_le();
    entry.flags = EntryFlags(row.get_u32_le());
    entry.nlink = row.get_u32_le();
    let parent_len = row.get_u32_le() as usize;
    let name_len = usize::from(row.get_u16_le());
    let target_len = row.get_u32_le() as usize;
    let xattrs_len = row.get_u32_le() as usize;
    let tag = row.get_u8();
    entry.content = take_content(tag & !HAS_ATIME, row)?;
    if tag & HAS_ATIME != 0 {
        entry.atime = take_time(row)?.into();
    }
    let strings = parent_len
        .checked_add(name_len)?
        .checked_add(target_len)?
        .checked_add(xattrs_len)?;
    if row.len() != strings {
        return None;
    }
    entry.parent = row.split_to(parent_len);
    entry.name = row.split_to(name_len);
    entry.target = row.split_to(target_len)[..].into();
    entry.xattrs = row.split_to(xattrs_len);
    Some(entry)
}

fn take_time(row: &mut Bytes) -> Option<Time> {
    let has_room = row.len() >= size_of::<i64>() + size_of::<u32>();
    has_room.then(|| Time {
        seconds: row.get_i64_le(),
        nanos: row.get_u32_le(),
    })
}

fn take_content(tag: u8, row: &mut Bytes) -> Option<Content> {
    match tag {
        0 => return Some(Content::None),
        3 => return Some(Content::Image),
        _ => {}
    }
    if row.len() < 32 {
        return None;
    }
    let chunk = ChunkId::from_slice(&row.split_to(32)).ok()?;
    match tag {
        1 if row.len() >= 4 => Some(Content::Bundled {
            chunk,
            offset: row.get_u32_le(),
        }),
        2 => Some(Content::Pieces { list: chunk }),
        _ => None,
    }
}

/// The bytes of a file in a chunk.
pub(crate) fn bundled(chunk: &Bytes, offset: u32, size: u64) -> Result<&[u8], String> {
    let from = offset as usize;
    let to = usize::try_from(size)
        .ok()
        .and_then(|size| from.checked_add(size));
    to.and_then(|to| chunk.get(from..to))
        .ok_or_else(|| "damaged row: it points outside its chunk".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(content: Content) -> Entry {
        let mut entry = Entry::new("a/b".into(), "c\n".into(), Kind::File);
        entry.mode = 0o4755;
        entry.uid = u32::MAX - 1;
        entry.size = 1 << 62;
        entry.mtime = Time {
            seconds: -9_000_000_000,
            nanos: 999_999_999,
        };
        entry.rdev = 5 << 32 | 1;
        entry.target = b"t"[..].into();
        entry.xattrs = "xx".into();
        entry.content = content;
        entry
    }

    #[test]
    fn a_row_comes_back_as_it_was() {
        let chunk = ChunkId([7; 32]);
        for content in [
            Content::None,
            Content::Bundled { chunk, offset: 9 },
            Content::Pieces { list: chunk },
            Content::Image,
        ] {
            for atime in [None, Some(Time::from((-1, 999_999_999)))] {
                let mut entry = sample(content);
                entry.atime = atime.into();
                let mut row = Vec::new();
                encode(&entry, &mut row);
                assert_eq!(decode(row).unwrap(), entry);
            }
        }
    }

    #[test]
    fn a_cut_row_is_refused() {
        let mut entry = sample(Content::Bundled {
            chunk: ChunkId([7; 32]),
            offset: 9,
        });
        entry.atime = Time::default().into();
        let mut row = Vec::new();
        encode(&entry, &mut row);
        for len in 0..row.len() {
            assert!(decode(row[..len].to_vec()).is_err());
        }
    }
}
