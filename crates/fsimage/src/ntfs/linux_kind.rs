//! What a file is to a program on Linux: some are links, pipes or devices there.
//!
//! They are made in two ways: as reparse points, by Windows and by Linux on Windows, and as files
//! with the system flag whose content is a type and a target, by Interix and by ntfs-3g.

use super::bytes::{u16_at, u32_at, u64_at};
use super::names::utf8;
use super::reparse::link_target;

const FLAG_HIDDEN: u32 = 2;
const FLAG_SYSTEM: u32 = 4;
/// The content is elsewhere, or is brought when it is read.
const FLAGS_ELSEWHERE: u32 = 0x1000 | 0x4_0000 | 0x40_0000;

const AF_UNIX: u32 = 0x8000_0023;
const LINUX_FIFO: u32 = 0x8000_0024;
const LINUX_CHARACTERS: u32 = 0x8000_0025;
const LINUX_BLOCKS: u32 = 0x8000_0026;
/// One of sixteen tags of files that are in a cloud as well.
const CLOUD: u32 = 0x9000_001a;
const CLOUD_MASK: u32 = 0xffff_0fff;

const INTERIX_LINK: &[u8] = b"IntxLNK\x01";
const INTERIX_CHARACTERS: &[u8] = b"IntxCHR\0";
const INTERIX_BLOCKS: &[u8] = b"IntxBLK\0";
const INTERIX_DEVICE_BYTES: usize = 24;
/// A path of Linux, in UTF-16, and what is in front of it.
pub(super) const INTERIX_BYTES_MAX: u64 = 8 + 2 * 4096;

const FIFO: u32 = 0o010_000;
const CHARACTERS: u32 = 0o020_000;
const BLOCKS: u32 = 0o060_000;
const SOCKET: u32 = 0o140_000;

/// A file that is more, or something else, than its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinuxKind {
    /// It is what its record says.
    Plain,
    Link(Vec<u8>),
    /// Type as in `st_mode`, and the numbers of a device.
    Special(u32, (u32, u32)),
    /// What its content is, a driver of Windows makes out of the reparse point.
    ByDriver,
}

/// By a reparse point. `extended` are the extended attributes of OS/2.
pub(super) fn of_reparse_point(value: &[u8], flags: u32, extended: &[u8]) -> LinuxKind {
    if let Some(target) = link_target(value) {
        return LinuxKind::Link(target);
    }
    let device = device_of(extended).unwrap_or_default();
    match u32_at(value, 0).unwrap_or(0) {
        AF_UNIX => LinuxKind::Special(SOCKET, (0, 0)),
        LINUX_FIFO => LinuxKind::Special(FIFO, (0, 0)),
        LINUX_CHARACTERS => LinuxKind::Special(CHARACTERS, device),
        LINUX_BLOCKS => LinuxKind::Special(BLOCKS, device),
        tag if tag & CLOUD_MASK == CLOUD && flags & FLAGS_ELSEWHERE == 0 => LinuxKind::Plain,
        _ => LinuxKind::ByDriver,
    }
}

/// Whether the content of a file decides what it is.
pub(super) fn may_be_interix(flags: u32, size: u64) -> bool {
    flags & FLAG_SYSTEM != 0 && size <= INTERIX_BYTES_MAX
}

/// By the content of a file that [`may_be_interix`].
pub(super) fn of_interix(flags: u32, content: &[u8]) -> LinuxKind {
    let device = || {
        let number = |at| u64_at(content, at).and_then(|number| u32::try_from(number).ok());
        Some((number(8)?, number(16)?))
    };
    let is_device = content.len() == INTERIX_DEVICE_BYTES;
    let found = match content.first_chunk::<8>().map(|head| &head[..]) {
        None if flags & FLAG_HIDDEN != 0 => None,
        None if content.is_empty() => Some(LinuxKind::Special(FIFO, (0, 0))),
        None if content.len() == 1 => Some(LinuxKind::Special(SOCKET, (0, 0))),
        Some(INTERIX_CHARACTERS) if is_device => {
            device().map(|device| LinuxKind::Special(CHARACTERS, device))
        }
        Some(INTERIX_BLOCKS) if is_device => {
            device().map(|device| LinuxKind::Special(BLOCKS, device))
        }
        Some(INTERIX_LINK) if content.len() > 8 => {
            let target = utf8(&content[8..]);
            let end = target.iter().position(|byte| *byte == 0);
            let target = target[..end.unwrap_or(target.len())].to_vec();
            (!target.is_empty()).then_some(LinuxKind::Link(target))
        }
        _ => None,
    };
    found.unwrap_or(LinuxKind::Plain)
}

/// Numbers of a device, as Linux on Windows keeps them.
fn device_of(extended: &[u8]) -> Option<(u32, u32)> {
    let mut rest = extended;
    loop {
        let len = u32_at(rest, 0)? as usize;
        let name_bytes = usize::from(*rest.get(5)?);
        let value_bytes = usize::from(u16_at(rest, 6)?);
        let name = rest.get(8..)?.get(..name_bytes)?;
        let value = rest.get(9 + name_bytes..)?.get(..value_bytes)?;
        if name == b"$LXDEV" {
            return Some((u32_at(value, 0)?, u32_at(value, 4)?));
        }
        rest = rest.get(len..).filter(|_| len >= 8)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(target: &str) -> Vec<u8> {
        let units = target.encode_utf16().flat_map(u16::to_le_bytes);
        INTERIX_LINK.iter().copied().chain(units).collect()
    }

    #[test]
    fn files_of_interix_are_what_their_content_says_and_others_are_files() {
        let of = |content: &[u8]| of_interix(FLAG_SYSTEM, content);
        assert_eq!(of(&link("a/ä")), LinuxKind::Link("a/ä".into()));
        assert_eq!(of(&link("")), LinuxKind::Plain);
        assert_eq!(of(b""), LinuxKind::Special(FIFO, (0, 0)));
        assert_eq!(of(b"x"), LinuxKind::Special(SOCKET, (0, 0)));
        assert_eq!(of_interix(FLAG_SYSTEM | FLAG_HIDDEN, b""), LinuxKind::Plain);
        assert_eq!(of(b"some other content"), LinuxKind::Plain);
        let device = [INTERIX_BLOCKS, &8u64.to_le_bytes(), &17u64.to_le_bytes()].concat();
        assert_eq!(of(&device), LinuxKind::Special(BLOCKS, (8, 17)));
        assert_eq!(of(&device[..23]), LinuxKind::Plain);
        assert!(!may_be_interix(0, 0) && may_be_interix(FLAG_SYSTEM, 100));
        assert!(!may_be_interix(FLAG_SYSTEM, INTERIX_BYTES_MAX + 1));
    }

    #[test]
    fn what_a_driver_makes_the_content_of_is_known_by_its_reparse_point() {
        let of = |tag: u32, flags, extended: &[u8]| {
            let value = [&tag.to_le_bytes()[..], &[0; 4]].concat();
            of_reparse_point(&value, flags, extended)
        };
        // CompactOS, deduplication, a file that is in a cloud alone and one that is here as well.
        assert_eq!(of(0x8000_0017, 0, b""), LinuxKind::ByDriver);
        assert_eq!(of(0x8000_0013, 0, b""), LinuxKind::ByDriver);
        assert_eq!(of(0x9000_601a, 0x40_0000, b""), LinuxKind::ByDriver);
        assert_eq!(of(0x9000_601a, 0, b""), LinuxKind::Plain);
        assert_eq!(of(AF_UNIX, 0, b""), LinuxKind::Special(SOCKET, (0, 0)));
        let mut extended = vec![0, 0, 0, 0, 0, 6, 8, 0];
        extended.extend(b"$LXDEV\0\x05\0\0\0\x07\0\0\0");
        let device = of(LINUX_CHARACTERS, 0, &extended);
        assert_eq!(device, LinuxKind::Special(CHARACTERS, (5, 7)));
        for end in 0..extended.len() {
            let cut = of(LINUX_CHARACTERS, 0, &extended[..end]);
            assert_eq!(cut, LinuxKind::Special(CHARACTERS, (0, 0)));
        }
    }
}
