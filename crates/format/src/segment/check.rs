//! What a row of a segment may hold: the same rules for the writer and for the reader.

use super::{
    CHUNK_BYTES_MAX, MODE_MAX, NAME_BYTES_MAX, NANOS_MAX, PARENT_BYTES_MAX, TARGET_BYTES_MAX,
    XATTRS_BYTES_MAX,
};
use crate::entry::{Content, Entry, Kind, compare_parents};
use crate::extent::{IMAGE_BLOCK_BYTES, extent_offset};

/// A single component that is safe to join to a path, or the empty name of the root row.
pub(super) fn check_name(parent: &[u8], name: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() && !parent.is_empty() {
        return Err("empty name");
    }
    check_component(name)
}

fn check_component(name: &[u8]) -> Result<(), &'static str> {
    if name.len() > NAME_BYTES_MAX {
        return Err("name is too long");
    }
    if name == b"." || name == b".." {
        return Err("name is a dot or two");
    }
    // Without an early exit the compiler can look at many bytes at once.
    let is_special = |byte: &u8| *byte == 0 || *byte == b'/';
    if name
        .iter()
        .fold(false, |found, byte| found | is_special(byte))
    {
        return Err("name has a slash or a zero byte");
    }
    Ok(())
}

/// Nothing but valid components between single slashes.
pub(super) fn check_parent(parent: &[u8]) -> Result<(), &'static str> {
    if parent.is_empty() {
        return Ok(());
    }
    if parent.len() > PARENT_BYTES_MAX {
        return Err("parent is too long");
    }
    for component in parent.split(|byte| *byte == b'/') {
        if component.is_empty() {
            return Err("parent has an empty component");
        }
        check_component(component)?;
    }
    Ok(())
}

/// May a row have this target of a symbolic link?
pub fn may_be_target(target: &[u8]) -> bool {
    target.len() <= TARGET_BYTES_MAX && !target.contains(&0)
}

pub(super) fn check_strings(target: &[u8], xattrs: &[u8]) -> Result<(), &'static str> {
    if !may_be_target(target) {
        return Err("target of a symlink");
    }
    check_xattrs(xattrs)
}

pub(super) fn check_xattrs(xattrs: &[u8]) -> Result<(), &'static str> {
    match (xattrs.first(), xattrs.len()) {
        (None, _) | (Some(1), 2..=XATTRS_BYTES_MAX) | (Some(2), 33) => Ok(()),
        _ => Err("form of the extended attributes"),
    }
}

pub(super) fn check_bundled(offset: u64, size: u64) -> Result<(), &'static str> {
    match offset.checked_add(size) {
        Some(end) if end <= CHUNK_BYTES_MAX => Ok(()),
        _ => Err("bundled file lies outside its chunk"),
    }
}

/// The name of an extent is where it begins on the device; it is within one block of an image.
pub(super) fn check_extent(name: &[u8], size: u64) -> Result<(), &'static str> {
    match extent_offset(name) {
        None => Err("name of an extent"),
        Some(_) if size == 0 => Err("an extent without bytes"),
        Some(at) if at % IMAGE_BLOCK_BYTES + size > IMAGE_BLOCK_BYTES => {
            Err("an extent lies across blocks")
        }
        Some(at) if at > i64::MAX as u64 - size => Err("an extent ends beyond all devices"),
        Some(_) => Ok(()),
    }
}

/// How an entry's parent and the parent of the row before relate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ParentStep {
    /// The same; `is_after`: the name is greater.
    Same { is_after: bool },
    /// Another; `is_after`: it is greater.
    Other { is_after: bool },
}

impl ParentStep {
    pub(super) fn of(before: Option<(&[u8], &[u8])>, entry: &Entry) -> ParentStep {
        match before {
            None => ParentStep::Other { is_after: true },
            Some((parent, name)) if parent == entry.parent => ParentStep::Same {
                is_after: name < &entry.name[..],
            },
            Some((parent, _)) => ParentStep::Other {
                is_after: compare_parents(parent, &entry.parent).is_lt(),
            },
        }
    }
}

/// Checks that an entry may be the next in a segment.
pub(super) fn check_entry(step: ParentStep, entry: &Entry) -> Result<(), &'static str> {
    check_name(&entry.parent, &entry.name)?;
    match step {
        ParentStep::Same { is_after: true } => {}
        ParentStep::Other { is_after: true } => check_parent(&entry.parent)?,
        _ => return Err("it is not after the one before"),
    }
    check_fields(entry)
}

/// Checks that a segment may have a row of this path. `accepted`: a parent that was checked before,
/// as that of most rows is.
pub fn check_path(entry: &Entry, accepted: Option<&[u8]>) -> Result<(), &'static str> {
    check_name(&entry.parent, &entry.name)?;
    match accepted == Some(&entry.parent[..]) {
        true => Ok(()),
        false => check_parent(&entry.parent),
    }
}

/// Checks everything of an entry but its path.
pub fn check_fields(entry: &Entry) -> Result<(), &'static str> {
    if entry.mode > MODE_MAX as u32 {
        return Err("mode has more than twelve bits");
    }
    let atime = entry.atime.get().unwrap_or_default();
    let mut times = [entry.mtime, entry.ctime, atime].into_iter();
    if times.any(|time| time.nanos > NANOS_MAX as u32) {
        return Err("nanoseconds out of range");
    }
    if entry.size > i64::MAX as u64 {
        return Err("size is out of range");
    }
    check_strings(&entry.target, &entry.xattrs)?;
    match entry.content {
        Content::None if entry.kind == Kind::Extent => Err("an extent without content"),
        Content::None => Ok(()),
        Content::Bundled { offset, .. } if entry.kind == Kind::Extent => {
            check_bundled(u64::from(offset), entry.size)?;
            check_extent(&entry.name, entry.size)
        }
        _ if entry.kind != Kind::File => Err("only regular files have content"),
        Content::Bundled { offset, .. } => check_bundled(u64::from(offset), entry.size),
        Content::Pieces { .. } | Content::Image => Ok(()),
    }
}
