//! POSIX ACLs: ext4 stores them shorter than the system call shows them.
//!
//! On disk: version 1, then 4 bytes (tag, permissions) per entry, followed by a 4-byte id only
//! where the tag names a user or group. In the xattr of the system call: version 2, then 8 bytes
//! per entry, id all ones where there is none.

use super::bytes::{u16_at, u32_at};

const VERSION_ON_DISK: u32 = 1;
const VERSION_XATTR: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// Converts; `None` if the bytes are not an ACL.
pub(super) fn to_xattr(on_disk: &[u8]) -> Option<Vec<u8>> {
    if u32_at(on_disk, 0) != VERSION_ON_DISK {
        return None;
    }
    let mut out = VERSION_XATTR.to_le_bytes().to_vec();
    let mut rest = on_disk.get(4..)?;
    while !rest.is_empty() {
        let (tag, permissions) = (u16_at(rest, 0), u16_at(rest, 2));
        let (id, len) = match tag {
            0x01 | 0x04 | 0x10 | 0x20 => (NO_ID, 4),
            0x02 | 0x08 => (u32_at(rest, 4), 8),
            _ => return None,
        };
        rest = rest.get(len..)?;
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&permissions.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_entries_become_eight_bytes_each() {
        let on_disk = [
            1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 7, 0, 0xE8, 3, 0, 0, 0x20, 0, 4, 0,
        ];
        let xattr = to_xattr(&on_disk).unwrap();
        assert_eq!(xattr.len(), 4 + 3 * 8);
        assert_eq!(xattr[12..20], [2, 0, 7, 0, 0xE8, 3, 0, 0]);
        assert_eq!(xattr[20..], [0x20, 0, 4, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    }

    #[test]
    fn truncated_and_unknown_entries_are_refused() {
        assert_eq!(to_xattr(&[1, 0, 0, 0, 2, 0, 7, 0, 1, 0]), None);
        assert_eq!(to_xattr(&[1, 0, 0, 0, 3, 0, 7, 0]), None);
        assert_eq!(to_xattr(&[2, 0, 0, 0]), None);
        assert_eq!(to_xattr(&[]), None);
    }
}
