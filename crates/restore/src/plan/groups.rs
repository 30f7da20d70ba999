//! Names of one inode: which rows they are, and which of them brings the content.

use super::{Planner, SORTER_BYTES};
use crate::scratch::{ScratchSpace, SortedPairs};
use crate::{RestoreError, row};
use bale_format::{Content, Entry};

/// Bytes of a group's key.
pub const GROUP_KEY_BYTES: usize = 28;

/// What the names of one inode have in common. Rows that disagree on the content are not names of
/// one inode, even if the number says so: a number used twice during the backup. The same content
/// may be stored at two places: a name that is older than the other may keep its place.
pub fn group_key(entry: &Entry) -> Vec<u8> {
    let mut identity = blake3::Hasher::new();
    identity.update(&[entry.kind as u8]);
    identity.update(&entry.generation.to_le_bytes());
    identity.update(&entry.size.to_le_bytes());
    identity.update(&entry.rdev.to_le_bytes());
    identity.update(&entry.target);
    match (&entry.content, &entry.content_hash) {
        (Content::None | Content::Image, _) => identity.update(b"none"),
        (Content::Bundled { .. }, Some(hash)) => identity.update(b"bundled").update(hash),
        (Content::Bundled { chunk, offset }, None) => {
            identity.update(&chunk.0).update(&offset.to_le_bytes())
        }
        (Content::Pieces { .. }, Some(hash)) => identity.update(b"pieces").update(hash),
        (Content::Pieces { list }, None) => identity.update(&list.0),
    };
    let mut key = Vec::with_capacity(GROUP_KEY_BYTES);
    key.extend_from_slice(&entry.filesystem.to_be_bytes());
    key.extend_from_slice(&entry.inode.to_be_bytes());
    key.extend_from_slice(&identity.finalize().as_bytes()[..16]);
    key
}

#[derive(Default)]
struct PieceGroup {
    key: Vec<u8>,
    number: u64,
    members: u64,
    first: Vec<u8>,
}

impl PieceGroup {
    fn link_key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.number.to_be_bytes());
        key[8..].copy_from_slice(&self.members.to_be_bytes());
        key
    }
}

impl Planner<'_> {
    /// Sends the first name of each inode to the contents; the others, each group with its first
    /// before them, are the links.
    pub(super) fn take_groups(
        &mut self,
        scratch: &ScratchSpace,
    ) -> Result<SortedPairs, RestoreError> {
        let groups = std::mem::replace(&mut self.groups, scratch.sorter(SORTER_BYTES));
        let mut links = scratch.sorter(SORTER_BYTES);
        let mut group = PieceGroup::default();
        for pair in groups.finish().map_err(RestoreError::Scratch)? {
            let (key, row) = pair.map_err(RestoreError::Scratch)?;
            if key == group.key {
                if group.members == 0 {
                    links
                        .push(&group.link_key(), &group.first)
                        .map_err(RestoreError::Scratch)?;
                }
                group.members += 1;
                links
                    .push(&group.link_key(), &row)
                    .map_err(RestoreError::Scratch)?;
                self.plan.links += 1;
            } else {
                self.push_first(&group)?;
                group = PieceGroup {
                    key,
                    number: group.number + 1,
                    members: 0,
                    first: row,
                };
            }
        }
        self.push_first(&group)?;
        links.finish().map_err(RestoreError::Scratch)
    }

    /// A file whose other names were not selected is a file with one name.
    fn push_first(&mut self, group: &PieceGroup) -> Result<(), RestoreError> {
        if group.number == 0 {
            return Ok(());
        }
        let mut entry = row::decode(group.first.clone()).map_err(RestoreError::Scratch)?;
        if group.members == 0 {
            entry.nlink = 1;
        }
        self.push_content(&entry)
    }
}
