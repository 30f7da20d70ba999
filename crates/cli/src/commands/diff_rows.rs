//! What differs between two rows of one path, as a person means it: where bytes are stored is no
//! difference, and content is one whatever the row has of it.
//!
//! A row of a file backup has a hash of its content. One of a file in an image points into the
//! blocks of the image and has none: a neighbour that changed moves it to another chunk. Of such
//! files what the inode says decides, since to compare the bytes would read both images where they
//! differ.

use bale_format::entry::{OptionalTime, is_below};
use bale_format::snapshot::Snapshot;
use bale_format::{Content, Entry, EntryFlags, Kind};

/// What two rows of one path differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differs {
    /// In nothing that a restore would show.
    Nowhere,
    /// Times, owners, modes, attributes.
    Metadata,
    /// Kind, content, target.
    Content,
}

/// Directories below which the files of images are.
pub struct ImageViews(Vec<Vec<u8>>);

impl ImageViews {
    /// Those of these snapshots.
    pub fn of(snapshots: [&Snapshot; 2]) -> ImageViews {
        let images = snapshots.into_iter().flat_map(|one| &one.images);
        let views = images.flat_map(|image| &image.views);
        let paths = views.map(|view| view.path.0.strip_prefix(b"/").unwrap_or(&view.path.0));
        ImageViews(paths.map(<[u8]>::to_vec).collect())
    }

    /// In what do these rows of one path differ?
    pub fn compare(&self, old: &Entry, new: &Entry) -> Differs {
        match self.is_other_content(old, new) {
            true => Differs::Content,
            false => self.compare_metadata(old, new),
        }
    }

    /// The same of rows whose content is known to be the same.
    pub fn compare_metadata(&self, old: &Entry, new: &Entry) -> Differs {
        let shown = |entry: &Entry| {
            let mut shown = entry.clone();
            (shown.content, shown.content_hash) = (new.content, None);
            // A position in a list of the snapshot, and what the next backup is to look at.
            shown.filesystem = 0;
            shown.flags.clear(EntryFlags::RACY);
            // A snapshot without it says nothing of when it was.
            if old.atime.is_none() || new.atime.is_none() {
                shown.atime = OptionalTime::NONE;
            }
            shown
        };
        match shown(old) == shown(new) {
            true => Differs::Nowhere,
            false => Differs::Metadata,
        }
    }

    fn is_other_content(&self, old: &Entry, new: &Entry) -> bool {
        if old.kind != new.kind || old.target != new.target || old.rdev != new.rdev {
            return true;
        }
        if new.kind != Kind::File {
            return false;
        }
        if old.size != new.size || old.is_image() != new.is_image() {
            return true;
        }
        let path = new.path_to_name();
        match self.0.iter().any(|view| is_below(&path, view)) {
            true => may_be_other_in_image(old, new),
            false => old.content_hash != new.content_hash,
        }
    }
}

/// Of files of one size.
fn may_be_other_in_image(old: &Entry, new: &Entry) -> bool {
    if old.content == new.content {
        return false;
    }
    // Content that was in an inode has the hash of its bytes, a list of pieces that of the list.
    let is_bytes = |entry: &Entry| matches!(entry.content, Content::Bundled { .. });
    match (old.content_hash, new.content_hash) {
        (Some(before), Some(now)) if is_bytes(old) && is_bytes(new) => before != now,
        _ => (old.mtime, old.ctime, old.inode) != (new.mtime, new.ctime, new.inode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::ChunkId;
    use bale_format::entry::Time;

    fn at(chunk: u8, offset: u32) -> Content {
        Content::Bundled {
            chunk: ChunkId([chunk; 32]),
            offset,
        }
    }

    fn row(parent: &'static [u8], content: Content, hash: Option<[u8; 16]>) -> Entry {
        let name = b"name".as_slice();
        let mut row = Entry::new(parent.into(), name.into(), Kind::File);
        (row.size, row.content, row.content_hash) = (7, content, hash);
        row
    }

    fn later(mut row: Entry) -> Entry {
        row.ctime = Time {
            seconds: 9,
            nanos: 9,
        };
        row
    }

    #[test]
    fn what_lies_elsewhere_is_the_same_unless_its_inode_says_otherwise() {
        let views = ImageViews(vec![b"disk".to_vec()]);
        let (here, there) = (at(1, 0), at(2, 0));
        let list = Content::Pieces {
            list: ChunkId([3; 32]),
        };
        let cases = [
            (here, None, there, None, Differs::Nowhere, Differs::Content),
            (here, None, here, None, Differs::Nowhere, Differs::Metadata),
            (
                here,
                None,
                list,
                Some([1; 16]),
                Differs::Nowhere,
                Differs::Content,
            ),
            (
                list,
                Some([1; 16]),
                there,
                None,
                Differs::Nowhere,
                Differs::Content,
            ),
            (
                here,
                Some([1; 16]),
                there,
                Some([1; 16]),
                Differs::Nowhere,
                Differs::Metadata,
            ),
            (
                here,
                Some([1; 16]),
                there,
                Some([2; 16]),
                Differs::Content,
                Differs::Content,
            ),
        ];
        for (old, old_hash, new, new_hash, same_times, other_times) in cases {
            let (old, new) = (row(b"disk/d", old, old_hash), row(b"disk/d", new, new_hash));
            assert_eq!(views.compare(&old, &new), same_times, "{old:?} {new:?}");
            let new = later(new);
            assert_eq!(views.compare(&old, &new), other_times, "{old:?} {new:?}");
        }
    }

    #[test]
    fn elsewhere_the_hash_decides() {
        let views = ImageViews(vec![b"disk".to_vec()]);
        for (hash, differs) in [([1; 16], Differs::Nowhere), ([2; 16], Differs::Content)] {
            let old = row(b"disks", at(1, 0), Some([1; 16]));
            let new = row(b"disks", at(2, 0), Some(hash));
            assert_eq!(views.compare(&old, &new), differs);
        }
        let old = row(b"", at(1, 0), Some([1; 16]));
        assert_eq!(views.compare(&old, &later(old.clone())), Differs::Metadata);
    }
}
