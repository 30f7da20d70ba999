//! The file systems of a disk: where each is, and which bytes of the disk it depends on.
//!
//! They are those that can be read by themselves: recognized, below no other mark, and of bytes
//! that no other part claims. Whether they are intact is for those who open them to find out.

use super::part::{DiskPart, PartContent, WholeReason};
use crate::ByteSource;
use crate::in_use::sorted_apart;
use crate::lvm2::LinearSegment;
use crate::recognize::Recognized;
use crate::section::Section;
use std::ops::Range;
use std::sync::Arc;

/// A name of a volume is at most this long, as that of a file.
const NAME_BYTES_MAX: usize = 255;

/// A file system of a disk.
pub struct DiskFileSystem {
    /// Of its part. It can be that of a directory, and no other file system of the disk has it.
    pub name: String,
    pub content: Recognized,
    source: Arc<dyn ByteSource>,
    /// Without gaps, from 0 on.
    segments: Vec<LinearSegment>,
    /// What is around it, sorted: there is written where it is. Shared by all in the same part.
    around: Arc<[Range<u64>]>,
}

impl DiskFileSystem {
    /// Those of a part that can be read by themselves. `None`: of this one that is not so.
    pub(super) fn of(
        part: &DiskPart,
        disk: &Arc<dyn ByteSource>,
        segments: &[LinearSegment],
        around: Arc<[Range<u64>]>,
    ) -> Option<DiskFileSystem> {
        let PartContent::Content(content) = part.content else {
            return None;
        };
        // Which blocks are in use may be doubtful where files can be read all the same.
        let is_readable = matches!(part.whole, None | Some(WholeReason::Use(_)));
        let is_known = matches!(
            content,
            Recognized::Ext | Recognized::Xfs | Recognized::Ntfs
        );
        let fits = is_readable && is_known && !segments.is_empty() && is_file_name(&part.name);
        fits.then(|| DiskFileSystem {
            name: part.name.clone(),
            content,
            source: Arc::new(Section::new(disk.clone(), segments.to_vec())),
            segments: segments.to_vec(),
            around,
        })
    }

    /// Its bytes.
    pub fn source(&self) -> &Arc<dyn ByteSource> {
        &self.source
    }

    /// Is it at the same bytes of its disk as this one of another, and of the same name and kind?
    pub fn lies_as(&self, other: &DiskFileSystem) -> bool {
        (&self.name, self.content, &self.segments) == (&other.name, other.content, &other.segments)
    }

    /// Where on the disk bytes of it are, in its order. What is behind its end is nowhere.
    pub fn on_disk(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let end = range.end;
        let first = (self.segments).partition_point(|one| one.offset + one.bytes <= range.start);
        let touched = (self.segments[first..].iter()).take_while(move |one| one.offset < end);
        touched.map(move |one| {
            let from = range.start.max(one.offset) - one.offset;
            let to = range.end.min(one.offset + one.bytes) - one.offset;
            one.disk_offset + from..one.disk_offset + to.max(from)
        })
    }

    /// Of [`DiskFileSystem::depends_on`], those that are none of its own, but say where it is.
    pub fn around(&self) -> &[Range<u64>] {
        &self.around
    }

    /// The bytes of the disk that decide what its files are: sorted and apart. As long as none of
    /// them changes, none of its files does.
    pub fn depends_on(&self) -> Vec<Range<u64>> {
        let own = self.segments.iter();
        let own = own.map(|one| one.disk_offset..one.disk_offset + one.bytes);
        sorted_apart(own.chain(self.around.iter().cloned()).collect())
    }
}

/// Metadata of volumes may say anything.
fn is_file_name(name: &str) -> bool {
    let is_special = matches!(name, "" | "." | "..") || name.contains(['/', '\0']);
    !is_special && name.len() <= NAME_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, content: Recognized, whole: Option<WholeReason>) -> DiskPart {
        let mut part = DiskPart::new(name.to_owned(), PartContent::Content(content));
        part.whole = whole;
        part
    }

    fn found(part: &DiskPart) -> Option<DiskFileSystem> {
        let disk: Arc<dyn ByteSource> = Arc::new((0..100).collect::<Vec<u8>>());
        let segment = |offset, bytes, disk_offset| LinearSegment {
            offset,
            bytes,
            disk_offset,
        };
        let segments = [segment(0, 10, 50), segment(10, 5, 20), segment(15, 5, 70)];
        DiskFileSystem::of(part, &disk, &segments, Arc::new([0..10, 25..40]))
    }

    #[test]
    fn bytes_of_a_file_system_are_on_the_disk_where_its_source_reads_them() {
        let found = found(&part("a", Recognized::Ext, None)).unwrap();
        for from in 0..22 {
            for to in from..=22 {
                let runs: Vec<_> = found.on_disk(from..to).collect();
                assert!(runs.iter().all(|run| !run.is_empty() || from == to));
                let places: Vec<u8> = runs.into_iter().flatten().map(|at| at as u8).collect();
                let mut read = vec![0; to.min(20).saturating_sub(from.min(20)) as usize];
                found
                    .source()
                    .read_exact_at(from.min(20), &mut read)
                    .unwrap();
                assert_eq!(places, read, "{from}..{to}");
            }
        }
    }

    #[test]
    fn a_file_system_depends_on_its_bytes_and_on_what_is_around_it_alone() {
        let found = found(&part("a", Recognized::Xfs, None)).unwrap();
        assert_eq!(found.depends_on(), [0..10, 20..40, 50..60, 70..75]);
    }

    #[test]
    fn what_cannot_be_read_by_itself_or_has_a_name_that_no_directory_can_have_is_left_out() {
        let long = "n".repeat(256);
        for name in ["", ".", "..", "a/b", "a\0b", &long] {
            assert!(found(&part(name, Recognized::Ext, None)).is_none());
        }
        for content in [Recognized::Unknown, Recognized::Lvm2, Recognized::Ambiguous] {
            assert!(found(&part("a", content, None)).is_none());
        }
        for why in [
            WholeReason::Overlap,
            WholeReason::Nested,
            WholeReason::Foreign("ZFS"),
        ] {
            assert!(found(&part("a", Recognized::Ext, Some(why))).is_none());
        }
        let doubt = crate::in_use::UseDoubt::damage(std::io::Error::other("a bitmap"));
        let doubtful = part("a", Recognized::Xfs, Some(WholeReason::Use(doubt)));
        assert!(found(&doubtful).is_some());
    }
}
