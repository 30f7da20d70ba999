//! POSIX ACLs: from the form that XFS stores as an attribute of its own to the form that `getxattr`
//! gives.

use super::bytes::{be16, be32};

/// Bytes of an entry on disk: tag, id, permissions, padding.
const DISK_ENTRY_BYTES: usize = 12;
const DISK_HEADER_BYTES: usize = 4;
/// Version of the form that `getxattr` gives.
const XATTR_VERSION: u32 = 2;
/// Id of entries that are about nobody in particular.
const NO_ID: u32 = u32::MAX;
const TAG_USER: u32 = 0x02;
const TAG_GROUP: u32 = 0x08;
/// Owner, user, group, named group, mask, others.
const TAGS: [u32; 6] = [0x01, TAG_USER, 0x04, TAG_GROUP, 0x10, 0x20];

/// Full name under which the kernel shows an attribute of the root namespace, if it is an ACL.
pub(super) fn xattr_name(root_name: &[u8]) -> Option<&'static [u8]> {
    match root_name {
        b"SGI_ACL_FILE" => Some(b"system.posix_acl_access"),
        b"SGI_ACL_DEFAULT" => Some(b"system.posix_acl_default"),
        _ => None,
    }
}

/// Appends the `getxattr` form of a stored ACL to `out`.
pub(super) fn convert(disk: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let (header, entries) = disk
        .split_at_checked(DISK_HEADER_BYTES)
        .ok_or("ACL cut short")?;
    let (entries, rest) = entries.as_chunks::<DISK_ENTRY_BYTES>();
    if be32(header, 0) as usize != entries.len() || !rest.is_empty() {
        return Err("ACL with another number of entries");
    }
    out.extend_from_slice(&XATTR_VERSION.to_le_bytes());
    for entry in entries {
        let tag = be32(entry, 0);
        if !TAGS.contains(&tag) {
            return Err("ACL with an unknown tag");
        }
        let id = if matches!(tag, TAG_USER | TAG_GROUP) {
            be32(entry, 4)
        } else {
            NO_ID
        };
        out.extend_from_slice(&(tag as u16).to_le_bytes());
        out.extend_from_slice(&be16(entry, 8).to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    Ok(())
}
