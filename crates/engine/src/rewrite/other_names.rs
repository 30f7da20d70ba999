//! Where else the content of files that are excluded stays: under other names of the same files,
//! and in files of the same content.
//!
//! Found by the hashes that rows have, whatever snapshot they are in. Files that share only a part
//! with what is excluded are not found.

use super::excluded::Excluded;
use bale_format::entry::join;
use bale_format::{EntryFlags, Kind, Segment};
use std::collections::{BTreeSet, HashSet};

/// So many names are listed of each kind, the first ones in the order of their bytes.
pub const OTHER_NAMES_MAX: usize = 1000;
/// Contents whose other names are looked for: 24 bytes each, and as many again for the table. Of
/// files with hard links, two.
const CONTENTS_MAX: usize = 1 << 20;
/// Of any inode: inode numbers begin with 1.
const ANY_INODE: u64 = 0;

/// Names that stay and have content that is excluded. A name is listed once, in however many
/// snapshots it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherNames {
    /// Of a file with several names, one of which was excluded.
    pub linked: BTreeSet<Vec<u8>>,
    /// Of another file.
    pub equal: BTreeSet<Vec<u8>>,
    /// There are more names, or there may be.
    pub has_more: bool,
}

/// Contents that are excluded, and what else has them.
#[derive(Default)]
pub(super) struct ExcludedContents {
    contents: HashSet<([u8; 16], u64)>,
    found: OtherNames,
}

impl ExcludedContents {
    /// Takes note of a row that goes.
    pub(super) fn exclude(&mut self, segment: &Segment, row: usize) {
        let Some(hash) = hash_of(segment, row) else {
            return;
        };
        if self.contents.len() + 2 > CONTENTS_MAX {
            self.found.has_more = true;
            return;
        }
        let view = segment.view(row);
        self.contents.insert((hash, ANY_INODE));
        if view.is_hard_link() {
            self.contents.insert((hash, view.inode));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Looks at the rows of a segment that stay.
    pub(super) fn look_at(&mut self, segment: &Segment, excluded: &mut Excluded<'_>) {
        let keys = segment.keys();
        for row in 0..segment.rows() {
            let Some(hash) = hash_of(segment, row) else {
                continue;
            };
            let is_held = self.contents.contains(&(hash, ANY_INODE));
            if !is_held || excluded.excludes(keys.parent(row), keys.name(row)) {
                continue;
            }
            let view = segment.view(row);
            let is_linked = view.is_hard_link() && self.contents.contains(&(hash, view.inode));
            let names = match is_linked {
                true => &mut self.found.linked,
                false => &mut self.found.equal,
            };
            names.insert(join(keys.parent(row), keys.name(row)));
            if names.len() > OTHER_NAMES_MAX {
                names.pop_last();
                self.found.has_more = true;
            }
        }
    }

    pub(super) fn found(&self) -> OtherNames {
        self.found.clone()
    }
}

/// Of a file that has content.
fn hash_of(segment: &Segment, row: usize) -> Option<[u8; 16]> {
    let hash = segment.content_hash(row)?;
    let view = segment.view(row);
    let has_content =
        view.kind == Kind::File && view.size > 0 && !view.flags.has(EntryFlags::REMOVED);
    has_content.then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::{ChunkId, Content, Entry, SegmentBuilder};
    use bale_pipeline::filter::{Filter, FilterOptions, Pattern};

    #[test]
    fn so_many_names_are_listed_and_no_more() {
        let mut builder = SegmentBuilder::new();
        let all = OTHER_NAMES_MAX + 2;
        for number in 0..all {
            let name = format!("{number:06}").into_bytes();
            let mut entry = Entry::new("d".into(), name.into(), Kind::File);
            entry.content = Content::Bundled {
                chunk: ChunkId([1; 32]),
                offset: 0,
            };
            (entry.size, entry.inode, entry.nlink) = (5, 7 + number as u64, 1);
            entry.content_hash = Some([3; 16]);
            builder.push(&entry).unwrap();
        }
        let segment = Segment::decode(&builder.finish().unwrap()).unwrap();
        let pattern = Pattern {
            text: "/d/000000".to_owned(),
            ignore_case: false,
        };
        let filter = Filter::new(&FilterOptions {
            patterns: vec![pattern],
            ..FilterOptions::default()
        });
        let filter = filter.unwrap();
        let mut contents = ExcludedContents::default();
        contents.exclude(&segment, 0);
        contents.look_at(&segment, &mut Excluded::new(&filter));
        let found = contents.found();
        assert_eq!(found.equal.len(), OTHER_NAMES_MAX);
        assert!(found.linked.is_empty() && found.has_more);
        assert_eq!(found.equal.first().unwrap(), b"d/000001");
        assert!(
            !found
                .equal
                .contains(&format!("d/{:06}", all - 1).into_bytes())
        );
    }
}
