//! Rows of the parent that stay, as they are or with another time of last access: nothing of their
//! files is read.

use super::{RowWriter, take_over};
use crate::backup::dedup_cache::ContentRef;
use crate::backup::linked_inodes::{LinkKey, LinkedContent};
use bale_format::{Content, Entry, EntryFlags};
use bale_repository::error::Result;

impl RowWriter<'_> {
    /// A row of the parent that stays. It stands for its inode, so further names have its content.
    ///
    /// If an earlier name has another content hash, this one takes that content: the earlier row
    /// is on its way, and what was read for it is stored. Both hold the same bytes, since inode,
    /// ctime and size are the same and the reused row is not racy; they differ in their holes.
    /// Where the content is racy, so is this name from now on: the next backup reads all of them.
    pub(super) fn take_reused(&mut self, old: Box<Entry>) -> Result<()> {
        if let Some(content) = self.other_content(&old) {
            let entry = with_content(old.clone(), &content);
            return self.wait(entry, Some(content.content_ref), Some(old));
        }
        let is_hard_link = old.is_hard_link();
        self.tally.unchanged(old.kind, old.size, is_hard_link);
        Ok(())
    }

    /// The same, with another time of last access.
    pub(super) fn take_accessed(
        &mut self,
        entry: Box<Entry>,
        old: Box<Entry>,
        shares: bool,
    ) -> Result<()> {
        let shares = shares && old.content != Content::None;
        if let Some(content) = shares.then(|| self.other_content(&old)).flatten() {
            let entry = with_content(entry, &content);
            return self.wait(entry, Some(content.content_ref), Some(old));
        }
        let content_ref = ContentRef::stored(old.content);
        self.wait(entry, content_ref, Some(old))
    }

    /// What an earlier name of the inode of a reused row has, if that is other content; where there
    /// was none, the content is remembered for later ones.
    fn other_content(&mut self, old: &Entry) -> Option<LinkedContent> {
        match self.links.find(&LinkKey::of(old)) {
            Some(content) if Some(content.content_hash) != old.content_hash => Some(content),
            Some(_) => None,
            None => {
                if let Some(content_ref) = ContentRef::stored(old.content) {
                    self.remember_linked(old, content_ref);
                }
                None
            }
        }
    }
}

/// A reused row with what another name of the inode has.
fn with_content(mut entry: Box<Entry>, content: &LinkedContent) -> Box<Entry> {
    entry.flags.0 &= !EntryFlags::SPARSE.0;
    take_over(&mut entry, content);
    entry
}
